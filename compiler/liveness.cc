// Solves liveness to a fixed point, from the exits backwards.
#include "compiler/liveness.h"

#include "compiler/language.h"

namespace penstock::compiler {

using clang::dyn_cast;

Liveness::Liveness(const Accesses& accesses, const FlowGraph& graph)
    : accesses_(accesses), graph_(graph) {
    place_variables();
    assign_owners();
    solve();
}

void Liveness::place_variables() {
    for (const clang::VarDecl* variable : accesses_.variables()) {
        if (!first_bit_.emplace(variable, bit_count_).second) continue;
        bit_count_ += bits(variable);
    }
    always_.resize(bit_count_);
    for (const clang::VarDecl* variable : accesses_.variables()) {
        const VariableFacts facts = accesses_.facts(variable);
        if (facts.held || facts.captured) set(variable, kWholeVariable, true, always_);
    }
}

unsigned Liveness::bits(const clang::VarDecl* variable) const {
    const unsigned elements = accesses_.facts(variable).elements;
    return elements == 0 ? 1 : elements;
}

// Each access belongs to the innermost element of the graph round it. An access in no element
// could be anywhere: its variable is always live.
void Liveness::assign_owners() {
    for (const Access& access : accesses_.all()) {
        if (access.reads || access.writes) {
            const clang::Stmt* owner = access.reference;
            while (owner != nullptr && graph_.place(owner).block == nullptr)
                owner = accesses_.parent(owner);
            if (owner == nullptr)
                set(access.variable, kWholeVariable, true, always_);
            else
                reads_[owner].push_back(&access);
        }
        if (!access.replaces || access.in_lambda || is_shared(access.variable)) continue;
        if (graph_.place(access.definition).block != nullptr)
            replacements_[access.definition].push_back(&access);
    }
}

void Liveness::set(const clang::VarDecl* variable, int element, bool value,
                   llvm::BitVector& live) const {
    const auto found = first_bit_.find(variable);
    if (found == first_bit_.end()) return;
    const unsigned first = found->second;
    const unsigned count = bits(variable);
    if (element != kWholeVariable && count > 1) {
        if (value)
            live.set(first + static_cast<unsigned>(element));
        else
            live.reset(first + static_cast<unsigned>(element));
        return;
    }
    if (value)
        live.set(first, first + count);
    else
        live.reset(first, first + count);
}

void Liveness::read(const Access& access, llvm::BitVector& live) const {
    // A part of a value that is written leaves the rest, so the whole stays live.
    if (access.reads || (access.writes && is_shared(access.variable)))
        set(access.variable, access.element, true, live);
}

void Liveness::step(const clang::Stmt* element, llvm::BitVector& live) const {
    if (const auto* declarations = dyn_cast<clang::DeclStmt>(element)) {
        for (const auto* one : declarations->decls()) {
            const auto* variable = dyn_cast<clang::VarDecl>(one);
            if (variable != nullptr && is_frame_variable(variable))
                set(variable, kWholeVariable, false, live);
        }
    }
    if (const auto found = replacements_.find(element); found != replacements_.end())
        for (const Access* access : found->second)
            set(access->variable, access->element, false, live);
    if (const auto found = reads_.find(element); found != reads_.end())
        for (const Access* access : found->second) read(*access, live);
}

llvm::BitVector Liveness::at_end(const clang::CFGBlock* block) const {
    llvm::BitVector live(bit_count_);
    for (const auto& next : block->succs())
        for (const clang::CFGBlock* one :
             {next.getReachableBlock(), next.getPossiblyUnreachableBlock()})
            if (one != nullptr) live |= at_begin_[one->getBlockID()];
    return live;
}

void Liveness::solve() {
    if (!graph_.is_built()) return;
    at_begin_.assign(graph_.graph().getNumBlockIDs(), llvm::BitVector(bit_count_));
    for (bool changed = true; changed;) {
        changed = false;
        for (const clang::CFGBlock* block : graph_.graph()) {
            llvm::BitVector live = at_end(block);
            for (unsigned i = block->size(); i-- > 0;)
                if (const clang::Stmt* element = statement_of((*block)[i])) step(element, live);
            if (live == at_begin_[block->getBlockID()]) continue;
            at_begin_[block->getBlockID()] = live;
            changed = true;
        }
    }
}

llvm::BitVector Liveness::behind(Place place) const {
    llvm::BitVector live = at_end(place.block);
    for (unsigned i = place.block->size(); i-- > place.index + 1;)
        if (const clang::Stmt* element = statement_of((*place.block)[i])) step(element, live);
    live |= always_;
    return live;
}

llvm::BitVector Liveness::before(Place place) const {
    llvm::BitVector live = behind(place);
    if (const clang::Stmt* element = statement_of((*place.block)[place.index])) step(element, live);
    live |= always_;
    return live;
}

void Liveness::add_reads(const clang::Stmt* expression, llvm::BitVector& live) const {
    if (expression == nullptr) return;
    if (const auto* reference = dyn_cast<clang::DeclRefExpr>(expression))
        if (const clang::VarDecl* variable = variable_of(reference)) {
            const Access* access = accesses_.find(reference);
            if (access == nullptr || !access->replaces)
                set(variable, access == nullptr ? kWholeVariable : access->element, true, live);
        }
    if (const auto* value = dyn_cast<clang::OpaqueValueExpr>(expression))
        add_reads(value->getSourceExpr(), live);
    for (const clang::Stmt* child : expression->children()) add_reads(child, live);
}

bool Liveness::is_live(const llvm::BitVector& live, const clang::VarDecl* variable) const {
    return !live_elements(live, variable).empty();
}

std::vector<unsigned> Liveness::live_elements(const llvm::BitVector& live,
                                              const clang::VarDecl* variable) const {
    std::vector<unsigned> found;
    const auto first = first_bit_.find(variable);
    if (first == first_bit_.end()) return found;
    for (unsigned i = 0; i < bits(variable); ++i)
        if (live.test(first->second + i)) found.push_back(i);
    return found;
}

}  // namespace penstock::compiler
