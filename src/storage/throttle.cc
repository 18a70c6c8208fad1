// The bytes move at once, but their completion is held until the modelled disk would have delivered
// it. All queues share one atomic word that holds the link's time, so there is no lock. storage.h
// states the threads.
#include "storage/throttle.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <vector>

#include "base/clock.h"

namespace penstock::storage {

namespace {

// The modelled disk, shared by all queues.
class Disk {
public:
    explicit Disk(const ThrottleOptions& options)
        : latency_ns_(static_cast<uint64_t>(options.latency_us * 1e3)),
          ns_per_byte_(options.bandwidth_mbs > 0 ? 1e3 / options.bandwidth_mbs : 0) {}

    // Returns when an operation completes that arrived at `arrival_ns` and moved `size` bytes.
    uint64_t due_ns(uint64_t arrival_ns, uint64_t size) {
        const uint64_t ready_ns = arrival_ns + latency_ns_;
        if (ns_per_byte_ == 0) return ready_ns;
        const auto transfer_ns = static_cast<uint64_t>(
            std::llround(static_cast<double>(size) * ns_per_byte_));
        // Relaxed, because the word guards no other memory.
        uint64_t free_ns = link_free_ns_.load(std::memory_order_relaxed);
        uint64_t end_ns;
        do {
            end_ns = std::max(ready_ns, free_ns) + transfer_ns;
        } while (!link_free_ns_.compare_exchange_weak(free_ns, end_ns, std::memory_order_relaxed));
        return end_ns;
    }

private:
    const uint64_t latency_ns_;
    const double ns_per_byte_;
    std::atomic<uint64_t> link_free_ns_{0};  // when the link has passed all bytes promised so far
};

// A wake-up that is later than this is due to other work, and spinning does not help.
constexpr uint64_t kWakeNsMax = 50'000;

class ThrottleQueue final : public Queue {
public:
    ThrottleQueue(std::unique_ptr<Queue> under, std::shared_ptr<Disk> disk)
        : Queue(under->depth()),
          under_(std::move(under)),
          disk_(std::move(disk)),
          slots_(depth()),
          arrived_(depth()) {
        free_.reserve(depth());
        for (uint32_t i = 0; i < depth(); ++i) free_.push_back(i);
        held_.reserve(depth());
    }

    size_t submit(std::span<const Operation> operations) override {
        const uint64_t now_ns = base::monotonic_ns();
        size_t taken = 0;
        for (; taken < operations.size() && !free_.empty(); ++taken) {
            Operation operation = operations[taken];
            const uint32_t slot = free_.back();
            slots_[slot] = {operation.cookie, now_ns};
            operation.cookie = slot;
            if (under_->submit({&operation, 1}) == 0) break;
            free_.pop_back();
        }
        collect(false);
        return taken;
    }

    size_t reap(std::span<Completion> out, bool wait) override {
        if (out.empty() || outstanding() == 0) return 0;
        for (;;) {
            collect(wait && held_.empty());
            const uint64_t now_ns = base::monotonic_ns();
            size_t count = 0;
            while (count < out.size() && !held_.empty() && held_.front().due_ns <= now_ns) {
                out[count++] = release_first();
            }
            if (count > 0 || !wait) return count;
            doze(held_.front().due_ns);
        }
    }

    [[nodiscard]] size_t outstanding() const override { return slots_.size() - free_.size(); }

private:
    struct Slot {
        uint64_t cookie = 0;  // the caller's cookie
        uint64_t arrival_ns = 0;
    };
    struct Held {
        uint64_t due_ns = 0;
        Completion completion;  // its cookie is a slot's index
    };
    static bool later(const Held& a, const Held& b) { return a.due_ns > b.due_ns; }

    // Moves the completions of the storage underneath into held_.
    void collect(bool wait) {
        const size_t count = under_->reap(arrived_, wait);
        for (size_t i = 0; i < count; ++i) {
            const Completion& completion = arrived_[i];
            const uint64_t arrival_ns = slots_[completion.cookie].arrival_ns;
            held_.push_back({disk_->due_ns(arrival_ns, completion.bytes), completion});
            std::push_heap(held_.begin(), held_.end(), later);
        }
    }

