// Points at which a block may leave its place while it waits, and what `penstock preempt` makes of
// them.
//
// Kernels name their points in three ways. Without the tool these do nothing but wait:
//   #pragma preempt                  ahead of a statement with one gread or gwait
//   preempt_point(fs, handle);       ahead of a gwait
//   yield_until(address, value);     yield();
// All threads of the block reach a point together. The tool writes a second form of the kernel
// (docs/guide/preemption.md), which uses preemption::Run. A block that leaves saves what is live in
// a SavedBlock (abi/preemption.h) and ends. A worker takes it up when what it waited for is there.
// Source: seed 001 (GPUpIO), sections 4 and 5. Nothing here waits for a block that has left.
#pragma once

#include "penstock/abi/preemption.h"
#include "penstock/device/file.cuh"
#include "penstock/device/preemption_run.cuh"

namespace penstock {

// Marks a point: the block may leave until the pages of `handle` have arrived.
//   handle  of a gread_async or gwrite_async whose gwait follows
// A block calls. Does nothing in a kernel that `penstock preempt` has not seen: the gwait waits.
PENSTOCK_DEVICE inline void preempt_point(DeviceFileSystem, AsyncHandle) {}

// Lets other blocks run first. A block calls. In a kernel that `penstock preempt` has not seen, or
// if no block waits, it does nothing. Otherwise the block goes to the end of the queue.
PENSTOCK_DEVICE inline void yield() {}

// Waits until `*address == value`.
//   address  a word in device memory, aligned to 8 bytes; written with a 64-bit atomic or store
// A block calls; waits. In a kernel that `penstock preempt` has seen, the block leaves meanwhile,
// if others wait for its place. What was written before the word is visible on return. There is no
// limit: if no other block or copy stores the value, the launch does not end.
PENSTOCK_DEVICE inline void yield_until(const uint64_t* address, uint64_t value) {
    device::Block{}.once([address, value]() -> int64_t {
        for (uint32_t turn = 0;; ++turn) {
            const uint64_t seen = device::SystemWords::load(*address, site::kCompletion);
            if (seen == value) return 0;
#ifdef __NVCC__
            __nanosleep(200);
#else
            language::wait_step(address, seen, turn);
#endif
        }
    });
}

namespace preemption {

// A gread that has begun and whose bytes are not copied out yet.
struct Read {
    DeviceFileSystem fs;
    AsyncHandle handle = 0;  // negative: there is none, and `result` is the result
    int64_t result = 0;
};

#ifndef __NVCC__
// One thread that works for its block, inside Block::once().
struct OneForBlock {
    static unsigned teams() { return 1; }
    template <class Begin, class Work, class End>
    int64_t divide(Begin begin, Work work, End end) const {
        const auto begun = begin(device::Solo{}, place(), 1u);
        const int64_t result = work(device::Solo{}, 0u, 1u, begun);
        end(begun);
        return result;
    }
    static unsigned place() { return device::Block::place(); }
    void meet() const {}
};

// The half of a gread that begin_read() does, in one meeting of the threads: a hit costs as much as
// in gread. If the block may be forced to leave, the bytes are copied when it is back.
inline Read begin_read(DeviceFileSystem fs, Descriptor file, int64_t offset, uint64_t size,
                       void* buffer) {
    struct Begun {
        AsyncHandle handle;
        int64_t result;
    };
    const Begun begun = device::Block{}.once([=]() -> Begun {
        const AsyncHandle handle = gread_async(fs, file, offset, size, buffer, OneForBlock{});
        if (handle == -device::kErrorAgain)
            return {handle, gread(fs, file, offset, size, buffer, OneForBlock{})};
        if (handle < 0) return {handle, handle};
        uint64_t checked = 0;
        if (block_points().forced() ||
            device::first_missing(*fs.state, handle, checked).word != nullptr)
            return {handle, 0};
        const int64_t result = device::wait_for_read(
            *fs.state, handle, static_cast<std::byte*>(buffer), OneForBlock{});
        return {-device::kErrorAgain, result};  // no handle is left
    });
    return {fs, begun.handle, begun.result};
}
#else
// Begins a gread with a point. If no asynchronous call is to be had, it reads at once. A block
// calls. A separate function, as end_read() is: a kernel with several points is compiled in a
// fraction of the time and needs fewer registers, and the call is nothing beside a read.
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline Read begin_read(DeviceFileSystem fs, Descriptor file,
                                                         int64_t offset, uint64_t size,
                                                         void* buffer) {
    Read read{fs, gread_async(fs, file, offset, size, buffer), 0};
    if (read.handle == -device::kErrorAgain) {
        read.result = gread(fs, file, offset, size, buffer);
    } else if (read.handle < 0) {
        read.result = read.handle;
    }
    return read;
}
#endif

// Returns whether a read that has begun will replace all of the `size` bytes of its buffer, from
// its first byte: then a block that leaves need not save them. After an error they are undefined. A
// block calls, before end_read, with equal results in all threads.
PENSTOCK_DEVICE inline bool is_whole(const Read& read, uint64_t size) {
    if (read.handle < 0) return false;
    const auto index = static_cast<uint64_t>(read.handle) & ((1ull << kAsyncIndexBits) - 1);
    return read.fs.state->async_calls[index].size >= size;
}

// Ends it: waits, and copies the bytes to `buffer`, the same one or, after the block came back, the
// one in its new place. A block calls. Returns what gread returns.
#ifdef __NVCC__
PENSTOCK_NOINLINE
#endif
PENSTOCK_DEVICE inline int64_t end_read(const Read& read, void* buffer) {
    if (read.handle < 0) return read.result;
    return device::wait_for_read(*read.fs.state, read.handle, static_cast<std::byte*>(buffer),
                                 device::Block{});
}

// What a block waits for at a point.
PENSTOCK_DEVICE inline Until until(DeviceFileSystem fs, AsyncHandle handle) {
    return {Awaited::kCall, fs.state, handle, nullptr, 0};
}
PENSTOCK_DEVICE inline Until until(const Read& read) { return until(read.fs, read.handle); }
PENSTOCK_DEVICE inline Until until_word(const uint64_t* address, uint64_t value) {
    return {Awaited::kWord, nullptr, 0, address, value};
}
PENSTOCK_DEVICE inline Until until_turn() { return {}; }

// Returns whether point `at` is one of [first, last].
PENSTOCK_BOTH constexpr bool within(unsigned at, unsigned first, unsigned last) {
    return at >= first && at <= last;
}

}  // namespace preemption
}  // namespace penstock
