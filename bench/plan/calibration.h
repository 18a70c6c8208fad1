// What reads on one thread cost in the temporary folder, measured by the library for this program
// alone.
#pragma once

#include <string>

#include "penstock/calibrate.h"
#include "penstock/options.h"
#include "planner/cost_model.h"

namespace penstock::bench {

// While it lives, files opened with options() go by it: it stands in for the user's configuration,
// which it neither reads nor changes. To be made before any file is opened; one a program.
class OwnCalibration {
public:
    // With `force`, figures that would be refused are taken too.
    OwnCalibration(double seconds, bool force);
    ~OwnCalibration();
    OwnCalibration(const OwnCalibration&) = delete;
    OwnCalibration& operator=(const OwnCalibration&) = delete;

    [[nodiscard]] static FileOptions options();
    [[nodiscard]] const Calibration& costs() const { return costs_; }
    // The same as plans see it; defaults for what was not measured.
    [[nodiscard]] planner::CostModel model() const;
    // Whether this process may use io_uring.
    [[nodiscard]] static bool offers_uring();

private:
    std::string folder_;
    Calibration costs_;
};

}  // namespace penstock::bench
