#include "bench/plan/calibration.h"

#include <cstdlib>
#include <filesystem>

#include "bench/harness/report.h"
#include "bench/harness/test_file.h"
#include "penstock/file.h"

namespace penstock::bench {

OwnCalibration::OwnCalibration(double seconds, bool force)
    : folder_(temporary_folder() + "/penstock-bench-XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) fail(folder_ + ": cannot be created");
    setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
    CalibrateOptions how;
    how.threads = options().threads;
    how.seconds_max = seconds;
    how.force = force;
    costs_ = need(calibrate(temporary_folder(), {}, how), "calibrate");
    if (costs_.direct.measured && costs_.stored_in.empty())
        fail("calibrate: " + (costs_.refusal.empty() ? costs_.complaint : costs_.refusal));
}

OwnCalibration::~OwnCalibration() {
    std::error_code left_behind;
    std::filesystem::remove_all(folder_, left_behind);
}

FileOptions OwnCalibration::options() {
    FileOptions options;
    options.threads = 1;
    return options;
}

planner::CostModel OwnCalibration::model() const {
    planner::CostModel model;
    if (costs_.direct.measured) {
        model.direct_ns = costs_.direct.ns_once;
        model.direct_ns_per_byte = costs_.direct.ns_per_byte;
        model.cutoff_size = costs_.direct_cutoff;
        model.direct_start_ns = costs_.direct_start_ns;
        model.direct_submit_ns = costs_.direct_submit_ns;
    }
    if (costs_.cached.measured) {
        model.cached_ns = costs_.cached.ns_once;
        model.cached_ns_per_byte = costs_.cached.ns_per_byte;
    }
    if (costs_.buffered.measured) {
        model.buffered_ns = costs_.buffered.ns_once;
        model.buffered_ns_per_byte = costs_.buffered.ns_per_byte;
    }
    return planner::sane(model);
}

bool OwnCalibration::offers_uring() {
    FileOptions uring = options();
    uring.storage = StorageKind::kUring;
    const TestFile file(1 << 20);
    return File::open(file.path(), {}, uring).ok();
}

}  // namespace penstock::bench
