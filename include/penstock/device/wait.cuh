// Waits of GPU threads for a word. Every wait ends.
//
// Every wait of the device library is a loop around Wait::step. It ends with a negative errno when
// the host has set the abort word, or when the host's heartbeat does not advance (the host died).
// On the CPU backend a step runs the block's other lanes, serves requests, or sleeps. On a GPU it
// is __nanosleep, which grows with the time waited; words that many threads wait for lie in device
// memory.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/atomic.cuh"
#ifndef __NVCC__
#include "penstock/language/runtime.h"
#endif

namespace penstock::device {

PENSTOCK_DEVICE inline uint64_t now_ns() {
#ifdef __NVCC__
    uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
#else
    return language::clock_ns();
#endif
}

// Rings the doorbell of a ring, which wakes one sleeping worker of the CPU backend. On a GPU the
// host polls, and where blocks help no worker sleeps.
PENSTOCK_DEVICE inline void ring([[maybe_unused]] RingState& ring) {
#ifndef __NVCC__
    if (ring.bells == 0) return;
    DeviceWords::fetch_add(ring.doorbell, 1, site::kRelaxed);
    language::ring(&ring.doorbell);
#endif
}

// Wakes threads of the CPU backend that sleep on a word which has changed. On a GPU waits poll.
PENSTOCK_DEVICE inline void notify([[maybe_unused]] const uint64_t& word) {
#ifndef __NVCC__
    language::notify(&word);
#endif
}

// Starts the requested reads while the block goes on. Workers take requests anyway; a block that
// helps would take them only when it waits.
PENSTOCK_DEVICE inline void start_reads([[maybe_unused]] const RingState& ring) {
#ifndef __NVCC__
    if (ring.bells == 0) language::start_requests();
#endif
}

constexpr uint64_t kGapNs = 1'000'000'000;  // so long a thread runs or waits without a break

#ifdef __NVCC__
constexpr uint64_t kGlancePeriodNs = 1'000'000;

// Returns whether the calling thread shall read the host's words now: one thread of the whole GPU
// in each period, which then stores a copy for the others. Thousands of threads that read mapped
// memory stop every transfer over the link (docs/design/0006-announcing-pages.md). `last_ns`, in
// device memory, tells when the last one did.
PENSTOCK_DEVICE inline bool takes_glance(uint64_t& last_ns, uint64_t now, uint64_t period_ns) {
    uint64_t last = DeviceWords::load(last_ns, site::kRelaxed);
    // A copy from far in the future means that the clock was set back since.
    return (now > last + period_ns || last > now + kGapNs) &&
           DeviceWords::compare_exchange(last_ns, last, now, site::kRelaxed);
}

// Returns the host's words, or the copy.
PENSTOCK_DEVICE inline HostWords glance(FileSystemState& system, uint64_t time) {
    HostWordsCache& cache = system.host_words_cache;
    if (takes_glance(cache.time_ns, time, kGlancePeriodNs)) {
        const HostWords& host = *system.host;
        DeviceWords::store(cache.words.abort, SystemWords::load(host.abort, site::kRelaxed),
                           site::kRelaxed);
        DeviceWords::store(cache.words.heartbeat, SystemWords::load(host.heartbeat, site::kRelaxed),
                           site::kRelaxed);
    }
    return {DeviceWords::load(cache.words.abort, site::kRelaxed),
            DeviceWords::load(cache.words.heartbeat, site::kRelaxed)};
}
#endif

// Returns whether the host has stopped serving. On a GPU it is seen up to a period late.
PENSTOCK_BOTH inline bool is_aborted(FileSystemState& system) {
#ifdef __CUDA_ARCH__
    return glance(system, now_ns()).abort != 0;
#else
    return SystemWords::load(system.host->abort, site::kRelaxed) != 0;
#endif
}

class Wait {
public:
    PENSTOCK_DEVICE explicit Wait(FileSystemState& system) : system_(system) {}

