// Shared by the parsers of the three forms: the streams that they fill, and the parsing of numbers.
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

// Collects accesses, and counts what is skipped.
class TraceBuilder {
public:
    // Adds an access that began at `time_ns`.
    Status add(std::string_view file, Operation operation, uint64_t context, uint64_t rank,
               const Access& access, uint64_t time_ns, uint64_t thread = 0);
    void skip(std::string_view cause, uint64_t count = 1);

    Trace trace;

private:
    std::map<std::tuple<std::string, Operation, uint64_t, uint64_t, uint64_t>, size_t, std::less<>>
        index_;
};

// The parser of one form. It gets the lines one by one, without their ends.
class TraceLines {
public:
    virtual ~TraceLines() = default;
    virtual Status line(std::string_view text) = 0;
    // Handles a last line that was cut off: it has no end.
    virtual Status cut_off() {
        builder.skip("the last line is cut off");
        return {};
    }
    virtual Status finish() { return {}; }

    TraceBuilder builder;
};

std::unique_ptr<TraceLines> strace_lines();
std::unique_ptr<TraceLines> darshan_lines();

// Parses the whole text as a number. Returns nothing for anything else, or if it is too large.
std::optional<uint64_t> to_unsigned(std::string_view text);
std::optional<int64_t> to_signed(std::string_view text);
// Parses seconds such as "12.3456" and returns nanoseconds.
std::optional<uint64_t> seconds_to_ns(std::string_view text);
// Returns whether bytes [offset, offset + size) can be in a file.
bool in_a_file(int64_t offset, int64_t size);
// Takes the text up to the next space. Several spaces count as one.
std::string_view take_word(std::string_view& text);

}  // namespace penstock::access
