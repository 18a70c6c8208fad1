// What the readers of the three forms share: the streams they fill, and the reading of numbers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "access/trace.h"
#include "penstock/status.h"

namespace penstock::access {

// Where accesses and what is passed over are collected.
class TraceBuilder {
public:
    // An access that began at `time_ns`.
    Status add(std::string_view file, Operation operation, uint64_t context, uint64_t rank,
               const Access& access, uint64_t time_ns);
    // `cause` is a literal.
    void skip(const char* cause, uint64_t count = 1);

    Trace trace;

private:
    std::map<std::tuple<std::string, Operation, uint64_t, uint64_t>, size_t, std::less<>> index_;
};

// One form: is given line after line, without their ends.
class TraceLines {
public:
    virtual ~TraceLines() = default;
    virtual Status line(std::string_view text) = 0;
    // The last line was cut off: it has no end.
    virtual Status cut_off() {
        builder.skip("the last line is cut off");
        return {};
    }
    virtual Status finish() { return {}; }

    TraceBuilder builder;
};

std::unique_ptr<TraceLines> strace_lines();
std::unique_ptr<TraceLines> darshan_lines();

// The whole text as a number; none for anything else, or if it is too large.
std::optional<uint64_t> to_unsigned(std::string_view text);
std::optional<int64_t> to_signed(std::string_view text);
// "12.3456" seconds as nanoseconds.
std::optional<uint64_t> seconds_to_ns(std::string_view text);
// Whether bytes [offset, offset + size) can be in a file.
bool in_a_file(int64_t offset, int64_t size);
// Takes the text up to the next space; runs of spaces are one.
std::string_view take_word(std::string_view& text);

}  // namespace penstock::access
