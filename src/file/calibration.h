// Stores the measured costs of routes in one strict JSON file in the user's config folder. The file
// has one entry for each combination of device memory, file system and storage kind.
//
//   {"format": "penstock calibration", "version": 2, "entries": [
//     {"memory": "host", "file_system": "ext4 5d1c...", "storage": "auto",
//      "measured_at": 1790000000, "threads": 2, "depth": 16,
//      "direct": {"ns": 9e4, "ns_per_byte": 0.3, "error": 0.05, "cutoff_size": 262144,
//                 "start_ns": 6e4, "submit_ns": 4e3},
//      "cached": {"ns": 400, "ns_per_byte": 0.1, "error": 0.03},
//      "buffered": {"ns": 1e5, "ns_per_byte": 0.6, "error": 0.08}}]}
//
// A route that was not measured has no group, and the default costs apply to it. Groups of version
// 1 have no error. Parsing is strict: unknown, repeated or missing keys are errors, and so are
// figures out of range. Any thread and any process may call these functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "penstock/status.h"
#include "planner/cost_model.h"
#include "storage/storage.h"

namespace penstock::file {

// Names what one calibration is valid for. All three strings are plain printable ASCII.
struct CalibrationKey {
    std::string memory;       // "host", or the device's name if the host cannot address its memory
    std::string file_system;  // kind and number, the same after a restart; empty: there is none
    std::string storage;      // "auto", "posix", "throttle (100 us, 2000 MB/s) over posix"
    friend bool operator==(const CalibrationKey&, const CalibrationKey&) = default;
};

// Returns the key of `file`. `device` may be null. Makes two system calls.
[[nodiscard]] CalibrationKey calibration_key(const backend::Device* device,
                                             const storage::Storage& storage,
                                             const storage::File& file);
// Returns the key of files at `path`, a file or a folder. Errors: those of open(2).
[[nodiscard]] Result<CalibrationKey> calibration_key(const backend::Device* device,
                                                     const storage::Storage& storage,
                                                     const std::string& path);

struct CalibrationEntry {
    CalibrationKey key;
    uint64_t measured_at = 0;  // seconds since 1970
    uint64_t threads = 0;      // threads that read at the same time
    uint64_t depth = 0;        // storage operations that each thread kept in flight
    bool direct = false, cached = false, buffered = false;  // the routes that were measured
    std::optional<double> direct_error, cached_error, buffered_error;  // none: not known
    planner::CostModel model;  // has defaults for routes that were not measured, and no error

    // Returns the model with its error: the largest one of the measured routes.
    [[nodiscard]] planner::CostModel model_with_error() const;
};

// The file keeps at most this many entries. The oldest ones are dropped.
inline constexpr size_t kCalibrationsMax = 256;
inline constexpr size_t kCalibrationBytesMax = size_t{1} << 20;

[[nodiscard]] std::string write_calibrations(const std::vector<CalibrationEntry>& entries);
// Parses what write_calibrations() wrote. EINVAL: the text is wrong; the status says why, and
// `*error_at` is the byte offset. ENOTSUP: the file has another version.
[[nodiscard]] Result<std::vector<CalibrationEntry>> parse_calibrations(std::string_view text,
                                                                       size_t* error_at);

// Returns $XDG_CONFIG_HOME/penstock/calibration.json, or the same path below ~/.config. Returns an
// empty string if neither folder is known.
[[nodiscard]] std::string calibration_path();

struct Calibrations {
    std::vector<CalibrationEntry> entries;
    std::string complaint;  // one line: the file's name and why it is ignored
};
// Reads the file at `path`. A missing file causes no complaint.
[[nodiscard]] Calibrations load_calibrations(const std::string& path);

// Replaces the entry that has the key of `entry`, or adds `entry`. The file is replaced as a whole:
// a concurrent reader sees either the old file or the new one. If two callers store at once, both
// entries are kept. A file that cannot be parsed is written anew.
Status store_calibration(const std::string& path, const CalibrationEntry& entry);

// Removes the entries for which `goes` returns true, and returns how many. Also empties a file that
// cannot be parsed. Errors: as store_calibration().
Result<size_t> remove_calibrations(const std::string& path,
                                   const std::function<bool(const CalibrationKey&)>& goes);

// Returns how often this process has stored or removed calibrations. A change means that
// calibrations loaded before are out of date.
[[nodiscard]] uint64_t calibrations_stored();

}  // namespace penstock::file
