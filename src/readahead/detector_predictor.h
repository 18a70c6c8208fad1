// Adapts the online detector to the Predictor interface.
//
// It has its own file, so that a user of another predictor need not link the detector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "access/detector.h"
#include "readahead/predictor.h"

namespace penstock::readahead {

// Predicts with an online detector of its own, for one stream.
class DetectorPredictor : public Predictor {
public:
    void observe(const access::Access& access, uint64_t time_ns) override {
        detector_.observe(access, time_ns);
    }
    size_t predict_from(size_t skip, std::span<access::Access> out) const override {
        return detector_.predict_from(skip, out);
    }

private:
    access::Detector detector_;
};

}  // namespace penstock::readahead
