// Chooses routes of one file's reads by the time that earlier reads took.
//
// Small reads go straight through the OS page cache while that is fast, because a residency
// question costs a tenth of a hot 64 KiB read. If a read was slow because its thread waited (and
// was not just descheduled), probing starts: the cache is asked before the next reads. Reads that
// miss go through the cache, where the kernel reads ahead, or bypass it. Which is better depends on
// the unknown order of the reads, so both are timed. Bypassing reads are timed one by one. Reads
// through the cache are timed from one slow read to the next. (A slow read is a miss, or a hit that
// pays for readahead.) The fast hits that follow count with it, since it may have brought their
// bytes. The slower route is tried again at growing intervals.
//
// Many reads that come at once and are too small to go direct are announced to the kernel
// beforehand, while such batches are slow.
//
// Reads of unknown residency: the kernel does not tell this process what it caches of another
// user's file. The first read goes through the cache. As long as its bytes come as fast as a copy,
// they are in the cache. If they do not, reads bypass it, and the cache is tried again at growing
// intervals. One slow read among fast ones is taken for a thread that did not run.
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

class RouteTrial {
public:
    // Returns whether the cache must be asked before the next small read.
    [[nodiscard]] bool probing() const { return probes_.load(kOrder) > 0; }
    // Returns whether a small read through the cache that took `ns` was more than a copy: it waited
    // for the storage, or its thread did not run.
    [[nodiscard]] static bool is_slow(uint64_t size, uint64_t ns) {
        return ns > kQuickNs + size / kQuickBytesPerNs;
    }
    // Records that a small read through the cache waited, although the cache was not asked.
    void start_probing() { probes_.store(kProbesAfterSlow, kOrder); }
    // Returns the route of a small read that misses.
    [[nodiscard]] Route route() {
        const std::lock_guard lock(mutex_);
        return kRoutes[current_];
    }
    // Records that a small read took `ns` after the cache was asked. `hit`: the cache held all of
    // it. A slow hit need not have waited: its thread also submits the kernel's readahead.
    void record(uint64_t size, uint64_t ns, bool hit) {
        const std::lock_guard lock(mutex_);
        if (!hit) {
            probes_.store(kProbesAfterMiss, kOrder);
        } else if (!is_slow(size, ns)) {
            probes_.fetch_sub(1, kOrder);
        }
        if (kRoutes[current_] == Route::kDirect) {
            record_direct(size, ns, hit);
        } else {
            record_cached(size, ns, hit && !is_slow(size, ns));
        }
    }

    // Records that a small read was planned. `hit`: the cache held all of it.
    void record_plan(bool hit) {
        if (!hit) {
            probes_.store(kProbesAfterMiss, kOrder);
        } else if (probing()) {
            probes_.fetch_sub(1, kOrder);
        }
    }

    // Records that a batch of `count` reads through the cache, of `size` bytes in total, took `ns`.
    void record_batch(size_t count, uint64_t size, uint64_t ns) {
        const bool now = is_slow(size / count, ns / count);
        if (now != slow_batches()) slow_batches_.store(now, kOrder);
    }
    // Returns whether the last batch was slow.
    [[nodiscard]] bool slow_batches() const { return slow_batches_.load(kOrder); }

