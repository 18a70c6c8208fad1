#include "access/detector_loaded.h"

#include <algorithm>
#include <limits>

namespace penstock::access {
namespace {

// So many consecutive accesses that differ from the program belong to another program.
constexpr unsigned kWrongMax = 8;
constexpr unsigned kOutliersMax = 2;  // in a row

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
    : program_(program), terms_(terms_of(program, rank)), left_terms_(terms_) {
    now_.walker.start(terms_.data(), static_cast<uint32_t>(terms_.size()), &program_);
    now_.before = now_.walker;
}

bool LoadedProgram::spent() const { return now_.walker.ended() || wrong_ >= kWrongMax; }

Access LoadedProgram::Course::told(const Walker& at) const {
    const Access access = at.current();
    return {add(access.offset, offset_shift), add(access.size, size_shift)};
}

// Saves the stable state before it is adjusted to an access that may be an outlier.
void LoadedProgram::leave() {
    std::copy(terms_.begin(), terms_.end(), left_terms_.begin());
    left_ = now_;
    since_left_ = 1;
}

// Returns whether the access is where the stream would be without the outliers: the access before
// which they came, the one after those that they replaced, or one more if one was left out.
bool LoadedProgram::return_to(const Access& access) {
    Walker walker = left_.walker;
    walker.move_to(left_terms_.data());
    for (unsigned passed = 0; passed <= since_left_ + 1; ++passed, walker.advance()) {
        if (walker.ended()) break;
        if (left_.told(walker) != access) continue;
        std::copy(left_terms_.begin(), left_terms_.end(), terms_.begin());
        now_ = left_;
        now_.last = access;
        now_.before = now_.walker = walker;
        now_.before.move_to(terms_.data());
        now_.walker.move_to(terms_.data());
        now_.walker.advance();
        outliers_ += since_left_;
        since_left_ = wrong_ = 0;
        state_ = State::kStable;
        return true;
    }
    return false;
}

// Sets the step of the loop that turned just before the next access to the one seen. An access
// after another of the same turn has no stride of its own; only its position is taken over.
void LoadedProgram::take_stride(int64_t difference) {
    const size_t turned = now_.walker.loops_kept(now_.before);
    if (turned == now_.walker.depth() || turned >= now_.before.depth()) return;
    int64_t& step = terms_[now_.walker.at()].offset.step[turned];
    step = add(step, difference);
}

void LoadedProgram::observe(const Access& access) {
    if (spent()) return;
    const Access expected = now_.told(now_.walker);
    const bool same_size = access.size == expected.size;
    const bool same_stride = begun_ ? subtract(access.offset, now_.last.offset) ==
                                          subtract(expected.offset, now_.told(now_.before).offset)
                                    : access.offset == expected.offset;
    if (same_stride && same_size) {
        state_ = State::kStable;
        since_left_ = wrong_ = 0;
    } else {
        if (since_left_ > 0 && return_to(access)) return;
        if (state_ == State::kStable) {
            leave();
        } else if (since_left_ > 0) {
            since_left_ = since_left_ < kOutliersMax ? since_left_ + 1 : 0;
        }
        ++wrong_;
        // Before the first access there is no stride that could differ; it gives position and size.
        if (!same_stride && !same_size && begun_) {
            state_ = State::kSuspended;
            return;
        }
        state_ = State::kLearning;
        if (!same_size)
            now_.size_shift = add(now_.size_shift, subtract(access.size, expected.size));
        if (!same_stride && begun_) take_stride(subtract(access.offset, expected.offset));
    }
    now_.offset_shift = subtract(access.offset, now_.walker.current().offset);
    now_.last = access;
    begun_ = true;
    now_.before = now_.walker;
    now_.walker.advance();
}

size_t LoadedProgram::predict_from(size_t skip, std::span<Access> out) const {
    if (state_ != State::kStable) return 0;
    return write_ahead(now_.walker, skip, now_.offset_shift, now_.size_shift, out);
}

}  // namespace penstock::access
