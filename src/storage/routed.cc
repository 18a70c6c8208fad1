// Combines two queues in one. storage.h states the threads.
#include "storage/routed.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "storage/descriptor_file.h"
#include "storage/posix.h"
#include "storage/uring.h"

namespace penstock::storage {

namespace {

class RoutedQueue final : public Queue {
public:
    RoutedQueue(std::unique_ptr<Queue> cached, std::unique_ptr<Queue> direct)
        : Queue(cached->depth()), cached_(std::move(cached)), direct_(std::move(direct)) {}

    // Consecutive direct reads go to the kernel in one call. The caller puts them first, so that
    // the disk works while the thread copies cached bytes.
    size_t submit(std::span<const Operation> operations) override {
        size_t taken = 0;
        while (taken < operations.size() && outstanding() < depth()) {
            const Route route = operations[taken].route;
            size_t end = taken + 1;
            while (end < operations.size() && operations[end].route == route) ++end;
            const size_t room = depth() - outstanding();
            Queue& queue = route == Route::kCached ? *cached_ : *direct_;
            const size_t count = std::min(end - taken, room);
            if (queue.submit(operations.subspan(taken, count)) < count) {
                PENSTOCK_CHECK(false, "a queue takes as many operations as its depth");
            }
            taken += count;
        }
        return taken;
    }

    size_t reap(std::span<Completion> out, bool wait) override {
        const size_t count = cached_->reap(out, false);
        if (count == out.size()) return count;
        return count + direct_->reap(out.subspan(count), wait && count == 0);
    }

    // Small reads from the page cache take this path. It touches little memory, because a read of
    // 64 KiB displaces everything else from the CPU's first cache.
    [[nodiscard]] Completion submit_and_reap(const Operation& operation) override {
        return (operation.route == Route::kCached ? cached_ : direct_)->submit_and_reap(operation);
    }

    [[nodiscard]] size_t outstanding() const override {
        return cached_->outstanding() + direct_->outstanding();
    }

private:
    const std::unique_ptr<Queue> cached_, direct_;
};

class RoutedStorage final : public Storage {
public:
    // `direct` is null if io_uring is refused; `why` is the reason.
    RoutedStorage(std::shared_ptr<Storage> direct, Status why)
        : cached_(open_posix()), direct_(std::move(direct)), why_(why) {}

    [[nodiscard]] Kind kind() const override { return Kind::kAuto; }
    [[nodiscard]] std::string description() const override {
        return direct_ != nullptr ? "posix, direct reads by uring"
                                  : "posix (" + why_.message() + ")";
    }

    Result<std::shared_ptr<File>> open(const std::string& path, int flags) override {
        return DescriptorFile::open(path, flags);
    }
    Result<std::shared_ptr<File>> adopt(int descriptor) override {
        return DescriptorFile::adopt(descriptor);
    }
    Status unlink(const std::string& path) override { return DescriptorFile::unlink(path); }

    // If no ring can be made (too many open files), only speed is lost.
    Result<std::unique_ptr<Queue>> make_queue(uint32_t depth) override {
        auto cached = cached_->make_queue(depth);
        if (!cached.ok() || direct_ == nullptr) return cached;
        auto direct = direct_->make_queue(depth);
        if (!direct.ok()) return cached;
        return std::unique_ptr<Queue>(
            std::make_unique<RoutedQueue>(std::move(cached.value()), std::move(direct.value())));
    }

private:
    const std::shared_ptr<Storage> cached_, direct_;
    const Status why_;
};

}  // namespace

std::shared_ptr<Storage> open_routed() {
    auto direct = open_uring();
    if (!direct.ok()) return std::make_shared<RoutedStorage>(nullptr, direct.status());
    return std::make_shared<RoutedStorage>(std::move(direct.value()), Status{});
}

}  // namespace penstock::storage
