// How a GPU thread waits for a word: with patience, never without end.
//
// Every wait of the device library is a loop round Wait::step. It ends with a negative errno when
// the host has raised the abort word or when the host's heartbeat stands still (it died). On the
// CPU backend a step lets the block's other lanes run, helps, or sleeps; on a GPU it is
// __nanosleep, longer the longer the wait has lasted: most words waited for lie in host memory, and
// thousands of warps that look at them again and again would leave the link to nobody else.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/atomic.cuh"
#ifndef __CUDACC__
#include "penstock/language/runtime.h"
#endif

namespace penstock::device {

PENSTOCK_DEVICE inline uint64_t now_ns() {
#ifdef __CUDACC__
    uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
#else
    return language::clock_ns();
#endif
}

// Rings the bell of a ring: one sleeping worker of the CPU backend comes; on a GPU the host polls.
PENSTOCK_DEVICE inline void ring([[maybe_unused]] uint64_t& doorbell) {
#ifndef __CUDACC__
    DeviceWords::fetch_add(doorbell, 1, site::kRelaxed);
    language::ring(&doorbell);
#endif
}

class Wait {
public:
    PENSTOCK_DEVICE explicit Wait(const FileSystemState& system) : host_(*system.host) {}

    // One step of waiting for `*word` to differ from `seen`. 0: look again. Negative errno: give
    // up; the value of the abort word, or EOWNERDEAD for a host that stopped serving.
    PENSTOCK_DEVICE int step(const uint64_t* word, uint64_t seen) {
        if ((turn_ + 1) % kTurnsPerCheck == 0) {
            if (const int error = check(); error != 0) return error;
        }
#ifdef __CUDACC__
        sleep();
#else
        language::wait_step(word, seen, turn_);
#endif
        ++turn_;
        return 0;
    }

private:
    // Both words lie in host memory: on a GPU a look costs a trip over the link, so not at every
    // turn, and not at all in a short wait. 32 turns take at most a millisecond, or as long as 32
    // trips over a busy link.
#ifdef __CUDACC__
    static constexpr uint32_t kTurnsPerCheck = 32;
#else
    static constexpr uint32_t kTurnsPerCheck = 1;
#endif

#ifdef __CUDACC__
    static constexpr uint64_t kSleepNsMin = 64, kSleepNsMax = 16'384;

    // A quarter of the time waited so far, trips over the link included: the wait overshoots by so
    // much at most (the GPU may sleep up to twice what it is told).
    PENSTOCK_DEVICE void sleep() {
        const uint64_t time = now_ns();
        if (turn_ == 0) began_ns_ = time;
        uint64_t pause = (time - began_ns_) / 4;
        if (pause < kSleepNsMin) pause = kSleepNsMin;
        if (pause > kSleepNsMax) pause = kSleepNsMax;
        __nanosleep(static_cast<unsigned>(pause));
    }

    uint64_t began_ns_ = 0;
#endif

    PENSTOCK_DEVICE int check() {
        const uint64_t abort = SystemWords::load(host_.abort, site::kRelaxed);
        if (abort != 0) return -static_cast<int>(abort & 0xffff);
        if (turn_ == 0) return 0;
        const uint64_t beat = SystemWords::load(host_.heartbeat, site::kRelaxed);
        const uint64_t time = now_ns();
        // A gap between two looks means that this thread stood still, and the host perhaps with it
        // (a debugger, a suspended machine): the host gets its time anew.
        const bool gap = time - look_time_ns_ > kGapNs;
        look_time_ns_ = time;
        if (beat != beat_ || beat_time_ns_ == 0 || gap) {
            beat_ = beat;
            beat_time_ns_ = time;
            return 0;
        }
        return time - beat_time_ns_ > limits::kHeartbeatLimitNs ? -kOwnerDead : 0;
    }

    static constexpr int kOwnerDead = 130;  // EOWNERDEAD on Linux, which is all we run on

    const HostWords& host_;
    static constexpr uint64_t kGapNs = 1'000'000'000;

    uint64_t beat_ = 0, beat_time_ns_ = 0, look_time_ns_ = 0;
    uint32_t turn_ = 0;
};

}  // namespace penstock::device
