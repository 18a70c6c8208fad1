// Access programs: a description of a stream of accesses to a file, in a few hundred bytes.
//
// A program is a list of nodes in preorder. Loops nest to depth 4. All values of an access (offset,
// size) and the trips of a loop may depend linearly on the indices of the surrounding loops, and on
// the stream's position in a process grid (an MPI rank, a GPU block). That covers strides in any
// number of dimensions, triangular nests and size ramps. Sequences that are no nest are delta units
// or explicit lists. A random node means: do not predict. After seed 004 and Ketterlin and Clauss,
// CGO 2008.
//
// Pure: no I/O and no clock. Values, copied freely; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock::access {

inline constexpr size_t kDepthMax = 4;                    // loops around an access
inline constexpr size_t kGridMax = 3;                     // dimensions of a process grid
inline constexpr size_t kNodesMax = 64;                   // of a program
inline constexpr size_t kListMax = 65536;                 // accesses in a program's lists
inline constexpr size_t kPeriodMax = 32;                  // deltas of a delta unit
inline constexpr size_t kFileBytesMax = 4096;             // of the name of a stream's file
inline constexpr uint64_t kTripsMax = uint64_t{1} << 40;  // of one loop

// One access: bytes [offset, offset + size) of the stream's file; both below 2^63.
struct Access {
    int64_t offset = 0;
    int64_t size = 0;
    friend constexpr bool operator==(const Access&, const Access&) = default;
};

// base + sum of per_loop[d] * index of the d-th surrounding loop (0: the outermost)
//      + sum of per_rank[g] * coordinate g in the process grid.
struct Affine {
    int64_t base = 0;
    std::array<int64_t, kDepthMax> per_loop{};
    std::array<int64_t, kGridMax> per_rank{};
    friend constexpr bool operator==(const Affine&, const Affine&) = default;
};

struct Delta {
    int64_t offset = 0;
    int64_t size = 0;
    friend constexpr bool operator==(const Delta&, const Delta&) = default;
};

enum class NodeKind : uint8_t {
    kAccess,  // one access
    kLoop,    // its body, `trips` times
    kDeltas,  // an access, then `trips` times the deltas, each added to the access before
    kList,    // the accesses of `list`, plus `offset` and `size`
    kRandom,  // `trips` unpredictable accesses (0: any number; last node only)
};

// The time that the program computes between two accesses, as far as it was seen, in nanoseconds.
struct Timing {
    double mean_ns = 0, deviation_ns = 0;
    uint64_t count = 0;  // gaps in the two figures; 0: not known
    friend constexpr bool operator==(const Timing&, const Timing&) = default;
};

struct Node {
    NodeKind kind = NodeKind::kAccess;
    uint32_t body = 0;          // kLoop: count of following nodes inside, with inner loops
    Affine offset, size;        // kAccess, kDeltas (first access), kList (added to each)
    Affine trips;               // kLoop, kDeltas, kRandom; negative values count as 0
    std::vector<Delta> deltas;  // kDeltas: 1 to kPeriodMax
    std::vector<Access> list;   // kList: 1 to kListMax, over all nodes
    Timing think;               // before each access; kLoop: before each turn, in addition
    friend bool operator==(const Node&, const Node&) = default;
};

enum class Operation : uint8_t { kRead, kWrite, kReadWrite };

// Identifies a stream: the file as the user knows it (a path or another name), the operation, the
// context of the call (a hash of the call stack, or a kernel), and the ranks or blocks.
struct StreamKey {
    std::string file;
    Operation operation = Operation::kRead;
    uint64_t context = 0;
    uint64_t first_rank = 0, rank_count = 1;
    friend bool operator==(const StreamKey&, const StreamKey&) = default;
};

enum class Origin : uint8_t { kDeclared, kOnline, kOffline };

struct Provenance {
    Origin origin = Origin::kDeclared;
    uint64_t support = 0;   // accesses that were seen to follow it
    double confidence = 0;  // 0 to 1: share of the accesses seen that it predicted
    friend bool operator==(const Provenance&, const Provenance&) = default;
};

struct Program {
    StreamKey key;
    // Rank r has the coordinates (r % grid[0], r / grid[0] % grid[1], r / grid[0] / grid[1] %
    // grid[2]). No dimension is 0. A line of ranks has the grid {rank_count, 1, 1}. {1, 1, 1} means
    // that nothing depends on the rank.
    std::array<uint64_t, kGridMax> grid{1, 1, 1};
    std::vector<Node> nodes;
    Provenance provenance;
    friend bool operator==(const Program&, const Program&) = default;
};

}  // namespace penstock::access
