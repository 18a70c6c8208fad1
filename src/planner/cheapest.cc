#include "planner/cheapest.h"

#include <algorithm>
#include <limits>

namespace penstock::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A word of from_, for the end p of a cell: where the direct transfer that ends there begins, and
// two bits for the way back from there.
constexpr uint32_t kCopiedBefore = uint32_t{1}
                                   << 31;          // if this cell is copied, so is the one before
constexpr uint32_t kCopyWins = uint32_t{1} << 30;  // the cheaper way to p copies this cell
constexpr uint32_t kStart = kCopyWins - 1;

static_assert(kRequestSizeMax / 512 < kStart, "every end has a number in from_");

}  // namespace

double CheapestWay::find(const Cells& cells, const CostModel& model, const Weights& weights,
                         std::vector<Step>* steps) {
    const size_t count = cells.count();
    steps->resize(count);
    if (cost_.size() < count + 1) {
        cost_.resize(count + 1);
        from_.resize(count + 1);
        queue_.resize(count + 1);
    }
    const uint32_t* const ends = cells.ends.data();
    const double per_byte = model.direct_ns_per_byte * weights.direct;
    const double flat = model.direct_ns * weights.direct + model.direct_submit_ns * weights.copy;
    const auto at = [&](size_t p) { return static_cast<double>(ends[p]); };
    const uint64_t longest = cells.transfer_size_max;
    const uint64_t free = std::min(model.cutoff_size, longest);
    const double sloped = flat - per_byte * static_cast<double>(model.cutoff_size);
    const double call = model.cached_ns * weights.copy;
    const double wait = model.buffered_ns * weights.copy + model.direct_ns * weights.shared;
    const double copy_rates[2] = {
        model.cached_ns_per_byte * weights.copy,
        model.buffered_ns_per_byte * weights.copy + model.direct_ns_per_byte * weights.shared};

    // Least costs of the cells so far, with the last of them copied, and with it direct.
    double copied = kNever, direct = 0;
    bool was_missing = false;
    size_t near = 0;            // the first start within the cutoff
    size_t head = 0, tail = 0;  // of queue_
    cost_[0] = 0;
    for (size_t cell = 0; cell < count; ++cell) {
        const size_t p = cell + 1;
        const uint8_t flags = cells.flags[cell];
        const bool missing = (flags & CellFlags::kMissing) != 0;

        const double go_on = copied + (missing && !was_missing ? wait : 0);
        const double enter = direct + call + (missing ? wait : 0);
        const double bytes = static_cast<double>(cells.wanted_size(cell)) * copy_rates[missing];
        uint32_t from = go_on <= enter ? kCopiedBefore : 0;
        copied = std::min(go_on, enter) + bytes;
        was_missing = missing;

        if ((flags & CellFlags::kFixed) != 0) {
            direct = kNever;
            near = p;
            head = tail = 0;
        } else {
            for (; near < p && ends[p] - ends[near] > free; ++near) {
                const double key = cost_[near] - per_byte * at(near);
                while (tail > head &&
                       cost_[queue_[tail - 1]] - per_byte * at(queue_[tail - 1]) >= key)
                    --tail;
                queue_[tail++] = static_cast<uint32_t>(near);
            }
            while (head < tail && ends[p] - ends[queue_[head]] > longest) ++head;
            direct = near < p ? cost_[near] + flat : kNever;
            size_t start = near;
            if (head < tail) {
                const size_t x = queue_[head];
                const double beyond = cost_[x] + sloped + per_byte * (at(p) - at(x));
                if (beyond < direct) {
                    direct = beyond;
                    start = x;
                }
            }
            from |= static_cast<uint32_t>(start);
        }
        cost_[p] = std::min(copied, direct);
        from_[p] = from | (copied <= direct ? kCopyWins : 0);
    }
    trace_back(copied <= direct, steps);
    return cost_[count];
}

void CheapestWay::trace_back(bool copied, std::vector<Step>* steps) const {
    for (size_t p = steps->size(); p > 0;) {
        const uint32_t from = from_[p];
        if (copied) {
            (*steps)[--p] = Step::kCopy;
            copied = (from & kCopiedBefore) != 0;
            continue;
        }
        const size_t start = from & kStart;
        while (p > start + 1) (*steps)[--p] = Step::kGoOn;
        (*steps)[--p] = Step::kBegin;
        copied = p > 0 && (from_[p] & kCopyWins) != 0;
    }
}

}  // namespace penstock::planner
