// Trace and pattern signatures as text, after the forms that Byna, Chen, Sun, Thakur and Gropp gave
// them ("Parallel I/O Prefetching Using MPI File Caching and I/O Signatures", SC 2008).
//
// The paper's own examples contradict its grammar here and there; this is one strict grammar in its
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
// What the form cannot carry: bodies of several nodes (the nest of an out-of-core LU is one), lists
// and random nodes. What is lost: file, context and ranks (a signature is of one rank), think times
// and provenance; a delta unit of one delta comes back as a loop, and a loop of one trip around
// the whole not at all.
//
// Pattern signature, one for a program; it names the class and tells no access:
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

// The signature of one rank's accesses. The program has passed validate(). ENOTSUP: the form cannot
// carry it, and why.
[[nodiscard]] Result<std::string> write_trace_signature(const Program& program, uint64_t rank = 0);
// A valid program; EINVAL and a line that says what is wrong.
[[nodiscard]] Result<Program> parse_trace_signature(std::string_view text);

enum class Spatial : uint8_t {
    kContiguous,       // each access begins where the last ended; a single access
    kFixedStrided,     // one stride
    kNestedStrided,    // k strides: k-d strided
    kNegativeStrided,  // the innermost stride is negative
    kRandomStrided,    // lists and what cannot be told
    kCombination,      // several of these, or one after another within a loop; delta units
};
enum class Repetition : uint8_t { kSingle, kRepeating };
enum class SizeClass : uint8_t { kUnknown, kSmall, kMedium, kLarge };
enum class Interval : uint8_t { kUnknown, kFixed, kRandom };

struct PatternSignature {
    Operation operation = Operation::kRead;
    Spatial spatial = Spatial::kContiguous;
    uint32_t dimension = 0;  // strides that are not 0, of the deepest nest; a delta unit is one
    // Repeating: a pattern that comes several times, as one level of a nest within another does.
    Repetition repetition = Repetition::kSingle;
    bool size_fixed = true;
    SizeClass size = SizeClass::kUnknown;    // small: below 4 KiB; large: from 64 KiB; of the
                                             // first access of each node
    Interval interval = Interval::kUnknown;  // fixed: deviations up to a quarter of the mean
    friend bool operator==(const PatternSignature&, const PatternSignature&) = default;
};

// The program has passed validate(). Judged in canonical form.
[[nodiscard]] PatternSignature pattern_of(const Program& program, uint64_t rank = 0);
[[nodiscard]] std::string write_pattern_signature(const PatternSignature& pattern);
[[nodiscard]] Result<PatternSignature> parse_pattern_signature(std::string_view text);

}  // namespace penstock::access
