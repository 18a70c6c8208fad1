// Converts between programs and the recogniser's terms. Allocates. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "access/nest_term.h"

namespace penstock::access {

// Returns the program's nodes as terms for one rank. kDeltas, kList and kRandom refer to the
// program.
[[nodiscard]] std::vector<Term> terms_of(const Program& program, uint64_t rank);

// Makes nodes from terms that hold only accesses and loops, shortest first. A loop of evenly
// growing accesses and the access that ends it become a delta unit; runs of accesses become
// node_of(). If there would be more than kNodesMax nodes, the smallest loops become lists. Returns
// false if that does not suffice, or if the lists are too long together; `*out` is then a random
// node.
bool nodes_of(std::span<const Term> terms, std::vector<Node>* out);

// Returns one list, or a random node if there are more than kListMax accesses.
[[nodiscard]] Node node_of(std::span<const Access> accesses);

}  // namespace penstock::access
