#include "file/write_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "storage/system_calls.h"

namespace penstock::file {
namespace {

namespace system = storage::system;

// Space behind that of writes, for records of the other kinds.
constexpr uint64_t kSpare = 1 << 20;

// Table k takes a byte that k further bytes follow.
constexpr std::array<std::array<uint32_t, 256>, 8> make_tables() {
    std::array<std::array<uint32_t, 256>, 8> tables{};
    for (uint32_t i = 0; i < 256; ++i) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1) != 0 ? 0x82f63b78u : 0);
        tables[0][i] = value;
    }
    for (size_t k = 1; k < 8; ++k)
        for (uint32_t i = 0; i < 256; ++i)
            tables[k][i] = tables[k - 1][i] >> 8 ^ tables[0][tables[k - 1][i] & 0xff];
    return tables;
}

template <class Value>
std::span<const std::byte> bytes_of(const Value& value) {
    return std::as_bytes(std::span(&value, 1));
}

// Opens a half, and locks it. In a folder where others may make files it must not be theirs, nor a
// link to another file of this user.
Status open_half(const std::string& path, int* file) {
    *file = system::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (*file < 0 && errno == ELOOP) return {ELOOP, "tier", "its log is a link, and is not used"};
    if (*file < 0) return {errno, "tier", "its log cannot be opened"};
    if (system::flock(*file, LOCK_EX | LOCK_NB) != 0)
        return {EBUSY, "tier", "another process writes its log for this folder"};
    struct stat state {};
    if (system::fstat(*file, &state) != 0) return {errno, "tier", "its log cannot be described"};
    if (!S_ISREG(state.st_mode) || state.st_uid != geteuid() || state.st_nlink != 1 ||
        (state.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return {EPERM, "tier",
                "its log is not a file of this user alone (another owner, a second name, or "
                "others may write it), and is not used"};
    return {};
}

// Reads as much of a value as a file has.
template <class Value>
Status read_value(int file, uint64_t offset, Value* value) {
    uint64_t done = 0;
    while (done < sizeof *value) {
        const ssize_t got = system::pread(file, reinterpret_cast<std::byte*>(value) + done,
                                          sizeof *value - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return {errno, "tier", "its log cannot be read"};
        if (got == 0) break;
        done += static_cast<uint64_t>(got);
    }
    return {};
}

// Reads the header of a half. Its key is 0 where the half never got one.
Status read_header(int file, LogHeader* out) {
    LogHeader header;
    header.magic = 0;
    if (Status status = read_value(file, 0, &header); !status.ok()) return status;
    constexpr uint64_t kVersion = uint64_t{0xff} << 56;
    if (header.magic == 0 && header.key == 0) return {};
    if (header.magic != LogHeader::kMagic && ((header.magic ^ LogHeader::kMagic) & ~kVersion) == 0)
        return {EOPNOTSUPP, "tier",
                "its log was written by another version of Penstock (start that one once with this "
                "tier, or remove penstock-log-* there, which loses what they have)"};
    if (header.magic != LogHeader::kMagic || header.key == 0 ||
        header.checksum != checksum_of(header))
        return {EUCLEAN, "tier",
                "its log is damaged (remove penstock-log-* there, which loses what they have)"};
    *out = header;
    return {};
}

}  // namespace

uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes) {
    static constexpr auto kTables = make_tables();
    crc = ~crc;
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
        uint64_t word = 0;
        std::memcpy(&word, bytes.data(), sizeof word);
        word ^= crc;  // machines that Penstock runs on have the low byte first
        crc = 0;
        for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> 8 * k & 0xff];
    }
    for (const std::byte byte : bytes)
        crc = crc >> 8 ^ kTables[0][(crc ^ std::to_integer<uint32_t>(byte)) & 0xff];
    return ~crc;
}

uint32_t checksum_of(const LogRecord& record, std::string_view path,
                     std::span<const std::byte> bytes) {
    LogRecord plain = record;
    plain.checksum = 0;
    const uint32_t of_path = crc32c(crc32c(0, bytes_of(plain)), std::as_bytes(std::span(path)));
    return crc32c(of_path, bytes);
}

uint32_t checksum_of(LogLife life) {
    life.checksum = 0;
    return crc32c(0, bytes_of(life));
}

uint32_t checksum_of(LogHeader header) {
    header.checksum = 0;
    return crc32c(0, bytes_of(header));
}

std::array<std::string, 2> log_names(const std::string& folder, const std::string& root) {
    uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const char letter : root)
        hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
    constexpr char kDigits[] = "0123456789abcdef";
    std::string name = folder + "/penstock-log-";
    for (int shift = 60; shift >= 0; shift -= 4) name += kDigits[hash >> shift & 15];
    return {name + ".0", name + ".1"};
}

