#include "access/detector_loaded.h"

#include <limits>

namespace penstock::access {
namespace {

// So many accesses in a row that differ from the program are another program.
constexpr unsigned kWrongMax = 8;

}  // namespace

bool possible(const Access& access) {
    return access.offset >= 0 && access.size >= 0 &&
           access.offset <= std::numeric_limits<int64_t>::max() - access.size;
}

size_t write_ahead(Walker walker, size_t skip, int64_t offset_shift, int64_t size_shift,
                   std::span<Access> out) {
    walker.skip(skip);
    size_t count = 0;
    for (; count < out.size() && !walker.ended(); walker.advance()) {
        Access access = walker.current();
        access.offset = add(access.offset, offset_shift);
        access.size = add(access.size, size_shift);
        if (!possible(access)) break;
        out[count++] = access;
    }
    return count;
}

LoadedProgram::LoadedProgram(const Program& program, uint64_t rank)
    : program_(program), terms_(terms_of(program, rank)) {
    walker_.start(terms_.data(), static_cast<uint32_t>(terms_.size()), &program_);
    before_ = walker_;
}

bool LoadedProgram::spent() const { return walker_.ended() || wrong_ >= kWrongMax; }

Access LoadedProgram::told(const Walker& walker) const {
    const Access access = walker.current();
    return {add(access.offset, offset_shift_), add(access.size, size_shift_)};
}

// The step of the loop that turned just before the next access becomes what was seen. An access
// behind another of the same turn has no stride of its own: its position is taken over, no more.
void LoadedProgram::take_stride(int64_t difference) {
    size_t turned = 0;
    while (turned < walker_.depth() && turned < before_.depth() &&
           walker_.loop(turned) == before_.loop(turned) &&
           walker_.index()[turned] == before_.index()[turned]) {
        ++turned;
    }
    if (turned == walker_.depth() || turned >= before_.depth()) return;
    int64_t& step = terms_[walker_.at()].offset.step[turned];
    step = add(step, difference);
}

void LoadedProgram::observe(const Access& access) {
    if (spent()) return;
    const Access expected = told(walker_);
    // Before the first access there is no stride: the position stands for it.
    const bool same_stride = begun_ ? subtract(access.offset, last_.offset) ==
                                          subtract(expected.offset, told(before_).offset)
                                    : access.offset == expected.offset;
    const bool same_size = access.size == expected.size;
    if (!same_stride && !same_size) {
        state_ = State::kSuspended;
        ++wrong_;
        return;
    }
    if (same_stride && same_size) {
        state_ = State::kStable;
        wrong_ = 0;
    } else {
        state_ = State::kLearning;
        ++wrong_;
        if (!same_size) size_shift_ = add(size_shift_, subtract(access.size, expected.size));
        if (!same_stride && begun_) take_stride(subtract(access.offset, expected.offset));
    }
    offset_shift_ = subtract(access.offset, walker_.current().offset);
    last_ = access;
    begun_ = true;
    before_ = walker_;
    walker_.advance();
}

size_t LoadedProgram::predict_from(size_t skip, std::span<Access> out) const {
    if (state_ != State::kStable) return 0;
    return write_ahead(walker_, skip, offset_shift_, size_shift_, out);
}

}  // namespace penstock::access
