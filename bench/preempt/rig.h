// A device with workloads on it, and timed runs of all of them at once.
//
// Each workload has a stream of its own. The page cache holds nothing of their files before a run,
// and every result is checked after it. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/preempt/mode.h"
#include "penstock/device.h"
#include "penstock/file_system.h"
#include "penstock/preemption.h"
#include "preemption/product.h"
#include "preemption/workload.h"

namespace penstock::bench {

// The storage that files lie on.
struct Disk {
    double latency_us = 0, bandwidth_mbs = 0;  // both 0: in memory, as fast as it is

    [[nodiscard]] std::string describe() const;
};

// A disk whose bandwidth is the limit, as in seed 001: what is in flight changes little.
inline constexpr Disk kStudyDisk{50, 33};
inline constexpr Disk kMemoryDisk{};

// One timed run.
struct MixRun {
    double seconds = 0;               // from the first launch until everything has ended
    double io_seconds = 0;            // mean time in the system of the workloads that read
    double compute_seconds = 0;       // the same of the others; 0: there are none
    double cpu_seconds = 0;           // of this process
    bool right = true;                // every result, and every page came from storage
    PreemptionStatistics preemption;  // of this run; resume_ns_max: since the device was opened
};

class MixRig {
public:
    // `places`: blocks that are resident at once; 0: as many as there are cores. Files go to a
    // temporary folder.
    MixRig(const std::string& device, unsigned places, const Disk& disk);
    ~MixRig();
    MixRig(const MixRig&) = delete;
    MixRig& operator=(const MixRig&) = delete;

    [[nodiscard]] const Device& device() const { return device_; }
    [[nodiscard]] const workloads::Site& site() const { return site_; }
    // Adds a workload behind those that are there: runs launch them in this order.
    void add(Result<std::unique_ptr<workloads::Workload>> made, const char* what);

    // Which workloads take part in a run: the first `io_count` of those that read, and the others
    // if `computes`.
    struct Mix {
        size_t io_count = 0;
        bool computes = true;
    };
    // In later runs each launch of workers takes so much longer.
    void set_dispatch_delay(double microseconds) { dispatch_delay_us_ = microseconds; }
    // Launches the mix at once and waits for its end.
    MixRun run(const Mix& mix, workloads::Part part, WaitMode mode);

    // Runs all workloads one after another, `count` times. Between the runs the page cache keeps
    // the files. Returns whether all results are right. Without `launches` it does all but the
    // launches, and returns true.
    [[nodiscard]] bool repeat(unsigned count, workloads::Part part, WaitMode mode, bool launches);

    [[nodiscard]] uint64_t read_size(const Mix& mix) const;
    [[nodiscard]] uint64_t block_count(const Mix& mix) const;

private:
    struct Entry {
        std::unique_ptr<workloads::Workload> workload;
        Stream stream;
        double ended = 0;  // seconds after the run began
        [[nodiscard]] bool reads() const { return workload->read_size() > 0; }
    };
    [[nodiscard]] std::vector<Entry*> chosen(const Mix& mix, workloads::Part part) const;
    void forget(Entry& entry);
    void launch_all(const std::vector<Entry*>& entries, workloads::Part part, WaitMode mode);
    void launch_persistent(const std::vector<Entry*>& entries);
    double time_all(const std::vector<Entry*>& entries, workloads::Part part, WaitMode mode);

    Device device_;
    FileSystem files_;
    workloads::Site site_;
    std::vector<std::unique_ptr<Entry>> entries_;
    workloads::PersistentProduct persistent_;
    double dispatch_delay_us_ = 0;
};

}  // namespace penstock::bench
