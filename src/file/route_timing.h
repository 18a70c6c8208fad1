// Times transfers of one size by one route, on several threads at once, through the executors that
// serve reads too. One thread at a time.
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
    // Nothing longer is one transfer of storage.
    static constexpr uint64_t kSizeMax = uint64_t{1} << 20;

    struct Wish {
        Route route = Route::kCached;
        uint64_t size = 0;       // of each transfer, at most kSizeMax
        uint32_t in_flight = 1;  // on each thread, at most depth()
        uint64_t count = 1;      // on each thread
        // Where they begin; thread t takes those at t, t + threads(), ... and starts anew at the
        // end.
        std::span<const uint64_t> offsets;
    };
    struct Timing {
        double ns = 0;      // of one transfer, on a thread that does them all; without planning
        double cpu_ns = 0;  // that its thread worked for it
    };

    // EINVAL: `threads`; ENOMEM; EAGAIN: no more threads; what storage and device say. `storage`
    // must outlive it.
    static Result<std::unique_ptr<RouteTiming>> create(storage::Storage& storage,
                                                       const Device& device, unsigned threads);
    ~RouteTiming();
    RouteTiming(const RouteTiming&) = delete;
    RouteTiming& operator=(const RouteTiming&) = delete;

    [[nodiscard]] unsigned threads() const { return static_cast<unsigned>(hands_.size()); }
    [[nodiscard]] bool device_memory() const { return device_memory_; }
    [[nodiscard]] static uint32_t depth() { return transfer::Executor::Limits{}.depth; }

    // EOPNOTSUPP: the route is not to be had; else what storage said, and ENODATA: fewer bytes than
    // the file should have.
    Result<Timing> run(transfer::Source& source, const Wish& wish);

private:
    struct Hand;

    RouteTiming(const Device& device, bool device_memory);
    Status add_hand(storage::Storage& storage);
    void work(Hand* hand, size_t index, transfer::Source* source, const Wish& wish) const;

    const Device device_;
    const bool device_memory_;  // that the host cannot address
    std::vector<std::unique_ptr<Hand>> hands_;
};

}  // namespace penstock::file
