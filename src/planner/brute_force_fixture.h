// For tests and benchmarks: finds the least cost of a request by trying every plan over its pages,
// and makes random requests.
//
// It is written from the definitions and shares no code with the planner: it finds pages byte by
// byte and adds up costs plan by plan. The time is exponential, so it suits about 20 pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/prng.h"
#include "planner/planner.h"

namespace penstock::planner::brute_force {

struct Page {
    uint64_t offset = 0;
    uint64_t size = 0;    // bytes that a direct transfer moves
    uint64_t wanted = 0;  // bytes of them that the request wants
    bool missing = false;
    bool fixed = false;  // never direct
};

// Returns the pages about which the planner must decide.
inline std::vector<Page> pages_of(const Request& request, const Options& options) {
    using extent::Residency;
    const uint64_t alignment = std::max(request.direct.offset_alignment,
                                        request.direct.memory_alignment);
    uint64_t page = std::max(options.page_size, alignment);
    const uint64_t first = request.range.offset, last = request.range.end();
    uint64_t start = first / alignment * alignment;
    uint64_t end = (last + alignment - 1) / alignment * alignment;
    const bool over_before = first - start <= request.room_before;
    const bool over_behind = end - last <= request.room_behind;
    uint64_t body = over_before ? start : std::min(start + alignment, last);
    uint64_t body_end = over_behind ? end : last / alignment * alignment;
    if (!over_before) start = first;
    if (!over_behind) end = last;
    if (body >= body_end || body >= last || body_end <= first) {
        // No byte can be direct, so only the pages of the OS page cache matter.
        start = first;
        end = body = body_end = last;
        page = options.page_size;
    }
    std::vector<uint64_t> ends = {start, body, body_end, end};
    for (uint64_t at = start / page * page; at < end; at += page) ends.push_back(at);
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());

    std::vector<Page> pages;
    for (size_t i = 0; i + 1 < ends.size(); ++i) {
        const bool outside = ends[i] < body || ends[i] >= body_end;
        if (ends[i] < start || ends[i] >= end) continue;
        Page one{ends[i], ends[i + 1] - ends[i], 0, false, outside};
        const uint64_t from = std::max(ends[i], first), to = std::min(ends[i + 1], last);
        one.wanted = to > from ? to - from : 0;
        bool cached = true, dirty = false;
        for (uint64_t byte = from; byte < to; byte += 1) {
            Residency state = Residency::kUnknown;
            for (const extent::ResidencyRun& run : request.residency) {
                if (run.range.contains(byte)) {
                    state = run.state;
                    byte = std::min(run.range.end(), to) - 1;
                    break;
                }
            }
            if (state == Residency::kUnknown) state = options.unknown_as;
            dirty = dirty || state == Residency::kDirty;
            cached = cached && state == Residency::kCached;
        }
        one.missing = !cached && !dirty;
        one.fixed = one.fixed || dirty;
        pages.push_back(one);
    }
    return pages;
}

inline bool nothing_missing(const Request& request, const Options& options) {
    const std::vector<Page> pages = pages_of(request, options);
    return std::none_of(pages.begin(), pages.end(), [](const Page& one) { return one.missing; });
}

struct Best {
    double serial_ns = std::numeric_limits<double>::infinity();
    double overlapped_ns = std::numeric_limits<double>::infinity();
};

class Search {
public:
    Search(std::vector<Page> pages, const CostModel& model, uint64_t transfer_size_max)
        : pages_(std::move(pages)), model_(model), longest_(transfer_size_max) {
        fill_table();
    }
    // Returns the costs of the best plans, one for each goal.
    Best run() {
        best_ = {};
        serial_ = true;
        visit(0, {}, false, false);
        serial_ = false;
        visit(0, {}, false, false);
        return best_;
    }

private:
    struct Sum {
        double copy = 0, direct = 0, shared = 0;
    };

    // direct_[i][j]: the cost of pages [i, j) by direct transfers, with the best cuts.
    void fill_table() {
        const size_t n = pages_.size();
        direct_.assign(n + 1, std::vector<Sum>(n + 1, {kNever, kNever, 0}));
        for (size_t i = 0; i < n; ++i) {
            direct_[i][i] = {};
            for (size_t j = i + 1; j <= n && !pages_[j - 1].fixed; ++j) {
                for (size_t cut = i; cut < j; ++cut) {
                    uint64_t size = 0;
                    for (size_t k = cut; k < j; ++k) size += pages_[k].size;
                    if (size > longest_) continue;
                    const Sum all{direct_[i][cut].copy + model_.direct_submit_ns,
                                  direct_[i][cut].direct + time_of(size), 0};
                    if (all.copy + all.direct < direct_[i][j].copy + direct_[i][j].direct)
                        direct_[i][j] = all;
                }
            }
        }
    }
    [[nodiscard]] double time_of(uint64_t size) const {
        if (size <= model_.cutoff_size) return model_.direct_ns;
        return model_.direct_ns +
               static_cast<double>(size - model_.cutoff_size) * model_.direct_ns_per_byte;
    }

    [[nodiscard]] double goal(const Sum& sum, bool any_direct) const {
        const double direct = sum.direct + (any_direct ? model_.direct_start_ns : 0);
        return serial_ ? sum.copy + direct : std::max(sum.copy, direct + sum.shared);
    }

