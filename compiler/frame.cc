// Decides what is saved: live, and neither rematerialised nor made again.
#include "compiler/frame.h"

#include <algorithm>

#include "compiler/layout.h"
#include "compiler/legality.h"
#include "compiler/shared_scopes.h"

namespace penstock::compiler {

using clang::dyn_cast;

llvm::BitVector live_at(const Body& body, const clang::CallExpr* call) {
    llvm::BitVector live = body.liveness.behind(body.graph.place(call));
    // After the block has come back, the rest of the statement is evaluated: the buffer, and the
    // place that the result is assigned to.
    const Call kind = call_of(call);
    if (kind == Call::kRead && call->getNumArgs() > 4)
        body.liveness.add_reads(call->getArg(4), live);
    if (kind == Call::kWait)
        for (const clang::Expr* argument : call->arguments())
            body.liveness.add_reads(argument, live);
    for (const clang::Stmt* above : body.accesses.parents(call))
        if (const auto* binary = dyn_cast<clang::BinaryOperator>(above))
            body.liveness.add_reads(binary->getLHS(), live);
    return live;
}

std::vector<const SavedPart*> Frame::parts_of(unsigned key) const {
    std::vector<const SavedPart*> found;
    for (const SavedPart& part : parts)
        if (part.key == key && !part.is_read) found.push_back(&part);
    return found;
}

const SavedPart* Frame::read_of(unsigned point) const {
    for (const SavedPart& part : parts)
        if (part.is_read && part.points.count(point) != 0) return &part;
    return nullptr;
}

unsigned Frame::thread_bytes(unsigned point) const {
    unsigned found = 0;
    for (const SavedPart& part : parts)
        if (!part.per_block && !part.shared && part.points.count(point) != 0) found += part.size;
    return found;
}

unsigned Frame::block_bytes(unsigned point) const {
    unsigned found = 0;
    for (const SavedPart& part : parts)
        if (part.per_block && part.points.count(point) != 0) found += part.size;
    return found;
}

unsigned Frame::shared_bytes(unsigned point) const {
    unsigned found = 0;
    for (const SavedPart& part : parts)
        if (part.shared && part.points.count(point) != 0 && part.replaced.count(point) == 0)
            found += part.size;
    return found;
}

// Returns the shared variable that the read of a point fills from its begin, or null.
static const clang::VarDecl* filled_variable(const Body& body, const clang::CallExpr* call) {
    if (call_of(call) != Call::kRead || call->getNumArgs() < 5) return nullptr;
    const clang::Expr* buffer = call->getArg(4)->IgnoreParenCasts();
    if (const auto* address = dyn_cast<clang::UnaryOperator>(buffer))
        if (address->getOpcode() == clang::UO_AddrOf)
            buffer = address->getSubExpr()->IgnoreParenCasts();
    const auto* named = dyn_cast<clang::DeclRefExpr>(buffer);
    const clang::VarDecl* variable = named == nullptr ? nullptr : variable_of(named);
    if (variable == nullptr || !is_shared(variable) || variable->getType()->isReferenceType())
        return nullptr;
    // The place that the result is assigned to may be found by what is in the variable.
    for (const clang::Stmt* above : body.accesses.parents(call))
        if (const auto* binary = dyn_cast<clang::BinaryOperator>(above))
            if (Recreation::named_in(binary->getLHS()).count(variable) != 0) return nullptr;
    return variable;
}

namespace {

// What all instantiations say of one variable.
struct Merged {
    const clang::VarDecl* variable = nullptr;
    bool rematerialised = true, uniform = true, shared = false, parameter = false;
    bool needs_again = false, can_again = true, initialised = false, trivial = true;
    bool of_values = true;  // of a closure
    unsigned size = 0, elements = 1, element_size = 0;
    std::map<unsigned, std::set<unsigned>> live;  // elements by point
    std::set<unsigned> seen;
    std::set<unsigned> kept;  // points whose read does not replace all of it
    std::string why;
    clang::SourceLocation where;
};

class Decider {
public:
    Decider(const SourceText& text, const Kernel& kernel, Callees& callees,
            Diagnostics& diagnostics)
        : text_(text), kernel_(kernel), callees_(callees), diagnostics_(diagnostics) {}

    void add(const Body& body) {
        for (const Point& point : kernel_.points)
            if (const clang::CallExpr* call = body.call_at(text_, point.key))
                if (body.graph.place(call).block != nullptr) add_point(body, point, call);
    }

