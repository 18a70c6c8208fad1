// PORT to a GPU: memory, copies, streams with priority, launches. Each kind of device has its own
// folder: cpu/ and cuda/.
//
// No other room may call a GPU driver. Any host thread may call each function. The room knows
// nothing of files: the room that serves requests connects through `Help` and `notify`.
#pragma once

#include <cerrno>
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
    size_t shared_size_max = 0;  // bytes of dynamic shared memory per block, at most
    size_t memory_size = 0;      // bytes of device memory
    bool huge_pages = false;     // the kernel gave the arena huge pages
};

// A function that a block calls on its OS thread's own stack (CPU backend only). It does one piece
// of work for waiting blocks and returns whether there was any. It must not block on another block.
// `permit` is the block's. `waits`: the block has nothing else to do. Otherwise the function starts
// work that goes on by itself, and waits for nothing.
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

// The work that a program had queued on its own streams at one moment.
class QueuedWork {
public:
    virtual ~QueuedWork() = default;
    // Returns whether the work is over. Looks once and never waits. Any thread.
    [[nodiscard]] virtual bool over() = 0;
};

class Device {
public:
    virtual ~Device() = default;

    [[nodiscard]] virtual const Properties& properties() const = 0;

    // Allocates `size` zeroed bytes. They are aligned to 2 MiB if `size` is at least that, else to
    // 4 KiB. ENOMEM: the arena is full.
    virtual Status allocate(size_t size, Memory memory, void** out) = 0;
    virtual void free(void* pointer) = 0;
    [[nodiscard]] virtual size_t free_memory() const = 0;
    // Pins memory of the caller, so that copies reach the speed of the link. unpin() it before it
    // is unmapped. Backends whose copies gain nothing do nothing.
    virtual Status pin(void* /*memory*/, size_t /*size*/) { return {}; }
    virtual void unpin(void* /*memory*/) {}
    // Returns whether the host may load and store at `address`, which may be in any memory.
    [[nodiscard]] virtual bool host_can_address(const void* /*address*/) const { return true; }
    // Returns whether copies of this device can reach memory at `address`, as far as it can tell.
    // CUDA cannot tell for pageable host memory.
    [[nodiscard]] virtual bool knows(const void* /*address*/) const { return true; }

    // Makes a stream. Its operations run in order; blocks of a stream of higher priority start
    // first.
    virtual Status create_stream(int priority, StreamId* out) = 0;
    virtual Status destroy_stream(StreamId stream) = 0;  // waits for its work or its watchdog
    // Makes a stream for copies that running kernels wait for. It takes copy, copy_words, copy_all,
    // write_value and announce, between pinned and kServed memory. On CUDA no call that the program
    // makes meanwhile (cudaFree, the first launch of a kernel) delays it.
    virtual Status create_copy_stream(StreamId* out) { return create_stream(0, out); }
    // Stores what is queued now on other streams than this device's. Each number is a cudaStream_t;
    // 0 and 1 are the legacy default stream, with everything that synchronises with it. Stores null
    // if nothing is queued. EINVAL: no stream; EBUSY: a stream that is being captured.
    virtual Status queued_work(std::span<const uintptr_t> /*streams*/,
                               std::shared_ptr<QueuedWork>* out) {
        out->reset();
        return {};
    }
    virtual Status launch(StreamId stream, LaunchRequest request) = 0;
    // Copies memory. Aligned words of 8 bytes arrive whole if `size` is at most kWholeSizeMax: GPU
    // threads may read them meanwhile. On CUDA they may announce only what was copied before a
    // write_value, whose fence orders them.
    static constexpr size_t kWholeSizeMax = 1024;
    virtual Status copy(StreamId stream, void* to, const void* from, size_t size) = 0;
    // Copies any number of words that GPU threads may read meanwhile. On CUDA only half of a word
    // may be new; a reader must be able to detect that.
    virtual Status copy_words(StreamId stream, uint64_t* to, const uint64_t* from, size_t count) {
        return copy(stream, to, from, count * sizeof *to);
    }
    // Copies many parts in any order, in one call of the driver if it has one. After an error any
    // of them may have been copied.
    virtual Status copy_all(StreamId stream, std::span<const CopyPart> parts) {
        for (const CopyPart& part : parts) {
            if (Status status = copy(stream, part.to, part.from, part.size); !status.ok())
                return status;
        }
        return {};
    }
    virtual Status fill(StreamId stream, void* to, uint8_t value, size_t size) = 0;
    // Stores `value` after all that is in `stream`. GPU threads and the host see it together with
    // what was copied before it. `address` is aligned to 8 bytes.
    virtual Status write_value(StreamId stream, uint64_t* address, uint64_t value) = 0;
    // Does the same for a host that counts completions. On CUDA later copies do not wait for it,
    // which would cost the link 2 us each time. Announcements of one stream come in order, but in
    // no order with its other stores. query() and synchronize() wait for them too.
    virtual Status announce(StreamId stream, uint64_t* address, uint64_t value) {
        return write_value(stream, address, value);
    }
    // Holds later operations of `stream` back until `*address` is not 0. A kernel stores it with
    // release, or the host, which then calls end_hold(). The stream is not idle meanwhile, and its
    // device has kernels in flight. `address` is pinned memory.
    virtual Status hold(StreamId /*stream*/, const uint64_t* /*address*/) {
        return {ENOTSUP, "hold", "this backend has none"};
    }
    // Lets streams go on that are held for `address`, whose word has been stored. An error becomes
    // that of their operation before.
    virtual void end_hold(const uint64_t* /*address*/, Status /*status*/) {}
    // Returns the address of the number of blocks that wait for a place, which kernels may read.
    // Null: the backend does not know.
    [[nodiscard]] virtual const uint64_t* waiting_blocks() const { return nullptr; }
    // Returns how many streams have kernels in flight, as of the last look. Backends that know
    // waiting_blocks() return 0.
    [[nodiscard]] virtual unsigned busy_streams() const { return 0; }
    // Lets each notify() also increase `*counter` and ring it. Null ends that.
    virtual void set_bell(uint64_t* /*counter*/) {}
    // Waits until the stream is idle. Returns the first error of its operations since the last
    // call. ETIMEDOUT: not idle at `deadline`.
    virtual Status synchronize(StreamId stream, Deadline deadline) = 0;
    virtual Status query(StreamId stream, bool* idle) = 0;

