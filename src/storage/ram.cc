// Each array has its own mapping, so that it starts on a page, grows without a copy, and may be
// sparse.
#include "storage/ram.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <shared_mutex>

#include "base/units.h"
#include "storage/instant_queue.h"
#include "storage/scatter.h"

namespace penstock::storage {

class RamBytes {
public:
    explicit RamBytes(uint64_t inode) { identity_.inode = inode; }
    ~RamBytes() {
        if (capacity_ > 0) munmap(base_, capacity_);
    }
    RamBytes(const RamBytes&) = delete;
    RamBytes& operator=(const RamBytes&) = delete;

    Identity identity() const {
        std::shared_lock lock(mutex_);
        return identity_;
    }

    Status resize(uint64_t size) {
        std::unique_lock lock(mutex_);
        touch();
        return set_size(size);
    }

    // `size` is the sum of the lengths of `pieces`.
    Status write(uint64_t offset, std::span<const iovec> pieces, uint64_t size) {
        const std::unique_lock lock(mutex_);
        return set_bytes(offset, pieces, size);
    }
    // Writes to the end, and stores where that was.
    Status append(std::span<const iovec> pieces, uint64_t size, uint64_t* offset) {
        const std::unique_lock lock(mutex_);
        *offset = identity_.size;
        return set_bytes(identity_.size, pieces, size);
    }

    // Reads as many bytes as the file has, and returns their count.
    uint64_t read(uint64_t offset, std::span<const iovec> pieces) const {
        std::shared_lock lock(mutex_);
        uint64_t count = 0;
        for (const iovec& piece : pieces) {
            if (offset + count >= identity_.size) break;
            const uint64_t size = std::min<uint64_t>(piece.iov_len,
                                                     identity_.size - (offset + count));
            if (size > 0) std::memcpy(piece.iov_base, base_ + offset + count, size);
            count += size;
        }
        return count;
    }

private:
    static constexpr uint64_t kGrain = 2 * base::kMiB;  // capacity grows in steps of this

    // Requires mutex_.
    Status set_bytes(uint64_t offset, std::span<const iovec> pieces, uint64_t size) {
        touch();
        if (size == 0) return {};
        if (offset > INT64_MAX - size) return {EFBIG, "write", "the end lies beyond off_t"};
        if (offset + size > identity_.size) {
            if (Status status = set_size(offset + size); !status.ok()) return status;
        }
        for (const iovec& piece : pieces) {
            if (piece.iov_len > 0) std::memcpy(base_ + offset, piece.iov_base, piece.iov_len);
            offset += piece.iov_len;
        }
        return {};
    }

    // Requires mutex_. Stores a count instead of the time, so that no two states of a file look
    // alike.
    void touch() {
        ++identity_.mtime_ns;
        ++identity_.ctime_ns;
    }

    // Requires mutex_. Bytes beyond the size are always zero, so growing within the capacity is
    // free.
    Status set_size(uint64_t size) {
        constexpr Status kFull{ENOMEM, "mmap", "no address space for a file in memory"};
        if (size > capacity_) {
            if (size > INT64_MAX - kGrain) return kFull;
            const uint64_t capacity = base::align_up(size, kGrain);
            void* base = capacity_ == 0 ? mmap(nullptr, capacity, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                        : mremap(base_, capacity_, capacity, MREMAP_MAYMOVE);
            if (base == MAP_FAILED) return kFull;
            base_ = static_cast<std::byte*>(base);
            capacity_ = capacity;
        } else if (size < identity_.size) {
            clear(size, identity_.size);
        }
        identity_.size = size;
        return {};
    }

    // Returns whole pages to the system instead of writing zeros, so that a sparse file stays
    // sparse.
    void clear(uint64_t begin, uint64_t end) {
        constexpr uint64_t kPage = 4096;
        const uint64_t whole = std::min(base::align_up(begin, kPage), end);
        std::memset(base_ + begin, 0, whole - begin);
        if (whole < end) madvise(base_ + whole, base::align_up(end, kPage) - whole, MADV_DONTNEED);
    }

    mutable std::shared_mutex mutex_;  // guards all members below
    std::byte* base_ = nullptr;
    uint64_t capacity_ = 0;
    Identity identity_;
};

namespace {

class RamFile final : public File {
public:
    RamFile(std::shared_ptr<RamBytes> bytes, Rights rights)
        : File(bytes->identity(), {}, -1, rights), bytes_(std::move(bytes)) {}

