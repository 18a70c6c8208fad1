// Checks the points of one instantiation.
#include "compiler/legality.h"

#include <clang/AST/StmtCXX.h>

#include <algorithm>

#include "compiler/language.h"

namespace penstock::compiler {

using clang::dyn_cast;
using clang::isa;

void Legality::error(clang::SourceLocation at, const std::string& text, const std::string& hint) {
    if (!told_.insert(text_.offset(at)).second) return;
    diagnostics_.error(at, text + "; " + hint);
}

bool Legality::check(const Body& body) {
    if (!body.graph.is_built()) {
        error(body.function->getLocation(), "the flow of this kernel cannot be analysed",
              "write it without computed jumps");
        return false;
    }
    for (const Point& point : kernel_.points) {
        const clang::CallExpr* call = body.call_at(text_, point.key);
        if (call == nullptr || body.graph.place(call).block == nullptr) continue;
        check_divergence(body, point, call);
        check_arguments(body, call);
    }
    check_in_flight(body);
    check_calls(body);
    check_jumps(body);
    if (const clang::Expr* stored = body.recreation.stored_address())
        error(stored->getBeginLoc(),
              "the address of a variable of the block is stored in memory, where it is wrong after "
              "a point",
              "store an index");
    for (const clang::CFGBlock* block : body.graph.returns())
        if (body.uniformity.divergent_condition(block) != nullptr) returns_diverge_ = true;
    return true;
}

void Legality::check_divergence(const Body& body, const Point& point, const clang::CallExpr* call) {
    const clang::Expr* guilty = body.uniformity.divergent_condition(body.graph.place(call).block);
    if (guilty == nullptr || told_.count(point.key) != 0) return;
    if (moves_ != nullptr && move(body, point, call)) {
        told_.insert(point.key);
        return;
    }
    const bool moves = point.kind != Call::kRead && point.kind != Call::kWait;
    const char* const elsewhere = moves_ == nullptr ? "move it behind the condition, or use --hoist"
                                                    : "move it behind the condition";
    error(call->getBeginLoc(), "not all threads of the block reach this point",
          moves ? elsewhere
                : "make the condition equal in all threads, for instance with __syncthreads_or");
    diagnostics_.note(guilty->getBeginLoc(), "this condition differs between the threads");
}

// Moves a point behind the outermost statement round it whose condition differs.
bool Legality::move(const Body& body, const Point& point, const clang::CallExpr* call) {
    if (point.kind == Call::kRead || point.kind == Call::kWait) return false;
    const clang::Stmt* outermost = nullptr;
    for (const clang::Stmt* above : body.accesses.parents(call)) {
        const clang::Expr* condition = nullptr;
        if (const auto* choice = dyn_cast<clang::IfStmt>(above)) condition = choice->getCond();
        if (const auto* loop = dyn_cast<clang::ForStmt>(above)) condition = loop->getCond();
        if (const auto* loop = dyn_cast<clang::WhileStmt>(above)) condition = loop->getCond();
        if (const auto* loop = dyn_cast<clang::DoStmt>(above)) condition = loop->getCond();
        if (condition == nullptr || body.uniformity.level(condition) != Level::kVarying) continue;
        outermost = above;
        break;
    }
    if (outermost == nullptr) return false;
    // What the call names must be in scope behind that statement.
    const std::vector<const clang::VarDecl*> scope = body.in_scope(outermost);
    for (const clang::VarDecl* named : Recreation::named_in(call))
        if (!llvm::isa<clang::ParmVarDecl>(named) && is_frame_variable(named) &&
            std::find(scope.begin(), scope.end(), named) == scope.end())
            return false;
    moves_->push_back({text_.statement(point.statement), text_.statement(outermost).end});
    return true;
}

void Legality::check_arguments(const Body& body, const clang::CallExpr* call) {
    const Call kind = call_of(call);
    const unsigned count = kind == Call::kRead ? 5 : 2;
    if (kind == Call::kYield || kind == Call::kYieldUntil) return;
    for (unsigned i = count; i < call->getNumArgs(); ++i)
        if (!isa<clang::CXXDefaultArgExpr>(call->getArg(i)))
            error(call->getArg(i)->getBeginLoc(), "a point is a call of the whole block",
                  "leave the group out");
    if (kind == Call::kPoint) return;
    for (unsigned i = kind == Call::kRead ? 4 : 0; i < count && i < call->getNumArgs(); ++i) {
        const clang::Expr* argument = call->getArg(i);
        if (!argument->HasSideEffects(text_.context(), true)) continue;
        if (body.recreation.is_pure(argument)) continue;
        if (const auto* construct = dyn_cast<clang::CXXConstructExpr>(argument))
            if (construct->getConstructor()->isTrivial()) continue;
        error(argument->getBeginLoc(),
              "this argument is evaluated again after the point, and may have side effects",
              "keep its value in a variable");
    }
}

// A read into memory of the block that has begun writes where the block no longer is.
void Legality::check_in_flight(const Body& body) {
    for (const clang::Stmt* statement : body.accesses.statements()) {
        const auto* issue = dyn_cast<clang::CallExpr>(statement);
        if (issue == nullptr || call_of(issue) != Call::kReadAsync || issue->getNumArgs() < 5)
            continue;
        if (!body.recreation.may_point_into_block(issue->getArg(4))) continue;
        const clang::VarDecl* handle = nullptr;
        for (const clang::Stmt* above : body.accesses.parents(issue))
            if (const auto* declarations = dyn_cast<clang::DeclStmt>(above))
                if (declarations->isSingleDecl())
                    handle = dyn_cast<clang::VarDecl>(declarations->getSingleDecl());
        const auto ends = [&](const clang::Stmt* at) {
            const auto* wait = dyn_cast<clang::CallExpr>(at);
            if (wait == nullptr || call_of(wait) != Call::kWait || handle == nullptr) return false;
            const auto* named = dyn_cast<clang::DeclRefExpr>(plain(wait->getArg(1)));
            return named != nullptr && named->getDecl() == handle &&
                   !body.accesses.facts(handle).written;
        };
        for (const Point& point : kernel_.points) {
            const clang::CallExpr* call = body.call_at(text_, point.key);
            if (call == nullptr || body.graph.place(call).block == nullptr) continue;
            if (body.graph.place(issue).block == nullptr ||
                !body.graph.reaches(body.graph.place(issue), body.graph.place(call), ends))
                continue;
            error(issue->getBeginLoc(),
                  "this read into local or shared memory is in flight at a point, where that "
                  "memory is given up",
                  "read into global memory, or use gread with #pragma preempt");
            diagnostics_.note(call->getBeginLoc(), "the point is here");
            break;
        }
    }
}

void Legality::check_calls(const Body& body) {
    for (const clang::Stmt* statement : body.accesses.statements()) {
        if (const auto* call = dyn_cast<clang::CallExpr>(statement))
            check_call(call, call->getDirectCallee());
        if (const auto* construct = dyn_cast<clang::CXXConstructExpr>(statement))
            check_call(construct, construct->getConstructor());
        if (const auto* reference = dyn_cast<clang::DeclRefExpr>(statement)) {
            const auto* variable = variable_of(reference);
            if (variable != nullptr && is_dynamic_shared(variable)) uses_dynamic_shared_ = true;
        }
        if (const auto* member = dyn_cast<clang::MemberExpr>(statement)) {
            const Position position = position_of(member);
            if (position == Position::kDynamicShared) uses_dynamic_shared_ = true;
            if (position == Position::kBlockIndex || position == Position::kGrid)
                reads_block_ = true;
        }
        const auto* expression = dyn_cast<clang::Expr>(statement);
        const auto* record = expression == nullptr ? nullptr : record_of(expression->getType());
        if (record != nullptr && record->getNameAsString() == "grid_group")
            error(expression->getBeginLoc(), "blocks of a cooperative grid wait for each other",
                  "a kernel with points has no grid group");
    }
}

void Legality::check_call(const clang::Expr* call, const clang::FunctionDecl* callee) {
    if (callee == nullptr || call_of(callee) != Call::kNone) return;
    if (callee->getQualifiedNameAsString().rfind("penstock::", 0) == 0) return;
    const CalleeSummary& summary = callees_.summary(callee);
    uses_dynamic_shared_ = uses_dynamic_shared_ || summary.uses_dynamic_shared;
    if (summary.reads_block) {
        reads_block_ = true;
        if (!text_.holds(callee->getLocation()))
            error(call->getBeginLoc(),
                  "'" + callee->getNameAsString() +
                      "' reads blockIdx or gridDim, and is not in this file",
                  "pass it the index as an argument");
    }
    if (summary.static_shared != nullptr && !is_fresh(callee, summary.static_shared))
        error(summary.static_shared->getLocation(),
              "this shared variable of a device function may keep its value across a point",
              "declare it in the kernel and pass it");
}

// A function that fills its shared variable and meets the others before it reads it keeps nothing
// from one call to the next.
bool Legality::is_fresh(const clang::FunctionDecl* callee, const clang::VarDecl* shared) {
    const auto* function = dyn_cast<clang::FunctionDecl>(shared->getDeclContext());
    if (function == nullptr || body_of(function) == nullptr) return false;
    const Accesses accesses(function);
    const FlowGraph graph(function);
    if (!graph.is_built()) return false;
    const auto meets = [](const clang::Stmt* at) {
        const auto* call = dyn_cast<clang::CallExpr>(at);
        return call != nullptr && call_of(call) == Call::kVote;
    };
    const Place entry{&graph.graph().getEntry(), 0};
    for (const Access& access : accesses.all()) {
        if (access.variable != shared || (!access.reads && !access.keeps_address)) continue;
        const Place place = graph.place(access.reference);
        if (access.keeps_address || place.block == nullptr || graph.reaches(entry, place, meets))
            return false;
    }
    return true;
    static_cast<void>(callee);
}

void Legality::check_jumps(const Body& body) {
    for (const clang::Stmt* statement : body.accesses.statements()) {
        if (isa<clang::IndirectGotoStmt>(statement))
            error(statement->getBeginLoc(), "a kernel with points has no computed goto",
                  "use a loop or a condition");
        const auto* jump = dyn_cast<clang::GotoStmt>(statement);
        if (jump == nullptr) continue;
        const unsigned from = text_.offset(jump->getBeginLoc());
        const unsigned to = text_.offset(jump->getLabel()->getLocation());
        for (const Point& point : kernel_.points)
            if (std::min(from, to) < point.key && point.key < std::max(from, to))
                error(jump->getBeginLoc(), "a point may not be between a goto and its label",
                      "use a loop or a condition");
    }
}

}  // namespace penstock::compiler
