// Decides whether reads of unknown residency go through the cache. The kernel does not tell this
// process what it caches of another user's file, so the time of such reads decides.
//
// The first read of a file goes through the cache. As long as its bytes come as fast as a copy,
// they are in the cache. If they do not, reads bypass it, and the cache is tried again at growing
// intervals. One slow read among fast ones is taken for a thread that did not run.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace penstock::transfer {

// Any thread. Threads that call it at once may lose counts.
class UnknownReads {
public:
    // Returns whether the next read should go through the page cache.
    [[nodiscard]] bool tries_cached() {
        if (trust_.load(kOrder) > 0) return true;
        const uint32_t pause = pause_.load(kOrder);
        return turn_.fetch_add(1, kOrder) % pause == pause - 1;
    }

    // Returns whether a read through the cache that took `ns` was more than a copy.
    [[nodiscard]] static bool is_slow(double ns, double copy_ns) {
        return ns >= kSlowness * copy_ns;
    }

    // Records the time of a read through the cache, and the expected time of a copy.
    void saw(double ns, double copy_ns) {
        if (!is_slow(ns, copy_ns)) {
            trust_.store(kTrustMax, kOrder);
            pause_.store(kPauseMin, kOrder);
            return;
        }
        const int trust = trust_.load(kOrder) - 1;
        trust_.store(std::max(trust, 0), kOrder);
        if (trust < 0) pause_.store(std::min(2 * pause_.load(kOrder), kPauseMax), kOrder);
    }

private:
    static constexpr std::memory_order kOrder = std::memory_order_relaxed;
    // Lies between a copy and the storage, whose readahead reaches at most a third of a copy's
    // speed.
    static constexpr double kSlowness = 2.5;
    static constexpr int kTrustMax = 2;
    static constexpr uint32_t kPauseMin = 16, kPauseMax = 1024;  // in reads

    std::atomic<int> trust_{1};  // slow reads until the cache is avoided; initially one
    std::atomic<uint32_t> turn_{0};
    std::atomic<uint32_t> pause_{kPauseMin};
};

}  // namespace penstock::transfer
