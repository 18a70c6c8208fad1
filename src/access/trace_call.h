// Parses one line of strace: "123 1700000000.5 read(3</f>, "..."..., 100) = 100 <0.0001>".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::access {

// A file descriptor as `strace -y` shows it: 3</path>.
struct CallDescriptor {
    int64_t number = -1;
    std::string path;  // decoded; empty: not shown
    // Returns whether the path is that of a file, not pipe:[1], socket:[2] or anon_inode:x.
    [[nodiscard]] bool file() const { return path.starts_with('/'); }
};

struct Call {
    std::string_view name;
    std::vector<std::string_view> arguments;
    std::string_view result;  // "100", "-1", "?", "3</path>"
    bool failed = false;      // -1 or ?
};

// The part of the line before the call.
struct CallHead {
    uint64_t process = 0;  // 0: not shown
    uint64_t time_ns = 0;
    std::string_view rest;
};

// Returns nothing if the line has no time.
std::optional<CallHead> call_head(std::string_view line);
// Parses a whole call. Returns nothing if it is malformed or cut off.
std::optional<Call> parse_call(std::string_view text);
// Returns nothing if the text does not begin with a number.
std::optional<CallDescriptor> call_descriptor(std::string_view text);

}  // namespace penstock::access