Result<std::unique_ptr<WriteLog>> WriteLog::open(const std::string& folder, const std::string& root,
                                                 uint64_t size_max) {
    std::unique_ptr<WriteLog> log(new WriteLog(size_max));
    log->paths_ = log_names(folder, root);
    for (size_t half = 0; half < 2; ++half) {
        Status status = open_half(log->paths_[half], &log->files_[half]);
        LogHeader header;
        if (status.ok()) status = read_header(log->files_[half], &header);
        if (!status.ok()) return status;
        log->keys_[half] = header.key;
        log->generations_[half] = header.generation;
    }
    LogLife life;
    if (Status status = read_value(log->files_[0], LogLife::kOffset, &life); !status.ok())
        return status;
    if (life.generation == log->generations_[0] && life.checksum == checksum_of(life))
        log->lived_until_ns_ = life.until_ns;
    // The names of the files must outlive a loss of power.
    const system::ScopedDescriptor names(
        system::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (names.get() < 0 || system::fsync(names.get()) != 0)
        return Status{errno, "tier", "the names of its log cannot be made durable"};
    return log;
}

WriteLog::~WriteLog() {
    for (const int file : files_)
        if (file >= 0) system::close(file);
}

Status WriteLog::reserve(uint64_t generation) {
    const std::lock_guard lock(mutex_);
    for (const size_t half : {size_t{0}, size_t{1}}) {
        const uint64_t size = LogHeader::kSize + size_max_ + kSpare;
        if (system::fallocate(files_[half], 0, 0, static_cast<off_t>(size)) != 0)
            return {errno, "tier",
                    "the space of its log cannot be reserved (a quarter of the tier's size, in "
                    "addition)"};
        generations_[half] = generation;
        if (Status status = empty_half(half); !status.ok()) return status;
    }
    return {};
}

void WriteLog::found(int half, uint64_t end) {
    const std::lock_guard lock(mutex_);
    ends_[static_cast<size_t>(half)] = end;
}

// Ends the use of the log: what lies where a record failed is not known, and the kernel tells an
// error of fdatasync() once, though more than one caller's bytes may be gone. Requires the lock.
Status WriteLog::fail(int error, const char* text) {
    if (failure_.ok()) failure_ = {error, "tier", text};
    return failure_;
}

Status WriteLog::append(LogRecord record, std::string_view path, std::span<const std::byte> bytes) {
    if (!failure_.ok()) return failure_;
    const auto half = static_cast<size_t>(active_);
    record.key = keys_[half];
    record.sequence = sequence_ + 1;
    record.path_size = static_cast<uint32_t>(path.size());
    record.bytes_size = static_cast<uint32_t>(bytes.size());
    record.checksum = checksum_of(record, path, bytes);
    const uint64_t size = sizeof record + path.size() + bytes.size();
    // The other kinds are short, and free room.
    if (record.kind == LogRecord::Kind::kWrite && ends_[half] - LogHeader::kSize + size > size_max_)
        return {ENOSPC, "tier", "its log is full"};
    iovec pieces[] = {{&record, sizeof record},
                      {const_cast<char*>(path.data()), path.size()},
                      {const_cast<std::byte*>(bytes.data()), bytes.size()}};
    uint64_t done = 0;
    while (done < size) {
        uint64_t skipped = done;
        std::array<iovec, 3> left{};
        int count = 0;
        for (const iovec& piece : pieces) {
            const uint64_t gone = std::min<uint64_t>(skipped, piece.iov_len);
            skipped -= gone;
            if (gone < piece.iov_len)
                left[static_cast<size_t>(count++)] = {static_cast<char*>(piece.iov_base) + gone,
                                                      piece.iov_len - gone};
        }
        const ssize_t wrote = system::pwritev2(files_[half], left.data(), count,
                                               static_cast<off_t>(ends_[half] + done), 0);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return fail(wrote < 0 ? errno : EIO, "its log cannot be written");
        done += static_cast<uint64_t>(wrote);
    }
    ends_[half] += size;
    ++sequence_;
    return {};
}

Status WriteLog::extend_life() {
    // By far longer than a call to storage takes that begins just before the end.
    constexpr int64_t kLife_ns = 5'000'000'000, kLeast_ns = 2'500'000'000;
    timespec time{};
    clock_gettime(CLOCK_REALTIME, &time);
    const int64_t now = time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
    // If the clock was set back, what is left may be too much, which does no harm.
    if (lives_until_ns_ >= now + kLeast_ns) return {};
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
    LogLife life;
    life.generation = generations_[0];
    // During a recovery the clock of storage is not known yet.
    life.until_ns = std::max(now + ahead_ns_ + kLife_ns, lived_until_ns_);
    life.checksum = checksum_of(life);
    const ssize_t wrote = system::pwrite(files_[0], &life, sizeof life, LogLife::kOffset);
    if (wrote != sizeof life) return fail(wrote < 0 ? errno : EIO, "its log cannot be written");
    if (system::fdatasync(files_[0]) != 0) return fail(errno, "its log cannot be made durable");
    lives_until_ns_ = now + kLife_ns;
    return {};
}

Status WriteLog::make_durable() {
    if (Status status = extend_life(); !status.ok()) return status;
    const std::lock_guard sync(sync_mutex_);
    uint64_t last = 0;
    int file = -1;
    {
        const std::lock_guard lock(mutex_);
        if (!failure_.ok()) return failure_;
        last = sequence_;
        file = files_[static_cast<size_t>(active_)];
    }
    if (durable_ < last && system::fdatasync(file) != 0) {
        const int error = errno;
        const std::lock_guard lock(mutex_);
        return fail(error, "its log cannot be made durable");
    }
    durable_ = last;
    return check_names();
}

// Returns whether the path of a half leads to it: it was not removed or moved, nor its folder.
bool WriteLog::is_named(size_t half) const {
    struct stat now {
    }, own{};
    if (system::stat(paths_[half].c_str(), &now) != 0 || system::fstat(files_[half], &own) != 0)
        return false;
    if (now.st_dev == own.st_dev && now.st_ino == own.st_ino) return true;
    errno = ENOENT;
    return false;
}

Status WriteLog::check_names() {
    int error = 0;
    for (const size_t half : {size_t{0}, size_t{1}})
        if (!is_named(half)) error = errno;
    if (error == 0) return {};
    const std::lock_guard lock(mutex_);
    return fail(error, "its log was removed or moved, or its folder was");
}

void WriteLog::continue_after(uint64_t sequence, int half) {
    const std::lock_guard sync(sync_mutex_);
    const std::lock_guard lock(mutex_);
    sequence_ = durable_ = sequence;
    active_ = half;
}

Status WriteLog::failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
}