    // Tries all ways from page `at` on. `copied` says whether the page before was copied.
    void visit(size_t at, const Sum& so_far, bool copied, bool any_direct) {
        double& best = serial_ ? best_.serial_ns : best_.overlapped_ns;
        const double least = goal(so_far, any_direct);
        if (least >= best) return;
        if (at == pages_.size()) {
            best = least;
            return;
        }
        Sum copy = so_far;
        const Page& page = pages_[at];
        if (!copied) copy.copy += model_.cached_ns;
        if (page.missing) {
            if (!copied || !pages_[at - 1].missing) {
                copy.copy += model_.buffered_ns;
                copy.shared += model_.direct_ns;
            }
            copy.shared += static_cast<double>(page.wanted) * model_.direct_ns_per_byte;
        }
        copy.copy += static_cast<double>(page.wanted) *
                     (page.missing ? model_.buffered_ns_per_byte : model_.cached_ns_per_byte);
        visit(at + 1, copy, true, any_direct);
        // A direct run is as long as possible, so a copied page or the end follows it.
        if (at > 0 && !copied) return;
        for (size_t end = at + 1; end <= pages_.size() && !pages_[end - 1].fixed; ++end) {
            Sum direct = so_far;
            direct.copy += direct_[at][end].copy;
            direct.direct += direct_[at][end].direct;
            visit(end, direct, false, true);
        }
    }

    static constexpr double kNever = std::numeric_limits<double>::infinity();
    std::vector<Page> pages_;
    CostModel model_;
    uint64_t longest_;
    std::vector<std::vector<Sum>> direct_;
    Best best_;
    bool serial_ = true;
};

inline Best search(const Request& request, const Options& options, const CostModel& model) {
    const uint64_t page = std::max<uint64_t>(
        options.page_size,
        std::max(request.direct.offset_alignment, request.direct.memory_alignment));
    const uint64_t longest = std::max(model.transfer_size_max / page * page, page);
    return Search(pages_of(request, options), sane(model), longest).run();
}

// A random request with its model. The residency points into `runs`, so the object must not move.
struct Case {
    std::vector<extent::ResidencyRun> runs;
    Request request;
    Options options;
    CostModel model;

    Case(const Case&) = delete;
    Case& operator=(const Case&) = delete;

    Case(base::Prng& prng, uint64_t pages_max) {
        const auto power = [&](uint64_t least, uint64_t count) {
            return least << prng.below(count);
        };
        options.algorithm = Algorithm::kExact;
        options.coarse = false;
        options.unknown_as = prng.below(2) == 0 ? extent::Residency::kMissing
                                                : extent::Residency::kCached;
        request.direct.offset_alignment = static_cast<uint32_t>(power(512, 6));
        request.direct.memory_alignment = static_cast<uint32_t>(power(4, 9));
        const uint64_t page = std::max<uint64_t>(
            4096, std::max(request.direct.offset_alignment, request.direct.memory_alignment));
        const uint64_t count = 1 + prng.below(pages_max);
        request.range = {page * prng.below(100), page * count};
        if (prng.below(2) == 0) random_ends(prng, page);
        request.memory = request.range.offset;
        random_runs(prng, page);
        random_model(prng, page);
    }

private:
    void random_ends(base::Prng& prng, uint64_t page) {
        const uint64_t head = prng.below(page);
        const uint64_t tail = prng.below(std::min(page, request.range.size - head));
        request.range = {request.range.offset + head, request.range.size - head - tail};
        request.room_before = prng.below(2) * prng.below(2 * page);
        request.room_behind = prng.below(2) * prng.below(2 * page);
    }
    void random_runs(base::Prng& prng, uint64_t page) {
        using extent::Residency;
        const uint64_t mean = 1 + prng.below(8);
        const uint64_t dirty = prng.below(3) == 0 ? 10 : 0;
        uint64_t at = request.range.offset / page * page;
        while (at < request.range.end()) {
            const uint64_t size = (1 + prng.below(mean)) * (prng.below(8) == 0 ? 4096 : page);
            const uint64_t dice = prng.below(100);
            const Residency state = dice < dirty         ? Residency::kDirty
                                    : dice < 15          ? Residency::kUnknown
                                    : prng.below(2) == 0 ? Residency::kMissing
                                                         : Residency::kCached;
            if (dice != 99) runs.push_back({{at, size}, state});
            at += size;
        }
        request.residency = runs;
    }
    void random_model(base::Prng& prng, uint64_t page) {
        const auto up_to = [&](double most) {
            return prng.below(6) == 0 ? 0 : most * prng.fraction() * prng.fraction();
        };
        model.cutoff_size = prng.below(4) == 0 ? prng.below(page * 12) : page * prng.below(12);
        model.direct_ns_per_byte = up_to(1);
        model.direct_ns = static_cast<double>(model.cutoff_size) * model.direct_ns_per_byte +
                          up_to(20000);
        model.direct_start_ns = up_to(50000);
        model.direct_submit_ns = up_to(5000);
        model.cached_ns = up_to(5000);
        model.cached_ns_per_byte = up_to(1.5);
        model.buffered_ns = up_to(100000);
        model.buffered_ns_per_byte = up_to(3);
        model.transfer_size_max = prng.below(3) == 0 ? 64 * page : page * (1 + prng.below(20));
    }
};

}  // namespace penstock::planner::brute_force