    // Returns whether a kernel is queued or running. On CUDA this asks the driver, which may not
    // answer before a kernel ends. So a thread that kernels wait for must not call it.
    [[nodiscard]] virtual bool kernels_in_flight() const = 0;
    // Returns the same as of the last look, which poll() makes at the latest. It asks no driver. A
    // kernel that has ended since may still count.
    [[nodiscard]] virtual bool kernels_seen_in_flight() const { return kernels_in_flight(); }
    // Returns how long the longest call of the driver for a copy stream has been in progress at
    // `now_ns` (base::monotonic_ns); 0: there is no such call.
    [[nodiscard]] virtual uint64_t longest_copy_call_ns(uint64_t /*now_ns*/) const { return 0; }
    // Returns how many launches ended by a failure of the kernel (a trap, a mismatch, the
    // watchdog). Blocks of such a launch stop anywhere. On CUDA the context is lost with them.
    [[nodiscard]] virtual uint64_t failed_launches() const { return 0; }
    // Keeps the driver making progress while the host only spins (CUDA: a stream query). CPU:
    // nothing.
    virtual void poll() = 0;

    // Lets waiting blocks call `help` too. There is one for each file system of the device, at most
    // kHelpsMax. remove_help() returns when no block is in that context's step any more. CUDA
    // ignores both.
    virtual Status add_help(Help help) = 0;
    virtual void remove_help(void* context) = 0;
    // Does a step of what waiting blocks do, for blocks that have left. Returns whether there was
    // work. May take as long as the storage does.
    virtual bool help() { return false; }
    // Wakes the threads that sleep on one of `count` words from `address` on: blocks in wait_step,
    // or host threads in wait_changed(). CUDA: only host threads.
    virtual void notify(const uint64_t* address, size_t count) = 0;
    void notify(const uint64_t* address) { notify(address, 1); }
    // Wakes one of the host threads that sleep in wait_changed(address).
    virtual void ring(const uint64_t* address) { notify(address); }
    // Lets a host thread sleep until `*address != seen`, a notify, a ring, or `limit`. The word
    // must be a counter: each change changes its low half.
    virtual void wait_changed(const uint64_t* address, uint64_t seen,
                              std::chrono::nanoseconds limit) = 0;

    // Returns the last message of the watchdog or of a failed kernel: "kernel K, block (3,0,0): ...
    // last barrier ...". Empty if there is none.
    [[nodiscard]] virtual std::string diagnosis() const = 0;
    // Ends everything on the device after a library error, which is not the kernel's: blocks stop
    // at their next wait or barrier.
    virtual void abort(Status cause) = 0;
    // Returns the cause, on a device whose kernels continue after an abort (CUDA). Asks no driver.
    [[nodiscard]] virtual Status abort_cause() const { return {}; }
};

struct CpuOptions {
    unsigned permits = 0;          // 0: as many as CPUs
    size_t memory_size = 0;        // 0: a quarter of RAM, at most 4 GiB
    double watchdog_seconds = 60;  // limit for a block without barrier, wait or exit; 0: none
    double link_latency_us = 0, link_bandwidth_gbs = 0;  // link model; both 0: off
};
Result<std::shared_ptr<Device>> open_cpu(const CpuOptions& options);

struct CudaOptions {
    int ordinal = 0;
    bool need_kernels = false;  // refuse a device on which none of the program's kernels can run
    // The program may run kernels, so they are loaded at once. Otherwise each is loaded at its
    // first launch.
    bool runs_kernels = true;
    bool second_context = true;  // for copy streams; false: they use the program's context
};
// Opens a CUDA device. ENODEV, with the reason: no driver or no such device.
Result<std::shared_ptr<Device>> open_cuda(const CudaOptions& options);
// Returns the number of the CUDA device whose memory contains `address`. ENODEV: there is none, or
// no driver. Cost: a microsecond or two.
Result<int> cuda_device_of(const void* address);
// Returns one line per device: "cuda:0 NVIDIA H200 ...". If there are none, `*why_none` is the
// reason.
std::vector<std::string> list_cuda(std::string* why_none);

}  // namespace penstock::backend
