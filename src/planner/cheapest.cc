#include "planner/cheapest.h"

#include <algorithm>
#include <limits>

namespace penstock::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// An element of from_ is the start of the direct transfer that ends there, and two bits for
// trace_back().
constexpr uint32_t kCopiedBefore = uint32_t{1}
                                   << 31;          // if this cell is copied, the one before is too
constexpr uint32_t kCopyWins = uint32_t{1} << 30;  // copying this cell is the cheaper way here
constexpr uint32_t kStart = kCopyWins - 1;

static_assert(kRequestSizeMax / 512 < kStart, "every end has a number");

// The model's numbers with the weights applied.
struct Prices {
    Prices(const CostModel& model, const Weights& weights)
        : per_byte(model.direct_ns_per_byte * weights.direct),
          flat(model.direct_ns * weights.direct + model.direct_submit_ns * weights.copy),
          sloped(flat - per_byte * static_cast<double>(model.cutoff_size)),
          resident(model.cached_ns_per_byte * weights.copy),
          missing(model.buffered_ns_per_byte * weights.copy +
                  model.direct_ns_per_byte * weights.shared),
          wait(model.buffered_ns * weights.copy + model.direct_ns * weights.shared),
          enter{model.cached_ns * weights.copy, model.cached_ns * weights.copy + wait} {}

    // Returns the cost of copying all cells before an end, without entering the page cache.
    [[nodiscard]] double copying(const CellEnd& end) const {
        const auto missing_size = static_cast<int32_t>(end.missing);
        const auto resident_size = static_cast<int32_t>(end.wanted - end.missing);
        return missing_size * missing + resident_size * resident +
               static_cast<int32_t>(end.waits) * wait;
    }

    double per_byte, flat, sloped;   // of direct transfers; sloped: the linear part at size 0
    double resident, missing, wait;  // of copies: per byte, per byte, per missing run
    double enter[2];                 // of a copied leg; [1]: it begins inside a missing run
};

}  // namespace

// A sliding window over starts that finds the least key. Starts enter at the back and leave at the
// front. For the starts behind `split_` the least key is kept. For each start before `split_`,
// least_ has the best start from there up to `split_`. When the front passes `split_`, refill()
// computes that for all starts in the window, so each start is handled once.
class CheapestWay::Window {
public:
    Window(const double* keys, uint32_t* least) : keys_(keys), least_(least) {}

    [[nodiscard]] uint32_t front() const { return front_; }
    [[nodiscard]] uint32_t back() const { return back_; }
    [[nodiscard]] bool empty() const { return front_ == back_; }

    void push() {
        const double key = keys_[back_];
        behind_ = key <= behind_key_ ? back_ : behind_;
        behind_key_ = std::min(key, behind_key_);
        ++back_;
    }
    void pop() {
        if (++front_ > split_) refill();
    }
    void restart(uint32_t start) {
        front_ = back_ = split_ = start;
        behind_key_ = kNever;
    }
    // Requires that the window is not empty.
    [[nodiscard]] uint32_t least() const {
        if (front_ == split_) return behind_;
        const uint32_t before = least_[front_];
        return behind_key_ <= keys_[before] ? behind_ : before;
    }

private:
    void refill() {
        uint32_t best = back_;
        double least = kNever;
        for (uint32_t x = back_; x-- > front_;) {
            const double key = keys_[x];
            best = key < least ? x : best;
            least = std::min(key, least);
            least_[x] = best;
        }
        split_ = back_;
        behind_key_ = kNever;
    }

    const double* keys_;
    uint32_t* least_;
    uint32_t front_ = 0, split_ = 0, back_ = 0;
    uint32_t behind_ = 0;  // the best start of [split_, back_)
    double behind_key_ = kNever;
};

void CheapestWay::reserve(size_t cells) {
    costs_.resize(cells + 1);
    keys_.resize(cells + 1);
    from_.resize(cells + 1);
    least_.resize(cells + 1);
}

double CheapestWay::find(const Cells& cells, const CostModel& model, const Weights& weights,
                         Way* way) {
    const auto count = static_cast<uint32_t>(cells.count);
    double* const costs = costs_.data();
    double* const keys = keys_.data();
    uint32_t* const from = from_.data();
    const CellEnd* const ends = cells.ends.data();
    const uint8_t* const flags = cells.flags.data();
    const uint64_t longest = cells.transfer_size_max;
    const uint64_t free = std::min(model.cutoff_size, longest);
    const Prices prices(model, weights);

    // Least costs of the cells so far: `copied` if the last cell is copied, `direct` if it is
    // direct. `spent` is `copied` less the cost of copying all cells, because it changes only where
    // a copied leg begins.
    double copied = kNever, direct = 0;
    double spent = kNever, all_copied = 0;
    Window window(keys, least_.data());  // starts further away than the cutoff
    // Up to the end `near_until`, the first start behind the window is within the cutoff. Up to
    // `far_until`, the first start in the window is within the longest transfer. An end is within
    // reach of itself, so no start is skipped.
    uint64_t near_until = free, far_until = longest;
    costs[0] = keys[0] = 0;
    for (uint32_t p = 1; p <= count; ++p) {
        const uint8_t bits = flags[p - 1];
        const CellEnd to = ends[p];
        const double offset = static_cast<int32_t>(to.offset);

        const double entered = direct - all_copied +
                               prices.enter[(bits & CellFlags::kContinues) != 0];
        uint32_t start = spent <= entered ? kCopiedBefore : 0;
        spent = std::min(spent, entered);
        all_copied = prices.copying(to);
        copied = spent + all_copied;

        if ((bits & CellFlags::kFixed) != 0) [[unlikely]] {
            direct = kNever;
            window.restart(p);
            near_until = to.offset + free;
            far_until = to.offset + longest;
        } else {
            for (; to.offset > near_until; near_until = ends[window.back()].offset + free)
                window.push();
            for (; to.offset > far_until; far_until = ends[window.front()].offset + longest)
                window.pop();
            uint32_t x = window.back();
            direct = x < p ? costs[x] + prices.flat : kNever;
            if (!window.empty()) {
                const uint32_t least = window.least();
                const double beyond = keys[least] + prices.sloped + prices.per_byte * offset;
                x = beyond < direct ? least : x;
                direct = std::min(direct, beyond);
            }
            start |= x;
        }
        const double cost = std::min(copied, direct);
        costs[p] = cost;
        keys[p] = cost - prices.per_byte * offset;
        from[p] = start | (copied <= direct ? kCopyWins : 0);
    }
    trace_back(count, copied <= direct, way);
    return costs[count];
}

void CheapestWay::trace_back(size_t count, bool copied, Way* way) const {
    way->clear();
    auto end = static_cast<uint32_t>(count);
    while (end > 0) {
        uint32_t begin = end;
        if (copied) {
            while (begin > 0 && copied) copied = (from_[begin--] & kCopiedBefore) != 0;
            way->push_back({begin, end, true});
        } else {
            begin = from_[end] & kStart;
            way->push_back({begin, end, false});
            copied = begin > 0 && (from_[begin] & kCopyWins) != 0;
        }
        end = begin;
    }
    std::reverse(way->begin(), way->end());
}

}  // namespace penstock::planner