    Frame finish(unsigned read_size) {
        Frame frame;
        for (auto& [key, merged] : merged_) finish_variable(key, merged, frame);
        frame.moved = moved_;
        for (const Point& point : kernel_.points)
            if (point.kind == Call::kRead && dynamic_kept_.count(point.number) == 0)
                frame.dynamic_replaced.insert(point.number);
        for (const Point& point : kernel_.points) {
            if (point.kind != Call::kRead) continue;
            SavedPart part;
            part.key = point.key;
            part.name = "penstock_read_" + std::to_string(point.number);
            part.size = read_size;
            part.per_block = part.is_read = true;
            part.points = {point.number};
            frame.parts.push_back(part);
        }
        lay_out(frame);
        return frame;
    }

private:
    void add_point(const Body& body, const Point& point, const clang::CallExpr* call) {
        llvm::BitVector live = live_at(body, call);
        std::vector<const clang::VarDecl*> scope = body.in_scope(call);
        force_named(body, scope, live);
        const clang::VarDecl* filled = filled_variable(body, call);
        if (filled == nullptr || !is_dynamic_shared(filled)) dynamic_kept_.insert(point.number);
        for (const auto* parameter : body.function->parameters()) {
            see(parameter, point);
            add_variable(body, point, call, parameter, live);
        }
        for (const clang::VarDecl* variable : scope) {
            see(variable, point);
            if (is_shared(variable) && !body.is_written_before(variable, call))
                body.liveness.set(variable, kWholeVariable, false, live);
            add_variable(body, point, call, variable, live);
        }
        for (const clang::VarDecl* variable : body.accesses.variables()) {
            if (!is_shared(variable) || is_dynamic_shared(variable)) continue;
            if (!body.liveness.is_live(live, variable)) continue;
            if (!body.is_written_before(variable, call)) continue;
            if (std::find(scope.begin(), scope.end(), variable) != scope.end()) continue;
            if (may_move_to_top(text_, body, variable)) {
                moved_.insert(key_of(text_, variable));
                add_variable(body, point, call, variable, live);
                continue;
            }
            if (!refused_.insert(variable).second) continue;
            diagnostics_.error(variable->getLocation(),
                               "shared variable '" + variable->getNameAsString() +
                                   "' keeps its value across a point where it is not in scope; "
                                   "declare it at the top of the kernel");
            diagnostics_.note(call->getBeginLoc(), "the point is here");
        }
    }

    // Keeps which variable a name means at the point.
    void see(const clang::VarDecl* variable, const Point& point) {
        const unsigned key = key_of(text_, variable);
        if (const auto* bindings = llvm::dyn_cast<clang::DecompositionDecl>(variable)) {
            for (const auto* one : bindings->bindings())
                visible_[{point.number, one->getNameAsString()}] = key;
        }
        visible_[{point.number, variable->getNameAsString()}] = key;
    }

    // What is made again needs the variables that its initialiser names.
    void force_named(const Body& body, const std::vector<const clang::VarDecl*>& scope,
                     llvm::BitVector& live) const {
        for (size_t i = scope.size(); i-- > 0;) {
            const clang::VarDecl* variable = scope[i];
            if (!needs_again(body, variable) || body.recreation.is_rematerialised(variable))
                continue;
            body.liveness.add_reads(variable->getInit(), live);
            for (const clang::VarDecl* named : Recreation::named_in(variable->getInit()))
                body.liveness.set(named, kWholeVariable, true, live);
        }
    }

    static bool is_closure(const clang::VarDecl* variable) {
        const auto* record = record_of(variable->getType());
        return record != nullptr && record->isLambda();
    }

    static bool needs_again(const Body& body, const clang::VarDecl* variable) {
        return is_frame_variable(variable) &&
               (variable->getType()->isReferenceType() || is_closure(variable) ||
                body.recreation.may_point_into_block(variable));
    }

