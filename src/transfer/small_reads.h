// Decides how small reads of one file go. They go straight through the OS page cache while that is
// fast. Otherwise they go by the route that was faster lately.
//
// A residency question costs a tenth of a hot 64 KiB read, so the time of the reads themselves is
// the first test. If a read was slow because its thread waited (and was not just descheduled), the
// cache is asked before the next reads. Reads that miss go through the cache, where the kernel
// reads ahead, or bypass it. Which is better depends on the unknown order of the reads, so both are
// timed. Bypassing reads are timed one by one. Reads through the cache are timed from one slow read
// to the next. (A slow read is a miss, or a hit that pays for readahead.) The fast hits that follow
// count with it, since it may have brought their bytes. The slower route is tried again at growing
// intervals.
//
// Many reads that come at once and are too small to go direct are announced to the kernel
// beforehand, while such batches are slow.
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
    // A smaller direct read cannot pay off.
    static constexpr uint64_t kSizeMin = 32 << 10;

    // Returns whether the cache must be asked before the next read. The load is relaxed.
    [[nodiscard]] bool doubtful() const { return doubt_.load(std::memory_order_relaxed) > 0; }
    // Returns whether a read through the cache that took `ns` was more than a copy: it waited for
    // the storage, or its thread did not run.
    [[nodiscard]] static bool slow(uint64_t size, uint64_t ns) {
        return ns > kQuickNs + size / kQuickBytesPerNs;
    }
    // Records that a read through the cache waited, although the cache was not asked.
    void suspect() { doubt_.store(kSuspicion, std::memory_order_relaxed); }
    // Returns the route of a read that misses.
    [[nodiscard]] Route way() {
        const std::lock_guard lock(mutex_);
        return kWays[current_];
    }
    // Records that a read took `ns` after the cache was asked. `hit`: the cache held all of it. A
    // slow hit need not have waited: its thread also submits the kernel's readahead.
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

    // Records that a read was planned. `hit`: the cache held all of it.
    void planned(bool hit) {
        if (!hit) {
            doubt_.store(kDoubt, std::memory_order_relaxed);
        } else if (doubtful()) {
            doubt_.fetch_sub(1, std::memory_order_relaxed);
        }
    }

    // Records that a batch of `count` reads through the cache, of `size` bytes in total, took `ns`.
    void saw_batch(size_t count, uint64_t size, uint64_t ns) {
        const bool now = slow(size / count, ns / count);
        if (now != slow_batches()) slow_batches_.store(now, std::memory_order_relaxed);
    }
    // Returns whether the last batch was slow.
    [[nodiscard]] bool slow_batches() const {
        return slow_batches_.load(std::memory_order_relaxed);
    }

private:
    // Number of hits that end the questions: after a slow read, which may have waited for something
    // else, and after a miss.
    static constexpr int kSuspicion = 12, kDoubt = 128;
    static constexpr uint64_t kQuickNs = 4000;       // a hot read takes less than this, plus
    static constexpr uint64_t kQuickBytesPerNs = 3;  // one ns per so many bytes
    static constexpr unsigned kStretch = 12;         // least reads of a stretch
    // Most reads of a stretch. A kernel that reads 8 MiB ahead makes so many hits for reads of 64
    // KiB. Later hits were in the cache before.
    static constexpr unsigned kStretchMax = 128;
    static constexpr unsigned kSkipped = 2;
    static constexpr unsigned kTrialsApartMax = 128;  // in stretches
    static constexpr std::array<Route, 2> kWays{Route::kDirect, Route::kCached};

    struct Trial {
        double bytes = 0, ns = 0;
        unsigned reads = 0;
        double ns_per_byte = 0;  // recent mean; 0: never tried

        void add(uint64_t more, uint64_t took_ns) {
            bytes += static_cast<double>(more);
            ns += static_cast<double>(took_ns);
            ++reads;
        }
    };

    // Requires mutex_.
    void tally_direct(uint64_t size, uint64_t ns, bool hit) {
        if (hit) return;
        if (skipped_ < kSkipped) {  // earlier readahead may still be in flight
            ++skipped_;
            return;
        }
        Trial& trial = trials_[current_];
        trial.add(size, ns);
        if (trial.reads == kStretch) judge();
    }
    // Requires mutex_. If the kernel reads far ahead, few reads miss, and hits pay for most of the
    // readahead.
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

    // Requires mutex_. Chooses the route of the next stretch, at the end of one.
    void judge() {
        Trial& trial = trials_[current_];
        const double now = trial.ns / trial.bytes;
        trial.ns_per_byte = trial.ns_per_byte == 0 ? now : (trial.ns_per_byte + now) / 2;
        stretches_ += trial.reads / kStretch;  // a long stretch counts several times
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
    size_t current_ = 0;  // index into kWays
    std::array<Trial, 2> trials_;
    unsigned skipped_ = 0, stretches_ = 0, trials_apart_ = 8;
};

}  // namespace penstock::transfer
