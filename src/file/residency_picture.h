// Runs of residency that can be told again in larger grains, so that their number stays bounded.
//
// Pure. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/units.h"
#include "extent/residency.h"

namespace penstock::file {

// What one grain holds, put together from pieces of runs.
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

// Runs that can be told again in larger grains.
class ResidencyPicture {
public:
    explicit ResidencyPicture(uint64_t grain) : grain_(grain) {}

    [[nodiscard]] uint64_t grain() const { return grain_; }
    [[nodiscard]] const std::vector<extent::ResidencyRun>& runs() const { return runs_; }

    // `run` begins where the last one ends, and is told in grains of grain().
    void add(const extent::ResidencyRun& run) {
        size_t count = runs_.size();
        if (!extent::append_run(runs_, &count, run)) runs_.push_back(run);
    }

    // Of a run that is mixed or dirty nobody knows which bytes are resident. Where such a run is
    // cut, its pieces share its sum; they mostly stay neighbours of one state. Only at an edge
    // between mixed and dirty is the share of each an estimate, and the sum of both still right.
    void coarsen(uint64_t grain) {
        ResidencyPicture coarse(grain);
        for (size_t i = 0; i < runs_.size();) {
            const uint64_t begin = runs_[i].range.offset;
            uint64_t end = base::align_down(begin, grain) + grain;
            // Whole grains of one run go at once.
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
