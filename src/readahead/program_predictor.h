// Predicts a stream from an access program: a pattern that was learned in an earlier run.
//
// Each access is looked for among the next ones of the program, so that it may skip some. After
// kStrangersMax accesses in a row that the program does not have, an online detector predicts,
// until the stream is back in the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "access/cursor.h"
#include "access/detector.h"
#include "readahead/predictor.h"

namespace penstock::readahead {

class ProgramPredictor : public Predictor {
public:
    static constexpr size_t kLookedAt = 64;        // next accesses of the program
    static constexpr unsigned kStrangersMax = 16;  // accesses in a row

    // Predicts the accesses of the first rank.
    explicit ProgramPredictor(std::shared_ptr<const access::Program> program);

    void observe(const access::Access& access, uint64_t time_ns) override;
    size_t predict_from(size_t skip, std::span<access::Access> out) const override;

private:
    const std::shared_ptr<const access::Program> program_;
    mutable access::Cursor ahead_;  // only its memory is kept from one call to the next
    uint64_t position_ = 0;         // in the program, of the next access
    unsigned strangers_ = 0;
    access::Detector detector_;
};

}  // namespace penstock::readahead
