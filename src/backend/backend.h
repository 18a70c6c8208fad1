// PORT to a GPU: memory, copies, streams with priority, launches. One folder for each kind: cpu/
// and cuda/.
//
// The only room that may call a GPU driver. Every function may be called from any host thread.
// Knows nothing of files: `Help` and `notify` are how the room that serves requests makes itself
// known.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/memory.h"
#include "penstock/kernel.h"
#include "penstock/status.h"

namespace penstock::backend {

using StreamId = uint32_t;  // 0 is never a stream
using Deadline = std::chrono::steady_clock::time_point;

struct Properties {
    std::string name;               // "cpu:4", "cuda:0 NVIDIA H200"
    bool host_addressable = false;  // the host may load and store device memory
    bool simulated_link = false;    // copies are paced by the link model
    uint32_t permit_count = 0;      // blocks that can be resident at once
    uint32_t threads_per_block_max = 0;
    size_t shared_size_max = 0;  // bytes of dynamic shared memory a block may ask for
    size_t memory_size = 0;      // bytes of device memory
    bool huge_pages = false;     // the kernel gave the arena huge pages
};

// Called by a block, on its OS thread's own stack (CPU backend only): does one piece of work for
// blocks that wait; returns whether it did any. Must not block on another block. `permit`: the
// block's. `waits`: the block has nothing else to do; else what goes on by itself is started, and
// nothing waited for.
struct Help {
    bool (*step)(void* context, unsigned permit, bool waits) = nullptr;
    void* context = nullptr;
};

inline constexpr unsigned kHelpsMax = 8;

struct CopyPart {
    void* to = nullptr;
    const void* from = nullptr;
    size_t size = 0;
};

// What a program had queued on streams of its own at some moment.
class QueuedWork {
public:
    virtual ~QueuedWork() = default;
    // Looks once; never waits. Any thread.
    [[nodiscard]] virtual bool over() = 0;
};

class Device {
public:
    virtual ~Device() = default;

    [[nodiscard]] virtual const Properties& properties() const = 0;

    // `size` bytes, zeroed, aligned to 2 MiB from 2 MiB on, else to 4 KiB. ENOMEM when the arena is
    // full.
    virtual Status allocate(size_t size, Memory memory, void** out) = 0;
    virtual void free(void* pointer) = 0;
    [[nodiscard]] virtual size_t free_memory() const = 0;
    // Whether the host may load and store at `address`: any memory, not only this device's.
    [[nodiscard]] virtual bool host_can_address(const void* /*address*/) const { return true; }
    // Whether there is anything that copies of this device reach at `address`, as far as it can
    // tell: of pageable host memory CUDA cannot.
    [[nodiscard]] virtual bool knows(const void* /*address*/) const { return true; }

    // Streams: operations of one run in order; blocks of a stream of higher priority start first.
    virtual Status create_stream(int priority, StreamId* out) = 0;
    virtual Status destroy_stream(StreamId stream) = 0;  // waits for what is in it, at most until
                                                         // its watchdog
    // A stream for copies that running kernels wait for: copy, copy_words, copy_all, write_value,
    // announce, between pinned and kServed memory. On CUDA no call that the program makes meanwhile
    // (cudaFree, the first launch of a kernel) holds it up.
    virtual Status create_copy_stream(StreamId* out) { return create_stream(0, out); }
    // What is queued now on streams that are not ours: each a cudaStream_t as a number; 0 and 1:
    // the legacy default stream, with all that synchronises with it. Null in `out`: nothing is.
    // EINVAL: no stream; EBUSY: one that is being captured.
    virtual Status queued_work(std::span<const uintptr_t> /*streams*/,
                               std::shared_ptr<QueuedWork>* out) {
        out->reset();
        return {};
    }
    virtual Status launch(StreamId stream, LaunchRequest request) = 0;
    // Words of 8 bytes, aligned and up to kWholeSizeMax bytes in all, arrive whole: GPU threads may
    // look at them meanwhile. On CUDA they announce only what lies behind a write_value, whose
    // fence keeps it ahead of them.
    static constexpr size_t kWholeSizeMax = 1024;
    virtual Status copy(StreamId stream, void* to, const void* from, size_t size) = 0;
    // Any number of words that GPU threads may look at meanwhile. On CUDA only half of a word may
    // be new: who reads them must be able to tell.
    virtual Status copy_words(StreamId stream, uint64_t* to, const uint64_t* from, size_t count) {
        return copy(stream, to, from, count * sizeof *to);
    }
    // Many at once, in any order among themselves; in one call of the driver where it has one.
    // After an error any of them may have been made.
    virtual Status copy_all(StreamId stream, std::span<const CopyPart> parts) {
        for (const CopyPart& part : parts) {
            if (Status status = copy(stream, part.to, part.from, part.size); !status.ok())
                return status;
        }
        return {};
    }
    virtual Status fill(StreamId stream, void* to, uint8_t value, size_t size) = 0;
    // Stores `value` behind all that is in `stream`, visible to GPU threads and to the host with
    // what was copied before it. `address` is aligned to 8 bytes.
    virtual Status write_value(StreamId stream, uint64_t* address, uint64_t value) = 0;
    // The same, for who counts what is over: on CUDA copies that lie behind it do not wait for it,
    // which costs the link 2 us each time. Announcements of one stream come in order, but not
    // before or behind its other stores; query() and synchronize() wait for them too.
    virtual Status announce(StreamId stream, uint64_t* address, uint64_t value) {
        return write_value(stream, address, value);
    }
    // Waits until the stream is idle; the first error of its operations since the last call.
    // ETIMEDOUT at `deadline`.
    virtual Status synchronize(StreamId stream, Deadline deadline) = 0;
    virtual Status query(StreamId stream, bool* idle) = 0;

