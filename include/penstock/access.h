// Recorded accesses and access programs seen from outside: which class a stream is of, what could
// not be told ahead and why, its signatures as text, its program as JSON or binary, a plot.
//
// Text or bytes go in by chunks: a trace (our own form, strace, Darshan's DXT text), access
// programs (JSON or binary), or a trace signature; which it is shows in the first bytes. Nothing
// here opens a file. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/status.h"

namespace penstock {

// Accesses, or whole lines of a trace, that gave nothing, counted by cause.
struct SignatureLoss {
    std::string cause;
    uint64_t count = 0;
    uint64_t first_line = 0;  // of a trace, counted from 1; 0: no line
};

// One stream of accesses: those of a file by one operation, from one context and rank, or from
// several ranks that one program tells.
struct SignatureStream {
    std::string file, operation;
    uint64_t context = 0, first_rank = 0, rank_count = 1;
    std::array<uint64_t, 3> grid{1, 1, 1};  // of the ranks
    uint64_t accesses = 0;  // that were looked at: all of a trace, those of a program's first rank
    bool all = true;        // there are no more: false for programs that are long or have no end
    std::string algorithm;  // the class: what told most of it ahead, or "random", or "none"
    double confidence = 0;  // 0 to 1: share of the accesses that was told exactly before they came
    std::vector<SignatureLoss> unpredicted;  // of these accesses, and why
    std::vector<SignatureLoss> unfolded;     // those that the program names one by one, or not
    uint32_t nodes = 0;                      // of the program; 0: there is none
    std::string pattern_signature;           // empty: there is no program
    std::string trace_signature;             // of the first rank; empty: see the next
    std::string why_no_signature;
    std::string why_no_program;  // then programs() passes it over; empty: there is one
};

// What went in, apart from its streams.
struct SignatureSource {
    std::string form;  // "penstock trace", "strace", "Darshan DXT", "access programs", ...
    bool trace = false;
    uint64_t lines = 0, accesses = 0;
    uint64_t clock_jumps = 0;  // accesses earlier than the one before them in their stream
    std::vector<SignatureLoss> skips;
};

// Offsets over access numbers or over time, as cells: row 0 has the largest offsets. A cell is 0,
// or 1 + i % kColours where stream i touches it; of several streams the last.
struct SignaturePlot {
    static constexpr unsigned kColours = 12;
    size_t columns = 0, rows = 0;
    std::vector<uint8_t> cells;
    uint64_t x_end = 0;  // access numbers, or nanoseconds since the first access
    uint64_t offset_begin = 0, offset_end = 0;
};

class SignatureReader {
public:
    SignatureReader();
    ~SignatureReader();
    SignatureReader(SignatureReader&&) noexcept;
    SignatureReader& operator=(SignatureReader&&) noexcept;

    // The next piece, cut anywhere. After an error each call returns the same. EINVAL: nothing that
    // is known, or not well written; ENOTSUP: a later version; E2BIG: a limit. Never blocks.
    Status read(std::string_view chunk);
    // There is no more. EINVAL also where not one access was found.
    Status finish();
    // "line 7: the size is no size"; for an error.
    [[nodiscard]] const std::string& message() const;

    // After finish(): works on the next stream of steps(); false: all is done, streams of several
    // ranks are joined and what follows may be asked for. Milliseconds for 10,000 accesses.
    bool step();
    [[nodiscard]] size_t steps() const;

    [[nodiscard]] const SignatureSource& source() const;
    // Of a trace: those with most accesses first; of programs: in their order.
    [[nodiscard]] const std::vector<SignatureStream>& streams() const;
    // The access programs of the streams that have one. E2BIG: more than a text may hold.
    [[nodiscard]] Result<std::string> programs(bool binary) const;
    // `columns` and `rows`: 1 to 8192 each, else EINVAL; ENOTSUP: times of what is no trace.
    [[nodiscard]] Result<SignaturePlot> plot(size_t columns, size_t rows, bool over_time) const;

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace penstock
