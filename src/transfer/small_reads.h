// How small reads of one file go: straight through the OS page cache as long as that is quick, and
// when it is not, by whichever way has lately been quicker.
//
// A look at residency costs a tenth of a hot 64 KiB read, so the time of the reads themselves is
// the first probe. Once one was slow, and its thread waited meanwhile (others may only have kept it
// off the processor), the next are looked at; those that miss go through the cache, where the
// kernel reads ahead, or past it. What is better depends on the order of the reads, which
// nobody told, so both are timed: past the cache miss by miss; through it from one slow read to
// another (a miss, or a hit that pays for what the kernel reads ahead), with the quick hits that
// follow, since it may have brought them. The way that lost is tried again after longer and longer.
//
// Reads that come many at once, and that are too small to go direct, are announced to the kernel
// before they are made, as long as such batches are slow.
//
// Any thread. Time is an argument.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "penstock/route.h"

namespace penstock::transfer {

class SmallReads {
public:
    // Below it a direct read cannot pay.
    static constexpr uint64_t kSizeMin = 32 << 10;

    // Whether the next read is to be looked at before it is made. A relaxed load.
    [[nodiscard]] bool doubtful() const { return doubt_.load(std::memory_order_relaxed) > 0; }
    // Whether a read through the cache that took `ns` was more than a copy out of it: it waited for
    // storage, or its thread did not run.
    [[nodiscard]] static bool slow(uint64_t size, uint64_t ns) {
        return ns > kQuickNs + size / kQuickBytesPerNs;
    }
    // A read through the cache that nobody looked at waited.
    void suspect() { doubt_.store(kSuspicion, std::memory_order_relaxed); }
    // The way of a read that misses.
    [[nodiscard]] Route way() {
        const std::lock_guard lock(mutex_);
        return kWays[current_];
    }
    // A read that was looked at took `ns`; `hit`: all of it was in the cache. A slow hit need not
    // have waited: its thread itself asks for what the kernel reads ahead of it.
    void tally(uint64_t size, uint64_t ns, bool hit) {
        const std::lock_guard lock(mutex_);
        if (!hit) {
            doubt_.store(kDoubt, std::memory_order_relaxed);
        } else if (!slow(size, ns)) {
            doubt_.fetch_sub(1, std::memory_order_relaxed);
        }
        if (kWays[current_] == Route::kDirect) {
            tally_direct(size, ns, hit);
        } else {
            tally_cached(size, ns, hit && !slow(size, ns));
        }
    }

    // A plan was made for a read; `hit`: all of it was in the cache.
    void planned(bool hit) {
        if (!hit) {
            doubt_.store(kDoubt, std::memory_order_relaxed);
        } else if (doubtful()) {
            doubt_.fetch_sub(1, std::memory_order_relaxed);
        }
    }

    // A batch of `count` reads through the cache, `size` bytes in all, took `ns`.
    void saw_batch(size_t count, uint64_t size, uint64_t ns) {
        const bool now = slow(size / count, ns / count);
        if (now != slow_batches()) slow_batches_.store(now, std::memory_order_relaxed);
    }
    // Whether the last one was slow.
    [[nodiscard]] bool slow_batches() const {
        return slow_batches_.load(std::memory_order_relaxed);
    }

private:
    // So many hits dispel it: after a slow read, which may have waited for something else, and
    // after a miss.
    static constexpr int kSuspicion = 12, kDoubt = 128;
    static constexpr uint64_t kQuickNs = 4000;       // a hot read takes less than this and
    static constexpr uint64_t kQuickBytesPerNs = 3;  // a byte at this rate
    static constexpr unsigned kStretch = 12;         // reads, at least
    // So many in a row: a kernel that reads 8 MiB ahead for reads of 64 KiB. Those behind them were
    // in the cache before.
    static constexpr unsigned kStretchMax = 128;
    static constexpr unsigned kSkipped = 2;
    static constexpr unsigned kTrialsApartMax = 128;  // stretches
    static constexpr std::array<Route, 2> kWays{Route::kDirect, Route::kCached};

    struct Trial {
        double bytes = 0, ns = 0;
        unsigned reads = 0;
        double ns_per_byte = 0;  // lately; 0: never tried

        void add(uint64_t more, uint64_t took_ns) {
            bytes += static_cast<double>(more);
            ns += static_cast<double>(took_ns);
            ++reads;
        }
    };

    // Under the lock.
    void tally_direct(uint64_t size, uint64_t ns, bool hit) {
        if (hit) return;
        if (skipped_ < kSkipped) {  // what was read ahead before is still on its way
            ++skipped_;
            return;
        }
        Trial& trial = trials_[current_];
        trial.add(size, ns);
        if (trial.reads == kStretch) judge();
    }
    // Where the kernel reads far ahead few reads miss, and hits pay for most of it.
    void tally_cached(uint64_t size, uint64_t ns, bool quick) {
        Trial& trial = trials_[current_];
        if (quick && trial.reads == 0) return;
        if (!quick && trial.reads >= kStretch) {
            judge();
            if (kWays[current_] == Route::kDirect) return;
        }
        trial.add(size, ns);
        if (trial.reads == kStretchMax) judge();
    }

    // Under the lock, at the end of a stretch: by which way the next goes.
    void judge() {
        Trial& trial = trials_[current_];
        const double now = trial.ns / trial.bytes;
        trial.ns_per_byte = trial.ns_per_byte == 0 ? now : (trial.ns_per_byte + now) / 2;
        stretches_ += trial.reads / kStretch;  // as many as it is long
        trial.bytes = trial.ns = 0;
        trial.reads = skipped_ = 0;
        const size_t other = 1 - current_;
        const bool untried = trials_[other].ns_per_byte == 0;
        if (untried || stretches_ >= trials_apart_) {
            if (!untried) trials_apart_ = std::min(2 * trials_apart_, kTrialsApartMax);
            stretches_ = 0;
            current_ = other;
            return;
        }
        if (trials_[other].ns_per_byte < trial.ns_per_byte) current_ = other;
    }

    std::atomic<int> doubt_{0};
    std::atomic<bool> slow_batches_{false};
    std::mutex mutex_;
    size_t current_ = 0;  // of kWays
    std::array<Trial, 2> trials_;
    unsigned skipped_ = 0, stretches_ = 0, trials_apart_ = 8;
};

}  // namespace penstock::transfer
