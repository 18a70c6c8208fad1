// Trace and pattern signatures as text, after the forms of Byna, Chen, Sun, Thakur and Gropp
// ("Parallel I/O Prefetching Using MPI File Caching and I/O Signatures", SC 2008).
//
// The paper's own examples contradict its grammar in places. This is one strict grammar in that
// form. Spaces may stand between any two tokens.
//
// Trace signature, one line for each nest of a program:
//   {operation, initial position, dimension, (level, level ...), repetitions}
//   level: [{offset pattern}, {request size pattern}, {number of repetitions}], outermost first
//     a loop:       [{stride}, {size, growth}, {trips, per outer loop ...}]
//     a delta unit: [{delta, delta ...}, {size, growth, growth ...}, {turns, per outer loop ...}],
//                   two deltas or more, only as the innermost level; one access comes before it
//   operation: READ, WRITE or READ/WRITE. The size of the first access stands in every level. A
//   growth or a factor that is left out is 0. A single access has dimension 0 and the one level
//   [{0}, {size}, {1}]. `repetitions`: the whole, so often at the same place.
// As in {READ, 4096, 2, ([{65536}, {512}, {100}], [{4096}, {512}, {8}]), 1}.
//
// The form cannot express bodies of several nodes (the nest of an out-of-core LU has one), lists
// and random nodes. These are lost: file, context and ranks (a signature is of one rank), think
// times and provenance. A delta unit of one delta comes back as a loop. A loop of one trip around
// the whole disappears.
//
// A pattern signature describes a whole program. It names the class and no accesses:
//   {operation, <spatial pattern, dimension>, <repetition>, <request size>, <temporal intervals>}
// As in {READ, <2-d strided, 2>, <repeating>, <fixed small>, <fixed>}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "access/program.h"
#include "penstock/status.h"

namespace penstock::access {

// Returns the signature of one rank's accesses. The program must have passed validate(). ENOTSUP:
// the form cannot express it; the status says why.
[[nodiscard]] Result<std::string> write_trace_signature(const Program& program, uint64_t rank = 0);
// Parses a signature and returns a valid program. EINVAL: the text is wrong; the status says why.
[[nodiscard]] Result<Program> parse_trace_signature(std::string_view text);

enum class Spatial : uint8_t {
    kContiguous,       // each access begins where the last ended; a single access
    kFixedStrided,     // one stride
    kNestedStrided,    // k strides: k-d strided
    kNegativeStrided,  // the innermost stride is negative
    kRandomStrided,    // lists and random nodes
    kCombination,      // several of these, or one after another within a loop; delta units
};
enum class Repetition : uint8_t { kSingle, kRepeating };
enum class SizeClass : uint8_t { kUnknown, kSmall, kMedium, kLarge };
enum class Interval : uint8_t { kUnknown, kFixed, kRandom };

struct PatternSignature {
    Operation operation = Operation::kRead;
    Spatial spatial = Spatial::kContiguous;
    uint32_t dimension = 0;  // strides not 0 in the deepest nest; a delta unit is one
    // kRepeating: a pattern that comes several times, as a level of a nest does within another.
    Repetition repetition = Repetition::kSingle;
    bool size_fixed = true;
    SizeClass size = SizeClass::kUnknown;    // by first accesses; < 4 KiB: small; >= 64 KiB: large
    Interval interval = Interval::kUnknown;  // fixed: deviations up to a quarter of the mean
    friend bool operator==(const PatternSignature&, const PatternSignature&) = default;
};

// Returns the class of a program, which must have passed validate(). It is judged in canonical
// form.
[[nodiscard]] PatternSignature pattern_of(const Program& program, uint64_t rank = 0);
[[nodiscard]] std::string write_pattern_signature(const PatternSignature& pattern);
[[nodiscard]] Result<PatternSignature> parse_pattern_signature(std::string_view text);

}  // namespace penstock::access
