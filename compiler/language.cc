// Recognises the CUDA language and Penstock's device calls.
#include "compiler/language.h"

#include <clang/AST/Attr.h>
#include <clang/AST/DeclCXX.h>
#include <clang/AST/DeclTemplate.h>

namespace penstock::compiler {

using clang::dyn_cast;
using clang::isa;

bool has_annotation(const clang::Decl* declaration, const char* annotation) {
    for (const auto* attribute : declaration->specific_attrs<clang::AnnotateAttr>())
        if (attribute->getAnnotation() == annotation) return true;
    return false;
}

bool is_kernel(const clang::FunctionDecl* function) {
    return has_annotation(function, "penstock_global");
}

bool is_shared(const clang::VarDecl* variable) {
    return has_annotation(variable, "penstock_shared");
}

bool is_dynamic_shared(const clang::VarDecl* variable) {
    return is_shared(variable) && variable->hasExternalStorage();
}

bool is_frame_variable(const clang::VarDecl* variable) {
    return !is_shared(variable) && variable->hasLocalStorage();
}

const clang::Expr* plain(const clang::Expr* expression) {
    return expression == nullptr ? nullptr : expression->IgnoreParenImpCasts();
}

Position position_of(const clang::Expr* expression) {
    const auto* member = dyn_cast<clang::MemberExpr>(expression->IgnoreParens());
    if (member == nullptr) return Position::kNone;
    const auto* base = dyn_cast<clang::DeclRefExpr>(plain(member->getBase()));
    const auto* variable = base == nullptr ? nullptr : dyn_cast<clang::VarDecl>(base->getDecl());
    if (variable == nullptr || !variable->hasGlobalStorage()) return Position::kNone;
    const std::string name = variable->getQualifiedNameAsString();
    if (name == "penstock::language::current_lane") return Position::kThread;
    if (name != "penstock::language::current_block") return Position::kNone;
    const std::string field = member->getMemberDecl()->getNameAsString();
    if (field == "block_index") return Position::kBlockIndex;
    if (field == "grid_dimensions") return Position::kGrid;
    if (field == "block_dimensions" || field == "lane_count") return Position::kBlockDimensions;
    return field == "dynamic_shared" ? Position::kDynamicShared : Position::kOther;
}

static Call call_named(const std::string& name) {
    if (name == "gread") return Call::kRead;
    if (name == "gwait") return Call::kWait;
    if (name == "gread_async") return Call::kReadAsync;
    if (name == "preempt_point") return Call::kPoint;
    if (name == "yield") return Call::kYield;
    if (name == "yield_until") return Call::kYieldUntil;
    for (const char* other : {"gopen", "gclose", "gwrite", "gwrite_async", "gfsync", "gstat",
                              "gftruncate", "gunlink", "gmmap", "gmunmap", "gmsync", "gadvise"})
        if (name == other) return Call::kUniform;
    return Call::kNone;
}

Call call_of(const clang::FunctionDecl* function) {
    if (function == nullptr || function->getDeclName().isEmpty()) return Call::kNone;
    const auto* space = dyn_cast<clang::NamespaceDecl>(
        function->getDeclContext()->getEnclosingNamespaceContext());
    if (space == nullptr) return Call::kNone;
    const std::string where = space->getQualifiedNameAsString();
    const std::string name = function->getNameAsString();
    if (where == "penstock") return call_named(name);
    if (where == "penstock::language" && (name == "block_count" || name == "block_rendezvous"))
        return Call::kVote;
    return Call::kNone;
}

std::string callee_name(const clang::CallExpr* call) {
    const clang::Expr* callee = plain(call->getCallee());
    if (const auto* direct = dyn_cast<clang::DeclRefExpr>(callee))
        return direct->getNameInfo().getAsString();
    if (const auto* unresolved = dyn_cast<clang::UnresolvedLookupExpr>(callee))
        return unresolved->getName().getAsString();
    if (const auto* dependent = dyn_cast<clang::DependentScopeDeclRefExpr>(callee))
        return dependent->getDeclName().getAsString();
    return "";
}

Call call_of(const clang::CallExpr* call) {
    if (const auto* function = call->getDirectCallee()) return call_of(function);
    const clang::Expr* callee = plain(call->getCallee());
    if (const auto* unresolved = dyn_cast<clang::UnresolvedLookupExpr>(callee)) {
        for (const clang::NamedDecl* one : unresolved->decls()) {
            const clang::NamedDecl* found = one->getUnderlyingDecl();
            if (const auto* pattern = dyn_cast<clang::FunctionTemplateDecl>(found))
                found = pattern->getTemplatedDecl();
            if (const Call call_kind = call_of(dyn_cast<clang::FunctionDecl>(found));
                call_kind != Call::kNone)
                return call_kind;
        }
        // Found by the namespace of an argument, once its type is known.
        return unresolved->requiresADL() ? call_named(callee_name(call)) : Call::kNone;
    }
    return Call::kNone;
}

const clang::CXXRecordDecl* record_of(clang::QualType type) {
    const auto* record = type.getCanonicalType()->getAsCXXRecordDecl();
    return record == nullptr ? nullptr : record->getDefinition();
}

bool may_hold_address(clang::QualType type) {
    type = type.getCanonicalType();
    if (const auto* array = type->getAsArrayTypeUnsafe())
        return may_hold_address(array->getElementType());
    if (type->isAnyPointerType() || type->isReferenceType() || type->isMemberPointerType() ||
        type->isNullPtrType())
        return true;
    const clang::CXXRecordDecl* record = record_of(type);
    if (record == nullptr) return type->isRecordType() || type->isDependentType();
    for (const auto& base : record->bases())
        if (may_hold_address(base.getType())) return true;
    for (const auto* field : record->fields())
        if (may_hold_address(field->getType())) return true;
    return false;
}

}  // namespace penstock::compiler
