// Streams that run one program and are told apart by a number: the blocks of a kernel, the ranks of
// a job. The first of them to end teach those that begin later: what they did, fitted over their
// numbers, is loaded into the detectors of the others, for which their first access is enough.
//
//      COLLECTING --[the last 3 that ended fit a line, or 8 a grid]--> KNOWN
//      COLLECTING --[kSamplesMax ended, and nothing fits]--> GIVEN UP (each learns for itself)
//      KNOWN --[kMisfitsMax in a row did something else]--> COLLECTING (8 from now on)
//
// Three streams are fitted by a line, which leaves one of them to confirm it; grids have up to four
// unknowns. Three on a diagonal of a grid look like a line: the others then lose one access, by
// which their position is put right, and it is found out. Pure. One thread at a time. Allocates
// where streams begin and end, not for an access.
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
    static constexpr size_t kRecordedMax = 8;      // streams at a time
    static constexpr size_t kAccessesMax = 1024;   // of a stream that is recorded
    static constexpr uint64_t kRankMax = 1 << 16;  // above, a fit looks at too many grids
    static constexpr size_t kLine = 3, kGrid = 8;  // streams that make a fit
    static constexpr size_t kSamplesMax = 32;      // streams that ended before it gives up
    static constexpr unsigned kMisfitsMax = 4;

    Siblings() = default;
    // Known from an earlier run.
    explicit Siblings(access::Program program) : program_(std::move(program)) {}
    Siblings(const Siblings&) = delete;
    Siblings& operator=(const Siblings&) = delete;

    // A stream begins; it is over when its predictor is destroyed, which this must outlive.
    std::unique_ptr<Predictor> begin(uint64_t rank);

    // What all of them do; none: not known.
    [[nodiscard]] const std::optional<access::Program>& program() const { return program_; }

private:
    class Stream;

    void ended(const Stream& stream);
    void learn(uint64_t rank, const std::vector<access::Access>& accesses);

    std::optional<access::Program> program_;
    std::vector<access::Program> samples_;  // of the last streams that ended
    std::vector<uint64_t> ranks_;           // theirs
    size_t recorded_ = 0;                   // streams that are recorded now
    size_t tried_ = 0;                      // since collecting began
    unsigned misfits_ = 0;
    bool line_ = true;  // three are enough
};

}  // namespace penstock::readahead
