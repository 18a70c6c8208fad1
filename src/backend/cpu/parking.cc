#include "backend/cpu/parking.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <ctime>

#include "backend/cpu/sanitizer_fibers.h"

namespace penstock::backend::cpu {
namespace {

constexpr unsigned kBucketCountLog2 = 8;

// Addresses that share a bucket wake one another's sleepers, who look again and sleep on.
struct alignas(64) Bucket {
    std::atomic<uint32_t> sleeper_count{0};
    std::atomic<uint32_t> epoch{0};  // the futex word
};
Bucket buckets[1 << kBucketCountLog2];

Bucket& bucket_of(const uint64_t* address) {
    uint64_t word = reinterpret_cast<uintptr_t>(address) >> 3;
    return buckets[word * 0x9e3779b97f4a7c15u >> (64 - kBucketCountLog2)];
}

}  // namespace

void sleep_while_same(const uint64_t* address, uint64_t seen, std::chrono::nanoseconds limit) {
    Bucket& bucket = bucket_of(address);
    // Either the notifier sees this count, or the load below sees the notifier's word: both sides
    // store, fence, load (partner: the fence in notify_address).
    bucket.sleeper_count.fetch_add(1, std::memory_order_seq_cst);
    uint32_t epoch = bucket.epoch.load(std::memory_order_seq_cst);
    if (__atomic_load_n(address, __ATOMIC_SEQ_CST) == seen) {
        auto nanoseconds = limit.count() > 0 ? limit.count() : 0;
        timespec relative{static_cast<time_t>(nanoseconds / 1000000000),
                          static_cast<long>(nanoseconds % 1000000000)};
        syscall(SYS_futex, &bucket.epoch, FUTEX_WAIT_PRIVATE, epoch, &relative, nullptr, 0);
    }
    bucket.sleeper_count.fetch_sub(1, std::memory_order_relaxed);
}

void notify_address(const uint64_t* address) {
    Bucket& bucket = bucket_of(address);
#if PENSTOCK_TSAN
    // TSan does not model fences; a read-modify-write orders as much.
    if (bucket.sleeper_count.fetch_add(0, std::memory_order_seq_cst) == 0) return;
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);  // partner: sleep_while_same
    if (bucket.sleeper_count.load(std::memory_order_relaxed) == 0) return;
#endif
    bucket.epoch.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, &bucket.epoch, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace penstock::backend::cpu