    void add_variable(const Body& body, const Point& point, const clang::CallExpr* call,
                      const clang::VarDecl* variable, const llvm::BitVector& live) {
        const bool shared = is_shared(variable);
        const bool parameter = llvm::isa<clang::ParmVarDecl>(variable);
        if ((!shared && !is_frame_variable(variable)) || is_dynamic_shared(variable)) return;
        const bool written = body.accesses.facts(variable).written;
        if (parameter && !written) return;
        Merged& merged = merged_[key_of(text_, variable)];
        merged.variable = variable;
        merged.shared = shared;
        merged.parameter = parameter;
        merged.seen.insert(point.number);
        merged.initialised = merged.initialised || variable->hasInit();
        const clang::ASTContext& context = text_.context();
        const clang::QualType type = variable->getType();
        if (!shared && type.isDestructedType() != clang::QualType::DK_none) {
            refuse(variable, point, "has a destructor");
            return;
        }
        const auto* record = shared ? nullptr : record_of(type);
        if (record != nullptr && !record->isLambda() && !record->hasDefaultConstructor() &&
            !record->isAggregate() && !type->isReferenceType() &&
            !body.recreation.is_rematerialised(variable) && !needs_again(body, variable)) {
            refuse(variable, point, "has no default constructor");
            return;
        }
        if (!is_replaced(body, call, variable)) merged.kept.insert(point.number);
        const std::vector<unsigned> elements = body.liveness.live_elements(live, variable);
        if (!elements.empty()) merged.live[point.number].insert(elements.begin(), elements.end());
        merged.rematerialised = merged.rematerialised && !parameter &&
                                body.recreation.is_rematerialised(variable);
        merged.uniform = merged.uniform && body.uniformity.level(variable) == Level::kUniform &&
                         !body.accesses.facts(variable).held;
        if (needs_again(body, variable)) {
            merged.needs_again = true;
            Recreation::Obstacle obstacle;
            const bool again = !parameter &&
                               ((elements.empty() &&
                                 body.recreation.may_be_evaluated_again(variable)) ||
                                body.recreation.can_be_made_again(variable, call, obstacle));
            if (!again) {
                merged.can_again = false;
                merged.why = obstacle.why;
                if (obstacle.where != nullptr) merged.where = obstacle.where->getBeginLoc();
            }
            merged.of_values = merged.of_values && body.recreation.is_closure_of_values(variable);
        }
        if (type->isReferenceType()) return;
        merged.trivial = merged.trivial && type.isTriviallyCopyableType(context);
        merged.size = std::max(merged.size, bytes(type));
        merged.elements = std::max(merged.elements, body.liveness.bits(variable));
        const auto* array = context.getAsConstantArrayType(type);
        if (array != nullptr)
            merged.element_size = std::max(merged.element_size, bytes(array->getElementType()));
    }

    // Returns whether the read of a point is as large as a shared variable that it fills.
    bool is_replaced(const Body& body, const clang::CallExpr* call,
                     const clang::VarDecl* variable) const {
        if (filled_variable(body, call) != variable) return false;
        clang::Expr::EvalResult size;
        return call->getArg(3)->EvaluateAsInt(size, text_.context()) &&
               size.Val.getInt().getLimitedValue() == bytes(variable->getType());
    }

    unsigned bytes(clang::QualType type) const {
        return static_cast<unsigned>(text_.context().getTypeSizeInChars(type).getQuantity());
    }

    void refuse(const clang::VarDecl* variable, const Point& point, const std::string& what) {
        if (!refused_.insert(variable).second) return;
        diagnostics_.error(variable->getLocation(),
                           "'" + variable->getNameAsString() + "' " + what +
                               ", so it cannot be in scope at a point; end its scope before, with "
                               "braces");
        diagnostics_.note(text_.location(point.key), "the point is here");
    }

    void refuse(const Merged& merged, const std::string& what, const std::string& hint) {
        diagnostics_.error(merged.variable->getLocation(),
                           "'" + merged.variable->getNameAsString() + "' " + what + "; " + hint);
        if (merged.where.isValid()) diagnostics_.note(merged.where, "because of this");
        for (const Point& point : kernel_.points)
            if (merged.seen.count(point.number) != 0) {
                diagnostics_.note(text_.location(point.key), "the point is here");
                break;
            }
    }