    // Whether any kernel is queued or running. On CUDA this asks the driver, which may not answer
    // before a kernel ends: not for threads that kernels wait for.
    [[nodiscard]] virtual bool kernels_in_flight() const = 0;
    // The same as of the last look, by poll() at the latest: asks no driver. A kernel that has
    // ended since may still count.
    [[nodiscard]] virtual bool kernels_seen_in_flight() const { return kernels_in_flight(); }
    // For how long the longest call of the driver for a copy stream has not returned by `now_ns`
    // (base::monotonic_ns); 0: no call is under way.
    [[nodiscard]] virtual uint64_t longest_copy_call_ns(uint64_t /*now_ns*/) const { return 0; }
    // How many launches were ended by a failure of the kernel (a trap, a mismatch, the watchdog).
    // Blocks of such a launch stop anywhere. On CUDA the context is lost with them.
    [[nodiscard]] virtual uint64_t failed_launches() const { return 0; }
    // Keeps the driver making progress while the host only spins (CUDA: a stream query); CPU:
    // nothing.
    virtual void poll() = 0;

    // From now on waiting blocks help with `help` too (one for each file system of the device;
    // kHelpsMax of them). remove_help returns when no block is inside that context's step any more.
    // CUDA: both ignored.
    virtual Status add_help(Help help) = 0;
    virtual void remove_help(void* context) = 0;
    // Wakes who sleeps on one of `count` words from `address` on (blocks in wait_step, or
    // wait_changed below); CUDA: only host sleepers.
    virtual void notify(const uint64_t* address, size_t count) = 0;
    void notify(const uint64_t* address) { notify(address, 1); }
    // The same for one of the host threads that sleep in wait_changed(address).
    virtual void ring(const uint64_t* address) { notify(address); }
    // A host thread sleeps until `*address != seen`, a notify, a ring, or `limit`. The word counts:
    // whatever changes it changes its low half.
    virtual void wait_changed(const uint64_t* address, uint64_t seen,
                              std::chrono::nanoseconds limit) = 0;

    // What the watchdog or a failed kernel said last: "kernel K, block (3,0,0): ... last barrier
    // ...". Empty: nothing.
    [[nodiscard]] virtual std::string diagnosis() const = 0;
    // A library error, not the kernel's, ends everything on the device: blocks stop at their next
    // wait or barrier.
    virtual void abort(Status cause) = 0;
    // The cause, on a device whose kernels go on after an abort (CUDA); asks no driver.
    [[nodiscard]] virtual Status abort_cause() const { return {}; }
};

struct CpuOptions {
    unsigned permits = 0;          // 0: as many as CPUs
    size_t memory_size = 0;        // 0: a quarter of RAM, at most 4 GiB
    double watchdog_seconds = 60;  // a block with no barrier, wait or exit for so long stands
                                   // still; 0: never
    double link_latency_us = 0, link_bandwidth_gbs = 0;  // link model; both 0: off
};
Result<std::shared_ptr<Device>> open_cpu(const CpuOptions& options);

struct CudaOptions {
    int ordinal = 0;
    bool need_kernels = false;  // refuse a device on which none of the program's kernels can run
    // Kernels will run, perhaps: they are loaded at once. Else at their first launch.
    bool runs_kernels = true;
    bool second_context = true;  // for what copy streams do; false: in the program's own
};
// ENODEV with the reason when there is no driver or no such device.
Result<std::shared_ptr<Device>> open_cuda(const CudaOptions& options);
// One line a device: "cuda:0 NVIDIA H200 ...", or why there is none.
std::vector<std::string> list_cuda(std::string* why_none);

}  // namespace penstock::backend
