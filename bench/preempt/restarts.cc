// Figures 14 and 15 of seed 001 without files: how long blocks that are ready wait until they run.
//
// Blocks wait at a gate, outside. A kernel of another stream opens it. The time is from the
// watcher's discovery to the block's first instruction, as the blocks themselves record it. Idle:
// nothing else runs. Loaded: blocks of a compute kernel want all places, several times over.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "bench/harness/rounds.h"
#include "bench/preempt/figures.h"
#include "bench/preempt/mode.h"
#include "bench/preempt/rounds.h"
#include "penstock/preemption.h"
#include "preemption/gate.h"

namespace penstock::bench {
namespace {

constexpr unsigned kThreads = 256;
constexpr double kBusySeconds = 200e-6;  // of one compute block

class Gate {
public:
    explicit Gate(const Device& device)
        : device_(device),
          waiters_(need(Stream::create(device_), "stream")),
          opener_(need(Stream::create(device_, 1 << 20), "stream")),
          load_(need(Stream::create(device_), "stream")),
          words_(static_cast<uint64_t*>(need(device_.allocate(4096), "memory"))),
          out_(static_cast<float*>(need(device_.allocate(kOutSize), "memory"))),
          copy_(static_cast<uint64_t*>(need(device_.allocate_pinned(4096), "memory"))) {}
    ~Gate() {
        for (Stream* stream : {&waiters_, &opener_, &load_}) *stream = Stream();
        device_.free(words_);
        device_.free(out_);
        device_.free(copy_);
    }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;

    struct Delay {
        double mean = 0, longest = 0;  // seconds; longest: since the device was opened
        bool right = true;             // all blocks left, and all passed
    };
    Delay run(unsigned blocks, bool loaded, bool batches) {
        PreemptionOptions options;
        options.policy = PreemptionPolicy::kAlways;
        options.batches = options.keeps_popping = batches;
        need(set_preemption(device_, options), "preemption");
        const PreemptionStatistics before = preemption_statistics(device_);
        need(waiters_.fill(words_, 0, 4096), "fill");
        need(waiters_.synchronize(), "fill");
        auto* const passed = reinterpret_cast<unsigned long long*>(words_ + 64);
        need(workloads::launch_waiters(waiters_, blocks, kThreads, words_, 1, passed), "launch");
        std::this_thread::sleep_for(std::chrono::milliseconds(20 + blocks / 2));  // all leave
        const unsigned places = std::min(device_.permits(), kOutMax / 8);
        if (loaded) {
            need(workloads::keep_busy(load_, places * 8, rounds_, out_), "launch");
            std::this_thread::sleep_for(std::chrono::microseconds(300));
        }
        need(workloads::open_gate(opener_, words_, 1), "launch");
        need(opener_.synchronize(), "gate");
        need(waiters_.synchronize(std::chrono::seconds(60)), "a block did not come back");
        need(load_.synchronize(), "load");
        need(waiters_.copy(copy_, passed, sizeof *copy_), "copy");
        need(waiters_.synchronize(), "copy");
        const PreemptionStatistics after = preemption_statistics(device_);
        Delay delay;
        const uint64_t left = after.left - before.left;
        delay.right = *copy_ == blocks && left == blocks;
        delay.mean = left == 0 ? 0
                               : static_cast<double>(after.resume_ns - before.resume_ns) * 1e-9 /
                                     static_cast<double>(left);
        delay.longest = static_cast<double>(after.resume_ns_max) * 1e-9;
        return delay;
    }

    // Finds how many rounds a compute block of kBusySeconds has.
    void calibrate() {
        for (rounds_ = 1024; rounds_ < 1u << 28; rounds_ *= 2) {
            const double seconds = timed([&] {
                need(workloads::keep_busy(load_, 1, rounds_, out_), "launch");
                need(load_.synchronize(), "load");
            });
            if (seconds > 4 * kBusySeconds) {
                rounds_ = static_cast<unsigned>(rounds_ * kBusySeconds / seconds);
                return;
            }
        }
    }

private:
    static constexpr unsigned kOutMax = 1 << 16;
    static constexpr size_t kOutSize = kOutMax * sizeof(float);
    Device device_;
    Stream waiters_, opener_, load_;
    uint64_t* words_;  // the gate; at 64: how many have passed
    float* out_;
    uint64_t* copy_;
    unsigned rounds_ = 0;
};

}  // namespace

void measure_restarts(Report& report, const Arguments& arguments, const Watch& watch) {
    if (!has_mode(WaitMode::kAlways)) return;
    Gate gate(need(Device::open(arguments.device), "device"));
    gate.calibrate();
    for (const bool loaded : {false, true}) {
        for (const unsigned blocks : {1u, 8u, 64u, 512u}) {
            const std::string name = "restart-" + std::to_string(blocks) +
                                     (loaded ? "-loaded" : "-idle");
            if (!wanted(arguments, name) || watch.past()) continue;
            Row row;
            row.name = name;
            row.against = "one-launch-a-block";
            row.verified = true;
            const auto run = [&](bool batches) {
                const Gate::Delay delay = gate.run(blocks, loaded, batches);
                row.verified = row.verified && delay.right;
                return delay.mean;
            };
            row.pairs = take_pairs(
                some_rounds(arguments), [&] { return run(true); }, [&] { return run(false); },
                &row.cpu_seconds);
            std::vector<double> ours, others;
            for (const auto& [one, other] : row.pairs) {
                ours.push_back(one);
                others.push_back(other);
            }
            char note[160];
            std::snprintf(note, sizeof note,
                          "mean from ready to running: %.1f us, a launch for each block %.1f us%s",
                          median(ours) * 1e6, median(others) * 1e6,
                          loaded ? "; compute blocks of 200 us want all places" : "");
            row.note = note;
            report.add(std::move(row));
        }
    }
}

}  // namespace penstock::bench
