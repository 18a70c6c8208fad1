// Decides what can be computed anew, and which addresses must be.
#include "compiler/recreation.h"

#include <clang/AST/DeclCXX.h>
#include <clang/AST/DeclTemplate.h>

#include "compiler/language.h"

namespace penstock::compiler {

using clang::dyn_cast;
using clang::isa;

Recreation::Recreation(const Accesses& accesses, const FlowGraph& graph, Callees& callees,
                       const clang::ASTContext& context)
    : accesses_(accesses), graph_(graph), callees_(callees), context_(context) {
    while (spread()) {
    }
    find_stores();
}

// ---- pure expressions
// ----------------------------------------------------------------------------

static bool is_constant(const clang::VarDecl* variable) {
    return variable->isConstexpr() ||
           (variable->getType().isConstQualified() && variable->hasGlobalStorage() &&
            variable->getType()->isArithmeticType() && !is_shared(variable) && variable->hasInit());
}

bool Recreation::is_rematerialised(const clang::VarDecl* variable) const {
    const auto [entry, fresh] = rematerialised_.emplace(variable, false);
    if (!fresh) return entry->second;  // false also while it is being decided
    const VariableFacts facts = accesses_.facts(variable);
    const bool candidate = is_frame_variable(variable) && !isa<clang::ParmVarDecl>(variable) &&
                           !variable->getType()->isReferenceType() && variable->hasInit() &&
                           !facts.written && pointing_.count(variable) == 0;
    const bool found = candidate && pure(variable->getInit(), 0);
    rematerialised_[variable] = found;
    return found;
}

bool Recreation::pure_reference(const clang::DeclRefExpr* reference, int depth) const {
    if (isa<clang::EnumConstantDecl, clang::FunctionDecl, clang::NonTypeTemplateParmDecl,
            clang::TemplateParamObjectDecl>(reference->getDecl()))
        return true;
    const clang::VarDecl* variable = variable_of(reference);
    if (variable == nullptr) return false;
    if (is_constant(variable)) return true;
    if (depth > 0) return false;
    if (isa<clang::ParmVarDecl>(variable)) {
        return !accesses_.facts(variable).written && !accesses_.is_in_lambda(reference) &&
               !variable->getType()->isReferenceType();
    }
    return is_frame_variable(variable) && is_rematerialised(variable);
}

bool Recreation::pure_call(const clang::CallExpr* call, int) const {
    const clang::FunctionDecl* callee = call->getDirectCallee();
    if (callee == nullptr || call_of(callee) != Call::kNone) return false;
    const CalleeSummary& summary = callees_.summary(callee);
    if (summary.reads_memory || summary.unknown != nullptr || summary.static_shared != nullptr)
        return false;
    if (const auto* method = dyn_cast<clang::CXXMethodDecl>(callee))
        if (!method->isStatic() && !method->isConst()) return false;
    for (const auto* parameter : callee->parameters()) {
        const clang::QualType type = parameter->getType();
        const bool constant = type->isLValueReferenceType() &&
                              type.getNonReferenceType().isConstQualified();
        if (type->isReferenceType() && !constant) return false;
        if (may_hold_address(type.getNonReferenceType())) return false;
    }
    return true;
}

// An address that is computed, not loaded from: &a[i], &p->x.
static const clang::Expr* address_base(const clang::Expr* place) {
    place = place->IgnoreParens();
    if (const auto* subscript = dyn_cast<clang::ArraySubscriptExpr>(place))
        if (!subscript->getBase()->IgnoreImpCasts()->getType()->isArrayType())
            return subscript->getBase();
    if (const auto* member = dyn_cast<clang::MemberExpr>(place))
        return member->isArrow() ? member->getBase() : address_base(member->getBase());
    if (const auto* unary = dyn_cast<clang::UnaryOperator>(place))
        if (unary->getOpcode() == clang::UO_Deref) return unary->getSubExpr();
    return nullptr;
}

// Returns whether a place is the position of the thread or the block, or a part of it: threadIdx.x.
static bool is_position(const clang::Expr* place) {
    const auto* member = dyn_cast<clang::MemberExpr>(place->IgnoreParens());
    if (member == nullptr) return false;
    const Position position = position_of(member);
    if (position != Position::kNone) return position != Position::kOther;
    return !member->isArrow() && is_position(member->getBase());
}

static bool is_transparent(const clang::Stmt* expression) {
    return isa<clang::ParenExpr, clang::InitListExpr, clang::ExprWithCleanups,
               clang::MaterializeTemporaryExpr, clang::ConstantExpr,
               clang::AbstractConditionalOperator, clang::SubstNonTypeTemplateParmExpr,
               clang::CXXBindTemporaryExpr, clang::CXXStdInitializerListExpr>(expression);
}

static bool is_literal(const clang::Stmt* expression) {
    return isa<clang::IntegerLiteral, clang::FloatingLiteral, clang::CharacterLiteral,
               clang::CXXBoolLiteralExpr, clang::CXXNullPtrLiteralExpr, clang::GNUNullExpr,
               clang::ImplicitValueInitExpr, clang::CXXScalarValueInitExpr,
               clang::UnaryExprOrTypeTraitExpr, clang::SizeOfPackExpr, clang::TypeTraitExpr,
               clang::CXXNoexceptExpr, clang::StringLiteral>(expression);
}

bool Recreation::pure(const clang::Stmt* expression, int depth) const {
    if (expression == nullptr || is_literal(expression)) return true;
    if (const auto* reference = dyn_cast<clang::DeclRefExpr>(expression))
        return pure_reference(reference, depth);
    if (const auto* argument = dyn_cast<clang::CXXDefaultArgExpr>(expression))
        return pure(argument->getExpr(), depth);
    if (const auto* field = dyn_cast<clang::CXXDefaultInitExpr>(expression))
        return pure(field->getExpr(), depth);
    if (const auto* member = dyn_cast<clang::MemberExpr>(expression)) {
        const Position position = position_of(member);
        if (position != Position::kNone) return position != Position::kOther;
        if (isa<clang::CXXMethodDecl>(member->getMemberDecl()))
            return pure(member->getBase(), depth);
        return !member->isArrow() && pure(member->getBase(), depth);
    }
    if (const auto* unary = dyn_cast<clang::UnaryOperator>(expression)) {
        if (unary->getOpcode() == clang::UO_AddrOf) {
            const clang::Expr* base = address_base(unary->getSubExpr());
            const auto* subscript = dyn_cast<clang::ArraySubscriptExpr>(
                unary->getSubExpr()->IgnoreParens());
            return base != nullptr && pure(base, depth) &&
                   (subscript == nullptr || pure(subscript->getIdx(), depth));
        }
        if (unary->isIncrementDecrementOp() || unary->getOpcode() == clang::UO_Deref) return false;
    } else if (const auto* subscript = dyn_cast<clang::ArraySubscriptExpr>(expression)) {
        const clang::Expr* array = subscript->getBase()->IgnoreImpCasts();
        return array->getType()->isArrayType() && pure(array, depth) &&
               pure(subscript->getIdx(), depth);
    } else if (const auto* cast = dyn_cast<clang::CastExpr>(expression)) {
        if (cast->getCastKind() == clang::CK_ArrayToPointerDecay &&
            !isa<clang::StringLiteral>(cast->getSubExpr()->IgnoreParens())) {
            const auto* named = dyn_cast<clang::DeclRefExpr>(cast->getSubExpr()->IgnoreParens());
            const auto* variable = named == nullptr ? nullptr : variable_of(named);
            return variable != nullptr && variable->hasGlobalStorage() && !is_shared(variable);
        }
    } else if (const auto* binary = dyn_cast<clang::BinaryOperator>(expression)) {
        if (binary->isAssignmentOp() || binary->isPtrMemOp()) return false;
    } else if (const auto* call = dyn_cast<clang::CallExpr>(expression)) {
        if (!pure_call(call, depth)) return false;
        if (const auto* member = dyn_cast<clang::CXXMemberCallExpr>(call))
            if (!pure(member->getImplicitObjectArgument(), depth)) return false;
        for (const clang::Expr* argument : call->arguments())
            if (!pure(argument, depth)) return false;
        return true;
    } else if (const auto* construct = dyn_cast<clang::CXXConstructExpr>(expression)) {
        const auto* constructor = construct->getConstructor();
        if (!constructor->isTrivial() && !constructor->isConstexpr()) return false;
    } else if (!is_transparent(expression)) {
        return false;
    }
    for (const clang::Stmt* child : expression->children())
        if (!pure(child, depth)) return false;
    return true;
}

// ---- addresses of the block's memory
// -------------------------------------------------------------

bool Recreation::may_point_into_block(const clang::Expr* expression) const {
    if (expression == nullptr) return false;
    expression = expression->IgnoreParens();
    if (expression->isGLValue()) {
        if (const auto* reference = dyn_cast<clang::DeclRefExpr>(expression)) {
            const clang::VarDecl* variable = variable_of(reference);
            if (variable == nullptr) return false;
            if (variable->getType()->isReferenceType()) return may_point_into_block(variable);
            return is_shared(variable) || is_frame_variable(variable);
        }
        if (const auto* member = dyn_cast<clang::MemberExpr>(expression)) {
            if (position_of(member) == Position::kDynamicShared) return true;
            return may_point_into_block(member->getBase());
        }
        if (const auto* subscript = dyn_cast<clang::ArraySubscriptExpr>(expression))
            return may_point_into_block(subscript->getBase());
        if (const auto* unary = dyn_cast<clang::UnaryOperator>(expression))
            return may_point_into_block(unary->getSubExpr());
        if (isa<clang::MaterializeTemporaryExpr>(expression)) return true;
    } else {
        if (const auto* cast = dyn_cast<clang::CastExpr>(expression)) {
            const auto kind = cast->getCastKind();
            if (kind == clang::CK_ArrayToPointerDecay) {
                if (isa<clang::StringLiteral>(cast->getSubExpr()->IgnoreParens())) return false;
                return may_point_into_block(cast->getSubExpr());
            }
            if (kind == clang::CK_PointerToIntegral || kind == clang::CK_IntegralToPointer)
                return may_point_into_block(cast->getSubExpr());
            if (kind == clang::CK_LValueToRValue) {
                const clang::Expr* place = cast->getSubExpr()->IgnoreParens();
                if (const auto* member = dyn_cast<clang::MemberExpr>(place))
                    if (position_of(member) == Position::kDynamicShared) return true;
                while (const auto* member = dyn_cast<clang::MemberExpr>(place)) {
                    if (member->isArrow()) break;
                    place = member->getBase()->IgnoreParens();
                }
                if (const auto* reference = dyn_cast<clang::DeclRefExpr>(place)) {
                    const clang::VarDecl* variable = variable_of(reference);
                    // What is read through a reference is not the address in it.
                    if (variable != nullptr && variable->getType()->isReferenceType() &&
                        !may_hold_address(expression->getType()))
                        return false;
                    return variable != nullptr && may_point_into_block(variable);
                }
                return may_hold_address(expression->getType()) && may_point_into_block(place);
            }
        }
        if (const auto* unary = dyn_cast<clang::UnaryOperator>(expression))
            if (unary->getOpcode() == clang::UO_AddrOf)
                return may_point_into_block(unary->getSubExpr());
        const auto* lambda = dyn_cast<clang::LambdaExpr>(expression);
        if (lambda == nullptr && !may_hold_address(expression->getType()) &&
            !expression->getType()->isIntegralOrEnumerationType())
            return false;
        const auto* call = dyn_cast<clang::CallExpr>(expression);
        if (call != nullptr && expression->getType()->isIntegralOrEnumerationType()) return false;
        if (call != nullptr && call->getDirectCallee() != nullptr &&
            call_of(call->getDirectCallee()) == Call::kNone) {
            const CalleeSummary& summary = callees_.summary(call->getDirectCallee());
            if (summary.uses_dynamic_shared || summary.static_shared != nullptr) return true;
        }
    }
    for (const clang::Stmt* child : expression->children())
        if (const auto* part = dyn_cast_or_null<clang::Expr>(child))
            if (may_point_into_block(part)) return true;
    return false;
}

bool Recreation::spread() {
    bool changed = false;
    const auto add = [&](const clang::VarDecl* variable) {
        // A class without pointers holds no address, also if it is made of an expression with one.
        const clang::QualType type = variable->getType();
        if (!may_hold_address(type) && !type->isIntegralOrEnumerationType()) return;
        changed = pointing_.insert(variable).second || changed;
    };
    for (const clang::Stmt* statement : accesses_.statements()) {
        const auto* declarations = dyn_cast<clang::DeclStmt>(statement);
        if (declarations == nullptr) continue;
        for (const auto* one : declarations->decls()) {
            const auto* variable = dyn_cast<clang::VarDecl>(one);
            if (variable != nullptr && variable->hasInit() &&
                may_point_into_block(variable->getInit()))
                add(variable);
        }
    }
    for (const Access& access : accesses_.all()) {
        if (!access.writes) continue;
        if (access.value != nullptr && may_point_into_block(access.value)) add(access.variable);
        if (access.keeps_address && access.value == nullptr &&
            may_hold_address(access.variable->getType()) &&
            !access.variable->getType()->isReferenceType() && !is_shared(access.variable))
            add(access.variable);
    }
    return changed;
}

void Recreation::find_stores() {
    for (const clang::Stmt* statement : accesses_.statements()) {
        const auto* assignment = dyn_cast<clang::BinaryOperator>(statement);
        if (assignment == nullptr || !assignment->isAssignmentOp()) continue;
        if (!assignment->getRHS()->getType()->isPointerType()) continue;
        if (!may_point_into_block(assignment->getRHS())) continue;
        const clang::Expr* place = assignment->getLHS()->IgnoreParens();
        const bool through_pointer = address_base(place) != nullptr;
        const auto* root = dyn_cast<clang::DeclRefExpr>(place);
        const bool shared = root != nullptr && variable_of(root) != nullptr &&
                            is_shared(variable_of(root));
        if (through_pointer || shared) stored_ = assignment;
    }
}

// Returns the array that a closure captures by copy, or null.
static const clang::Expr* copied_array(const clang::Stmt* expression) {
    const auto* copy = dyn_cast<clang::ArrayInitLoopExpr>(expression);
    return copy == nullptr ? nullptr : copy->getCommonExpr()->getSourceExpr();
}

// ---- made again
// ----------------------------------------------------------------------------------

// Returns whether a variable may change between the declaration of the one that is made again and
// the point.
bool Recreation::changes(const clang::VarDecl* named, const Renewal& renewal) const {
    const VariableFacts facts = accesses_.facts(named);
    if (!facts.written) return false;
    const Place from = graph_.declaration(renewal.variable), to = graph_.place(renewal.point);
    if (facts.held || from.block == nullptr || to.block == nullptr) return true;
    const clang::Stmt* declaration = statement_of((*from.block)[from.index]);
    const auto is_declaration = [&](const clang::Stmt* at) { return at == declaration; };
    for (const Access& access : accesses_.all()) {
        if (access.variable != named || !access.writes) continue;
        const clang::Stmt* owner = access.reference;
        while (owner != nullptr && graph_.place(owner).block == nullptr)
            owner = accesses_.parent(owner);
        if (owner == nullptr || access.in_lambda) return true;
        const Place write = graph_.place(owner);
        if (graph_.reaches(from, write, is_declaration) &&
            graph_.reaches(write, to, is_declaration))
            return true;
    }
    return false;
}

bool Recreation::again_reference(const clang::DeclRefExpr* reference,
                                 const Renewal& renewal) const {
    const clang::VarDecl* variable = variable_of(reference);
    if (variable == nullptr || pure_reference(reference, 0)) return true;
    if (is_shared(variable)) return true;
    // Only its place counts, if no value is loaded from it.
    const clang::Stmt* above = accesses_.parent(reference);
    const auto keeps_place = [](const clang::Stmt* at) {
        const auto* member = dyn_cast<clang::MemberExpr>(at);
        const auto* cast = dyn_cast<clang::CastExpr>(at);
        return isa<clang::ParenExpr>(at) || (member != nullptr && !member->isArrow()) ||
               (cast != nullptr && cast->getCastKind() == clang::CK_NoOp);
    };
    while (above != nullptr && keeps_place(above)) above = accesses_.parent(above);
    const auto* cast = dyn_cast_or_null<clang::CastExpr>(above);
    const bool loads = cast == nullptr
                           ? !isa<clang::UnaryOperator, clang::DeclStmt, clang::LambdaExpr,
                                  clang::CallExpr, clang::ConditionalOperator>(above)
                           : cast->getCastKind() == clang::CK_LValueToRValue;
    if (!loads || renewal.point == nullptr) return true;
    if (variable->getType()->isReferenceType()) {
        renewal.obstacle = {"it is read through '" + variable->getNameAsString() + "'", reference};
        return false;
    }
    if (!changes(variable, renewal)) return true;
    renewal.obstacle = {"'" + variable->getNameAsString() + "' is changed after it", reference};
    return false;
}

bool Recreation::again(const clang::Stmt* expression, const Renewal& renewal) const {
    if (expression == nullptr || is_literal(expression)) return true;
    const auto refuse = [&](const char* text) {
        renewal.obstacle = {text, expression};
        return false;
    };
    if (const auto* reference = dyn_cast<clang::DeclRefExpr>(expression))
        return again_reference(reference, renewal);
    if (const clang::Expr* array = copied_array(expression)) return again(array, renewal);
    if (const auto* lambda = dyn_cast<clang::LambdaExpr>(expression)) {
        if (lambda->isMutable() && renewal.point != nullptr)
            return refuse("a mutable lambda has a state of its own");
        for (const auto* one : lambda->capture_inits())
            if (!again(one, renewal)) return false;
        return true;
    }
    if (const auto* member = dyn_cast<clang::MemberExpr>(expression)) {
        if (position_of(member) != Position::kNone) return true;
    } else if (const auto* cast = dyn_cast<clang::CastExpr>(expression)) {
        if (cast->getCastKind() == clang::CK_LValueToRValue) {
            const clang::Expr* place = cast->getSubExpr()->IgnoreParens();
            if (is_position(place)) return true;
            if (address_base(place) != nullptr || isa<clang::ArraySubscriptExpr>(place))
                return refuse("it loads from memory");
        }
    } else if (const auto* unary = dyn_cast<clang::UnaryOperator>(expression)) {
        if (unary->isIncrementDecrementOp()) return refuse("it has a side effect");
    } else if (const auto* binary = dyn_cast<clang::BinaryOperator>(expression)) {
        if (binary->isAssignmentOp()) return refuse("it has a side effect");
    } else if (const auto* call = dyn_cast<clang::CallExpr>(expression)) {
        const auto* callee = call->getDirectCallee();
        if (callee == nullptr || call_of(callee) != Call::kNone)
            return refuse("it calls a function that is not known to be pure");
        const CalleeSummary& summary = callees_.summary(callee);
        if (summary.reads_memory || summary.unknown != nullptr)
            return refuse("it calls a function that is not known to be pure");
    } else if (const auto* construct = dyn_cast<clang::CXXConstructExpr>(expression)) {
        const auto* constructor = construct->getConstructor();
        if (!constructor->isTrivial() && !constructor->isConstexpr())
            return refuse("its constructor is not known to be pure");
    } else if (!is_transparent(expression) &&
               !isa<clang::ArraySubscriptExpr, clang::CXXDefaultArgExpr>(expression)) {
        return refuse("it is not known to be pure");
    }
    for (const clang::Stmt* child : expression->children())
        if (!again(child, renewal)) return false;
    return true;
}

bool Recreation::can_be_made_again(const clang::VarDecl* variable, const clang::Stmt* point,
                                   Obstacle& obstacle) const {
    if (!variable->hasInit()) {
        obstacle = {"it has no initialiser", nullptr};
        return false;
    }
    const bool is_reference = variable->getType()->isReferenceType();
    if (!is_reference && accesses_.facts(variable).written) {
        obstacle = {"it is written after its declaration", nullptr};
        for (const Access& access : accesses_.all())
            if (access.variable == variable && access.writes) obstacle.where = access.reference;
        return false;
    }
    return again(variable->getInit(), {variable, point, obstacle});
}

bool Recreation::may_be_evaluated_again(const clang::VarDecl* variable) const {
    Obstacle ignored;
    return variable->hasInit() && again(variable->getInit(), {variable, nullptr, ignored});
}

// Its size must be the one that is known here: a lambda that reads the block's position captures
// that too, in the text that is written.
bool Recreation::is_closure_of_values(const clang::VarDecl* variable) const {
    const auto* record = record_of(variable->getType());
    if (record == nullptr || !record->isLambda() || may_point_into_block(variable)) return false;
    const clang::FunctionDecl* call = record->getLambdaCallOperator();
    if (callees_.summary(call).reads_block) return false;
    if (const auto* generic = call->getDescribedFunctionTemplate())
        for (const clang::FunctionDecl* one : generic->specializations())
            if (callees_.summary(one).reads_block) return false;
    return may_be_evaluated_again(variable);
}

std::set<const clang::VarDecl*> Recreation::named_in(const clang::Stmt* expression) {
    std::set<const clang::VarDecl*> found;
    if (expression == nullptr) return found;
    if (const auto* reference = dyn_cast<clang::DeclRefExpr>(expression))
        if (const clang::VarDecl* variable = variable_of(reference)) found.insert(variable);
    if (const auto* lambda = dyn_cast<clang::LambdaExpr>(expression)) {
        for (const auto* one : lambda->capture_inits()) found.merge(named_in(one));
        return found;
    }
    if (const clang::Expr* array = copied_array(expression)) found.merge(named_in(array));
    for (const clang::Stmt* child : expression->children()) found.merge(named_in(child));
    return found;
}

}  // namespace penstock::compiler
