// Summarises functions by a walk of their bodies.
#include "compiler/callees.h"

#include <clang/AST/DeclCXX.h>
#include <clang/AST/Expr.h>
#include <clang/AST/ExprCXX.h>
#include <clang/Basic/SourceManager.h>

#include "compiler/language.h"

namespace penstock::compiler {

using clang::dyn_cast;

const clang::Stmt* body_of(const clang::FunctionDecl* function) {
    const clang::FunctionDecl* definition = nullptr;
    return function == nullptr ? nullptr : function->getBody(definition);
}

bool is_function_of_values(const clang::FunctionDecl* function) {
    if (function->getReturnType()->isVoidType() || function->isVariadic()) return false;
    const std::string name = function->getNameAsString();
    for (const char* other : {"rand", "random", "clock", "time", "getpid"})
        if (name == other) return false;
    if (function->getQualifiedNameAsString().rfind("penstock::", 0) == 0) return false;
    if (function->getNumParams() == 0) return false;
    // Those of the C library are known; others without a body may do anything.
    const clang::SourceManager& manager = function->getASTContext().getSourceManager();
    if (function->getBuiltinID() == 0 && !manager.isInSystemHeader(function->getLocation()))
        return false;
    for (const auto* parameter : function->parameters())
        if (!parameter->getType()->isArithmeticType()) return false;
    return true;
}

namespace {

struct Walk {
    CalleeSummary found;
    std::set<const clang::FunctionDecl*> seen;

    void function(const clang::FunctionDecl* callee) {
        if (callee == nullptr || !seen.insert(callee->getCanonicalDecl()).second) return;
        const Call kind = call_of(callee);
        if (kind != Call::kNone) {
            if (kind != Call::kVote) found.reads_memory = true;
            return;
        }
        if (const clang::Stmt* body = body_of(callee)) {
            statement(body);
            if (const auto* constructor = dyn_cast<clang::CXXConstructorDecl>(callee))
                for (const auto* one : constructor->inits()) statement(one->getInit());
            return;
        }
        if (callee->isTrivial() || callee->isDefaulted()) return;
        if (is_function_of_values(callee)) return;
        if (callee->getBuiltinID() != 0 && callee->getReturnType()->isArithmeticType()) {
            // Most compute; atomics among them are told by their pointers.
            bool values = true;
            for (const auto* one : callee->parameters())
                values = values && !one->getType()->isPointerType();
            if (values && callee->getNumParams() > 0) return;
        }
        found.unknown = callee;
        found.reads_thread = found.reads_memory = true;
    }

    void statement(const clang::Stmt* at) {
        if (at == nullptr || llvm::isa<clang::UnaryExprOrTypeTraitExpr>(at)) return;
        if (const auto* member = dyn_cast<clang::MemberExpr>(at)) {
            switch (position_of(member)) {
                case Position::kThread:
                    found.reads_thread = true;
                    return;
                case Position::kBlockIndex:
                case Position::kGrid:
                    found.reads_block = true;
                    return;
                case Position::kBlockDimensions:
                    return;
                case Position::kDynamicShared:
                    found.uses_dynamic_shared = true;
                    return;
                case Position::kOther:
                    found.reads_memory = true;
                    return;
                case Position::kNone:
                    break;
            }
            if (member->isArrow()) found.reads_memory = true;
        }
        if (const auto* reference = dyn_cast<clang::DeclRefExpr>(at)) variable(reference, true);
        // The address of shared memory alone reads nothing: T* p = SharedMemory<T>().
        if (const auto* cast = dyn_cast<clang::CastExpr>(at))
            if (const auto* reference = dyn_cast<clang::DeclRefExpr>(
                    cast->getSubExpr()->IgnoreParens());
                reference != nullptr && cast->getCastKind() == clang::CK_ArrayToPointerDecay)
                return variable(reference, false);
        if (const auto* unary = dyn_cast<clang::UnaryOperator>(at))
            if (unary->getOpcode() == clang::UO_Deref) found.reads_memory = true;
        if (llvm::isa<clang::AtomicExpr, clang::GCCAsmStmt, clang::CXXThrowExpr>(at))
            found.reads_thread = found.reads_memory = true;
        if (const auto* subscript = dyn_cast<clang::ArraySubscriptExpr>(at))
            if (const clang::Expr* array = subscript->getBase()->IgnoreImpCasts();
                !array->getType()->isArrayType() || names_memory(array))
                found.reads_memory = true;
        if (const auto* call = dyn_cast<clang::CallExpr>(at)) {
            if (call->getDirectCallee() != nullptr)
                function(call->getDirectCallee());
            else if (!llvm::isa<clang::CXXPseudoDestructorExpr>(call->getCallee()))
                found.reads_thread = found.reads_memory = true;
        }
        if (const auto* construct = dyn_cast<clang::CXXConstructExpr>(at))
            function(construct->getConstructor());
        if (const auto* lambda = dyn_cast<clang::LambdaExpr>(at)) {
            for (const auto* one : lambda->capture_inits()) statement(one);
            return;  // its body counts where it is called
        }
        for (const clang::Stmt* child : at->children()) statement(child);
    }

    static bool names_memory(const clang::Expr* array) {
        const auto* reference = dyn_cast<clang::DeclRefExpr>(array->IgnoreParens());
        const auto* named = reference == nullptr ? nullptr
                                                 : dyn_cast<clang::VarDecl>(reference->getDecl());
        return named != nullptr && (is_shared(named) || (named->hasGlobalStorage() &&
                                                         !named->getType().isConstQualified() &&
                                                         !named->isConstexpr()));
    }

    void variable(const clang::DeclRefExpr* reference, bool reads) {
        const auto* named = dyn_cast<clang::VarDecl>(reference->getDecl());
        if (named == nullptr) return;
        if (is_dynamic_shared(named)) {
            found.uses_dynamic_shared = true;
            found.reads_memory = found.reads_memory || reads;
        } else if (is_shared(named)) {
            found.static_shared = named;
            found.reads_memory = found.reads_memory || reads;
        } else if (named->hasGlobalStorage() && !named->isConstexpr() &&
                   !named->getType().isConstQualified()) {
            found.reads_memory = true;
            if (named->getQualifiedNameAsString() == "penstock::language::current_lane")
                found.reads_thread = true;
        }
    }
};

}  // namespace

const CalleeSummary& Callees::summary(const clang::FunctionDecl* function) {
    const clang::FunctionDecl* key = function->getCanonicalDecl();
    const auto known = summaries_.find(key);
    if (known != summaries_.end()) return known->second;
    Walk walk;
    walk.function(function);
    return summaries_[key] = walk.found;
}

}  // namespace penstock::compiler
