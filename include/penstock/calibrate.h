// Measures what reads cost on this machine, so that each byte range takes the route that is really
// the cheapest.
//
// The results are stored for the user, by device memory, file system and storage. Every File and
// FileSystem that is opened afterwards uses them. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/device.h"
#include "penstock/options.h"
#include "penstock/status.h"

namespace penstock {

// The cost of transfers of one size: the time that one adds to a thread with others in flight.
struct CalibrationPoint {
    uint64_t size = 0;  // bytes
    double ns = 0;      // the median
};

// The fitted cost of one route: ns_once + ns_per_byte * (bytes beyond the cutoff, if there is one).
struct CalibratedRoute {
    bool measured = false;
    std::string reason;  // why it was not measured
    double ns_once = 0;
    double ns_per_byte = 0;
    double r_squared = 0;   // share of the variance of the points that the fit explains
    double error_mean = 0;  // mean relative error of the fit at the points
    double spread = 0;      // relative distance from their point that three quarters of repeated
                            // measurements keep, for half of the points
    std::vector<CalibrationPoint> points;
};

// The results of a calibration.
struct Calibration {
    std::string memory;       // "host", or the name of the device
    std::string file_system;  // kind and number
    std::string storage;      // "auto", "posix", ...
    unsigned threads = 0;     // threads that read at once; all times are those of one thread
    unsigned depth = 0;       // storage operations that each thread had in flight
    uint64_t scratch_size = 0;
    double seconds = 0;  // duration of the whole calibration

    CalibratedRoute direct;       // past the OS page cache
    uint64_t direct_cutoff = 0;   // bytes up to which a direct transfer costs the same
    double direct_start_ns = 0;   // once for each plan: latency that no queue depth hides
    double direct_submit_ns = 0;  // time of the thread for each direct transfer
    CalibratedRoute cached;       // out of the OS page cache
    CalibratedRoute buffered;     // through the OS page cache, for bytes that are not in it; its
                                  // ns_once is added to cached.ns_once

    // Share of the time of cached reads in which the threads waited for a CPU that other programs
    // used.
    double waited_share = 0;
    // One line: why these figures are not to be used. Unless the caller forces it they are not
    // stored, and what was stored before stays. Empty: they are good.
    std::string refusal;

    std::string stored_in;  // path of the file of results; empty: not stored
    std::string complaint;  // one line: why the old results could not be read, or why the new ones
                            // could not be stored
};

// Options of calibrate().
struct CalibrateOptions {
    StorageKind storage = StorageKind::kAuto;  // this and the next two: as in FileOptions
    unsigned threads = 0;
    StudyOptions study = {};
    bool store = true;
    bool force = false;       // store figures that are refused, too
    double seconds_max = 10;  // no new round of measurements begins after this time; the first
                              // round of each kind is always made
    // Called about 30 times a second with the name of the current step and the share of all work
    // that is done (0 to 1). If it returns false, the call ends with ECANCELED.
    std::function<bool(const char*, double)> on_progress;
};

// Measures transfers of 4 KiB to 1 MiB, the largest size used, on an unnamed scratch file.
//   path    a folder, or a file in it: the scratch file is made there. It has 16 to 512 MiB, at
//           most an eighth of the free space, and is gone when the call ends, whatever the result
//   device  the device to whose memory the reads go; none: host memory
// Blocks for about options.seconds_max. Uses as many threads and the same depth as reads do. Where
// a route cannot be measured (no direct I/O, or a cache that keeps its pages), the result says why.
// Errors: those of open(2); ENOSPC when less than 128 MiB are free; ECANCELED; EINVAL; else the
// error of storage.
[[nodiscard]] Result<Calibration> calibrate(const std::string& path, const Device& device = {},
                                            const CalibrateOptions& options = {});

// The stored costs of one route.
struct StoredRoute {
    bool measured = false;
    double ns_once = 0, ns_per_byte = 0;  // as in CalibratedRoute
    std::optional<double> error;  // mean relative error of one time; none: an older version stored
                                  // these costs
};

// A stored calibration.
struct StoredCalibration {
    std::string memory, file_system, storage;  // as in Calibration
    uint64_t measured_at = 0;                  // seconds since 1970
    unsigned threads = 0, depth = 0;
    StoredRoute direct, cached, buffered;
    double error = 0;  // the largest one; cached pages are bypassed only to gain more. 0.25 where
                       // it is not known
};

struct StoredCalibrations {
    std::string path;  // of the file
    std::vector<StoredCalibration> all;
    std::string complaint;  // one line: why the file is not used; empty: it is, or there is none
};

// Returns all calibrations that this user has stored. Any thread; reads one file.
[[nodiscard]] StoredCalibrations stored_calibrations();

// The calibration for the files of one file system.
struct CalibrationInUse {
    std::string memory, file_system, storage;
    std::optional<StoredCalibration> stored;  // none: default costs, which follow the machine
    std::string complaint;                    // as in StoredCalibrations
};

// Returns the calibration that Files at `path` use, which may be a folder. `device` and `storage`:
// as for File::open(). Errors: those of open(2).
[[nodiscard]] Result<CalibrationInUse> calibration_in_use(const std::string& path,
                                                          const Device& device = {},
                                                          StorageKind storage = StorageKind::kAuto);

// Removes the stored calibrations of the file system at `path`, for each memory and storage, or all
// of them if `path` is empty. Files that are opened afterwards use the default costs. Returns how
// many were removed. Errors: those of open(2) for `path`, and of writing the file.
[[nodiscard]] Result<uint64_t> reset_calibrations(const std::string& path = "");

}  // namespace penstock
