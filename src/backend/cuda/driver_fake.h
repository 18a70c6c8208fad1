// What tests ask of the fake driver (driver_fake.cc): fail the n-th call, hold streams, count what
// is alive.
#pragma once

#include <atomic>
#include <cstdint>

namespace penstock::backend::cuda {

// One in the whole process, found with dlsym("penstock_fake_cuda"). All words may be set and read
// at any time.
struct FakeCuda {
    std::atomic<int64_t> call_count{0};
    std::atomic<int64_t> fail_at{0};  // the call that finds call_count there fails; 0: none
    std::atomic<int> fail_code{999};
    std::atomic<bool> hold{false};     // streams do not advance
    std::atomic<int> fault{0};         // what every call returns from now on: the context is lost
    std::atomic<int> device_count{1};  // at most 8
    std::atomic<int> lost_device{-1};  // ordinal: all calls in its contexts fail
    std::atomic<uint64_t> used_by_others{0};  // bytes of each device's memory
    std::atomic<int> lacking_attribute{0};    // reads as 0
    std::atomic<bool> misaligned{false};      // large device memory is not on 2 MiB
    std::atomic<bool> unreachable{false};     // the host cannot address new memory of cuMemAlloc
    std::atomic<bool> refuse_register{false};
    std::atomic<bool> refuse_second_context{false};
    // A call in the primary context waits until no kernel is in any of its streams, as if another
    // thread of the program were in cudaFree; queries and launches too.
    std::atomic<bool> held{false};
    std::atomic<int64_t> calls_while_held{0};  // that had to wait
    std::atomic<int64_t> second_contexts{0};
    std::atomic<int64_t> foreign_copies{
        0};                                // from or to memory of another device than the stream's
    std::atomic<int64_t> overruns{0};      // pinned pieces that were written beyond their end
    std::atomic<int64_t> unsafe_calls{0};  // that would break a stream capture of another thread
    std::atomic<bool> legacy_busy{false};  // what is in the legacy default stream does not end
    std::atomic<bool> legacy_captured{false};  // a blocking stream is being captured
    std::atomic<bool> stream_captured{false};  // every other stream
    std::atomic<int64_t> legacy_waits{0};      // events that were recorded in it
    std::atomic<int64_t> contexts{0}, streams{0}, device_pieces{0}, pinned_pieces{0},
        registered_pieces{0};
    std::atomic<int64_t> launches{0};
    std::atomic<uintptr_t> last_launch_stream{0};
    std::atomic<int64_t> calls_without_context{0};  // of functions that need one
};

}  // namespace penstock::backend::cuda
