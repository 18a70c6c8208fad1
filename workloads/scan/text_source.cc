// Files by fstat, streams through a memfd; see text_source.h.
#include "scan/text_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

namespace penstock::scan {
namespace {

constexpr size_t kWindowSize = 64 << 20;  // a stream is taken in windows of so many bytes
constexpr size_t kPieceSize = 1 << 20;
constexpr int kTickMs = 100;
constexpr uint64_t kPunchAlignment = 4096;

// Whether a read would not wait, after at most `limit_ms`.
bool readable(int file, int limit_ms) {
    pollfd wanted{file, POLLIN, 0};
    return poll(&wanted, 1, limit_ms) > 0;
}

ssize_t read_some(int file, void* buffer, size_t size) {
    ssize_t count = 0;
    do count = ::read(file, buffer, size);
    while (count < 0 && errno == EINTR);
    return count;
}

Status append(int file, const char* bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t count = ::write(file, bytes + done, size - done);
        if (count < 0 && errno != EINTR)
            return Status(errno, "write", "standard input could not be spooled");
        if (count > 0) done += static_cast<size_t>(count);
    }
    return {};
}

}  // namespace

Result<TextSource> TextSource::open(const std::string& path, const KeepWaiting& keep_waiting) {
    TextSource source;
    const bool standard_input = path == "-";
    source.file_ = standard_input ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                  : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (source.file_ < 0) return Status(errno, "open", "");
    struct stat status {};
    if (fstat(source.file_, &status) != 0) return Status(errno, "fstat", "");
    const bool regular = S_ISREG(status.st_mode);
    if (!regular && !standard_input) return Status(EINVAL, "scan", "not a regular file");
    // A stream, a file that is not read from its begin, or one that does not tell its size.
    const bool stream = !regular || (standard_input && lseek(source.file_, 0, SEEK_CUR) > 0);
    char first = 0;
    if (stream || (status.st_size == 0 && pread(source.file_, &first, 1, 0) > 0)) {
        if (const Status started = source.start_spool(); !started.ok()) return started;
        const Result<uint64_t> size = source.spool(keep_waiting);
        return size.ok() ? Result<TextSource>(std::move(source)) : size.status();
    }
    source.size_ = static_cast<uint64_t>(status.st_size);
    return source;
}

Result<TextSource> TextSource::share(int descriptor) {
    TextSource source;
    source.file_ = fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
    if (source.file_ < 0) return Status(errno, "fcntl", "");
    struct stat status {};
    if (fstat(source.file_, &status) != 0) return Status(errno, "fstat", "");
    source.size_ = static_cast<uint64_t>(status.st_size);
    return source;
}

TextSource::TextSource(TextSource&& other) noexcept { *this = std::move(other); }

TextSource& TextSource::operator=(TextSource&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(stream_, other.stream_);
    std::swap(size_, other.size_);
    std::swap(forgotten_, other.forgotten_);
    std::swap(mapping_, other.mapping_);
    std::swap(unmappable_, other.unmappable_);
    return *this;
}

TextSource::~TextSource() {
    if (file_ >= 0) close(file_);
    if (stream_ >= 0) close(stream_);
}

Status TextSource::start_spool() {
    const int spool = memfd_create("penstock-scan", MFD_CLOEXEC);
    if (spool < 0) return Status(errno, "memfd_create", "");
    stream_ = std::exchange(file_, spool);
    return {};
}

Result<uint64_t> TextSource::extend(const KeepWaiting& keep_waiting) {
    if (stream_ >= 0) return spool(keep_waiting);
    struct stat status {};
    if (fstat(file_, &status) != 0) return Status(errno, "fstat", "");
    size_ = std::max(size_, static_cast<uint64_t>(status.st_size));
    return size_;
}

Result<uint64_t> TextSource::spool(const KeepWaiting& keep_waiting) {
    std::vector<char> piece(kPieceSize);
    const uint64_t window_end = size_ + kWindowSize;
    while (!readable(stream_, kTickMs))
        if (!keep_waiting()) return size_;
    while (size_ < window_end && readable(stream_, 0)) {
        const ssize_t count = read_some(stream_, piece.data(), piece.size());
        if (count < 0) return Status(errno, "read", "");
        if (count == 0) break;
        const auto size = static_cast<size_t>(count);
        if (const Status written = append(file_, piece.data(), size); !written.ok()) return written;
        size_ += size;
    }
    return size_;
}

bool TextSource::is_file(int descriptor) const {
    struct stat mine {
    }, other{};
    if (fstat(file_, &mine) != 0 || fstat(descriptor, &other) != 0) return false;
    return S_ISREG(other.st_mode) && mine.st_dev == other.st_dev && mine.st_ino == other.st_ino;
}

std::string TextSource::device_path() const { return "/proc/self/fd/" + std::to_string(file_); }

void TextSource::forget(uint64_t offset) {
    const uint64_t end = offset / kPunchAlignment * kPunchAlignment;
    if (stream_ < 0 || end <= forgotten_) return;
    // Only memory is at stake: where it cannot be given back, the spool keeps it.
    (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(forgotten_), static_cast<off_t>(end - forgotten_));
    forgotten_ = end;
}

const uint8_t* TextSource::mapped(uint64_t offset, uint64_t size) {
    if (unmappable_ || stream_ >= 0 || offset + size > size_) return nullptr;
    char byte = 0;
    const iovec piece{&byte, 1};
    if (preadv2(file_, &piece, 1, static_cast<off_t>(offset), RWF_NOWAIT) != 1) {
        unmappable_ = true;
        return nullptr;
    }
    if (mapping_.bytes() == nullptr) {
        Result<TextMapping> mapping = TextMapping::create(file_, size_);
        unmappable_ = !mapping.ok();
        if (unmappable_) return nullptr;
        mapping_ = std::move(mapping.value());
    }
    // A file that has grown was mapped as it was.
    return offset + size <= mapping_.size() ? mapping_.bytes() + offset : nullptr;
}

Result<size_t> TextSource::read(uint64_t offset, void* buffer, size_t size) const {
    ssize_t count = 0;
    do count = pread(file_, buffer, size, static_cast<off_t>(offset));
    while (count < 0 && errno == EINTR);
    if (count < 0) return Status(errno, "pread", "");
    return static_cast<size_t>(count);
}

}  // namespace penstock::scan
