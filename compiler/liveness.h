// Which variables may be read after a place, before they are replaced: backward over the flow
// graph.
//
// Values are bits: one for a variable, one for each element of an array whose subscripts are
// constant. A variable whose address is kept is live wherever it is in scope; a shared variable is
// live while any later statement names it, since no thread replaces all of it.
#pragma once

#include <llvm/ADT/BitVector.h>

#include <map>
#include <vector>

#include "compiler/accesses.h"
#include "compiler/flow_graph.h"

namespace penstock::compiler {

class Liveness {
public:
    Liveness(const Accesses& accesses, const FlowGraph& graph);

    // Returns the values that are live behind an element of the graph. `also` is an expression
    // whose variables are read again there.
    [[nodiscard]] llvm::BitVector behind(Place place) const;
    [[nodiscard]] llvm::BitVector before(Place place) const;
    void add_reads(const clang::Stmt* expression, llvm::BitVector& live) const;

    // Returns whether the variable is live, and for an array which elements are.
    [[nodiscard]] bool is_live(const llvm::BitVector& live, const clang::VarDecl* variable) const;
    [[nodiscard]] std::vector<unsigned> live_elements(const llvm::BitVector& live,
                                                      const clang::VarDecl* variable) const;
    // Makes a variable, or an element of it, live or dead in a set.
    void set(const clang::VarDecl* variable, int element, bool value, llvm::BitVector& live) const;
    // Arrays whose elements are told apart have as many bits; other variables have one.
    [[nodiscard]] unsigned bits(const clang::VarDecl* variable) const;

private:
    void place_variables();
    void assign_owners();
    void solve();
    void step(const clang::Stmt* element, llvm::BitVector& live) const;
    void read(const Access& access, llvm::BitVector& live) const;
    [[nodiscard]] llvm::BitVector at_end(const clang::CFGBlock* block) const;

    const Accesses& accesses_;
    const FlowGraph& graph_;
    std::map<const clang::VarDecl*, unsigned> first_bit_;
    unsigned bit_count_ = 0;
    llvm::BitVector always_;
    // The accesses that an element makes, and those that it replaces values by.
    std::map<const clang::Stmt*, std::vector<const Access*>> reads_, replacements_;
    std::vector<llvm::BitVector> at_begin_;  // by the block's number
};

}  // namespace penstock::compiler
