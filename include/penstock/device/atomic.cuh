// Access to shared words: one policy for device memory, and one for memory shared with the host.
//
// A policy has a Word type and static functions load, store, fetch_add, fetch_or, fetch_and and
// compare_exchange. Each takes its Site (abi/orders.h). The explorer has a third policy of the same
// form. Under nvcc the words are cuda::atomic_ref, under g++ std::atomic_ref.
#pragma once

#include <cstdint>

#include "penstock/abi/orders.h"
#include "penstock/abi/qualifiers.h"

#ifdef __NVCC__
#include <cuda/atomic>
#else
#include <atomic>
#endif

namespace penstock::device {

#ifdef __NVCC__
namespace memory = ::cuda::std;
#else
namespace memory = ::std;
#endif

PENSTOCK_BOTH constexpr memory::memory_order load_order(Order order) {
    return order == Order::kAcquire || order == Order::kAcquireRelease
               ? memory::memory_order_acquire
               : memory::memory_order_relaxed;
}
PENSTOCK_BOTH constexpr memory::memory_order store_order(Order order) {
    return order == Order::kRelease || order == Order::kAcquireRelease
               ? memory::memory_order_release
               : memory::memory_order_relaxed;
}
PENSTOCK_BOTH constexpr memory::memory_order update_order(Order order) {
    return order == Order::kRelaxed   ? memory::memory_order_relaxed
           : order == Order::kAcquire ? memory::memory_order_acquire
           : order == Order::kRelease ? memory::memory_order_release
                                      : memory::memory_order_acq_rel;
}

// Words in mapped host memory or shared with the copy engine: plain aligned loads and stores only.
// Over PCIe a read-modify-write is not atomic, so this policy has none.
struct SystemWords {
    using Word = uint64_t;
#ifdef __NVCC__
    using Reference = ::cuda::atomic_ref<uint64_t, ::cuda::thread_scope_system>;
#else
    using Reference = ::std::atomic_ref<uint64_t>;
#endif
    PENSTOCK_BOTH static uint64_t load(const Word& word, Site site) {
        return Reference(const_cast<Word&>(word)).load(load_order(order_of(site)));
    }
    PENSTOCK_BOTH static void store(Word& word, uint64_t value, Site site) {
        Reference(word).store(value, store_order(order_of(site)));
    }
};

// Words in device memory that only GPU threads write. (On the CPU backend lanes write them, and the
// host when it acts for them.)
struct DeviceWords {
    using Word = uint64_t;
#ifdef __NVCC__
    using Reference = ::cuda::atomic_ref<uint64_t, ::cuda::thread_scope_device>;
#else
    using Reference = ::std::atomic_ref<uint64_t>;
#endif
    PENSTOCK_BOTH static uint64_t load(const Word& word, Site site) {
        return Reference(const_cast<Word&>(word)).load(load_order(order_of(site)));
    }
    PENSTOCK_BOTH static void store(Word& word, uint64_t value, Site site) {
        Reference(word).store(value, store_order(order_of(site)));
    }
    PENSTOCK_BOTH static uint64_t fetch_add(Word& word, uint64_t value, Site site) {
        return Reference(word).fetch_add(value, update_order(order_of(site)));
    }
    PENSTOCK_BOTH static uint64_t fetch_sub(Word& word, uint64_t value, Site site) {
        return Reference(word).fetch_sub(value, update_order(order_of(site)));
    }
    PENSTOCK_BOTH static uint64_t fetch_or(Word& word, uint64_t value, Site site) {
        return Reference(word).fetch_or(value, update_order(order_of(site)));
    }
    PENSTOCK_BOTH static uint64_t fetch_and(Word& word, uint64_t value, Site site) {
        return Reference(word).fetch_and(value, update_order(order_of(site)));
    }
    // On failure `expected` gets the value found (read relaxed: every caller loads it again or
    // gives up).
    PENSTOCK_BOTH static bool compare_exchange(Word& word, uint64_t& expected, uint64_t desired,
                                               Site site) {
        return Reference(word).compare_exchange_strong(
            expected, desired, update_order(order_of(site)), memory::memory_order_relaxed);
    }
};

}  // namespace penstock::device
