#include "file/log_recovery.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>

#include "file/file_birth.h"
#include "storage/system_calls.h"

namespace penstock::file {
namespace {

namespace system = storage::system;
using Kind = LogRecord::Kind;
using TellKept = std::function<void(const std::string&)>;

// A record, and where its bytes lie.
struct Entry {
    LogRecord record;
    int half = 0;
    uint64_t bytes_at = 0;
    std::string path;
};
using Entries = std::vector<Entry>;

constexpr int kEnd = -1;
constexpr int kOutOfDate = -2, kChanged = -3;  // beside errnos: why bytes are not put into a file

// Reads all of a range. Returns 0, kEnd where the file ends before, or an errno.
int read_all(int file, void* to, uint64_t size, uint64_t offset) {
    uint64_t done = 0;
    while (done < size) {
        const ssize_t got = system::pread(file, static_cast<std::byte*>(to) + done, size - done,
                                          static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) return kEnd;
        done += static_cast<uint64_t>(got);
    }
    return 0;
}

int write_all(int file, std::span<const std::byte> bytes, uint64_t offset) {
    while (!bytes.empty()) {
        const ssize_t wrote = system::pwrite(file, bytes.data(), bytes.size(),
                                             static_cast<off_t>(offset));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return wrote < 0 ? errno : EIO;
        bytes = bytes.subspan(static_cast<size_t>(wrote));
        offset += static_cast<uint64_t>(wrote);
    }
    return 0;
}

// Reads the records of a half until the first one that is not whole. That one, and what follows it,
// was never durable. Returns 0 or an errno: what cannot be read may have been durable.
int read_half(WriteLog& log, int half, Entries* entries) {
    const int file = log.descriptor(half);
    if (log.key(half) == 0) return 0;
    std::vector<std::byte> bytes;
    uint64_t sequence = 0;
    for (uint64_t at = LogHeader::kSize;;) {
        log.found(half, at);
        Entry entry;
        LogRecord& record = entry.record;
        int error = read_all(file, &record, sizeof record, at);
        if (error != 0) return error == kEnd ? 0 : error;
        if (record.key != log.key(half) || record.path_size > LogRecord::kPathMax ||
            record.bytes_size > LogRecord::kBytesMax ||
            (sequence != 0 && record.sequence != sequence + 1))
            return 0;
        entry.half = half;
        entry.path.resize(record.path_size);
        entry.bytes_at = at + sizeof record + record.path_size;
        bytes.resize(record.bytes_size);
        error = read_all(file, entry.path.data(), record.path_size, at + sizeof record);
        if (error == 0) error = read_all(file, bytes.data(), bytes.size(), entry.bytes_at);
        if (error != 0) return error == kEnd ? 0 : error;
        if (checksum_of(record, entry.path, bytes) != record.checksum) return 0;
        sequence = record.sequence;
        at = entry.bytes_at + record.bytes_size;
        entries->push_back(std::move(entry));
    }
}

// Does what records say to an open file. Returns 0 or an errno. Sizes that storage never takes are
// skipped, and `refused` gets the errno of one: such a record may be of a call that failed.
int apply(const WriteLog& log, const Entries& entries, int file, LogRecovery* told, int* refused) {
    std::vector<std::byte> bytes;
    for (const Entry& entry : entries) {
        const LogRecord& record = entry.record;
        bool resizes = record.kind == Kind::kTruncate;
        if (record.kind == Kind::kWrite) {
            bytes.resize(record.bytes_size);
            if (read_all(log.descriptor(entry.half), bytes.data(), bytes.size(), entry.bytes_at) !=
                0)
                return EIO;
            if (const int error = write_all(file, bytes, record.offset); error != 0) return error;
            struct stat state {};
            if (system::fstat(file, &state) != 0) return errno;
            resizes = static_cast<uint64_t>(state.st_size) < record.size;
        }
        if (resizes && system::ftruncate(file, static_cast<off_t>(record.size)) != 0) {
            if (errno != EFBIG && errno != EINVAL) return errno;
            *refused = errno;
        }
        told->bytes += record.bytes_size;
        ++told->records;
    }
    return system::fsync(file) == 0 ? 0 : errno;
}

// The records of one file, and what became of them.
struct Place {
    Entries entries;
    bool found = false;
    int error = ENOENT;  // why the file did not get its bytes; 0: it has them
    int refused = 0;     // why it did not get a size
};
using Places = std::map<LoggedFile, Place>;

// Finds a file by its path below a folder. Links are not followed, whatever is renamed meanwhile: a
// user who may change folders there must not turn the bytes to another file. Returns a descriptor
// for a look, or -1.
int find_below(int root, const std::string& path) {
    int folder = root;
    for (size_t at = 0;;) {
        const size_t end = path.find('/', at);
        const bool last = end == std::string::npos;
        const std::string name = path.substr(at, end - at);
        const bool leaves = name.empty() || name == "." || name == "..";
        const int flags = O_PATH | O_NOFOLLOW | O_CLOEXEC | (last ? 0 : O_DIRECTORY);
        const int next = leaves ? -1 : system::openat(folder, name.c_str(), flags);
        if (folder != root) system::close(folder);
        if (last || next < 0) return next;
        folder = next;
        at = end + 1;
    }
}

// Returns whether a file was changed after the process of the log had ended: by another program,
// which may have written newer bytes.
bool is_changed_since(const WriteLog& log, const struct stat& state) {
    const int64_t until = log.lived_until_ns();
    const int64_t changed = state.st_ctim.tv_sec * int64_t{1'000'000'000} + state.st_ctim.tv_nsec;
    return until != 0 && changed > until;
}

// Looks at the file that was found, and returns whether it is the one which the records mean. If
// so, and `told` is not null, puts the records into it, unless it was changed.
bool put(WriteLog& log, const LoggedFile& wanted, int found, Place* place, LogRecovery* told) {
    LoggedFile there;
    struct stat state {};
    if (found < 0 || system::fstat(found, &state) != 0 || !S_ISREG(state.st_mode) ||
        !describe_birth(found, &there))
        return false;
    // A device may have another number after a restart of the machine. The birth tells enough.
    if (there.inode != wanted.inode || there.birth_ns != wanted.birth_ns ||
        (there.device != wanted.device && wanted.birth_ns == 0))
        return false;
    place->found = true;
    if (told == nullptr && is_changed_since(log, state)) place->error = kChanged;
    if (told == nullptr || place->error == kChanged) return true;
    // What this changes from now on is not taken for another program's change, if it is killed too.
    if (Status status = log.extend_life(); !status.ok()) {
        place->error = status.error_number();
        return true;
    }
    // The same file, whichever has its name by now.
    const system::ScopedDescriptor opened(
        system::open(("/proc/self/fd/" + std::to_string(found)).c_str(), O_WRONLY | O_CLOEXEC));
    place->error = opened.get() < 0
                       ? errno
                       : apply(log, place->entries, opened.get(), told, &place->refused);
    return true;
}

// Looks for files by their inode numbers in an open folder and below, on whichever file system.
void search(WriteLog& log, int folder, Places* places, size_t* left, LogRecovery* told) {
    std::vector<system::FolderEntry> entries;
    if (system::list_folder(folder, &entries) != 0) return;
    for (const system::FolderEntry& entry : entries) {
        for (auto& [file, place] : *places) {
            if (file.inode != entry.inode || place.found) continue;
            const system::ScopedDescriptor found(
                system::openat(folder, entry.name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
            if (put(log, file, found.get(), &place, told)) --*left;
        }
        if (*left == 0) return;
        if (entry.type != DT_DIR && entry.type != DT_UNKNOWN) continue;
        const system::ScopedDescriptor below(system::openat(
            folder, entry.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (below.get() >= 0) search(log, below.get(), places, left, told);
    }
}

// Puts records into the files that are there. `told` null: only looks which were changed.
void put_all(WriteLog& log, int root, Places* places, LogRecovery* told) {
    size_t left = 0;
    for (auto& [file, place] : *places) place.found = false;
    for (auto& [file, place] : *places) {
        const system::ScopedDescriptor found(find_below(root, place.entries.back().path));
        if (!put(log, file, found.get(), &place, told)) ++left;
    }
    // A file may have another name by now.
    const system::ScopedDescriptor listed(
        left == 0 ? -1 : system::openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (listed.get() >= 0) search(log, listed.get(), places, &left, told);
}

// Puts bytes that have no place into a file of their own. Returns its name; empty: it failed, and
// errno tells why.
std::string keep(const WriteLog& log, const Entries& entries, const std::string& folder) {
    constexpr size_t kNameMax = 120;  // some file systems take 143 bytes in all
    const std::string& path = entries.back().path;
    std::string name = path.substr(path.rfind('/') + 1);
    if (name.size() > kNameMax) {
        size_t end = kNameMax;
        while (end > 0 && (name[end] & 0xc0) == 0x80) --end;  // inside a letter of UTF-8
        name.resize(end);
    }
    name = folder + "/penstock-kept-" + name + "-XXXXXX";
    const system::ScopedDescriptor file(system::make_unique_file(&name));
    if (file.get() < 0) return "";
    LogRecovery unused;
    int refused = 0;
    errno = apply(log, entries, file.get(), &unused, &refused);
    if (errno == 0) return name;
    const int error = errno;
    (void)system::unlink(name.c_str());
    errno = error;
    return "";
}

uint64_t bytes_of(const Entries& entries) {
    uint64_t bytes = 0;
    for (const Entry& entry : entries) bytes += entry.record.bytes_size;
    return bytes;
}

std::string reason_of(int error) {
    if (error == kOutOfDate) return "the log is out of date: files were used without it since";
    return error == kChanged ? "the file was changed since" : std::strerror(error);
}

// Tells of bytes that are in a kept file.
std::string line_of(const Entries& entries, const std::string& root, int error,
                    const std::string& name) {
    return root + "/" + entries.back().path + ": " + std::to_string(bytes_of(entries)) +
           " bytes that were synced could not be put there (" + reason_of(error) +
           "); they are in " + name;
}

// Tells of a size that the file did not get.
std::string line_of_size(const Entries& entries, const std::string& root, int error) {
    return root + "/" + entries.back().path + ": a size in the log could not be set there (" +
           reason_of(error) + ")";
}

Status sync_folder(const std::string& folder) {
    const system::ScopedDescriptor names(
        system::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (names.get() >= 0 && system::fsync(names.get()) == 0) return {};
    return {errno, "tier", "the names of what is kept cannot be made durable"};
}

// Returns the records that are not forgotten, by their files and in their order.
Places places_of(const Entries& all) {
    std::map<LoggedFile, uint64_t> forgotten;
    for (const Entry& entry : all)
        if (entry.record.kind == Kind::kForget)
            forgotten[entry.record.file] = std::max(forgotten[entry.record.file],
                                                    entry.record.offset);
    Places places;
    for (const Entry& entry : all)
        if (entry.record.kind != Kind::kForget &&
            entry.record.sequence > forgotten[entry.record.file])
            places[entry.record.file].entries.push_back(entry);
    return places;
}

// Puts what has no place into files in `folder`, durably. Errors: those of storage; then it has
// made none.
Status keep_all(const WriteLog& log, const Places& places, const std::string& folder,
                const std::string& root, const TellKept& tell, LogRecovery* told) {
    Status nowhere;
    std::vector<std::string> made, lines;
    for (const auto& [file, place] : places) {
        const Entries& entries = place.entries;
        const int error = place.error, refused = place.refused;
        if (error == 0) ++told->files;
        if (error == 0 && refused == 0) continue;
        if (error == 0 || bytes_of(entries) == 0) {
            lines.push_back(line_of_size(entries, root, error == 0 ? refused : error));
            continue;
        }
        const std::string name = keep(log, entries, folder);
        if (name.empty()) {
            nowhere = {errno, "tier", "what its log has can be put nowhere"};
            continue;  // the other files get what is theirs
        }
        made.push_back(name);
        lines.push_back(line_of(entries, root, error, name));
    }
    if (nowhere.ok() && !made.empty()) nowhere = sync_folder(folder);
    // Else the log still has these bytes, and the next start keeps them again.
    if (!nowhere.ok())
        for (const std::string& name : made) (void)system::unlink(name.c_str());
    for (const std::string& line : lines) {
        if (nowhere.ok() && tell != nullptr) tell(line);
        told->kept.push_back(line);
    }
    return nowhere;
}

// Keeps what the log has of files that were changed since, and has the log forget them: another
// recovery, if this one is killed, could not tell their changes from its own.
Status keep_changed(WriteLog& log, Places* places, const Entry& last, const std::string& folder,
                    const std::string& root, const TellKept& tell, LogRecovery* told) {
    Places changed;
    for (auto place = places->begin(); place != places->end();) {
        const auto next = std::next(place);
        if (place->second.error == kChanged) changed.insert(places->extract(place));
        place = next;
    }
    if (changed.empty()) return {};
    if (Status status = keep_all(log, changed, folder, root, tell, told); !status.ok())
        return status;
    log.continue_after(last.record.sequence, last.half);
    for (const auto& [file, place] : changed) {
        LogRecord record;
        record.file = file;
        record.offset = last.record.sequence;
        record.kind = Kind::kForget;
        const auto appending = log.begin();
        if (Status status = log.append(record, {}, {}); !status.ok()) return status;
    }
    return log.make_durable();
}

bool is_read_only(int folder) {
    struct statfs state {};
    return system::fstatfs(folder, &state) == 0 && (state.f_flags & ST_RDONLY) != 0;
}

}  // namespace

Result<LogRecovery> recover_log(WriteLog& log, uint64_t generation, const std::string& folder,
                                const std::string& root, const TellKept& tell_kept) {
    LogRecovery told;
    Entries all;
    bool is_current = true;
    for (const int half : {0, 1}) {
        const size_t before = all.size();
        if (const int error = read_half(log, half, &all); error != 0)
            return Status{error, "tier", "its log cannot be read, and stays"};
        // A new generation is given to empty halves alone.
        if (all.size() > before && log.generation(half) != generation) is_current = false;
    }
    // Where the folder itself does not answer, no file counts as gone.
    const system::ScopedDescriptor below(
        all.empty() ? -1 : system::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    std::vector<system::FolderEntry> listed;
    if (!all.empty() && (below.get() < 0 || system::list_folder(below.get(), &listed) != 0))
        return Status{errno, "tier", "its log stays, since the folder of its files cannot be read"};
    if (!all.empty() && is_current && is_read_only(below.get()))
        return Status{
            EROFS, "tier",
            "its log stays, since the file system of its files is read-only now (mount it "
            "for writing)"};
    std::ranges::stable_sort(all, {}, [](const Entry& entry) { return entry.record.sequence; });
    Places places = places_of(all);
    if (is_current && !places.empty()) {
        put_all(log, below.get(), &places, nullptr);
        if (Status status = keep_changed(log, &places, all.back(), folder, root, tell_kept, &told);
            !status.ok())
            return status;
        put_all(log, below.get(), &places, &told);
    }
    if (!is_current)
        for (auto& [file, place] : places) place.error = kOutOfDate;
    if (Status status = keep_all(log, places, folder, root, tell_kept, &told); !status.ok())
        return status;
    // The older half first: else a crash now would leave its records alone, to be replayed over
    // what the newer ones have put there.
    std::array<uint64_t, 2> last{};
    for (const Entry& entry : all) last[static_cast<size_t>(entry.half)] = entry.record.sequence;
    const int older = last[0] < last[1] ? 0 : 1;
    for (const int half : {older, 1 - older})
        if (Status status = log.key(half) == 0 ? Status{} : log.reset(half); !status.ok())
            return status;
    if (!all.empty()) log.continue_after(log.last_sequence() + all.back().record.sequence, 0);
    return told;
}

}  // namespace penstock::file
