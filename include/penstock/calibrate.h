// Measuring what reads cost on this machine, so that each byte range really takes the cheapest
// route.
//
// What is measured is stored for the user, per device memory, file system and storage, and used by
// every File and FileSystem opened afterwards. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "penstock/device.h"
#include "penstock/options.h"
#include "penstock/status.h"

namespace penstock {

// Transfers of one size: what each adds to the time of a thread that has others under way.
struct CalibrationPoint {
    uint64_t size = 0;  // bytes
    double ns = 0;      // the median
};

// One way of reading, fitted: ns_once + ns_per_byte * (bytes beyond the cutoff, if there is one).
struct CalibratedRoute {
    bool measured = false;
    std::string reason;  // why not
    double ns_once = 0;
    double ns_per_byte = 0;
    double r_squared = 0;   // share of the variance of the points that the fit explains
    double error_mean = 0;  // mean relative error of the fit at the points
    std::vector<CalibrationPoint> points;
};

struct Calibration {
    std::string memory;       // "host", or the name of the device
    std::string file_system;  // kind and number
    std::string storage;      // "auto", "posix", ...
    unsigned threads = 0;     // that read at the same time; all times are those of one of them
    unsigned depth = 0;       // storage operations that each had under way
    uint64_t scratch_size = 0;
    double seconds = 0;  // that all of it took

    CalibratedRoute direct;       // past the OS page cache
    uint64_t direct_cutoff = 0;   // bytes up to which a direct transfer costs the same
    double direct_start_ns = 0;   // once a plan: what no depth of queue hides
    double direct_submit_ns = 0;  // of the thread, for each
    CalibratedRoute cached;       // out of the OS page cache
    CalibratedRoute buffered;     // through it, for bytes that are not there: ns_once on top of
                                  // cached.ns_once

    std::string stored_in;  // the file; empty: not stored
    std::string complaint;  // one line: what was stored before could not be read, or why nothing
                            // could be stored now
};

struct CalibrateOptions {
    StorageKind storage = StorageKind::kAuto;  // as in FileOptions, all four
    double throttle_latency_us = 0;
    double throttle_bandwidth_mbs = 0;
    unsigned threads = 0;
    bool store = true;
    double seconds_max = 10;  // begins no further round of measurements after that; a first round
                              // of each kind is always made
    // Called some 30 times a second with what is being done and how much of all is; false:
    // ECANCELED.
    std::function<bool(const char*, double)> on_progress;
};

// Measures transfers of 4 KiB to 1 MiB, the longest there are, on a scratch file without a name.
//   path    a folder, or a file in it: where the scratch file is made (16 to 512 MiB, at most an
//           eighth of what is free; it goes with the call, however that ends)
//   device  into whose memory; none: host memory
// Blocks for about options.seconds_max. Uses the threads and the depth that reads use. Errors:
// those of open(2); ENOSPC: less than 128 MiB are free; ECANCELED; EINVAL; what storage said. Where
// a kind cannot be measured (no direct I/O; a cache that does not let go) the result says why.
[[nodiscard]] Result<Calibration> calibrate(const std::string& path, const Device& device = {},
                                            const CalibrateOptions& options = {});

}  // namespace penstock
