// Of reads that are planned though nobody may ask what the OS page cache holds of their file (it is
// somebody else's): whether to go through the cache, judged by the time that such reads take.
//
// A file is tried when it is first read. As long as its bytes come as fast as a copy does, they are
// in the cache; when they do not, reads go past it, and it is tried again now and then, ever more
// seldom. One slow read among fast ones is taken for a thread that did not run.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace penstock::transfer {

// Any thread; counts may be lost between threads.
class UnknownReads {
public:
    // Whether the next read shall go through the page cache.
    [[nodiscard]] bool tries_cached() {
        if (trust_.load(kOrder) > 0) return true;
        const uint32_t pause = pause_.load(kOrder);
        return turn_.fetch_add(1, kOrder) % pause == pause - 1;
    }

    // Whether a read through the cache that took `ns` was no mere copy out of it.
    [[nodiscard]] static bool is_slow(double ns, double copy_ns) {
        return ns >= kSlowness * copy_ns;
    }

    // What one that did took, and what a copy out of the cache takes.
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
    // Between a copy and storage, whose readahead comes to no more than a third of a copy's speed.
    static constexpr double kSlowness = 2.5;
    static constexpr int kTrustMax = 2;
    static constexpr uint32_t kPauseMin = 16, kPauseMax = 1024;  // reads

    std::atomic<int> trust_{1};  // slow reads until the cache is left alone; the first decides
    std::atomic<uint32_t> turn_{0};
    std::atomic<uint32_t> pause_{kPauseMin};
};

}  // namespace penstock::transfer
