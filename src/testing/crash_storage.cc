// An image is all of a file in memory, and the changes that its file underneath has not got. Writes
// overlap in an image as they were made, so that what a crash keeps of them needs no order.
#include "testing/crash_storage.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/prng.h"
#include "storage/instant_queue.h"
#include "storage/scatter.h"

namespace penstock::testing {

using storage::Completion;
using storage::Identity;
using storage::Operation;

namespace {

using Bytes = std::vector<std::byte>;

// One operation on the file underneath, from start to end.
Status move_under(storage::Queue& queue, storage::File& file, uint64_t offset, iovec piece,
                  bool write) {
    Operation operation{&file, offset, {&piece, 1}};
    operation.write = write;
    Completion done;
    if (queue.submit({&operation, 1}) != 1 || queue.reap({&done, 1}, true) != 1) {
        PENSTOCK_CHECK(false, "an idle queue takes an operation and completes it");
    }
    if (done.error != 0) return {done.error, "crash", "the storage underneath refuses"};
    if (done.bytes < piece.iov_len) return {EIO, "crash", "the file underneath is too short"};
    return {};
}

}  // namespace

class CrashImage {
public:
    CrashImage(std::shared_ptr<storage::File> under, std::unique_ptr<storage::Queue> queue)
        : under_(std::move(under)), queue_(std::move(queue)) {}

    Status load() {
        std::lock_guard lock(mutex_);
        if (Status status = under_->stat(&identity_); !status.ok()) return status;
        bytes_.resize(identity_.size);
        return move_under(*queue_, *under_, 0, {bytes_.data(), bytes_.size()}, false);
    }

    Status stat(Identity* out) const {
        std::lock_guard lock(mutex_);
        if (dead_) return kDead;
        *out = identity_;
        return {};
    }
    Identity identity() const {
        std::lock_guard lock(mutex_);
        return identity_;
    }

    Completion move(const Operation& operation, uint64_t size) {
        std::lock_guard lock(mutex_);
        Completion done{.cookie = operation.cookie};
        if (dead_) {
            done.error = EIO;
        } else if (operation.write) {
            write(operation, size);
            done.bytes = size;
        } else {
            done.bytes = read(operation);
        }
        return done;
    }

    Status truncate(uint64_t size) {
        std::lock_guard lock(mutex_);
        if (dead_) return kDead;
        if (size > bytes_.max_size()) return {EFBIG, "ftruncate", "no file is so long"};
        changes_.push_back({true, size, {}});
        bytes_.resize(size);
        touch();
        return {};
    }

    Status sync() {
        std::lock_guard lock(mutex_);
        if (dead_) return kDead;
        for (const Change& change : changes_) {
            if (Status status = apply(change, 0, change.bytes.size()); !status.ok()) return status;
        }
        changes_.clear();
        return under_->sync(false);
    }

    Status crash(base::Prng& prng, bool keeps_some) {
        std::lock_guard lock(mutex_);
        dead_ = true;
        if (!keeps_some) changes_.clear();
        // Some disks have kept almost all, others almost nothing.
        const uint64_t kept_of_8 = prng.below(9);
        for (const Change& change : changes_) {
            uint64_t at = 0;
            do {
                const uint64_t sector_end = CrashStorage::kSectorSize -
                                            (change.offset + at) % CrashStorage::kSectorSize;
                const uint64_t size = std::min<uint64_t>(change.bytes.size() - at, sector_end);
                if (prng.below(8) < kept_of_8) {
                    if (Status status = apply(change, at, size); !status.ok()) return status;
                }
                at += size;
            } while (at < change.bytes.size());
        }
        changes_.clear();
        return under_->sync(false);
    }

    uint64_t unsynced() const {
        std::lock_guard lock(mutex_);
        return changes_.size();
    }

private:
    struct Change {
        bool cut = false;     // to `offset` bytes, or growing to them
        uint64_t offset = 0;  // else these bytes from there on
        Bytes bytes;
    };
    static constexpr Status kDead{EIO, "crash", "the machine has lost its power"};

    // All below under the lock.
    void touch() {
        identity_.size = bytes_.size();
        ++identity_.mtime_ns;
        ++identity_.ctime_ns;
    }

    void write(const Operation& operation, uint64_t size) {
        if (size == 0) return;
        Change change{false, operation.offset, {}};
        for (const iovec& piece : operation.pieces) {
            const auto* from = static_cast<const std::byte*>(piece.iov_base);
            change.bytes.insert(change.bytes.end(), from, from + piece.iov_len);
        }
        bytes_.resize(std::max<uint64_t>(bytes_.size(), operation.offset + size));
        std::copy(change.bytes.begin(), change.bytes.end(),
                  bytes_.begin() + static_cast<std::ptrdiff_t>(operation.offset));
        changes_.push_back(std::move(change));
        touch();
    }