    Status stat(Identity* out) const override {
        *out = bytes_->identity();
        return {};
    }

    Status sync(bool /*data_only*/) override { return {}; }  // the bytes die with the process
    Status truncate(uint64_t size) override {
        if (!rights().write) return {EBADF, "ftruncate", "the file is not open for writing"};
        if (size > INT64_MAX) return {EINVAL, "ftruncate", "no file is so long"};
        return bytes_->resize(size);
    }

    [[nodiscard]] RamBytes& bytes() const { return *bytes_; }

private:
    const std::shared_ptr<RamBytes> bytes_;
};

struct RamMove {
    Completion operator()(const Operation& operation) const;
};

Completion RamMove::operator()(const Operation& operation) const {
    Completion completion{.cookie = operation.cookie};
    uint64_t size = 0;
    completion.error = validate(operation, &size);
    if (completion.error != 0) return completion;
    const auto* file = dynamic_cast<const RamFile*>(operation.file);
    if (file == nullptr) {
        completion.error = EBADF;  // the file is of another storage
    } else if (operation.write && file->rights().append) {
        if (size == 0) return completion;
        completion.error = file->bytes()
                               .append(operation.pieces, size, &completion.offset)
                               .error_number();
        completion.bytes = completion.error == 0 ? size : 0;
    } else if (operation.write) {
        completion
            .error = file->bytes().write(operation.offset, operation.pieces, size).error_number();
        completion.bytes = completion.error == 0 ? size : 0;
    } else {
        completion.bytes = file->bytes().read(operation.offset, operation.pieces);
    }
    return completion;
}

constexpr Status kMissing{ENOENT, "open", "no file of this name is held in memory"};

}  // namespace

std::shared_ptr<RamBytes> RamStorage::find(const std::string& name) {
    std::lock_guard lock(mutex_);
    const auto found = names_.find(name);
    return found == names_.end() ? nullptr : found->second;
}

Result<std::shared_ptr<File>> RamStorage::open(const std::string& name, int flags) {
    if (Status status = check_open_flags(flags); !status.ok()) return status;
    if ((flags & O_CREAT) != 0) {
        const Status status = create(name, 0);
        const bool there = status.error_number() == EEXIST && (flags & O_EXCL) == 0;
        if (!status.ok() && !there) return status;
    }
    std::shared_ptr<RamBytes> bytes = find(name);
    if (bytes == nullptr) return kMissing;
    if ((flags & O_TRUNC) != 0) {
        if (Status status = bytes->resize(0); !status.ok()) return status;
    }
    const Rights rights{true, (flags & O_ACCMODE) != O_RDONLY, (flags & O_APPEND) != 0};
    return std::shared_ptr<File>(std::make_shared<RamFile>(std::move(bytes), rights));
}

Result<std::unique_ptr<Queue>> RamStorage::make_queue(uint32_t depth) {
    if (Status status = check_depth(depth); !status.ok()) return status;
    return std::unique_ptr<Queue>(std::make_unique<InstantQueue<RamMove>>(depth));
}

Status RamStorage::create(const std::string& name, uint64_t size) {
    std::lock_guard lock(mutex_);
    if (names_.contains(name)) return {EEXIST, "create", "a file of this name is held in memory"};
    auto bytes = std::make_shared<RamBytes>(++inode_last_);
    if (Status status = bytes->resize(size); !status.ok()) return status;
    names_.emplace(name, std::move(bytes));
    return {};
}

Status RamStorage::resize(const std::string& name, uint64_t size) {
    const std::shared_ptr<RamBytes> bytes = find(name);
    return bytes == nullptr ? kMissing : bytes->resize(size);
}

Status RamStorage::write(const std::string& name, uint64_t offset,
                         std::span<const std::byte> bytes) {
    const std::shared_ptr<RamBytes> found = find(name);
    if (found == nullptr) return kMissing;
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return found->write(offset, {&piece, 1}, bytes.size());
}

Status RamStorage::unlink(const std::string& name) {
    std::lock_guard lock(mutex_);
    return names_.erase(name) == 0 ? kMissing : Status{};
}

}  // namespace penstock::storage
