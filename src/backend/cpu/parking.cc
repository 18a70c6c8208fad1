#include "backend/cpu/parking.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <climits>
#include <cstddef>
#include <ctime>

#include "backend/cpu/sanitizer_fibers.h"

namespace penstock::backend::cpu {
namespace {

constexpr unsigned kBucketCountLog2 = 8;

// Addresses that share a bucket wake each other's sleepers, which look again and continue to sleep.
struct alignas(64) Bucket {
    std::atomic<uint32_t> sleeper_count{0};
    std::atomic<uint32_t> epoch{0};  // the futex word
    // Threads that sleep until a counter is rung. The low half of each counter is its own futex
    // word, so that one of its sleepers can be woken and none of another counter.
    std::atomic<uint32_t> listener_count{0};
};
Bucket buckets[1 << kBucketCountLog2];
// Counts over all buckets, increased after theirs. Mostly no thread sleeps, and a thread that
// announces many words need not look at a bucket for each.
struct alignas(64) {
    std::atomic<uint32_t> sleeper_count{0}, listener_count{0};
} all;

Bucket& bucket_of(const uint64_t* address) {
    uint64_t word = reinterpret_cast<uintptr_t>(address) >> 3;
    return buckets[word * 0x9e3779b97f4a7c15u >> (64 - kBucketCountLog2)];
}

constexpr uint32_t kAnyCpu = FUTEX_BITSET_MATCH_ANY;

// Returns which of 32 sets of CPUs this thread runs on, as a futex bit set.
uint32_t this_cpu() { return 1u << (static_cast<unsigned>(sched_getcpu()) % 32); }

// `cpus`: the CPUs whose wakes it receives.
void futex_wait(const void* word, uint32_t seen, std::chrono::nanoseconds limit, uint32_t cpus) {
    timespec now;  // a bit set wants an absolute time
    clock_gettime(CLOCK_MONOTONIC, &now);
    const auto nanoseconds = now.tv_nsec + (limit.count() > 0 ? limit.count() : 0);
    const timespec until{now.tv_sec + static_cast<time_t>(nanoseconds / 1000000000),
                         static_cast<long>(nanoseconds % 1000000000)};
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen, &until, nullptr, cpus);
}

// Returns how many threads woke.
long futex_wake(const void* word, int count, uint32_t cpus) {
    return syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, count, nullptr, nullptr, cpus);
}

// Returns the count. A thread that counts itself in later sees what the caller stored before, or
// its count is seen here: both sides store, fence and load.
uint32_t count_behind_store(std::atomic<uint32_t>& count) {
#if PENSTOCK_TSAN
    // TSan does not model fences; a read-modify-write orders as much.
    return count.fetch_add(0, std::memory_order_seq_cst);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);  // partners: both sleeps below
    return count.load(std::memory_order_relaxed);
#endif
}

const void* low_half(const uint64_t* address) {
    constexpr bool kLittleEndian = std::endian::native == std::endian::little;
    return reinterpret_cast<const std::byte*>(address) + (kLittleEndian ? 0 : 4);
}

}  // namespace

void sleep_while_same(const uint64_t* address, uint64_t seen, std::chrono::nanoseconds limit) {
    Bucket& bucket = bucket_of(address);
    // Partner of both: count_behind_store.
    bucket.sleeper_count.fetch_add(1, std::memory_order_seq_cst);
    all.sleeper_count.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t epoch = bucket.epoch.load(std::memory_order_seq_cst);
    if (__atomic_load_n(address, __ATOMIC_SEQ_CST) == seen) {
        futex_wait(&bucket.epoch, epoch, limit, kAnyCpu);
    }
    all.sleeper_count.fetch_sub(1, std::memory_order_relaxed);
    bucket.sleeper_count.fetch_sub(1, std::memory_order_relaxed);
}

void sleep_until_rung(const uint64_t* address, uint64_t seen, std::chrono::nanoseconds limit) {
    Bucket& bucket = bucket_of(address);
    bucket.listener_count.fetch_add(1, std::memory_order_seq_cst);  // partner: count_behind_store
    all.listener_count.fetch_add(1, std::memory_order_seq_cst);
    if (__atomic_load_n(address, __ATOMIC_SEQ_CST) == seen) {
        futex_wait(low_half(address), static_cast<uint32_t>(seen), limit, this_cpu());
    }
    all.listener_count.fetch_sub(1, std::memory_order_relaxed);
    bucket.listener_count.fetch_sub(1, std::memory_order_relaxed);
}

void notify_addresses(const uint64_t* address, size_t count) {
    // One fence covers the stores of all words.
    const uint32_t sleepers = count_behind_store(all.sleeper_count);
    if (sleepers == 0 && all.listener_count.load(std::memory_order_relaxed) == 0) return;
    for (size_t i = 0; i < count; ++i) {
        Bucket& bucket = bucket_of(address + i);
        if (bucket.sleeper_count.load(std::memory_order_relaxed) != 0) {
            bucket.epoch.fetch_add(1, std::memory_order_seq_cst);
            futex_wake(&bucket.epoch, INT_MAX, kAnyCpu);
        }
        if (bucket.listener_count.load(std::memory_order_relaxed) != 0) {
            futex_wake(low_half(address + i), INT_MAX, kAnyCpu);
        }
    }
}

void ring_address(const uint64_t* address) {
    if (count_behind_store(bucket_of(address).listener_count) == 0) return;
    // A thread that rings often waits next for what it rang for. A listener that went to sleep on
    // this CPU can take over at once, with the bytes in its cache; another CPU would first have to
    // be woken.
    if (futex_wake(low_half(address), 1, this_cpu()) > 0) return;
    futex_wake(low_half(address), 1, kAnyCpu);
}

}  // namespace penstock::backend::cpu
