// Times transfers of one size by one route, on several threads at once. It uses the executors that
// also serve reads. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "penstock/device.h"
#include "penstock/status.h"
#include "storage/storage.h"
#include "transfer/executor.h"
#include "transfer/source.h"

namespace penstock::file {

class RouteTiming {
public:
    // The largest transfer. A longer one would be several storage operations.
    static constexpr uint64_t kSizeMax = uint64_t{1} << 20;

    struct Wish {
        Route route = Route::kCached;
        uint64_t size = 0;       // of each transfer, bytes, at most kSizeMax
        uint32_t in_flight = 1;  // transfers in flight on each thread, at most depth()
        uint64_t count = 1;      // transfers on each thread
        // File offsets of the transfers. Thread t takes those at index t, t + threads(), ... and
        // begins again at index t after the last one.
        std::span<const uint64_t> offsets;
    };
    struct Timing {
        double ns = 0;      // per transfer on one thread, without planning time
        double cpu_ns = 0;  // CPU time of the thread per transfer
        // Share of the time in which the threads were ready and waited for a CPU; 0 where the
        // kernel does not tell.
        double waited_share = 0;
    };

    // Starts `threads` threads. `storage` must outlive the result. EINVAL: `threads` is out of
    // range; ENOMEM; EAGAIN: no more threads can be started; or an error of the storage or device.
    static Result<std::unique_ptr<RouteTiming>> create(storage::Storage& storage,
                                                       const Device& device, unsigned threads);
    ~RouteTiming();
    RouteTiming(const RouteTiming&) = delete;
    RouteTiming& operator=(const RouteTiming&) = delete;

    [[nodiscard]] unsigned threads() const { return static_cast<unsigned>(hands_.size()); }
    [[nodiscard]] bool device_memory() const { return device_memory_; }
    [[nodiscard]] static uint32_t depth() { return transfer::Executor::Limits{}.depth; }

    // Runs the transfers on all threads and returns their times. EOPNOTSUPP: the route is not
    // available. ENODATA: the file gave fewer bytes than its size. Other errors are those of the
    // storage.
    Result<Timing> run(transfer::Source& source, const Wish& wish);

private:
    struct Hand;

    RouteTiming(const Device& device, bool device_memory);
    Status add_hand(storage::Storage& storage);
    void work(Hand* hand, size_t index, transfer::Source* source, const Wish& wish) const;

    const Device device_;
    const bool device_memory_;  // the host cannot address the memory
    std::vector<std::unique_ptr<Hand>> hands_;
};

}  // namespace penstock::file
