#include "readahead/program_predictor.h"

#include <algorithm>
#include <array>
#include <utility>

namespace penstock::readahead {

ProgramPredictor::ProgramPredictor(std::shared_ptr<const access::Program> program)
    : program_(std::move(program)), ahead_(*program_, program_->key.first_rank) {}

void ProgramPredictor::observe(const access::Access& access, uint64_t time_ns) {
    detector_.observe(access, time_ns);
    std::array<access::Access, kLookedAt> next;
    const size_t count = ahead_.seek(position_) ? ahead_.next(next) : 0;
    const auto end = next.begin() + static_cast<std::ptrdiff_t>(count);
    const auto found = std::find(next.begin(), end, access);
    if (found == end) {
        strangers_ = std::min(strangers_ + 1, kStrangersMax);
    } else {
        position_ += static_cast<uint64_t>(found - next.begin()) + 1;
        strangers_ = 0;
    }
}

size_t ProgramPredictor::predict_from(size_t skip, std::span<access::Access> out) const {
    if (strangers_ >= kStrangersMax) return detector_.predict_from(skip, out);
    return ahead_.seek(position_ + skip) ? ahead_.next(out) : 0;
}

}  // namespace penstock::readahead