    // Returns whether the next read of unknown residency should go through the page cache.
    [[nodiscard]] bool tries_cached() {
        if (trust_.load(kOrder) > 0) return true;
        const uint32_t pause = pause_.load(kOrder);
        return turn_.fetch_add(1, kOrder) % pause == pause - 1;
    }
    // Returns whether a read through the cache that took `ns` was more than a copy.
    [[nodiscard]] static bool is_slower_than_copy(double ns, double copy_ns) {
        return ns >= kSlowness * copy_ns;
    }
    // Records the time of a read of unknown residency through the cache, and the expected time of a
    // copy. Threads that call it at once may lose counts.
    void record_unknown(double ns, double copy_ns) {
        if (!is_slower_than_copy(ns, copy_ns)) {
            trust_.store(kTrustMax, kOrder);
            pause_.store(kPauseMin, kOrder);
            return;
        }
        const int trust = trust_.load(kOrder) - 1;
        trust_.store(std::max(trust, 0), kOrder);
        if (trust < 0) pause_.store(std::min(2 * pause_.load(kOrder), kPauseMax), kOrder);
    }

private:
    // Relaxed: the counts guard no other memory.
    static constexpr std::memory_order kOrder = std::memory_order_relaxed;
    // Number of hits that end probing: after a slow read, which may have waited for something else,
    // and after a miss.
    static constexpr int kProbesAfterSlow = 12, kProbesAfterMiss = 128;
    static constexpr uint64_t kQuickNs = 4000;       // a hot read takes less than this, plus
    static constexpr uint64_t kQuickBytesPerNs = 3;  // one ns per so many bytes
    static constexpr unsigned kStretch = 12;         // least reads of a stretch
    // Most reads of a stretch. A kernel that reads 8 MiB ahead makes so many hits for reads of 64
    // KiB. Later hits were in the cache before.
    static constexpr unsigned kStretchMax = 128;
    static constexpr unsigned kSkipped = 2;
    static constexpr unsigned kTrialsApartMax = 128;  // in stretches
    static constexpr std::array<Route, 2> kRoutes{Route::kDirect, Route::kCached};
    // Lies between a copy and the storage, whose readahead reaches at most a third of a copy's
    // speed.
    static constexpr double kSlowness = 2.5;
    static constexpr int kTrustMax = 2;
    static constexpr uint32_t kPauseMin = 16, kPauseMax = 1024;  // in reads

    // The reads of the current stretch by one route.
    struct Stretch {
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
    void record_direct(uint64_t size, uint64_t ns, bool hit) {
        if (hit) return;
        if (skipped_ < kSkipped) {  // earlier readahead may still be in flight
            ++skipped_;
            return;
        }
        Stretch& stretch = stretches_[current_];
        stretch.add(size, ns);
        if (stretch.reads == kStretch) judge();
    }
    // Requires mutex_. If the kernel reads far ahead, few reads miss, and hits pay for most of the
    // readahead.
    void record_cached(uint64_t size, uint64_t ns, bool quick) {
        Stretch& stretch = stretches_[current_];
        if (quick && stretch.reads == 0) return;
        if (!quick && stretch.reads >= kStretch) {
            judge();
            if (kRoutes[current_] == Route::kDirect) return;
        }
        stretch.add(size, ns);
        if (stretch.reads == kStretchMax) judge();
    }

    // Requires mutex_. Chooses the route of the next stretch, at the end of one.
    void judge() {
        Stretch& stretch = stretches_[current_];
        const double now = stretch.ns / stretch.bytes;
        stretch.ns_per_byte = stretch.ns_per_byte == 0 ? now : (stretch.ns_per_byte + now) / 2;
        stretches_since_trial_ += stretch.reads / kStretch;  // a long stretch counts several times
        stretch.bytes = stretch.ns = 0;
        stretch.reads = skipped_ = 0;
        const size_t other = 1 - current_;
        const bool untried = stretches_[other].ns_per_byte == 0;
        if (untried || stretches_since_trial_ >= trials_apart_) {
            if (!untried) trials_apart_ = std::min(2 * trials_apart_, kTrialsApartMax);
            stretches_since_trial_ = 0;
            current_ = other;
            return;
        }
        if (stretches_[other].ns_per_byte < stretch.ns_per_byte) current_ = other;
    }

    std::atomic<int> probes_{0};  // hits until probing ends
    std::atomic<bool> slow_batches_{false};
    std::mutex mutex_;    // guards the five members below
    size_t current_ = 0;  // index into kRoutes and stretches_
    std::array<Stretch, 2> stretches_;
    unsigned skipped_ = 0, stretches_since_trial_ = 0, trials_apart_ = 8;
    // For reads of unknown residency.
    std::atomic<int> trust_{1};      // slow reads until the cache is avoided; initially one
    std::atomic<uint32_t> turn_{0};  // counts reads while it is avoided
    std::atomic<uint32_t> pause_{kPauseMin};  // of so many of these reads, one tries the cache
};

}  // namespace penstock::transfer
