#include "planner/greedy.h"

namespace penstock::planner {
namespace {

// Cells [first, last) of one kind.
struct Run {
    size_t first = 0, last = 0;
};

class Rule {
public:
    Rule(const Cells& cells, const CostModel& model, std::vector<Step>& steps)
        : cells_(cells), model_(model), steps_(steps) {}

    void follow() {
        copy_all(cells_, &steps_);
        for (size_t at = 0; at < cells_.count();) {
            if (!is_missing(at)) {
                ++at;
                continue;
            }
            Run direct = run_of_missing(at);
            for (size_t cached_end = 0; (cached_end = resident_until(direct.last)) != 0;) {
                const Run behind = run_of_missing(cached_end);
                if (!swallows({direct.last, behind.first}, direct, behind)) break;
                direct.last = behind.last;
            }
            make_direct(direct);
            at = direct.last;
        }
    }

private:
    [[nodiscard]] bool is_fixed(size_t cell) const {
        return (cells_.flags[cell] & CellFlags::kFixed) != 0;
    }
    [[nodiscard]] bool is_missing(size_t cell) const {
        return !is_fixed(cell) && (cells_.flags[cell] & CellFlags::kMissing) != 0;
    }
    [[nodiscard]] Run run_of_missing(size_t first) const {
        size_t last = first;
        while (last < cells_.count() && is_missing(last)) ++last;
        return {first, last};
    }
    // Where the resident run at `first` meets a missing one; 0: it does not.
    [[nodiscard]] size_t resident_until(size_t first) const {
        size_t last = first;
        while (last < cells_.count() && !is_fixed(last) && !is_missing(last)) ++last;
        return last > first && last < cells_.count() && is_missing(last) ? last : 0;
    }
    [[nodiscard]] uint64_t size(const Run& run) const {
        return cells_.ends[run.last] - cells_.ends[run.first];
    }
    [[nodiscard]] double direct_ns(uint64_t size) const {
        const uint64_t longest = cells_.transfer_size_max;
        const double one = model_.direct_submit_ns + model_.direct_time(longest);
        const uint64_t rest = size % longest;
        return static_cast<double>(size / longest) * one +
               (rest == 0 ? 0 : model_.direct_submit_ns + model_.direct_time(rest));
    }
    [[nodiscard]] bool swallows(const Run& cached, const Run& front, const Run& behind) const {
        const uint64_t a = size(front), b = size(cached), c = size(behind);
        if (a + b < model_.cutoff_size) return true;
        const double copy_ns = model_.cached_ns +
                               static_cast<double>(b) * model_.cached_ns_per_byte;
        return direct_ns(a + b + c) < direct_ns(a) + copy_ns + direct_ns(c);
    }
    void make_direct(const Run& run) {
        size_t begin = run.first;
        for (size_t i = run.first; i < run.last; ++i) {
            const bool full = cells_.ends[i + 1] - cells_.ends[begin] > cells_.transfer_size_max;
            if (full) begin = i;
            steps_[i] = i == begin ? Step::kBegin : Step::kGoOn;
        }
    }

    const Cells& cells_;
    const CostModel& model_;
    std::vector<Step>& steps_;
};

}  // namespace

void greedy_way(const Cells& cells, const CostModel& model, std::vector<Step>* steps) {
    Rule(cells, model, *steps).follow();
}

}  // namespace penstock::planner
