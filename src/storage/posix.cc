// A queue that does its work inside submit(); reap() only returns the results. storage.h states the
// threads.
#include "storage/posix.h"

#include <algorithm>
#include <cstring>

#include "base/file_size_signal.h"
#include "storage/append.h"
#include "storage/descriptor_file.h"
#include "storage/instant_queue.h"
#include "storage/reach.h"
#include "storage/scatter.h"
#include "storage/system_calls.h"

namespace penstock::storage {

namespace {

// The processor copies out of the page cache at a fifth of its speed if the destination lies 1 to
// 15 bytes ahead of the file offset, modulo a page. (x86: 3 instead of 16.5 GB/s; all other
// distances are alike.) Such bytes are read to a higher address, at a distance of 16, and then
// moved down while the CPU cache still holds them. The last bytes would lie behind the caller's
// memory, so they go through a small buffer.
constexpr uint64_t kSlowDistance = 16, kPage = 4096;
constexpr uint64_t kSlideSizeMin = 4096;
constexpr uint64_t kSlideSizeMax = 1 << 20;  // as much as a core's cache holds

ssize_t read_and_slide(const Reach& reach, char* to, uint64_t size, off_t position, uint64_t up) {
    char tail[kSlowDistance];
    const uint64_t body = size - up;
    const iovec pieces[] = {{to + up, body}, {tail, up}};
    const ssize_t got = system::preadv2(reach.descriptor, pieces, 2, position, reach.flags);
    if (got <= 0) return got;
    const uint64_t arrived = static_cast<uint64_t>(got);
    std::memmove(to, to + up, std::min(arrived, body));
    if (arrived > body) std::memcpy(to + body, tail, arrived - body);
    return got;
}

bool ends_before(int descriptor, uint64_t end) {
    struct stat now {};
    return system::fstat(descriptor, &now) != 0 || static_cast<uint64_t>(now.st_size) < end;
}

ssize_t read_once(const Reach& reach, const Scatter::Call& call, uint64_t offset,
                  uint64_t file_size) {
    const off_t position = static_cast<off_t>(offset);
    const uint64_t size = std::min(call.size, kSlideSizeMax);
    // A slide must not reach over the end of the file, which may have been cut. Memory behind the
    // bytes that arrive must stay unchanged.
    if (call.count == 0 && size >= kSlideSizeMin && offset + size <= file_size) {
        char* const to = static_cast<char*>(call.base);
        const uint64_t ahead = (reinterpret_cast<uintptr_t>(to) - offset) % kPage;
        if (ahead != 0 && ahead < kSlowDistance && !ends_before(reach.descriptor, offset + size))
            return read_and_slide(reach, to, size, position, kSlowDistance - ahead);
    }
    if (reach.flags == 0 && call.count == 0)
        return system::pread(reach.descriptor, call.base, call.size, position);
    const iovec whole{call.base, call.size};
    const bool one = call.count == 0;
    return system::preadv2(reach.descriptor, one ? &whole : call.pieces,
                           one ? 1 : static_cast<int>(call.count), position, reach.flags);
}

ssize_t write_once(const Reach& reach, const Scatter::Call& call, uint64_t offset) {
    const off_t position = static_cast<off_t>(offset);
    if (reach.flags == 0 && call.count == 0)
        return system::pwrite(reach.descriptor, call.base, call.size, position);
    const iovec whole{call.base, call.size};
    const bool one = call.count == 0;
    return system::pwritev2(reach.descriptor, one ? &whole : call.pieces,
                            one ? 1 : static_cast<int>(call.count), position, reach.flags);
}

Completion move_all(const Operation& operation) {
    Completion completion{.cookie = operation.cookie};
    uint64_t size = 0;
    completion.error = validate(operation, &size);
    if (completion.error != 0 || size == 0) return completion;
    Reach reach(operation);
    Scatter scatter(operation.pieces, size);
    while (reach.error == 0 && !scatter.done()) {
        const uint64_t offset = operation.offset + completion.bytes;
        const ssize_t got = operation.write
                                ? write_once(reach, scatter.next(), offset)
                                : read_once(reach, scatter.next(), offset, operation.file->size());
        if (got == 0) {  // end of file; a write never gets it
            if (operation.write) completion.error = EIO;
            return completion;
        }
        if (got < 0) {
            if (errno == EINTR || reach.again_without_flags(errno)) continue;
            completion.error = errno;
            return completion;
        }
        completion.bytes += static_cast<uint64_t>(got);
        scatter.advance(static_cast<uint64_t>(got));
        if (reach.at_end(completion.bytes)) break;
    }
    completion.error = reach.error;
    return completion;
}

Completion write_quietly(const Operation& operation) {
    base::FileSizeSignal signal;
    const Completion completion = move_all(operation);
    if (completion.error == EFBIG) signal.take();
    return completion;
}

struct PosixMove {
    Completion operator()(const Operation& operation) const {
        if (is_append(operation)) return append(operation);
        return operation.write ? write_quietly(operation) : move_all(operation);
    }
};

class PosixStorage final : public Storage {
public:
    [[nodiscard]] Kind kind() const override { return Kind::kPosix; }
    [[nodiscard]] std::string description() const override { return "posix"; }

    Result<std::shared_ptr<File>> open(const std::string& path, int flags) override {
        return DescriptorFile::open(path, flags);
    }
    Result<std::shared_ptr<File>> adopt(int descriptor) override {
        return DescriptorFile::adopt(descriptor);
    }
    Status unlink(const std::string& path) override { return DescriptorFile::unlink(path); }

    Result<std::unique_ptr<Queue>> make_queue(uint32_t depth) override {
        if (Status status = check_depth(depth); !status.ok()) return status;
        return std::unique_ptr<Queue>(std::make_unique<InstantQueue<PosixMove>>(depth));
    }
};

}  // namespace

std::shared_ptr<Storage> open_posix() { return std::make_shared<PosixStorage>(); }

}  // namespace penstock::storage
