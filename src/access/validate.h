// Checks whether a program may be used: everything that the other parts of this room rely on.
#pragma once

#include "access/program.h"
#include "penstock/status.h"

namespace penstock::access {

// Returns EINVAL and the reason if `program` is not valid. It checks, for every rank of the key:
//   - limits of program.h, bodies that nest, no field set that the kind of node has no use for, no
//     dependence on loops that are not around;
//   - a grid without zeros, in which the ranks of the key have room (any rank in a grid of one);
//   - every offset and size that can be reached is at least 0, and every access ends below 2^63;
//   - trips at most kTripsMax, and accesses at most 2^62 in all;
//   - trips that can turn negative inside a nest depend on one loop only, whose own trips depend on
//     none: others could not be counted in closed form;
//   - a random node without an end is the last, and in no loop.
// Bounds are exact for rectangular nests, and for nests whose loops all turn at least once, if the
// ranks of the key fill a part of the grid that is rectangular. Else, and if loops may be empty, a
// program that stays within the bounds may be refused. O(nodes + list lengths); allocates nothing.
[[nodiscard]] Status validate(const Program& program);

}  // namespace penstock::access
