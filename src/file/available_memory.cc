#include "file/available_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "storage/system_calls.h"

namespace penstock::file {
namespace {

namespace system = storage::system;

constexpr uint64_t kUnknown = UINT64_MAX;
constexpr size_t kTextMax = 16 << 10;

std::string text_of(const std::string& path) {
    const system::ScopedDescriptor file(system::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string text(kTextMax, '\0');
    const ssize_t size = file.get() < 0 ? 0 : system::pread(file.get(), text.data(), kTextMax, 0);
    text.resize(size < 0 ? 0 : static_cast<size_t>(size));
    return text;
}

// Returns what one control group leaves. Pages of files count as used there, but can be given back.
uint64_t left_in(const std::string& folder, const char* limit_name, const char* used_name) {
    const uint64_t limit = number_behind(text_of(folder + limit_name), "");
    const uint64_t used = number_behind(text_of(folder + used_name), "");
    if (limit == kUnknown || used == kUnknown) return kUnknown;
    const std::string pages = text_of(folder + "/memory.stat");
    uint64_t given_back = 0;
    for (const char* key : {"inactive_file ", "active_file "}) {
        const uint64_t bytes = number_behind(pages, key);
        if (bytes != kUnknown) given_back += bytes;
    }
    const uint64_t kept = used - std::min(used, given_back);
    return limit - std::min(limit, kept);
}

// Returns what the control groups of this process leave, of version 1 and 2.
uint64_t left_in_groups() {
    const std::string groups = text_of("/proc/self/cgroup");
    uint64_t left = kUnknown;
    for (size_t at = 0; at < groups.size();) {
        const size_t end = std::min(groups.find('\n', at), groups.size());
        const std::string line = groups.substr(at, end - at);
        at = end + 1;
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string kinds = line.substr(first + 1, second - first - 1);
        const bool is_2 = kinds.empty();
        if (!is_2 && ("," + kinds + ",").find(",memory,") == std::string::npos) continue;
        const std::string root = is_2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
            const std::string folder = root + (path == "/" ? "" : path);
            left = std::min(
                left, is_2 ? left_in(folder, "/memory.max", "/memory.current")
                           : left_in(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes"));
            if (path.rfind('/') == std::string::npos) break;
        }
    }
    return left;
}

}  // namespace

uint64_t number_behind(std::string_view text, std::string_view key) {
    size_t at = 0;
    while (text.substr(at, key.size()) != key) {
        at = text.find('\n', at);
        if (at == std::string_view::npos) return kUnknown;
        ++at;
    }
    const size_t begin = text.find_first_not_of(' ', at + key.size());
    if (begin == std::string_view::npos) return kUnknown;
    uint64_t number = 0;
    const auto parsed = std::from_chars(text.data() + begin, text.data() + text.size(), number);
    return parsed.ec == std::errc() ? number : kUnknown;
}

uint64_t available_memory() {
    const uint64_t kib = number_behind(text_of("/proc/meminfo"), "MemAvailable:");
    return std::min(kib == kUnknown ? kUnknown : kib << 10, left_in_groups());
}

}  // namespace penstock::file
