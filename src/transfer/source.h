// An open file as transfers see it: its storage, what the OS page cache holds of it, what moving
// its bytes costs, and what was found out on the way. Any thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "planner/cost_model.h"
#include "storage/residency.h"
#include "storage/storage.h"
#include "transfer/direct_traffic.h"
#include "transfer/small_reads.h"
#include "transfer/unknown_reads.h"

namespace penstock::transfer {

// What the files of one file system and one device memory cost, as known now; reads refine it.
class Costs {
public:
    // Of storage that nobody has measured.
    Costs() : live_(planner::LiveModel::unmeasured()) {}
    // As measured here.
    explicit Costs(const planner::CostModel& calibrated) : live_(calibrated) {}

    [[nodiscard]] planner::CostModel model() const {
        const std::lock_guard lock(mutex_);
        return live_.model();
    }
    void refine(const planner::Observation& observation) {
        const std::lock_guard lock(mutex_);
        live_.refine(observation);
    }
    // Of the device below.
    [[nodiscard]] DirectTraffic& traffic() { return traffic_; }

private:
    mutable std::mutex mutex_;
    planner::LiveModel live_;
    DirectTraffic traffic_;
};

// The costs of a file's file system, shared by all its files.
using CostsOf = std::function<std::shared_ptr<Costs>(const storage::File&)>;

struct Source {
    explicit Source(std::shared_ptr<storage::File> opened,
                    std::shared_ptr<Costs> known = std::make_shared<Costs>())
        : file(std::move(opened)), probe(*file), costs(std::move(known)), size_(file->size()) {}

    // How long the file is, as last seen; looked at again for a read that ends at `end`, behind
    // that: it may have grown.
    [[nodiscard]] uint64_t size(uint64_t end) {
        const uint64_t known = known_size();
        if (end <= known) return known;
        storage::Identity now;
        if (!file->stat(&now).ok() || now.size <= known) return known;
        size_.store(now.size, std::memory_order_relaxed);
        return now.size;
    }

    // Whether the file ends before `end` though it was last seen not to: another program cut it.
    // For a direct read, which writes zeros over all memory behind the end that it is given.
    [[nodiscard]] bool was_cut(uint64_t end) {
        storage::Identity now;
        if (end > known_size() || !file->stat(&now).ok() || now.size >= end) return false;
        resized(now.size);
        return true;
    }

    // It is that long now: the file was cut, or made longer.
    void resized(uint64_t size) { size_.store(size, std::memory_order_relaxed); }

    // The OS page cache was looked at for a read; `hot`: it had all of it. Counts may be lost
    // between threads.
    void looked(bool hot) {
        const uint32_t before = hot_looks_.load(std::memory_order_relaxed);
        const uint32_t now = hot ? std::min(before + 1, kHotLooks) : 0;
        if (now != before) hot_looks_.store(now, std::memory_order_relaxed);
    }
    // Looks at the first of `range`, for who has to know something before any of it is planned.
    void look(const extent::Extent& range) {
        constexpr uint64_t kSize = 1 << 20;
        if (probe.in_memory() || range.offset >= known_size()) return;
        std::array<extent::ResidencyRun, 4> runs;
        storage::ResidencyQuestion question;
        question.range = {range.offset, std::min({range.size, known_size() - range.offset, kSize})};
        question.grain = kSize;
        const size_t count = probe.ask(question, runs).runs;
        looked(count > 0 && std::all_of(runs.begin(), runs.begin() + count, [](const auto& run) {
                   return run.state == Residency::kCached || run.state == Residency::kDirty;
               }));
    }
    // Whether plans begin with a look; not where there is nothing to choose.
    [[nodiscard]] bool is_looked_at() const {
        return file->direct_alignment().offset != 0 &&
               !direct_refused.load(std::memory_order_relaxed);
    }
    // All that was last looked at was in the OS page cache.
    [[nodiscard]] bool hot() const { return hot_looks_.load(std::memory_order_relaxed) > 0; }
    // So was all before that, for so long that the time of the reads themselves shows an end of it
    // more cheaply than a look, which in folios of 4 KiB takes 7 us a MiB.
    [[nodiscard]] bool long_hot() const {
        return hot_looks_.load(std::memory_order_relaxed) == kHotLooks;
    }

    // Whether the kernel reads ahead of what comes through the OS page cache: not where misses go
    // past it, since what it reads ahead of the hits between them makes slow hits of what would
    // have missed. What it has begun goes on.
    void read_ahead(bool ahead) {
        if (reads_ahead_.load(std::memory_order_relaxed) == ahead) return;
        const std::lock_guard lock(advice_mutex_);  // what the kernel was told last is what we know
        file->read_ahead(ahead);
        reads_ahead_.store(ahead, std::memory_order_relaxed);
    }

    const std::shared_ptr<storage::File> file;
    storage::ResidencyProbe probe;
    const std::shared_ptr<Costs> costs;
    SmallReads small;
    UnknownReads unknown;
    // Direct I/O was tried and refused though the file system offers it.
    std::atomic<bool> direct_refused{false};

    // Whether direct I/O answered `error` because it is not to be had, though the file system said
    // it was; remembered, but for want of a descriptor to open the file with once more.
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
    std::atomic<bool> reads_ahead_{true};  // written under it
    std::atomic<uint32_t> hot_looks_{0};   // in a row; at most kHotLooks
};

}  // namespace penstock::transfer
