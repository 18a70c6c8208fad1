// Spreads the thread's index through values and conditions, to a fixed point.
#include "compiler/uniformity.h"

#include <algorithm>

#include "compiler/language.h"

namespace penstock::compiler {
namespace {

// What is loaded from memory at one address is taken to be equal in all threads: the program has no
// race then. `volatile` says that others write there meanwhile.
Level level_of_load(const clang::Expr* place) {
    return place->getType().isVolatileQualified() ? Level::kVarying : Level::kAssumed;
}

}  // namespace

using clang::dyn_cast;

Uniformity::Uniformity(const Accesses& accesses, const FlowGraph& graph, Callees& callees,
                       bool with_control)
    : accesses_(accesses), graph_(graph), callees_(callees), with_control_(with_control) {
    while (pass_declarations() | pass_accesses()) {
    }
}

Level Uniformity::level(const clang::VarDecl* variable) const {
    const auto found = levels_.find(variable);
    return found == levels_.end() ? Level::kUniform : found->second;
}

bool Uniformity::raise(const clang::VarDecl* variable, Level level) {
    Level& known = levels_.emplace(variable, Level::kUniform).first->second;
    if (level <= known) return false;
    known = level;
    return true;
}

Level Uniformity::control_level(const clang::Stmt* statement) const {
    while (statement != nullptr && graph_.place(statement).block == nullptr)
        statement = accesses_.parent(statement);
    if (statement == nullptr) return Level::kVarying;
    Level found = Level::kUniform;
    for (const clang::Expr* condition : graph_.conditions(graph_.place(statement).block))
        found = std::max(found, level(condition));
    return found;
}

bool Uniformity::pass_declarations() {
    bool changed = false;
    for (const clang::Stmt* statement : accesses_.statements()) {
        const auto* declarations = dyn_cast<clang::DeclStmt>(statement);
        if (declarations == nullptr) continue;
        for (const auto* one : declarations->decls()) {
            const auto* variable = dyn_cast<clang::VarDecl>(one);
            if (variable == nullptr) continue;
            // An uninitialised variable differs until it is set; only what is set is read.
            if (variable->hasInit()) changed |= raise(variable, level(variable->getInit()));
            if (accesses_.is_in_lambda(statement)) changed |= raise(variable, Level::kVarying);
        }
    }
    return changed;
}

bool Uniformity::pass_accesses() {
    bool changed = false;
    for (const Access& access : accesses_.all()) {
        if (!access.writes) continue;
        // The value is known only of an assignment in the body itself.
        const auto* assignment = dyn_cast_or_null<clang::BinaryOperator>(access.definition);
        const auto* unary = dyn_cast_or_null<clang::UnaryOperator>(access.definition);
        Level found = Level::kVarying;
        if (!access.in_lambda && !access.keeps_address &&
            (assignment != nullptr || unary != nullptr || access.replaces)) {
            found = with_control_ ? control_level(access.definition) : Level::kUniform;
            if (access.value != nullptr) found = std::max(found, level(access.value));
            // The subscripts of the place that is written count too.
            if (assignment != nullptr)
                for (const clang::Stmt* child : assignment->getLHS()->children())
                    found = std::max(found, level(child));
        }
        changed |= raise(access.variable, found);
    }
    return changed;
}

Level Uniformity::call_level(const clang::Expr* call, const clang::FunctionDecl* callee,
                             Level arguments) const {
    if (callee == nullptr) return Level::kVarying;
    switch (call_of(callee)) {
        case Call::kRead:
        case Call::kWait:
        case Call::kReadAsync:
        case Call::kUniform:
        case Call::kVote: {
            // Calls of a whole block; a group of fewer threads is named by an argument's type.
            const auto* one = dyn_cast<clang::CallExpr>(call);
            for (unsigned i = 0; one != nullptr && i < one->getNumArgs(); ++i) {
                const auto* record = record_of(one->getArg(i)->getType());
                const std::string name = record == nullptr ? "" : record->getNameAsString();
                if (name == "OneWarp" || name == "Warps" || name == "Lanes" || name == "Warp")
                    return Level::kVarying;
            }
            return Level::kUniform;
        }
        default:
            break;
    }
    const CalleeSummary& summary = callees_.summary(callee);
    if (summary.reads_thread) return Level::kVarying;
    return summary.reads_memory ? std::max(arguments, Level::kAssumed) : arguments;
}

Level Uniformity::level(const clang::Stmt* expression) const {
    if (expression == nullptr) return Level::kUniform;
    if (llvm::isa<clang::UnaryExprOrTypeTraitExpr, clang::CXXNoexceptExpr>(expression))
        return Level::kUniform;
    Level found = Level::kUniform;
    if (const auto* member = dyn_cast<clang::MemberExpr>(expression)) {
        switch (position_of(member)) {
            case Position::kThread:
                return Level::kVarying;
            case Position::kNone:
                break;
            case Position::kOther:
                return Level::kVarying;
            default:
                return Level::kUniform;
        }
        if (member->isArrow()) found = level_of_load(member);
    }
    if (const auto* reference = dyn_cast<clang::DeclRefExpr>(expression)) {
        const clang::VarDecl* variable = variable_of(reference);
        if (variable == nullptr) return Level::kUniform;
        if (variable->getQualifiedNameAsString() == "penstock::language::current_lane")
            return Level::kVarying;
        if (is_shared(variable)) return level_of_load(reference);
        if (variable->hasGlobalStorage() && !variable->getType().isConstQualified())
            return level_of_load(reference);
        return level(variable);
    }
    if (const auto* unary = dyn_cast<clang::UnaryOperator>(expression))
        if (unary->getOpcode() == clang::UO_Deref) found = level_of_load(unary);
    if (const auto* subscript = dyn_cast<clang::ArraySubscriptExpr>(expression))
        if (!subscript->getBase()->IgnoreImpCasts()->getType()->isArrayType())
            found = level_of_load(subscript);
    if (llvm::isa<clang::AtomicExpr>(expression)) return Level::kVarying;
    if (const auto* lambda = dyn_cast<clang::LambdaExpr>(expression)) {
        for (const auto* one : lambda->capture_inits()) found = std::max(found, level(one));
        return found;
    }
    for (const clang::Stmt* child : expression->children())
        if (child != nullptr) found = std::max(found, level(child));
    if (const auto* call = dyn_cast<clang::CallExpr>(expression))
        return call_level(call, call->getDirectCallee(), found);
    if (const auto* construct = dyn_cast<clang::CXXConstructExpr>(expression))
        if (!construct->getConstructor()->isTrivial())
            return call_level(construct, construct->getConstructor(), found);
    return found;
}

const clang::Expr* Uniformity::divergent_condition(const clang::CFGBlock* block) const {
    std::vector<const clang::Expr*> guilty;
    for (const clang::Expr* condition : graph_.conditions(block))
        if (level(condition) == Level::kVarying) guilty.push_back(condition);
    if (guilty.size() > 1) {
        // Names one that varies by its values: the others may vary because of it.
        const Uniformity data(accesses_, graph_, callees_, false);
        std::vector<const clang::Expr*> by_value;
        for (const clang::Expr* condition : guilty)
            if (data.level(condition) == Level::kVarying) by_value.push_back(condition);
        if (!by_value.empty()) guilty = by_value;
    }
    const clang::Expr* found = nullptr;
    for (const clang::Expr* condition : guilty)
        if (found == nullptr || condition->getBeginLoc() < found->getBeginLoc()) found = condition;
    return found;
}

}  // namespace penstock::compiler
