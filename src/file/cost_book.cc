#include "file/cost_book.h"

#include <atomic>
#include <cstdio>

#include "file/calibration.h"

namespace penstock::file {
namespace {

// Beyond this many file systems all are forgotten, and their calibrations are read again.
constexpr size_t kFileSystemsMax = 256;

std::shared_ptr<transfer::Costs> costs_for(const CalibrationKey& key) {
    if (key.file_system.empty()) return std::make_shared<transfer::Costs>();
    static std::atomic<bool> complained{false};
    const Calibrations known = load_calibrations(calibration_path());
    if (!known.complaint.empty() && !complained.exchange(true))
        std::fprintf(stderr, "penstock: %s\n", known.complaint.c_str());
    for (const CalibrationEntry& entry : known.entries) {
        if (entry.key == key) return std::make_shared<transfer::Costs>(entry.model_with_error());
    }
    return std::make_shared<transfer::Costs>();
}

}  // namespace

std::shared_ptr<transfer::Costs> CostBook::of(const storage::File& file) {
    const uint64_t number = file.identity().device;
    const std::lock_guard lock(mutex_);
    if (const uint64_t stored = calibrations_stored();
        stored != stored_ || known_.size() >= kFileSystemsMax) {
        known_.clear();
        stored_ = stored;
    }
    std::shared_ptr<transfer::Costs>& costs = known_[number];
    if (costs == nullptr) costs = costs_for(calibration_key(device_, storage_, file));
    return costs;
}

}  // namespace penstock::file
