// Between programs and the recogniser's terms. Allocates. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "access/nest_term.h"

namespace penstock::access {

// The program's nodes as terms for one rank; kDeltas, kList and kRandom refer to the program.
[[nodiscard]] std::vector<Term> terms_of(const Program& program, uint64_t rank);

// Nodes for terms that hold accesses and loops only, shortest first: loops of evenly growing
// accesses and the access that ends them are delta units, and runs of accesses are what node_of()
// says. Where that would be more than kNodesMax, the smallest loops are written out into lists.
// False: that does not suffice, or the lists are too long together, and `*out` is a random node.
bool nodes_of(std::span<const Term> terms, std::vector<Node>* out);

// One list, or a random node where there are more than kListMax.
[[nodiscard]] Node node_of(std::span<const Access> accesses);

}  // namespace penstock::access