uint64_t WriteLog::last_sequence() {
    const std::lock_guard lock(mutex_);
    return sequence_;
}

Result<int> WriteLog::turn() {
    const std::lock_guard sync(sync_mutex_);
    const std::lock_guard lock(mutex_);
    const int before = active_;
    // From now on only the other file is made durable. After a failure none is, but what is there
    // can still go to the files.
    if (failure_.ok() && durable_ < sequence_ &&
        system::fdatasync(files_[static_cast<size_t>(before)]) != 0)
        return fail(errno, "its log cannot be made durable");
    durable_ = sequence_;
    active_ = 1 - before;
    return before;
}

// Requires the lock.
Status WriteLog::empty_half(size_t half) {
    LogHeader header;
    while (header.key == 0)
        if (!system::random(&header.key, sizeof header.key))
            return fail(errno, "its log can get no key");
    header.generation = generations_[half];
    header.checksum = checksum_of(header);
    // All of it is in one sector of the disk. Durable at once: else records that are gone could be
    // replayed after a crash.
    const ssize_t wrote = system::pwrite(files_[half], &header, sizeof header, 0);
    if (wrote != sizeof header) return fail(wrote < 0 ? errno : EIO, "its log cannot be emptied");
    if (system::fdatasync(files_[half]) != 0) return fail(errno, "its log cannot be emptied");
    keys_[half] = header.key;
    ends_[half] = LogHeader::kSize;
    return {};
}

Status WriteLog::reset(int half) {
    const std::lock_guard lock(mutex_);
    return empty_half(static_cast<size_t>(half));
}

bool WriteLog::empty(int half) {
    const std::lock_guard lock(mutex_);
    return ends_[static_cast<size_t>(half)] == LogHeader::kSize;
}

uint64_t WriteLog::size() {
    const std::lock_guard lock(mutex_);
    return ends_[0] + ends_[1] - 2 * LogHeader::kSize;
}

bool WriteLog::remove() {
    for (const size_t half : {size_t{0}, size_t{1}})
        if (is_named(half) ? system::unlink(paths_[half].c_str()) != 0 : errno != ENOENT)
            return false;
    const std::string folder = paths_[0].substr(0, paths_[0].rfind('/'));
    const system::ScopedDescriptor names(
        system::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return names.get() >= 0 && system::fsync(names.get()) == 0;
}

}  // namespace penstock::file
