// Reads recorded accesses of other programs: our own text form, strace, and Darshan's DXT text.
//
// Text goes in by chunks, streams come out: a file, an operation, and a rank or thread, with its
// accesses in the order of the trace. Nothing is lost silently: what is passed over is counted by
// cause, with the line where that was first met. Lines that cannot be right in our own form, and
// whatever passes a limit, end the reading with an error that names the line.
//
// Our own form, version 1: the line "penstock-trace 1", then one access a line, fields separated by
// single spaces, ended by a newline:
//
//      time_ns stream op file offset size        op: r or w
//
// `stream` is a rank, block or thread number. In `file`, bytes up to space, '%' and 0x7f are %XX.
// Lines that begin with '#' and empty ones say nothing.
//
// strace: what `strace -f -ttt -T -y -o FILE` writes, with or without process numbers in front.
// File positions are followed per open file through openat, dup, fork and lseek; sizes are those
// that the call returned; ranks count threads in the order in which they appear. Darshan: what
// darshan-dxt-parser prints; accesses of MPI-IO are streams with the context 1, those of POSIX
// (which may be the same bytes) have 0.
//
// Pure. Allocates. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "access/program.h"
#include "penstock/status.h"

namespace penstock::access {

inline constexpr size_t kTraceLineMax = 1 << 20;            // bytes
inline constexpr uint64_t kTraceAccessesMax = 100'000'000;  // 2.4 GB
inline constexpr size_t kTraceStreamsMax = 1 << 20;

enum class TraceForm : uint8_t { kPenstock, kStrace, kDarshan };

struct TraceStream {
    StreamKey key;
    std::vector<Access> accesses;
    std::vector<uint64_t> times_ns;  // when each began; never falls
};

// Lines, or what they stand for, that gave no access.
struct TraceSkip {
    const char* cause = "";
    uint64_t count = 0;
    uint64_t first_line = 0;  // counted from 1
    friend bool operator==(const TraceSkip&, const TraceSkip&) = default;
};

struct Trace {
    std::vector<TraceStream> streams;  // in order of appearance
    std::vector<TraceSkip> skips;
    uint64_t lines = 0;
    uint64_t accesses = 0;
    // Accesses earlier than the one before them in their stream: they got its time.
    uint64_t clock_jumps = 0;
};

// Which form a trace has, by its first lines; none of the three is taken for strace.
[[nodiscard]] TraceForm trace_form(std::string_view head);

class TraceLines;

class TraceReader {
public:
    explicit TraceReader(TraceForm form);
    ~TraceReader();
    TraceReader(const TraceReader&) = delete;
    TraceReader& operator=(const TraceReader&) = delete;

    // The next piece of the text, cut anywhere. After an error each call returns the same.
    Status read(std::string_view chunk);
    // The text is over.
    Status finish();
    // What was read; with an error, up to there. Once.
    Trace take();
    // "line 7: the size is no number"; for an error.
    [[nodiscard]] std::string message() const;

private:
    Status line(std::string_view text);

    TraceForm form_;
    std::unique_ptr<TraceLines> lines_;
    std::string rest_;  // of a line whose end has not come
    Status status_;
};

// In one piece.
[[nodiscard]] Result<Trace> read_trace(TraceForm form, std::string_view text);

// In our own form, accesses in the order of time. Contexts are not told: the form has none.
[[nodiscard]] std::string write_trace(const std::vector<TraceStream>& streams);

}  // namespace penstock::access
