#include "planner/greedy.h"

namespace penstock::planner {
namespace {

// Cells [first, last) of one kind.
struct Run {
    size_t first = 0, last = 0;
};

class Rule {
public:
    Rule(const Cells& cells, const CostModel& model) : cells_(cells), model_(model) {}

    void follow(Way* way) const {
        way->clear();
        const size_t count = cells_.count;
        for (size_t at = 0; at < count;) {
            const size_t copied = at;
            while (at < count && !is_missing(at)) ++at;
            append({static_cast<uint32_t>(copied), static_cast<uint32_t>(at), true}, way);
            if (at == count) return;
            Run direct = run_of_missing(at);
            for (size_t cached_end = 0; (cached_end = resident_until(direct.last)) != 0;) {
                const Run behind = run_of_missing(cached_end);
                if (!swallows({direct.last, behind.first}, direct, behind)) break;
                direct.last = behind.last;
            }
            append_direct(cells_, direct.first, direct.last, way);
            at = direct.last;
        }
    }

private:
    [[nodiscard]] bool is_missing(size_t cell) const {
        return !cells_.is_fixed(cell) && cells_.is_missing(cell);
    }
    [[nodiscard]] Run run_of_missing(size_t first) const {
        size_t last = first;
        while (last < cells_.count && is_missing(last)) ++last;
        return {first, last};
    }
    // Returns where the cached run at `first` ends and a missing run begins. Returns 0 if none
    // begins there.
    [[nodiscard]] size_t resident_until(size_t first) const {
        size_t last = first;
        while (last < cells_.count && !cells_.is_fixed(last) && !is_missing(last)) ++last;
        return last > first && last < cells_.count && is_missing(last) ? last : 0;
    }
    [[nodiscard]] uint64_t size(const Run& run) const { return cells_.size(run.first, run.last); }
    [[nodiscard]] double direct_ns(uint64_t size) const {
        const uint64_t longest = cells_.transfer_size_max;
        const double one = model_.direct_submit_ns + model_.direct_time(longest);
        const uint64_t full = size / longest, rest = size % longest;
        return static_cast<double>(full) * one +
               (rest == 0 ? 0 : model_.direct_submit_ns + model_.direct_time(rest));
    }
    [[nodiscard]] bool swallows(const Run& cached, const Run& front, const Run& behind) const {
        const uint64_t a = size(front), b = size(cached), c = size(behind);
        if (a + b < model_.cutoff_size) return true;
        const double copy_ns = model_.cached_ns +
                               static_cast<double>(b) * model_.cached_ns_per_byte;
        return direct_ns(a + b + c) < direct_ns(a) + copy_ns + direct_ns(c);
    }
    const Cells& cells_;
    const CostModel& model_;
};

}  // namespace

void greedy_way(const Cells& cells, const CostModel& model, Way* way) {
    Rule(cells, model).follow(way);
}

}  // namespace penstock::planner
