// Recording, fitting and loading; the predictor of one stream.
#include "readahead/siblings.h"

#include <algorithm>
#include <span>
#include <utility>

namespace penstock::readahead {
namespace {

bool is_line(const access::Program& program) {
    return program.grid[1] == 1 && program.grid[2] == 1;
}

// Returns the program with a place for `rank`: its last dimension is extended.
access::Program with_place_for(access::Program program, uint64_t rank) {
    uint64_t places = 1;
    size_t last = 0;
    for (size_t g = 0; g < access::kGridMax; ++g) {
        if (program.grid[g] > 1) last = g;
    }
    for (size_t g = 0; g < last; ++g) places *= program.grid[g];
    program.grid[last] = std::max(program.grid[last], rank / places + 1);
    return program;
}

}  // namespace

class Siblings::Stream : public Predictor {
public:
    Stream(Siblings& siblings, uint64_t rank) : siblings_(siblings), rank_(rank) {
        if (siblings.program_) {
            detector_.load(with_place_for(*siblings.program_, rank), rank);
            loaded_ = true;
        } else if (rank < kRankMax && siblings.tried_ < kSamplesMax &&
                   siblings.recorded_ < kRecordedMax) {
            recorded_ = true;
            ++siblings.recorded_;
            accesses_.reserve(kAccessesMax);
        }
    }
    ~Stream() override { siblings_.ended(*this); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    void observe(const access::Access& access, uint64_t time_ns) override {
        const bool followed = detector_.algorithm() == access::Algorithm::kLoaded;
        const uint64_t right = detector_.statistics().right;
        detector_.observe(access, time_ns);
        // What the detector predicts now is how its accesses could have continued.
        over_ = followed && detector_.algorithm() != access::Algorithm::kLoaded &&
                detector_.statistics().right > right;
        if (!recorded_) return;
        if (accesses_.size() == kAccessesMax) whole_ = false;
        if (whole_) accesses_.push_back(access);
    }
    size_t predict_from(size_t skip, std::span<access::Access> out) const override {
        return over_ ? 0 : detector_.predict_from(skip, out);
    }

private:
    friend class Siblings;

    Siblings& siblings_;
    uint64_t rank_;
    access::Detector detector_;
    bool loaded_ = false, recorded_ = false;
    bool over_ = false;  // the last access was the program's last
    bool whole_ = true;  // the record has all accesses
    std::vector<access::Access> accesses_;
};

std::unique_ptr<Predictor> Siblings::begin(uint64_t rank) {
    return std::make_unique<Stream>(*this, rank);
}

void Siblings::ended(const Stream& stream) {
    if (stream.recorded_) {
        --recorded_;
        ++tried_;
        if (!program_ && stream.whole_ && !stream.accesses_.empty())
            learn(stream.rank_, stream.accesses_);
    } else if (stream.loaded_ && program_) {
        const access::Statistics& seen = stream.detector_.statistics();
        misfits_ = seen.right + 1 < seen.observed ? misfits_ + 1 : 0;
        if (misfits_ < kMisfitsMax) return;
        program_.reset();
        samples_.clear();
        ranks_.clear();
        misfits_ = 0;
        line_ = false;
    }
}

void Siblings::learn(uint64_t rank, const std::vector<access::Access>& accesses) {
    if (std::ranges::find(ranks_, rank) != ranks_.end()) return;
    if (samples_.size() == kGrid) {
        samples_.erase(samples_.begin());
        ranks_.erase(ranks_.begin());
    }
    samples_.push_back(access::analyse(accesses, {}));
    ranks_.push_back(rank);
    for (const size_t count : {kLine, kGrid}) {
        if (samples_.size() < count) return;
        access::Program fitted;
        const std::span<const access::Program> programs(samples_);
        const std::span<const uint64_t> ranks(ranks_);
        if (!access::fit_ranks(programs.last(count), ranks.last(count), &fitted)) continue;
        if (count == kLine && (!line_ || !is_line(fitted))) continue;
        program_ = std::move(fitted);
        tried_ = 0;
        return;
    }
}

}  // namespace penstock::readahead