    // Waits one step for `*word` to differ from `seen`. Returns 0 when the caller must look again,
    // or a negative errno when it must give up: the abort word's value, or EOWNERDEAD if the host
    // stopped serving.
    PENSTOCK_DEVICE int step(const uint64_t* word, uint64_t seen) {
        return step(word, seen, nullptr, 0);
    }
    // The same for either of two words. On the CPU backend a change of the second is seen late.
    PENSTOCK_DEVICE int step(const uint64_t* word, uint64_t seen,
                             [[maybe_unused]] const uint64_t* other,
                             [[maybe_unused]] uint64_t other_seen) {
#ifdef __NVCC__
        const uint64_t begin = now_ns();
        if (turn_ == 0) began_ns_ = begin;
        if (turn_ == 0 || begin - checked_ns_ > kCheckPeriodNs) {
            checked_ns_ = begin;
            if (const int error = check(); error != 0) return error;
        }
        // Relaxed, and no other load in the loop: an acquire empties the SM's first-level cache.
        uint64_t time = begin;
        do {
            sleep(time - began_ns_);
            time = now_ns();
        } while (SystemWords::load(*word, site::kRelaxed) == seen &&
                 (other == nullptr || SystemWords::load(*other, site::kRelaxed) == other_seen) &&
                 time - begin < kCheckPeriodNs);
#else
        if (const int error = check(); error != 0) return error;
        language::wait_step(word, seen, turn_);
#endif
        ++turn_;
        return 0;
    }

private:
#ifdef __NVCC__
    static constexpr uint64_t kCheckPeriodNs = kGlancePeriodNs;
    static constexpr uint64_t kSleepNsMin = 64, kSleepNsMax = 4096;
    static constexpr bool kGlances = true;  // the time decides when to read the host's words

    // Sleeps for a quarter of the time waited so far. The wait overshoots by at most that share
    // (the GPU may sleep up to twice the time given).
    PENSTOCK_DEVICE static void sleep(uint64_t waited_ns) {
        uint64_t pause = waited_ns / 4;
        if (pause < kSleepNsMin) pause = kSleepNsMin;
        if (pause > kSleepNsMax) pause = kSleepNsMax;
        __nanosleep(static_cast<unsigned>(pause));
    }

    PENSTOCK_DEVICE HostWords host_words(uint64_t time) { return glance(system_, time); }

    uint64_t began_ns_ = 0, checked_ns_ = 0;
#else
    static constexpr bool kGlances = false;
    HostWords host_words(uint64_t) {
        return {SystemWords::load(system_.host->abort, site::kRelaxed),
                SystemWords::load(system_.host->heartbeat, site::kRelaxed)};
    }
#endif

    PENSTOCK_DEVICE int check() {
        const uint64_t time = kGlances || turn_ > 0 ? now_ns() : 0;  // most waits end after a step
        const HostWords host = host_words(time);
        if (host.abort != 0) return -static_cast<int>(host.abort & 0xffff);
        if (turn_ == 0) return 0;
        // A gap between two checks means that this thread was stopped, and perhaps the host too (a
        // debugger, a suspended machine). Then the host's time limit begins again.
        const bool gap = time - look_time_ns_ > kGapNs;
        look_time_ns_ = time;
        if (host.heartbeat != beat_ || beat_time_ns_ == 0 || gap) {
            beat_ = host.heartbeat;
            beat_time_ns_ = time;
            return 0;
        }
        return time - beat_time_ns_ > limits::kHeartbeatLimitNs ? -kOwnerDead : 0;
    }

    static constexpr int kOwnerDead = 130;  // EOWNERDEAD on Linux, the only system supported

    FileSystemState& system_;

    uint64_t beat_ = 0, beat_time_ns_ = 0, look_time_ns_ = 0;
    uint32_t turn_ = 0;
};

}  // namespace penstock::device
