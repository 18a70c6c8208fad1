// One program among those with the same accesses, for comparing: what was folded differently
// becomes equal.
#pragma once

#include <cstdint>

#include "access/program.h"
#include "penstock/status.h"

namespace penstock::access {

// The program's accesses, in the same order, as other nodes. Think times and provenance are left
// out; the key stays, and the grid is {1, 1, 1} where nothing depends on the rank. The program has
// passed validate(); the result then passes too, or is the program itself.
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
// Nothing is promised for others: nests with triangular parts are equal only if written alike, two
// turns of a loop stay two, and where several foldings overlap the shortest group from the left is
// taken. Allocates; polynomial in the number of nodes.
[[nodiscard]] Program canonical(const Program& program);

// The same program for one rank: nothing in it depends on the rank any more. EOVERFLOW: a base
// that no access has does not fit in 64 bits.
[[nodiscard]] Result<Program> for_rank(const Program& program, uint64_t rank);

}  // namespace penstock::access
