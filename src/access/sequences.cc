#include "access/sequences.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace penstock::access {
namespace {

constexpr uint64_t kRecent = 32;  // accesses whose share of joints counts
// Joints that confirm a sequence, if at least 3/4, 5/8 or fewer of the last accesses were joints.
// Random accesses to few blocks make joints too, but rarely several in one sequence.
constexpr uint64_t kJointsIfMost = 0, kJointsIfMany = 2, kJointsElse = 8;

}  // namespace

// Returns the sequence with this end that was used last, or null.
SequenceTracker::Sequence* SequenceTracker::ending_at(int64_t offset) {
    Sequence* found = nullptr;
    for (Sequence& one : sequences_) {
        if (one.last == 0 || one.end != offset) continue;
        if (found == nullptr || one.last > found->last) found = &one;
    }
    return found;
}

SequenceTracker::Sequence* SequenceTracker::beginning_at(int64_t offset) {
    const auto found = std::ranges::find_if(
        sequences_, [&](const Sequence& one) { return one.last != 0 && one.begin == offset; });
    return found == sequences_.end() ? nullptr : &*found;
}

// Returns how far an access of one thread may be ahead of another's.
int64_t SequenceTracker::reach() const {
    const auto wide = static_cast<unsigned __int128>(largest_) * threads_;
    return static_cast<int64_t>(
        std::min<unsigned __int128>(wide, std::numeric_limits<int64_t>::max()));
}

// Returns whether a sequence has read this byte.
bool SequenceTracker::was_read(int64_t offset) const {
    return std::ranges::any_of(
        sequences_, [&](const Sequence& one) { return one.begin <= offset && offset < one.end; });
}

// Returns a confirmed sequence that ends closely before the offset, or null.
const SequenceTracker::Sequence* SequenceTracker::within_reach(int64_t offset) const {
    const Sequence* found = nullptr;
    for (const Sequence& one : sequences_) {
        if (one.last == 0 || one.end > offset || offset - one.end >= reach()) continue;
        if (confirmed(one) && (found == nullptr || one.end > found->end)) found = &one;
    }
    return found;
}

bool SequenceTracker::confirmed(const Sequence& one) const {
    const uint64_t seen = std::min(count_, kRecent);
    const auto joined = static_cast<uint64_t>(std::popcount(recent_));
    if (seen >= 4 && 4 * joined >= 3 * seen) return one.joints >= kJointsIfMost;
    return one.joints >= (8 * joined >= 5 * seen ? kJointsIfMany : kJointsElse);
}

int64_t SequenceTracker::told_by(const Sequence& one, const Access& access) const {
    if (!confirmed(one)) return 0;
    const int64_t window = std::max(one.end - one.begin, reach());
    return std::clamp<int64_t>(window - (access.offset - one.end), 0, access.size);
}

// Makes an empty sequence in place of the oldest. One that was never joined is replaced first.
SequenceTracker::Sequence* SequenceTracker::new_sequence(int64_t offset) {
    Sequence* oldest = &sequences_[0];
    for (Sequence& one : sequences_) {
        const bool single = one.joints == 0, oldest_single = oldest->joints == 0;
        if (single != oldest_single ? single : one.last < oldest->last) oldest = &one;
    }
    *oldest = {offset, offset, 0, count_};
    return oldest;
}

// Moves the end of a sequence. Another one with this end would predict the same.
void SequenceTracker::extend(Sequence* one, int64_t end) {
    for (Sequence& other : sequences_) {
        if (&other != one && other.end == end) other = {};
    }
    one->end = end;
    one->last = count_;
}

void SequenceTracker::count_joint(const Sequence& one) {
    ++joints_;
    if (last_ != &one) ++switches_;
    active_sum_ += static_cast<uint64_t>(std::ranges::count_if(sequences_, [&](const auto& other) {
        return other.joints > 0 && other.last + kRecent > count_;
    }));
}

int64_t SequenceTracker::observe(const Access& access) {
    if (access.size <= 0) return 0;
    Sequence* before = ending_at(access.offset);
    // Threads that share a sequence read no byte again.
    const bool shared = threads_ > 1 && (before != nullptr || !was_read(access.offset));
    if (before == nullptr && access == last_access_ && last_ != nullptr) {
        // A second reader of the file reads what the first has just read.
        return confirmed(*last_) ? access.size : 0;
    }
    const Sequence* near = before == nullptr && shared ? within_reach(access.offset) : before;
    const int64_t told = near == nullptr ? 0 : told_by(*near, access);
    ++count_;
    Sequence* const behind = shared ? beginning_at(access.offset + access.size) : nullptr;
    const bool joint = before != nullptr || behind != nullptr;
    last_ = add(access, before, behind);
    last_access_ = access;
    recent_ = recent_ << 1 | (joint || told > 0 ? 1 : 0);
    largest_ = std::max(largest_, access.size);
    return told;
}

// Adds the access to the sequence before it, or behind it, or to a new one. If there are both, the
// access fills the hole between two parts of one sequence. Returns the sequence.
const SequenceTracker::Sequence* SequenceTracker::add(const Access& access, Sequence* before,
                                                      Sequence* behind) {
    Sequence* const one = before != nullptr   ? before
                          : behind != nullptr ? behind
                                              : new_sequence(access.offset);
    if (before != nullptr || behind != nullptr) {
        ++one->joints;
        count_joint(*one);
    }
    int64_t end = access.offset + access.size;
    if (behind != nullptr) end = behind->end;
    if (before != nullptr && behind != nullptr) {
        one->joints += behind->joints;
        *behind = {};
    }
    one->begin = std::min(one->begin, access.offset);
    extend(one, end);
    return one;
}

}  // namespace penstock::access