    // Sleeps until shortly before `due_ns`; the margin is the time that waking up takes. That is 20
    // us on an idle virtual machine, a fifth of a fast disk's latency. reap() spins for the rest.
    void doze(uint64_t due_ns) {
        const uint64_t target_ns = due_ns - std::min(due_ns, wake_ns_);
        if (base::monotonic_ns() >= target_ns) return;
        base::sleep_until_ns(target_ns);
        const uint64_t late_ns = base::monotonic_ns() - target_ns;
        wake_ns_ = (7 * wake_ns_ + std::min(late_ns, kWakeNsMax)) / 8;
    }

    Completion release_first() {
        std::pop_heap(held_.begin(), held_.end(), later);
        Completion completion = held_.back().completion;
        held_.pop_back();
        free_.push_back(static_cast<uint32_t>(completion.cookie));
        completion.cookie = slots_[completion.cookie].cookie;
        return completion;
    }

    const std::unique_ptr<Queue> under_;
    const std::shared_ptr<Disk> disk_;
    std::vector<Slot> slots_;
    std::vector<uint32_t> free_;       // indices of unused slots
    std::vector<Held> held_;           // a heap, the earliest completion first
    std::vector<Completion> arrived_;  // scratch memory of collect()
    uint64_t wake_ns_ = 0;             // running mean of how late a sleep ends
};

class ThrottleStorage final : public Storage {
public:
    ThrottleStorage(std::shared_ptr<Storage> under, const ThrottleOptions& options)
        : under_(std::move(under)), options_(options), disk_(std::make_shared<Disk>(options)) {}

    [[nodiscard]] Kind kind() const override { return Kind::kThrottle; }

    [[nodiscard]] std::string description() const override {
        char figures[80];
        if (options_.bandwidth_mbs > 0) {
            std::snprintf(figures, sizeof figures, "%g us, %g MB/s", options_.latency_us,
                          options_.bandwidth_mbs);
        } else {
            std::snprintf(figures, sizeof figures, "%g us", options_.latency_us);
        }
        return std::string("throttle (") + figures + ") over " + under_->description();
    }

    Result<std::shared_ptr<File>> open(const std::string& path, int flags) override {
        return under_->open(path, flags);
    }
    Result<std::shared_ptr<File>> adopt(int descriptor) override {
        return under_->adopt(descriptor);
    }
    Status unlink(const std::string& path) override { return under_->unlink(path); }

    Result<std::unique_ptr<Queue>> make_queue(uint32_t depth) override {
        Result<std::unique_ptr<Queue>> under = under_->make_queue(depth);
        if (!under.ok()) return under;
        return std::unique_ptr<Queue>(
            std::make_unique<ThrottleQueue>(std::move(under.value()), disk_));
    }

private:
    const std::shared_ptr<Storage> under_;
    const ThrottleOptions options_;
    const std::shared_ptr<Disk> disk_;
};

// These limits keep nanoseconds within 64 bits.
constexpr double kLatencyMaxUs = 3.6e9;  // one hour
constexpr double kBandwidthMinMbs = 1e-6, kBandwidthMaxMbs = 3.6e9;

}  // namespace

Status check(const ThrottleOptions& options) {
    const double latency = options.latency_us, bandwidth = options.bandwidth_mbs;
    if (!(latency >= 0 && latency <= kLatencyMaxUs))
        return {EINVAL, "throttle", "the latency must be from 0 to 3.6e9 microseconds"};
    if (!(bandwidth == 0 || (bandwidth >= kBandwidthMinMbs && bandwidth <= kBandwidthMaxMbs)))
        return {EINVAL, "throttle", "the bandwidth must be 0 or from 1e-6 to 3.6e9 MB/s"};
    return {};
}

Result<std::shared_ptr<Storage>> open_throttle(std::shared_ptr<Storage> under,
                                               const ThrottleOptions& options) {
    if (Status status = check(options); !status.ok()) return status;
    return std::shared_ptr<Storage>(std::make_shared<ThrottleStorage>(std::move(under), options));
}

}  // namespace penstock::storage