    void finish_variable(unsigned key, Merged& merged, Frame& frame) {
        VariablePlan& plan = frame.variables[key];
        plan.name = merged.variable->getNameAsString();
        plan.seen = merged.seen;
        plan.parameter = merged.parameter;
        for (const auto& [point, elements] : merged.live) plan.live.insert(point);
        if (merged.shared) {
            if (!plan.live.empty()) add_part(key, merged, kWholeVariable, frame);
            plan.why = plan.live.empty() ? "dead, or not written yet" : "shared, used later";
            return;
        }
        if (merged.rematerialised && !merged.parameter) {
            plan.treatment = Treatment::kRematerialised;
            plan.why = "computed again: its initialiser is pure";
            return;
        }
        if (merged.needs_again) {
            if (merged.can_again) {
                plan.treatment = Treatment::kMadeAgain;
                plan.why = "made again: an address, reference or closure";
                return;
            }
            const bool closure = is_closure(merged.variable);
            const bool pointer = !merged.variable->getType()->isReferenceType() && !closure;
            if (closure && merged.of_values && merged.trivial) {
                plan.treatment = Treatment::kReloaded;
                add_parts(key, merged, frame);
                plan.why = "a closure of values, live";
                return;
            }
            if (!plan.live.empty() || !pointer) {
                refuse(merged,
                       "refers to memory of the block, which is elsewhere after a point, and "
                       "cannot be made again: " +
                           merged.why,
                       closure ? "let it capture references alone, or values alone"
                               : "end its scope before the point, or use an index");
                return;
            }
        }
        plan.treatment = merged.parameter ? Treatment::kNone : Treatment::kGuarded;
        if (plan.live.empty()) {
            plan.why = "dead";
            return;
        }
        if (!merged.trivial) {
            refuse(merged, "is live at a point and is not trivially copyable",
                   "end its scope before the point");
            return;
        }
        add_parts(key, merged, frame);
        plan.why = merged.uniform ? "live, equal in all threads" : "live";
    }

    void add_parts(unsigned key, const Merged& merged, Frame& frame) {
        std::set<unsigned> elements;
        for (const auto& [point, live] : merged.live) elements.insert(live.begin(), live.end());
        if (merged.elements <= 1 || elements.size() >= merged.elements) {
            add_part(key, merged, kWholeVariable, frame);
            return;
        }
        for (const unsigned element : elements)
            add_part(key, merged, static_cast<int>(element), frame);
    }

    // At a point a variable is saved by its name, which must mean it there.
    void check_name(unsigned key, const Merged& merged, unsigned point) {
        if (llvm::isa<clang::DecompositionDecl>(merged.variable)) return;
        const auto found = visible_.find({point, merged.variable->getNameAsString()});
        if (found == visible_.end() || found->second == key) return;
        if (!refused_.insert(merged.variable).second) return;
        diagnostics_.error(merged.variable->getLocation(),
                           "'" + merged.variable->getNameAsString() +
                               "' is live at a point where another variable of that name hides "
                               "it; rename one");
        diagnostics_.note(text_.location(kernel_.points[point - 1].key), "the point is here");
    }

    void add_part(unsigned key, const Merged& merged, int element, Frame& frame) {
        SavedPart part;
        part.key = key;
        part.name = merged.variable->getNameAsString();
        if (llvm::isa<clang::DecompositionDecl>(merged.variable)) part.name = bound_name(key);
        part.element = element;
        part.size = element == kWholeVariable ? merged.size : merged.element_size;
        if (element != kWholeVariable) part.name += "[" + std::to_string(element) + "]";
        part.shared = merged.shared;
        part.per_block = merged.uniform && !merged.shared;
        for (const auto& [point, live] : merged.live)
            if (element == kWholeVariable || live.count(static_cast<unsigned>(element)) != 0)
                part.points.insert(point);
        for (const unsigned point : part.points)
            if (part.shared && merged.kept.count(point) == 0) part.replaced.insert(point);
        for (const unsigned point : part.points) check_name(key, merged, point);
        frame.parts.push_back(part);
    }

    const SourceText& text_;
    const Kernel& kernel_;
    Callees& callees_;
    Diagnostics& diagnostics_;
    std::map<unsigned, Merged> merged_;
    std::map<std::pair<unsigned, std::string>, unsigned> visible_;  // key, by point and name
    std::set<const clang::VarDecl*> refused_;
    std::set<unsigned> moved_;         // keys of shared variables
    std::set<unsigned> dynamic_kept_;  // points whose read does not fill dynamic shared memory
};

}  // namespace

Frame make_frame(const SourceText& text, const Kernel& kernel,
                 const std::vector<std::unique_ptr<Body>>& bodies, Callees& callees,
                 unsigned read_size, Diagnostics& diagnostics, std::vector<Move>* moves) {
    Decider decider(text, kernel, callees, diagnostics);
    Legality legality(text, kernel, callees, diagnostics, moves);
    for (const auto& body : bodies) {
        if (!legality.check(*body)) continue;
        decider.add(*body);
    }
    if (diagnostics.has_error()) return {};
    Frame frame = decider.finish(read_size);
    frame.dynamic_shared = legality.uses_dynamic_shared();
    frame.one_run = legality.returns_diverge();
    frame.reads_block = legality.reads_block();
    return frame;
}

}  // namespace penstock::compiler
