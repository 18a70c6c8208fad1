// Reads the command line of penstock-cache.
#include "options.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace penstock::cache_service {
namespace {

bool read_number(const char* text, uint64_t most, uint64_t* number) {
    char* end = nullptr;
    errno = 0;
    const unsigned long long value = std::strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value > most) return false;
    *number = value;
    return true;
}

bool read_flag(const char* text, bool* flag) {
    uint64_t number = 0;
    if (!read_number(text, 1, &number)) return false;
    *flag = number == 1;
    return true;
}

bool read_option(std::string_view name, const char* value, Options* options) {
    uint64_t number = 0;
    if (name == "--path") {
        options->path = value;
    } else if (name == "--mount") {
        options->mountpoint = value;
    } else if (name == "--read-only") {
        return read_flag(value, &options->read_only);
    } else if (name == "--suid") {
        return read_flag(value, &options->suid);
    } else if (name == "--dev") {
        return read_flag(value, &options->dev);
    } else if (name == "--socket") {
        options->socket = value;
    } else if (name == "--device") {
        options->device = value;
    } else if (name == "--cache-size") {
        return read_number(value, uint64_t{1} << 50, &options->cache_size);
    } else if (name == "--chunk-size") {
        return read_number(value, UINT32_MAX, &options->chunk_size);
    } else if (name == "--dirty-limit") {
        return read_number(value, uint64_t{1} << 50, &options->dirty_size_max);
    } else if (name == "--keep-free") {
        return read_number(value, uint64_t{1} << 50, &options->keep_free);
    } else if (name == "--tier") {
        options->tier = value;
    } else if (name == "--tier-size") {
        return read_number(value, uint64_t{1} << 50, &options->tier_size);
    } else if (name == "--tier-writes") {
        return read_flag(value, &options->tier_writes);
    } else if (name == "--log") {
        options->log = value;
    } else if (name == "--ready-fd") {
        if (!read_number(value, INT_MAX, &number)) return false;
        options->ready = static_cast<int>(number);
    } else if (name == "--starter-fd") {
        if (!read_number(value, INT_MAX, &number)) return false;
        options->starter = static_cast<int>(number);
    } else {
        return false;
    }
    return true;
}

}  // namespace

std::string size_text(uint64_t size) {
    constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (size < 1024) return std::to_string(size) + " bytes";
    const auto power = static_cast<unsigned>((std::bit_width(size) - 1) / 10);
    char text[32];
    std::snprintf(text, sizeof text, "%.1f %s",
                  static_cast<double>(size) / static_cast<double>(uint64_t{1} << (10 * power)),
                  kUnits[power - 1]);
    return text;
}

std::vector<std::string> device_names(const Options& options) {
    std::vector<std::string> names;
    for (size_t at = 0; at <= options.device.size();) {
        const size_t end = std::min(options.device.find(',', at), options.device.size());
        names.push_back(options.device.substr(at, end - at));
        at = end + 1;
    }
    return names;
}

bool read_options(int count, char** words, Options* options, std::string* error) {
    for (int i = 1; i < count; i += 2) {
        if (i + 1 < count && read_option(words[i], words[i + 1], options)) continue;
        *error = std::string(words[i]) + ": unknown option, or its value is missing or wrong";
        return false;
    }
    if (options->path.empty()) *error = "--path: is missing";
    return error->empty();
}

}  // namespace penstock::cache_service