    uint64_t read(const Operation& operation) const {
        uint64_t count = 0;
        for (const iovec& piece : operation.pieces) {
            const uint64_t at = operation.offset + count;
            if (at >= bytes_.size()) break;
            const uint64_t size = std::min<uint64_t>(piece.iov_len, bytes_.size() - at);
            if (size > 0) std::memcpy(piece.iov_base, bytes_.data() + at, size);
            count += size;
        }
        return count;
    }

    // `size` bytes of `change` from `from` on reach the file underneath.
    Status apply(const Change& change, uint64_t from, uint64_t size) {
        if (change.cut) return under_->truncate(change.offset);
        auto* bytes = const_cast<std::byte*>(change.bytes.data()) + from;
        return move_under(*queue_, *under_, change.offset + from, {bytes, size}, true);
    }

    const std::shared_ptr<storage::File> under_;
    mutable std::mutex mutex_;  // guards all below
    const std::unique_ptr<storage::Queue> queue_;
    Identity identity_;
    Bytes bytes_;
    std::vector<Change> changes_;
    bool dead_ = false;
};

namespace {

class CrashFile final : public storage::File {
public:
    CrashFile(std::shared_ptr<CrashImage> image, storage::Rights rights)
        : File(image->identity(), {}, -1, rights), image_(std::move(image)) {}

    Status stat(Identity* out) const override { return image_->stat(out); }
    Status sync(bool /*data_only*/) override { return image_->sync(); }
    Status truncate(uint64_t size) override {
        if (!rights().write) return {EBADF, "ftruncate", "the file is not open for writing"};
        return image_->truncate(size);
    }

    [[nodiscard]] CrashImage& image() const { return *image_; }

private:
    const std::shared_ptr<CrashImage> image_;
};

struct CrashMove {
    Completion operator()(const Operation& operation) const {
        uint64_t size = 0;
        const int error = storage::validate(operation, &size);
        if (error != 0) return {operation.cookie, 0, error};
        return dynamic_cast<const CrashFile*>(operation.file)->image().move(operation, size);
    }
};

}  // namespace

CrashStorage::CrashStorage(std::shared_ptr<storage::Storage> under) : under_(std::move(under)) {}

std::string CrashStorage::description() const { return "crashes over " + under_->description(); }

Result<std::shared_ptr<storage::File>> CrashStorage::open(const std::string& path, int flags) {
    if (Status status = storage::check_open_flags(flags); !status.ok()) return status;
    if ((flags & O_APPEND) != 0) return Status{ENOTSUP, "open", "appends crash as writes do"};
    std::lock_guard lock(mutex_);
    // What is there is never cut underneath before it is synced.
    auto under = under_->open(path, O_RDWR | (flags & (O_CREAT | O_EXCL)));
    if (!under.ok()) return under;
    std::shared_ptr<CrashImage>& image = images_[path];
    if (image == nullptr) {
        auto queue = under_->make_queue(1);
        if (!queue.ok()) return queue.status();
        auto made = std::make_shared<CrashImage>(under.value(), std::move(queue.value()));
        if (Status status = made->load(); !status.ok()) return status;
        image = std::move(made);
    }
    if ((flags & O_TRUNC) != 0) {
        if (Status status = image->truncate(0); !status.ok()) return status;
    }
    const storage::Rights rights{true, (flags & O_ACCMODE) != O_RDONLY, false};
    return std::shared_ptr<storage::File>(std::make_shared<CrashFile>(image, rights));
}

Status CrashStorage::unlink(const std::string& path) {
    std::lock_guard lock(mutex_);
    images_.erase(path);
    return under_->unlink(path);
}

Result<std::unique_ptr<storage::Queue>> CrashStorage::make_queue(uint32_t depth) {
    if (Status status = check_depth(depth); !status.ok()) return status;
    return std::unique_ptr<storage::Queue>(
        std::make_unique<storage::InstantQueue<CrashMove>>(depth));
}

Status CrashStorage::crash(uint64_t seed) {
    std::lock_guard lock(mutex_);
    base::Prng prng(seed);
    Status first;
    for (auto& [path, image] : images_) {
        if (Status status = image->crash(prng, seed != 0); first.ok()) first = status;
    }
    images_.clear();
    return first;
}

uint64_t CrashStorage::unsynced() const {
    std::lock_guard lock(mutex_);
    uint64_t count = 0;
    for (const auto& [path, image] : images_) count += image->unsynced();
    return count;
}

}  // namespace penstock::testing
