// Parses recorded accesses of other programs: this project's text form, strace, and Darshan's DXT
// text.
//
// The caller passes text in chunks and gets streams: a file, an operation, and a rank or thread,
// with the accesses in the order of the trace. Nothing is lost silently: what is skipped is counted
// by cause, with the first line. Invalid lines of this project's form, and anything beyond a limit,
// end the parsing with an error that names the line.
//
// This project's form, version 1, is the line "penstock-trace 1", then one access per line. Fields
// are separated by single spaces; each line ends with a newline:
//
//      time_ns stream op file offset size        op: r or w
//
// `stream` is the number of a rank, block or thread. In `file`, bytes up to space, '%' and 0x7f are
// written as %XX. Empty lines and lines that begin with '#' are ignored. Zero bytes before a line
// and at the end are ignored too; a line with zero bytes in it is skipped and counted.
//
// strace: the output of `strace -f -ttt -T -y -o FILE`, with or without process numbers in front.
// File positions are followed per open file through openat, dup, fork and lseek. Sizes are those
// that the call returned. Ranks count threads in order of appearance. Calls that move bytes in a
// way that is not followed are counted with the name of their file. Darshan: the output of
// darshan-dxt-parser. Accesses of MPI-IO are streams with the context 1; those of POSIX, which may
// be the same bytes, have 0. Threads of a rank are streams of their own, if the text tells them.
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
    uint64_t thread = 0;  // of the rank, in order of appearance
    std::vector<Access> accesses;
    std::vector<uint64_t> times_ns;  // start times; they never decrease
};

// Lines, or what they describe, that gave no access.
struct TraceSkip {
    std::string cause;
    uint64_t count = 0;
    uint64_t first_line = 0;  // counted from 1
    friend bool operator==(const TraceSkip&, const TraceSkip&) = default;
};

struct Trace {
    std::vector<TraceStream> streams;  // in order of appearance
    std::vector<TraceSkip> skips;
    std::vector<TraceSkip> warnings;  // accesses whose offsets may be wrong, by cause
    uint64_t lines = 0;
    uint64_t accesses = 0;
    // Accesses earlier than the previous one of their stream. They got its time.
    uint64_t clock_jumps = 0;
};

// Detects the form of a trace by how its first lines begin. Anything unknown counts as strace.
[[nodiscard]] TraceForm trace_form(std::string_view head);

class TraceLines;

class TraceReader {
public:
    explicit TraceReader(TraceForm form);
    ~TraceReader();
    TraceReader(const TraceReader&) = delete;
    TraceReader& operator=(const TraceReader&) = delete;

    // Parses the next part of the text, which may end anywhere. After an error each call returns it
    // again.
    Status read(std::string_view chunk);
    // Ends the text.
    Status finish();
    // Returns what was parsed; after an error, up to there. Call it once.
    Trace take();
    // Returns the message of an error: "line 7: the size is no number".
    [[nodiscard]] std::string message() const;

private:
    Status line(std::string_view text);

    TraceForm form_;
    std::unique_ptr<TraceLines> lines_;
    std::string rest_;  // a line whose end has not come yet
    Status status_;
};

// Parses a text as a whole.
[[nodiscard]] Result<Trace> read_trace(TraceForm form, std::string_view text);

// Writes this project's form, with the accesses in order of time. It has no contexts.
[[nodiscard]] std::string write_trace(const std::vector<TraceStream>& streams);

}  // namespace penstock::access
