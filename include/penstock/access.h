// Analysis of recorded accesses and access programs: the class of each stream, which accesses could
// not be predicted and why, signatures as text, programs as JSON or binary, and a plot.
//
// The input comes in chunks of text or bytes: a trace (Penstock's own form, strace, or Darshan's
// DXT text), access programs (JSON or binary), or a trace signature. The first bytes show which it
// is. Nothing here opens a file. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/status.h"

namespace penstock {

namespace access {
struct Program;
}

// Access programs of an earlier run, for ReadAhead::expect(). Copies share them; any thread.
class AccessPrograms {
public:
    // Parses what SignatureReader::programs() returned, JSON or binary. Errors: EINVAL for another
    // text, with the cause; ENOTSUP for a later version.
    [[nodiscard]] static Result<AccessPrograms> parse(std::string_view text);
    AccessPrograms() = default;  // none
    // Returns whether one of them reads the file of this name.
    [[nodiscard]] bool reads(std::string_view file) const { return find(file) != nullptr; }

private:
    friend class ReadAhead;
    // Returns the program with the most accesses that reads the file, or null.
    [[nodiscard]] std::shared_ptr<const access::Program> find(std::string_view file) const;

    std::shared_ptr<const std::vector<access::Program>> all_;
};

// Accesses, or whole lines of a trace, that gave no result, counted by cause.
struct SignatureLoss {
    std::string cause;
    uint64_t count = 0;
    uint64_t first_line = 0;  // first such line of a trace, counted from 1; 0: no line
    uint64_t bytes = 0;       // of accesses: bytes that were not predicted
};

// One stream of accesses: all accesses to one file by one operation, from one context and rank.
// Ranks that one program describes are one stream. So are ranks and threads that share a file, if
// their accesses together are predicted better than those of each.
struct SignatureStream {
    std::string file, operation;
    uint64_t context = 0, first_rank = 0, rank_count = 1;
    uint64_t thread = 0;     // of the rank, in order of appearance; only Darshan tells threads
    uint64_t shared_by = 1;  // ranks and threads whose accesses are taken together, by time
    std::array<uint64_t, 3> grid{1, 1, 1};  // shape of the ranks
    uint64_t accesses = 0;  // accesses examined: all of a trace; of a program, its first rank's
    bool all = true;        // whether these are all; false for long or endless programs
    uint64_t bytes = 0, told_bytes = 0;   // of these accesses; of them, those that were predicted
    uint64_t size_min = 0, size_max = 0;  // bytes of an access
    uint64_t first_ns = 0, last_ns = 0;   // times of the first and the last access; 0: not known
    std::string algorithm;   // the class: the algorithm that predicted most, or "random", or "none"
    double confidence = 0;   // 0 to 1: share of the bytes that were predicted before they were read
    uint64_t sequences = 0;  // contiguous sequences of any sizes that take turns; 0: none
    uint64_t repeat_period = 0;  // accesses after which one long order comes again; 0: none
    std::vector<SignatureLoss> unpredicted;  // accesses that were not predicted, by cause
    std::vector<SignatureLoss> unfolded;     // accesses that the program lists singly, or lacks
    uint32_t nodes = 0;                      // of the program; 0: there is none
    std::string pattern_signature;           // empty: there is no program
    std::string trace_signature;             // of the first rank; empty: why_no_signature says why
    std::string why_no_signature;
    std::string why_no_program;  // why programs() leaves it out; empty: it has a program
};

// The input as a whole, apart from its streams.
struct SignatureSource {
    std::string form;  // "penstock trace", "strace", "Darshan DXT", "access programs", ...
    bool trace = false;
    uint64_t lines = 0, accesses = 0;
    uint64_t clock_jumps = 0;  // accesses with an earlier time than their stream's access before
    std::vector<SignatureLoss> skips;     // largest count first
    std::vector<SignatureLoss> warnings;  // what may be wrong with the accesses that were read
};

// A plot of offsets over access numbers or over time, as cells. Row 0 has the largest offsets. A
// cell is 0 if no stream touches it, or 1 + i % kColours for the last stream i that does.
struct SignaturePlot {
    static constexpr unsigned kColours = 12;
    size_t columns = 0, rows = 0;
    std::vector<uint8_t> cells;
    uint64_t x_end = 0;  // access numbers, or nanoseconds since the first access
    uint64_t offset_begin = 0, offset_end = 0;
};

// Reads an input in chunks and analyses its streams: read() ..., finish(), step() until it returns
// false, then the results.
class SignatureReader {
public:
    SignatureReader();
    ~SignatureReader();
    SignatureReader(SignatureReader&&) noexcept;
    SignatureReader& operator=(SignatureReader&&) noexcept;

    // Reads the next chunk of the input; the input may be cut anywhere. Never blocks. After an
    // error every call returns the same error. Errors: EINVAL for an unknown form or invalid input;
    // ENOTSUP for a newer version; E2BIG beyond a limit.
    Status read(std::string_view chunk);
    // Ends the input. Errors: as read(); EINVAL also when the input contains no access.
    Status finish();
    // Returns the message of the error: "line 7: the size is no size".
    [[nodiscard]] const std::string& message() const;

    // Works on the next of steps() streams; call it after finish(). Returns false when all are
    // done: then streams of several ranks are joined, and the functions below may be called. Cost:
    // milliseconds for 10,000 accesses.
    bool step();
    [[nodiscard]] size_t steps() const;

    [[nodiscard]] const SignatureSource& source() const;
    // Returns the streams: of a trace, those with the most accesses first; of programs, in order.
    [[nodiscard]] const std::vector<SignatureStream>& streams() const;
    // Returns the access programs of all streams that have one. Errors: E2BIG when they are more
    // than the form may hold.
    [[nodiscard]] Result<std::string> programs(bool binary) const;
    // Returns a plot of `columns` by `rows` cells, each 1 to 8192, else EINVAL. It has those of
    // streams() whose indices are in `chosen`; if that is empty, all. `over_time` works for traces
    // only, else ENOTSUP.
    [[nodiscard]] Result<SignaturePlot> plot(size_t columns, size_t rows, bool over_time,
                                             std::span<const size_t> chosen = {}) const;

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace penstock
