// Chooses one program among those with the same accesses, for comparisons: programs that were
// folded differently become equal.
#pragma once

#include <cstdint>

#include "access/program.h"
#include "penstock/status.h"

namespace penstock::access {

// Returns a program with the same accesses in the same order, in canonical form. Think times and
// provenance are left out. The key stays, and the grid is {1, 1, 1} if nothing depends on the rank.
// `program` must have passed validate(); the result then passes too, or is `program` itself.
//
// Two programs become equal if they differ only in
//   - loops of one trip or none, delta units without trips, random nodes without accesses;
//   - delta units of constant trips, and lists of up to 32 accesses, as against the single accesses
//     they stand for, as long as there is room for those in 64 nodes;
//   - three or more turns of a loop written one after another, its trips being constant; and any
//     number of turns written before or behind the loop, or the loop cut in two;
//   - a loop cut into a nest that goes through the same accesses (strip mining), repetitions of
//     repetitions included;
//   - what a list adds to its accesses as against what these are themselves.
// Other programs may stay different: nests with triangular parts are equal only if written alike,
// and two turns of a loop stay two. If several foldings overlap, the shortest group from the left
// is taken. Allocates; polynomial in the number of nodes.
[[nodiscard]] Program canonical(const Program& program);

// Returns the same program for one rank, so that nothing in it depends on the rank. EOVERFLOW: a
// base that no access uses does not fit in 64 bits.
[[nodiscard]] Result<Program> for_rank(const Program& program, uint64_t rank);

}  // namespace penstock::access
