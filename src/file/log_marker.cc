#include "file/log_marker.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <cerrno>
#include <charconv>
#include <ctime>
#include <span>
#include <string_view>
#include <utility>

#include "file/file_birth.h"
#include "storage/system_calls.h"

namespace penstock::file {
namespace {

namespace system = storage::system;

constexpr std::string_view kFirstLine = "penstock log 1\n";
constexpr std::string_view kAdvice =
    "# What was synced to the log in this folder is not yet in all files beside this one. Start\n"
    "# Penstock with that --tier once. Removing this file gives up what the log has.\n";

std::string hex_of(uint64_t number) {
    char text[16];
    const auto end = std::to_chars(text, text + sizeof text, number, 16);
    return {text, end.ptr};
}

// A path may have any byte but 0, and a line of the marker none that ends it.
std::string escaped(std::string_view text) {
    std::string result;
    for (const char one : text) {
        if (one == '\\' || one == '\n') result += '\\';
        result += one == '\n' ? 'n' : one;
    }
    return result;
}

std::string unescaped(std::string_view text) {
    std::string result;
    for (size_t i = 0; i < text.size(); ++i) {
        const bool escape = text[i] == '\\' && i + 1 < text.size();
        if (escape) ++i;
        result += escape && text[i] == 'n' ? '\n' : text[i];
    }
    return result;
}

std::string text_of(const LogMarker& marker) {
    std::string text(kFirstLine);
    text += kAdvice;
    text += "folder " + escaped(marker.folder) + "\n";
    text += "host " + escaped(marker.host) + "\n";
    text += "path " + escaped(marker.path) + "\n";
    text += "root " + hex_of(marker.root.inode) + "\n";
    text += "birth " + hex_of(marker.root.birth_ns) + "\n";
    text += "generation " + hex_of(marker.generation) + "\n";
    return text + "checksum " + hex_of(crc32c(0, std::as_bytes(std::span(text)))) + "\n";
}

// Reads the lines of a marker, of which the order does not matter. Returns false if one is wrong.
bool parse(std::string_view text, LogMarker* marker) {
    const size_t last = text.rfind("checksum ");
    if (!text.starts_with(kFirstLine) || last == std::string_view::npos || text[last - 1] != '\n')
        return false;
    const uint32_t sum = crc32c(0, std::as_bytes(std::span(text.substr(0, last))));
    if (text.substr(last) != "checksum " + hex_of(sum) + "\n") return false;
    const std::pair<std::string_view, std::string*> texts[] = {
        {"folder ", &marker->folder}, {"host ", &marker->host}, {"path ", &marker->path}};
    const std::pair<std::string_view, uint64_t*> numbers[] = {{"root ", &marker->root.inode},
                                                              {"birth ", &marker->root.birth_ns},
                                                              {"generation ", &marker->generation}};
    for (std::string_view left = text.substr(0, last); !left.empty();) {
        const std::string_view line = left.substr(0, left.find('\n'));
        left.remove_prefix(line.size() + 1);
        for (const auto& [name, to] : texts)
            if (line.starts_with(name)) *to = unescaped(line.substr(name.size()));
        for (const auto& [name, to] : numbers)
            if (line.starts_with(name))
                std::from_chars(line.data() + name.size(), line.data() + line.size(), *to, 16);
    }
    return marker->generation != 0;
}

Status storage_error(const char* text) { return {errno, "log", text}; }

std::string host_name() {
    utsname machine{};
    return uname(&machine) == 0 ? machine.nodename : "";
}

}  // namespace

Result<LogMarker> new_marker(int root, const std::string& path, const std::string& folder) {
    LogMarker marker;
    if (!describe_birth(root, &marker.root))
        return storage_error("the folder that is cached cannot be described");
    while (marker.generation == 0)
        if (!system::random(&marker.generation, sizeof marker.generation))
            return storage_error("it can get no generation");
    marker.host = host_name();
    marker.path = path;
    marker.folder = folder;
    return marker;
}

bool is_of(const LogMarker& marker, int root, const std::string& path) {
    LoggedFile now;
    if (marker.path == path) return true;
    return describe_birth(root, &now) && marker.root.inode == now.inode &&
           marker.root.birth_ns == now.birth_ns;
}

Result<LogMarker> read_marker(int root) {
    const system::ScopedDescriptor file(
        system::openat(root, LogMarker::kName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file.get() < 0) return storage_error("the file .penstock-log cannot be read");
    struct stat state {};
    if (system::fstat(file.get(), &state) != 0 || !S_ISREG(state.st_mode))
        return Status{EUCLEAN, "log", "what is named .penstock-log is no file"};
    std::string text(LogMarker::kSizeMax, '\0');
    size_t size = 0;
    while (size < text.size()) {
        const ssize_t got = system::pread(file.get(), text.data() + size, text.size() - size,
                                          static_cast<off_t>(size));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return storage_error("the file .penstock-log cannot be read");
        if (got == 0) break;
        size += static_cast<size_t>(got);
    }
    LogMarker marker;
    if (!parse(std::string_view(text).substr(0, size), &marker))
        return Status{EUCLEAN, "log",
                      "the file .penstock-log is damaged (remove it: then a log in the tier counts "
                      "as out of date, and what it has is kept there)"};
    marker.owner = state.st_uid;
    return marker;
}

Result<int64_t> write_marker(int root, const LogMarker& marker) {
    constexpr const char*
        kText = "the file .penstock-log, which --tier-writes needs, cannot be made durable";
    const std::string text = text_of(marker);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
    const system::ScopedDescriptor file(system::openat(root, LogMarker::kNewName, kFlags, 0644));
    if (file.get() < 0) return storage_error(kText);
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const ssize_t wrote = system::write(file.get(), text.data(), text.size());
    if (wrote >= 0 && static_cast<size_t>(wrote) != text.size()) errno = ENOSPC;
    struct stat state {};
    if (wrote < 0 || static_cast<size_t>(wrote) != text.size() || system::fsync(file.get()) != 0 ||
        system::fstat(file.get(), &state) != 0) {
        const Status status = storage_error(kText);
        (void)system::unlinkat(root, LogMarker::kNewName, 0);
        return status;
    }
    if (system::renameat(root, LogMarker::kNewName, root, LogMarker::kName) != 0 ||
        system::fsync(root) != 0)
        return storage_error(kText);
    constexpr int64_t kSecond = 1'000'000'000;
    return (state.st_ctim.tv_sec - now.tv_sec) * kSecond + state.st_ctim.tv_nsec - now.tv_nsec;
}

Status remove_marker(int root) {
    constexpr const char* kText =
        "it cannot be ended, since the file .penstock-log cannot be removed from the folder that "
        "is cached";
    if (system::unlinkat(root, LogMarker::kName, 0) != 0 && errno != ENOENT)
        return storage_error(kText);
    // Also where another process has removed it: that need not be durable.
    return system::fsync(root) == 0 ? Status{} : storage_error(kText);
}

bool is_in_use(const LogMarker& marker) {
    if (marker.host != host_name()) return true;  // only that machine knows
    const std::string name = log_names(marker.folder, marker.path)[0];
    const system::ScopedDescriptor log(
        system::open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (log.get() < 0) return errno == EACCES;  // another user's
    return system::flock(log.get(), LOCK_SH | LOCK_NB) != 0;
}

}  // namespace penstock::file
