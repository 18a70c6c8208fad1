// An open file as transfers see it: its storage, its state in the OS page cache, the cost of moving
// its bytes, and what reads have learned about it. Any thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "planner/cost_model.h"
#include "planner/route_policy.h"
#include "storage/residency.h"
#include "storage/storage.h"
#include "transfer/direct_traffic.h"
#include "transfer/route_trial.h"

namespace penstock::transfer {

// The current costs for the files of one file system and one device memory. Reads refine them.
class Costs {
public:
    // Costs of unmeasured storage.
    Costs() : live_(planner::LiveModel::unmeasured()) {}
    // Costs as calibrated on this machine.
    explicit Costs(const planner::CostModel& calibrated) : live_(calibrated) {}

    [[nodiscard]] planner::CostModel model() const {
        const std::lock_guard lock(mutex_);
        return live_.model();
    }
    void refine(const planner::Observation& observation) {
        const std::lock_guard lock(mutex_);
        live_.refine(observation);
    }
    // The direct operations on the storage device below.
    [[nodiscard]] DirectTraffic& traffic() { return traffic_; }

private:
    mutable std::mutex mutex_;
    planner::LiveModel live_;
    DirectTraffic traffic_;
};

// Returns the costs of a file's file system, which all its files share.
using CostsOf = std::function<std::shared_ptr<Costs>(const storage::File&)>;

struct Source {
    explicit Source(std::shared_ptr<storage::File> opened,
                    std::shared_ptr<Costs> known = std::make_shared<Costs>())
        : file(std::move(opened)), probe(*file), costs(std::move(known)), size_(file->size()) {}

    // Returns the size of the file as last seen. If a read ends at `end`, beyond that size, looks
    // again, because the file may have grown.
    [[nodiscard]] uint64_t size(uint64_t end) {
        const uint64_t known = known_size();
        if (end <= known) return known;
        storage::Identity now;
        if (!file->stat(&now).ok() || now.size <= known) return known;
        size_.store(now.size, std::memory_order_relaxed);
        return now.size;
    }

    // Returns whether another program has cut the file before `end` since its size was last seen. A
    // direct read must know, because it writes zeros over all its memory behind the end of the
    // file.
    [[nodiscard]] bool was_cut(uint64_t end) {
        storage::Identity now;
        if (end > known_size() || !file->stat(&now).ok() || now.size >= end) return false;
        resized(now.size);
        return true;
    }

    // Stores the new size of a file that was cut or extended.
    void resized(uint64_t size) { size_.store(size, std::memory_order_relaxed); }

    // Records what a read learned about the OS page cache. `hot`: it held the whole range. Threads
    // that call it at once may lose counts.
    void record_residency(bool hot) {
        const uint32_t before = hot_looks_.load(std::memory_order_relaxed);
        const uint32_t now = hot ? std::min(before + 1, kHotLooks) : 0;
        if (now != before) hot_looks_.store(now, std::memory_order_relaxed);
    }
    // Records the answer to a question about the OS page cache.
    void record_residency(std::span<const extent::ResidencyRun> runs) {
        record_residency(
            !runs.empty() && std::all_of(runs.begin(), runs.end(), [](const auto& run) {
                return run.state == Residency::kCached || run.state == Residency::kDirty;
            }));
    }
    // Asks about the first MiB of `range`, for a caller that needs hot() before it plans anything.
    void look(const extent::Extent& range) {
        constexpr uint64_t kSize = 1 << 20;
        if (probe.in_memory() || range.offset >= known_size()) return;
        std::array<extent::ResidencyRun, 4> runs;
        storage::ResidencyQuestion question;
        question.range = {range.offset, std::min({range.size, known_size() - range.offset, kSize})};
        question.grain = kSize;
        record_residency(std::span(runs).first(probe.ask(question, runs).runs));
    }
    // Returns which routes a read or write with these options may take now.
    [[nodiscard]] planner::RoutePolicy policy(const ReadOptions& options) const {
        const storage::DirectAlignment alignment = file->direct_alignment();
        return {options,
                {{Route::kDirect, alignment.offset, alignment.memory},
                 direct_refused.load(std::memory_order_relaxed),
                 probe.in_memory()}};
    }
    // Returns whether a small read should be planned if there are others with it. It most likely
    // misses, and direct reads can overlap.
    [[nodiscard]] bool plans_small(const planner::RoutePolicy& policy, uint64_t size) {
        return policy.may_be_direct(size) && trial.probing() && trial.route() == Route::kDirect;
    }
    // Returns whether everything that was last asked about was in the OS page cache.
    [[nodiscard]] bool hot() const { return hot_looks_.load(std::memory_order_relaxed) > 0; }
    // Returns whether the last kHotLooks questions all found everything cached. Then the time of
    // the reads themselves shows an end of that more cheaply than a question, which takes 7 us per
    // MiB in folios of 4 KiB.
    [[nodiscard]] bool long_hot() const {
        return hot_looks_.load(std::memory_order_relaxed) == kHotLooks;
    }

    // Tells the kernel whether to read ahead of reads through the OS page cache. It should not
    // while misses bypass the cache: what it reads ahead of the hits in between turns bytes that
    // would have missed into slow hits. Readahead that has begun continues.
    void read_ahead(bool ahead) {
        if (reads_ahead_.load(std::memory_order_relaxed) == ahead) return;
        const std::lock_guard lock(advice_mutex_);  // reads_ahead_ equals the kernel's state
        file->read_ahead(ahead);
        reads_ahead_.store(ahead, std::memory_order_relaxed);
    }

    const std::shared_ptr<storage::File> file;
    storage::ResidencyProbe probe;
    const std::shared_ptr<Costs> costs;
    RouteTrial trial;
    // Direct I/O was refused, although the file system offers it.
    std::atomic<bool> direct_refused{false};

    // Returns whether `error` of a direct operation means that direct I/O is not possible, although
    // the file system offers it. Remembers that, unless the cause is temporary: no descriptor or
    // memory to open the file once more.
    [[nodiscard]] bool refuses_direct(int error) {
        const bool for_now = error == EMFILE || error == ENFILE || error == ENOMEM;
        const bool for_good = error == EINVAL || error == EOPNOTSUPP || error == ENOTSUP ||
                              error == EREMOTEIO || error == EACCES || error == EPERM ||
                              error == ENOENT;
        if (for_good) {
            direct_refused.store(true, std::memory_order_relaxed);
            read_ahead(true);
        }
        return for_now || for_good;
    }

    [[nodiscard]] uint64_t known_size() const { return size_.load(std::memory_order_relaxed); }

private:
    static constexpr uint32_t kHotLooks = 16;

    std::atomic<uint64_t> size_;
    std::mutex advice_mutex_;
    std::atomic<bool> reads_ahead_{true};  // written under advice_mutex_
    std::atomic<uint32_t> hot_looks_{0};   // hot questions in a row; at most kHotLooks
};

}  // namespace penstock::transfer
