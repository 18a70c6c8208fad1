// Holds runs of residency and can merge them into larger grains, so that their number stays
// bounded.
//
// Pure: makes no system call. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/units.h"
#include "extent/residency.h"

namespace penstock::file {

// Collects the pieces of runs that lie in one grain, and computes the grain's state.
class ResidencyGrain {
public:
    void add(Residency state, uint64_t size, uint64_t resident_size) {
        if (size_ == 0) state_ = state;
        if (state != state_) state_ = joined(state);
        size_ += size;
        resident_size_ += resident_size;
    }
    [[nodiscard]] extent::ResidencyRun run(uint64_t offset) const {
        const uint64_t resident = state_ == Residency::kUnknown ? 0 : resident_size_;
        return {{offset, size_}, state_, resident};
    }

private:
    [[nodiscard]] Residency joined(Residency state) const {
        for (const Residency wins : {Residency::kDirty, Residency::kUnknown}) {
            if (state_ == wins || state == wins) return wins;
        }
        return Residency::kMixed;
    }

    Residency state_ = Residency::kUnknown;
    uint64_t size_ = 0, resident_size_ = 0;
};

// A sequence of runs that can be merged into larger grains.
class ResidencyPicture {
public:
    explicit ResidencyPicture(uint64_t grain) : grain_(grain) {}

    [[nodiscard]] uint64_t grain() const { return grain_; }
    [[nodiscard]] const std::vector<extent::ResidencyRun>& runs() const { return runs_; }

    // Appends `run`, which must begin where the last run ends and must be aligned to grain().
    void add(const extent::ResidencyRun& run) {
        size_t count = runs_.size();
        if (!extent::append_run(runs_, &count, run)) runs_.push_back(run);
    }

    // Merges the runs into grains of `grain` bytes. A mixed or dirty run does not say which of its
    // bytes are resident. Where such a run is cut, the front piece gets the resident bytes first;
    // the total stays exact. The pieces mostly stay neighbours of the same state. Only at an edge
    // between mixed and dirty runs is the share of each an estimate.
    void coarsen(uint64_t grain) {
        ResidencyPicture coarse(grain);
        for (size_t i = 0; i < runs_.size();) {
            const uint64_t begin = runs_[i].range.offset;
            uint64_t end = base::align_down(begin, grain) + grain;
            // Grains that lie entirely in one run are handled together.
            end = std::max(end, base::align_down(runs_[i].range.end(), grain));
            ResidencyGrain told;
            while (i < runs_.size() && runs_[i].range.offset < end) {
                extent::ResidencyRun& run = runs_[i];
                const uint64_t size = std::min(run.range.size, end - run.range.offset);
                const uint64_t resident = std::min(run.resident_size, size);
                told.add(run.state, size, resident);
                run.range = {run.range.offset + size, run.range.size - size};
                run.resident_size -= resident;
                if (run.range.empty()) ++i;
            }
            coarse.add(told.run(begin));
        }
        *this = std::move(coarse);
    }

private:
    uint64_t grain_;
    std::vector<extent::ResidencyRun> runs_;
};

}  // namespace penstock::file
