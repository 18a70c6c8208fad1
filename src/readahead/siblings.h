// Streams that run the same program and differ in a number: the blocks of a kernel, the ranks of a
// job. The first ones to end teach those that begin later. What they did is fitted over their
// numbers and loaded into the detectors of the others, which then need only their first access.
//
//      COLLECTING --[the last 3 that ended fit a line, or 8 a grid]--> KNOWN
//      COLLECTING --[kSamplesMax ended, and nothing fits]--> GIVEN UP (each learns for itself)
//      KNOWN --[kMisfitsMax in a row did something else]--> COLLECTING (8 from now on)
//
// Three streams are fitted by a line: two determine it and one confirms it. Grids have up to four
// unknowns. Three streams on a diagonal of a grid look like a line. The others then mispredict one
// access, which corrects their position and reveals the mistake. Pure. One thread at a time.
// Allocates when streams begin and end, but not at an access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "access/detector.h"
#include "readahead/predictor.h"

namespace penstock::readahead {

class Siblings {
public:
    static constexpr size_t kRecordedMax = 8;      // streams recorded at a time
    static constexpr size_t kAccessesMax = 1024;   // of a recorded stream
    static constexpr uint64_t kRankMax = 1 << 16;  // with larger ranks a fit tries too many grids
    static constexpr size_t kLine = 3, kGrid = 8;  // streams that make a fit
    static constexpr size_t kSamplesMax = 32;      // streams that end before it gives up
    static constexpr unsigned kMisfitsMax = 4;

    Siblings() = default;
    // The program is known from an earlier run.
    explicit Siblings(access::Program program) : program_(std::move(program)) {}
    Siblings(const Siblings&) = delete;
    Siblings& operator=(const Siblings&) = delete;

    // Begins a stream. It ends when its predictor is destroyed; this object must outlive that.
    std::unique_ptr<Predictor> begin(uint64_t rank);

    // Returns what all streams do, or nothing if it is not known.
    [[nodiscard]] const std::optional<access::Program>& program() const { return program_; }

private:
    class Stream;

    void ended(const Stream& stream);
    void learn(uint64_t rank, const std::vector<access::Access>& accesses);

    std::optional<access::Program> program_;
    std::vector<access::Program> samples_;  // of the last streams that ended
    std::vector<uint64_t> ranks_;           // ranks of samples_
    size_t recorded_ = 0;                   // streams being recorded now
    size_t tried_ = 0;                      // streams ended since collecting began
    unsigned misfits_ = 0;
    bool line_ = true;  // three streams suffice
};

}  // namespace penstock::readahead
