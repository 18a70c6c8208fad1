// Classifies references to variables.
#include "compiler/accesses.h"

#include <clang/AST/DeclCXX.h>
#include <clang/AST/DeclTemplate.h>
#include <clang/AST/StmtCXX.h>

#include <algorithm>

#include "compiler/language.h"

namespace penstock::compiler {

using clang::dyn_cast;
using clang::isa;

const clang::VarDecl* variable_of(const clang::DeclRefExpr* reference) {
    const clang::ValueDecl* declaration = reference->getDecl();
    if (const auto* binding = dyn_cast<clang::BindingDecl>(declaration))
        declaration = binding->getDecomposedDecl();
    // A binding of a tuple's element is a reference to a variable of its own.
    return dyn_cast_or_null<clang::VarDecl>(declaration);
}

Accesses::Accesses(const clang::FunctionDecl* function, int depth)
    : function_(function), depth_(depth) {
    for (const auto* parameter : function->parameters()) add_variable(parameter);
    walk(function->getBody(), nullptr, false);
    for (const clang::Stmt* statement : statements_)
        if (const auto* reference = dyn_cast<clang::DeclRefExpr>(statement))
            classify(reference, in_lambda_.count(statement) != 0);
    for (Access& access : accesses_) {
        VariableFacts& facts = facts_[access.variable];
        facts.held = facts.held || access.keeps_address;
        facts.written = facts.written || access.writes;
    }
}

void Accesses::add_variable(const clang::VarDecl* variable) {
    VariableFacts& facts = facts_[variable];
    variables_.push_back(variable);
    const auto* array = function_->getASTContext().getAsConstantArrayType(variable->getType());
    if (array == nullptr || !is_frame_variable(variable)) return;
    if (array->getElementType()->isArrayType()) return;
    const uint64_t count = array->getSize().getZExtValue();
    if (count <= kElementsMax) facts.elements = static_cast<unsigned>(count);
}

void Accesses::walk(const clang::Stmt* statement, const clang::Stmt* parent, bool in_lambda) {
    if (statement == nullptr) return;
    // Operands of sizeof, alignof, noexcept and requires are not evaluated.
    if (isa<clang::UnaryExprOrTypeTraitExpr, clang::CXXNoexceptExpr>(statement)) {
        parents_[statement] = parent;
        statements_.push_back(statement);
        return;
    }
    if (!parents_.emplace(statement, parent).second) return;
    statements_.push_back(statement);
    if (in_lambda) in_lambda_.insert(statement);
    if (const auto* declarations = dyn_cast<clang::DeclStmt>(statement)) {
        for (const auto* one : declarations->decls())
            if (const auto* variable = dyn_cast<clang::VarDecl>(one)) add_variable(variable);
    }
    if (const auto* lambda = dyn_cast<clang::LambdaExpr>(statement)) {
        for (const auto& capture : lambda->captures()) {
            if (!capture.capturesVariable()) continue;
            const auto* variable = dyn_cast<clang::VarDecl>(capture.getCapturedVar());
            if (variable == nullptr || capture.getCaptureKind() != clang::LCK_ByRef) continue;
            facts_[variable].captured = true;
        }
        for (const auto* initialiser : lambda->capture_inits())
            walk(initialiser, statement, in_lambda);
        // The text of a generic lambda says little of its variables; its calls do.
        const auto* generic = lambda->getCallOperator()->getDescribedFunctionTemplate();
        if (generic == nullptr) return walk(lambda->getBody(), statement, true);
        for (const clang::FunctionDecl* one : generic->specializations())
            if (one->hasBody()) walk(one->getBody(), statement, true);
        return;
    }
    // The array that a closure or a structured binding copies is hidden in one of these.
    if (const auto* value = dyn_cast<clang::OpaqueValueExpr>(statement))
        walk(value->getSourceExpr(), statement, in_lambda);
    for (const clang::Stmt* child : statement->children()) walk(child, statement, in_lambda);
}

const clang::Stmt* Accesses::parent(const clang::Stmt* statement) const {
    const auto found = parents_.find(statement);
    return found == parents_.end() ? nullptr : found->second;
}

std::vector<const clang::Stmt*> Accesses::parents(const clang::Stmt* statement) const {
    std::vector<const clang::Stmt*> found;
    while ((statement = parent(statement)) != nullptr) found.push_back(statement);
    std::reverse(found.begin(), found.end());
    return found;
}

bool Accesses::is_in_lambda(const clang::Stmt* statement) const {
    return in_lambda_.count(statement) != 0;
}

const Access* Accesses::find(const clang::Expr* reference) const {
    const auto found = index_.find(reference);
    return found == index_.end() ? nullptr : &accesses_[found->second];
}

VariableFacts Accesses::facts(const clang::VarDecl* variable) const {
    const auto found = facts_.find(variable);
    return found == facts_.end() ? VariableFacts{true, true, true, 0} : found->second;
}

void Accesses::classify(const clang::DeclRefExpr* reference, bool in_lambda) {
    const clang::VarDecl* variable = variable_of(reference);
    if (variable == nullptr || facts_.count(variable) == 0) return;
    Access access;
    access.reference = reference;
    access.variable = variable;
    access.in_lambda = in_lambda;
    const clang::Expr* at = reference;
    bool partial = isa<clang::BindingDecl>(reference->getDecl());
    const clang::Stmt* above = parent(at);
    while (climb(at, above, partial)) above = parent(at);
    end_at(access, at, above, partial);
    if (access.element != kWholeVariable &&
        static_cast<unsigned>(access.element) >= facts_[variable].elements)
        access.element = kWholeVariable;
    if (access.element == kWholeVariable && variable->getType()->isArrayType())
        access.replaces = false;
    // Through a reference a write reaches another variable.
    if (variable->getType()->isReferenceType()) access.reads = true, access.replaces = false;
    index_[reference] = accesses_.size();
    accesses_.push_back(access);
}

// Goes to the expression above, if this one is still the variable's place or a part of it.
bool Accesses::climb(const clang::Expr*& at, const clang::Stmt* above, bool& partial) {
    const auto* expression = dyn_cast_or_null<clang::Expr>(above);
    if (expression == nullptr) return false;
    if (isa<clang::ParenExpr>(expression)) {
        at = expression;
        return true;
    }
    if (const auto* cast = dyn_cast<clang::CastExpr>(expression)) {
        const auto kind = cast->getCastKind();
        const bool same = kind == clang::CK_NoOp || kind == clang::CK_DerivedToBase ||
                          kind == clang::CK_UncheckedDerivedToBase;
        if (!same || !cast->isGLValue()) return false;
        partial = partial || kind != clang::CK_NoOp;
        at = expression;
        return true;
    }
    if (const auto* member = dyn_cast<clang::MemberExpr>(expression)) {
        if (member->isArrow() || isa<clang::CXXMethodDecl>(member->getMemberDecl())) return false;
        partial = true;
        at = expression;
        return true;
    }
    if (isa<clang::ConditionalOperator>(expression) && expression->isGLValue()) {
        const auto* choice = dyn_cast<clang::ConditionalOperator>(expression);
        if (choice->getCond() == at) return false;
        partial = true;
        at = expression;
        return true;
    }
    return false;
}

static bool is_discarded(const clang::Stmt* above) {
    return above == nullptr ||
           !isa<clang::Expr, clang::DeclStmt, clang::ReturnStmt, clang::AsmStmt>(above);
}

// Returns whether the place that an assignment or ++x results in is used as a place: bump(++x).
bool Accesses::is_bound(const clang::Expr* assignment) const {
    const clang::Stmt* above = parent(assignment);
    while (isa_and_nonnull<clang::ParenExpr>(above)) above = parent(above);
    const auto* cast = dyn_cast_or_null<clang::CastExpr>(above);
    const auto* binary = dyn_cast_or_null<clang::BinaryOperator>(above);
    const bool comma = binary != nullptr && binary->getOpcode() == clang::BO_Comma;
    return assignment->isGLValue() && !is_discarded(above) && !comma &&
           !isa<clang::FullExpr>(above) &&
           (cast == nullptr || (cast->getCastKind() != clang::CK_LValueToRValue &&
                                cast->getCastKind() != clang::CK_ToVoid));
}

void Accesses::end_at(Access& access, const clang::Expr* at, const clang::Stmt* above,
                      bool partial) {
    if (is_discarded(above)) {
        access.reads = true;
        return;
    }
    if (isa<clang::OpaqueValueExpr>(above) &&
        isa_and_nonnull<clang::ArrayInitLoopExpr>(parent(above))) {  // a copy of an array
        access.reads = true;
        return;
    }
    if (const auto* cast = dyn_cast<clang::CastExpr>(above)) {
        if (cast->getCastKind() == clang::CK_LValueToRValue ||
            cast->getCastKind() == clang::CK_ToVoid) {
            access.reads = true;
            return;
        }
        if (cast->getCastKind() == clang::CK_ArrayToPointerDecay) {
            const clang::Stmt* outer = parent(cast);
            while (outer != nullptr && isa<clang::ParenExpr>(outer)) outer = parent(outer);
            const auto* subscript = dyn_cast_or_null<clang::ArraySubscriptExpr>(outer);
            if (subscript != nullptr && plain(subscript->getBase()) == plain(at)) {
                // A part of the array goes on as the variable's place does.
                if (!partial) {
                    clang::Expr::EvalResult index;
                    if (subscript->getIdx()->EvaluateAsInt(index, function_->getASTContext()) &&
                        index.Val.getInt().isNonNegative())
                        access.element = static_cast<int>(
                            index.Val.getInt().getLimitedValue(kElementsMax));
                }
                const clang::Expr* place = subscript;
                bool part = partial || access.element == kWholeVariable;
                const clang::Stmt* next = parent(place);
                while (climb(place, next, part)) next = parent(place);
                end_at(access, place, next, part);
                return;
            }
        }
    }
    if (const auto* assignment = dyn_cast<clang::BinaryOperator>(above)) {
        if (assignment->isAssignmentOp() && assignment->getLHS() == at) {
            access.writes = true;
            access.reads = assignment->isCompoundAssignmentOp();
            access.replaces = !partial && !access.reads;
            access.keeps_address = is_bound(assignment);
            access.definition = assignment;
            access.value = assignment->getRHS();
            return;
        }
        if (assignment->getOpcode() == clang::BO_Comma && assignment->getLHS() == at) {
            access.reads = true;
            return;
        }
    }
    if (const auto* unary = dyn_cast<clang::UnaryOperator>(above)) {
        if (unary->isIncrementDecrementOp()) {
            access.reads = access.writes = true;
            access.keeps_address = is_bound(unary);
            access.definition = unary;
            return;
        }
    }
    if (const auto* expression = dyn_cast<clang::Expr>(above)) {
        if (isa<clang::CallExpr, clang::CXXConstructExpr, clang::LambdaExpr, clang::MemberExpr>(
                expression)) {
            end_at_call(access, at, expression, partial);
            return;
        }
    }
    // A reference is bound to it, its address is taken, or the use is not known.
    access.reads = access.keeps_address = true;
    const auto* declaration = dyn_cast<clang::DeclStmt>(above);
    const bool constant = declaration != nullptr && declaration->isSingleDecl() &&
                          isa<clang::VarDecl>(declaration->getSingleDecl()) &&
                          clang::cast<clang::VarDecl>(declaration->getSingleDecl())
                              ->getType()
                              .getNonReferenceType()
                              .isConstQualified();
    access.writes = !constant;
}

// A constant reference reads; any other reference may write, and may be kept.
void Accesses::pass_argument(Access& access, clang::QualType parameter, clang::QualType result) {
    access.reads = true;
    const bool constant = !parameter->isReferenceType() ||
                          (parameter->isLValueReferenceType() &&
                           parameter.getNonReferenceType().isConstQualified());
    access.writes = !constant;
    access.keeps_address = !constant || (parameter->isReferenceType() && may_hold_address(result));
}

// Returns whether a function only reads what a parameter refers to, as far as its body tells.
bool Accesses::only_reads(const clang::FunctionDecl* callee, unsigned index) const {
    constexpr int kDepthMax = 4;
    const clang::FunctionDecl* definition = nullptr;
    if (depth_ >= kDepthMax || !callee->hasBody(definition)) return false;
    const clang::ParmVarDecl* parameter = definition->getParamDecl(index);
    if (!parameter->getType()->isLValueReferenceType()) return false;
    const VariableFacts facts = Accesses(definition, depth_ + 1).facts(parameter);
    return !facts.written && !facts.held && !facts.captured;
}

void Accesses::end_at_call(Access& access, const clang::Expr* at, const clang::Expr* call,
                           bool partial) {
    access.definition = call;
    if (isa<clang::LambdaExpr>(call)) {  // a capture by reference, whose writes are in its body
        access.reads = true;
        return;
    }
    if (const auto* member = dyn_cast<clang::MemberExpr>(call)) {
        const auto* method = dyn_cast<clang::CXXMethodDecl>(member->getMemberDecl());
        const bool constant = method != nullptr && (method->isConst() || method->isStatic());
        access.reads = true;
        access.writes = !constant;
        access.keeps_address = !constant || may_hold_address(method->getReturnType());
        return;
    }
    if (const auto* construct = dyn_cast<clang::CXXConstructExpr>(call)) {
        const auto* constructor = construct->getConstructor();
        for (unsigned i = 0; i < construct->getNumArgs(); ++i)
            if (construct->getArg(i) == at && i < constructor->getNumParams())
                return pass_argument(access, constructor->getParamDecl(i)->getType(),
                                     constructor->isCopyOrMoveConstructor()
                                         ? clang::QualType(function_->getASTContext().IntTy)
                                         : construct->getType());
        return pass_argument(access, at->getType().withConst(), construct->getType());
    }
    const auto* one = clang::cast<clang::CallExpr>(call);
    const auto* operation = dyn_cast<clang::CXXOperatorCallExpr>(call);
    const clang::FunctionDecl* callee = one->getDirectCallee();
    const auto* method = dyn_cast_or_null<clang::CXXMethodDecl>(callee);
    const bool has_object = operation != nullptr && method != nullptr && !method->isStatic();
    for (unsigned i = 0; i < one->getNumArgs(); ++i) {
        if (one->getArg(i) != at || callee == nullptr) continue;
        if (has_object && i == 0) {
            const bool copies = method->isCopyAssignmentOperator() ||
                                method->isMoveAssignmentOperator();
            access.reads = !(copies && method->isTrivial());
            access.writes = !method->isConst();
            access.replaces = copies && method->isTrivial() && !partial;
            // An assignment returns the object itself, which the caller drops.
            access.keeps_address = access.reads &&
                                   (access.writes || may_hold_address(method->getReturnType()));
            if (access.replaces) access.value = one->getArg(1);
            return;
        }
        const unsigned index = i - (has_object ? 1 : 0);
        if (index >= callee->getNumParams()) break;
        const bool trivial = has_object && method->isTrivial();
        clang::QualType parameter = callee->getParamDecl(index)->getType();
        if (only_reads(callee, index))
            parameter = function_->getASTContext().getLValueReferenceType(
                parameter.getNonReferenceType().withConst());
        return pass_argument(
            access, parameter,
            trivial ? clang::QualType(function_->getASTContext().IntTy) : callee->getReturnType());
    }
    access.reads = access.writes = access.keeps_address = true;
}

}  // namespace penstock::compiler
