// What was measured of routes, and where it is kept: one strict JSON file in the user's config
// folder, an entry for each device memory, file system and way of reading.
//
//   {"format": "penstock calibration", "version": 1, "entries": [
//     {"memory": "host", "file_system": "ext4 5d1c...", "storage": "auto",
//      "measured_at": 1790000000, "threads": 2, "depth": 16,
//      "direct": {"ns": 9e4, "ns_per_byte": 0.3, "cutoff_size": 262144, "start_ns": 6e4,
//                 "submit_ns": 4e3},
//      "cached": {"ns": 400, "ns_per_byte": 0.1},
//      "buffered": {"ns": 1e5, "ns_per_byte": 0.6}}]}
//
// A group that was not measured is left out, and defaults count. Reading is strict: unknown,
// repeated or missing keys and figures out of reach are errors. Any thread, any process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "penstock/status.h"
#include "planner/cost_model.h"
#include "storage/storage.h"

namespace penstock::file {

// Plain printable ASCII, all three.
struct CalibrationKey {
    std::string memory;       // "host", or the name of the device, where the host cannot address it
    std::string file_system;  // kind and number, which stays through a restart; empty: none
    std::string storage;      // "auto", "posix", "throttle (100 us, 2000 MB/s) over posix"
    friend bool operator==(const CalibrationKey&, const CalibrationKey&) = default;
};

// `device` may be null. Two system calls.
[[nodiscard]] CalibrationKey calibration_key(const backend::Device* device,
                                             const storage::Storage& storage,
                                             const storage::File& file);

struct CalibrationEntry {
    CalibrationKey key;
    uint64_t measured_at = 0;  // seconds since 1970
    uint64_t threads = 0;      // that read at the same time
    uint64_t depth = 0;        // storage operations that each had under way
    bool direct = false, cached = false, buffered = false;  // which were measured
    planner::CostModel model;                               // defaults for what was not
};

// More are not kept: the oldest goes.
inline constexpr size_t kCalibrationsMax = 256;
inline constexpr size_t kCalibrationBytesMax = size_t{1} << 20;

[[nodiscard]] std::string write_calibrations(const std::vector<CalibrationEntry>& entries);
// EINVAL with a line that says what is wrong, `*error_at` gets the byte; ENOTSUP: another version.
[[nodiscard]] Result<std::vector<CalibrationEntry>> parse_calibrations(std::string_view text,
                                                                       size_t* error_at);

// $XDG_CONFIG_HOME/penstock/calibration.json, else below ~/.config; empty: there is no such place.
[[nodiscard]] std::string calibration_path();

struct Calibrations {
    std::vector<CalibrationEntry> entries;
    std::string complaint;  // one line that names the file and says why it counts for nothing
};
// A file that is not there is no complaint.
[[nodiscard]] Calibrations load_calibrations(const std::string& path);

// Puts `entry` in the place of the one with its key, in a file that is replaced as a whole: whoever
// reads it meanwhile sees the old one or the new one, and of two that store at once neither is
// lost. A file that cannot be read is written anew.
Status store_calibration(const std::string& path, const CalibrationEntry& entry);

// How often this process has stored: what was loaded before is old when it has changed.
[[nodiscard]] uint64_t calibrations_stored();

}  // namespace penstock::file
