#include "file/signature_evidence.h"

#include <algorithm>

#include "access/names.h"
#include "access/repeats.h"
#include "access/sequences.h"

namespace penstock::file {
namespace {

using access::Algorithm;

constexpr std::array<const char*, 4> kCauses = {
    "before a pattern was confirmed, or confirmed anew",
    "isolated, beside the pattern",
    "where the pattern changed",
    "the end of an access that is longer than expected",
};

// An algorithm that predicted a smaller share of the bytes was right by chance.
constexpr double kShareMin = 0.1;
// The detector confirms a stride at its third access, and nests and periods at their third turn.
constexpr uint64_t kFewAccesses = 8;

// Returns how many bytes of `access` are in `predicted`.
int64_t overlap(const access::Access& predicted, const access::Access& access) {
    const int64_t begin = std::max(predicted.offset, access.offset);
    const int64_t end = std::min(predicted.offset + predicted.size, access.offset + access.size);
    return std::max<int64_t>(end - begin, 0);
}

// Returns whether a sequence explains an access better than this algorithm.
bool yields_to_sequence(Algorithm algorithm) {
    return algorithm == Algorithm::kMajority || algorithm == Algorithm::kPeriod;
}

}  // namespace

// Goes through one stream.
class SignatureEvidence::Watch {
public:
    Watch(SignatureEvidence* out, std::span<const access::Access> accesses, size_t threads)
        : out_(*out), sequences_(threads), repeats_(accesses) {}

    void take(const access::Access& access, uint64_t time_ns) {
        access::Access predicted;
        const Algorithm before = detector_.algorithm();
        const bool stood = detector_.predict({&predicted, 1}) == 1;
        const uint64_t outliers = detector_.statistics().outliers;
        detector_.observe(access, time_ns);
        const int64_t by_sequence = sequences_.observe(access);
        const bool by_repeat = repeats_.observe_next();
        count_outliers(detector_.statistics().outliers - outliers);

        const int64_t by_detector = stood ? overlap(predicted, access) : 0;
        const bool sequence_first = by_sequence == access.size && yields_to_sequence(before);
        if (by_detector == access.size && !sequence_first) {
            told_by(before, access.size);
        } else if (by_repeat && by_sequence < access.size) {
            told_by(Algorithm::kPeriod, access.size);
            repeated_ += static_cast<uint64_t>(access.size);
        } else if (by_sequence >= by_detector) {
            in_sequences_ += static_cast<uint64_t>(by_sequence);
            lose(access.size - by_sequence, by_sequence > 0 ? kLonger : stood ? kChanged : kEarly);
        } else {
            told_by(before, by_detector);
            lose(access.size - by_detector, kChanged);
        }
    }

    void finish() {
        told_by(sequences_.interleaved() ? Algorithm::kInterleaved : Algorithm::kContiguous,
                static_cast<int64_t>(in_sequences_));
        if (in_sequences_ > 0) out_.sequences_ = std::max(out_.sequences_, sequences_.concurrent());
        if (repeated_ > 0) out_.repeat_period_ = std::max(out_.repeat_period_, repeats_.period());
        for (const Untold& one : untold_) {
            if (detector_.algorithm() == Algorithm::kRandom) out_.random_bytes_ += one.bytes;
        }
        for (size_t i = 0; i < kCauseCount; ++i) {
            out_.untold_[i].accesses += untold_[i].accesses;
            out_.untold_[i].bytes += untold_[i].bytes;
        }
    }

private:
    struct Last {
        Cause cause = kEarly;
        uint64_t bytes = 0;
    };

    void told_by(Algorithm algorithm, int64_t bytes) {
        out_.told_by_[static_cast<size_t>(algorithm)] += static_cast<uint64_t>(bytes);
    }

    void lose(int64_t bytes, Cause cause) {
        if (bytes <= 0) return;
        last_[1] = last_[0];
        last_[0] = {cause, static_cast<uint64_t>(bytes)};
        ++untold_[cause].accesses;
        untold_[cause].bytes += last_[0].bytes;
    }

    // The detector knows only afterwards that accesses were isolated.
    void count_outliers(uint64_t count) {
        for (size_t i = 0; i < std::min<uint64_t>(count, last_.size()); ++i) {
            if (last_[i].bytes == 0) continue;
            --untold_[last_[i].cause].accesses;
            untold_[last_[i].cause].bytes -= last_[i].bytes;
            ++untold_[kIsolated].accesses;
            untold_[kIsolated].bytes += last_[i].bytes;
            last_[i].cause = kIsolated;
        }
    }

    SignatureEvidence& out_;
    access::Detector detector_;
    access::SequenceTracker sequences_;
    access::RepeatTracker repeats_;
    std::array<Untold, kCauseCount> untold_{};
    std::array<Last, 2> last_{};  // the last accesses that were not predicted, latest first
    uint64_t in_sequences_ = 0, repeated_ = 0;  // bytes
};

void SignatureEvidence::measure(std::span<const access::Access> accesses,
                                std::span<const uint64_t> times_ns) {
    for (const access::Access& access : accesses) {
        const auto size = static_cast<uint64_t>(access.size);
        bytes_ += size;
        size_min_ = std::min(size_min_, size);
        size_max_ = std::max(size_max_, size);
    }
    accesses_ += accesses.size();
    ++streams_;
    if (times_ns.empty()) return;
    first_ns_ = std::min(first_ns_, times_ns.front());
    last_ns_ = std::max(last_ns_, times_ns.back());
}

void SignatureEvidence::watch(std::span<const access::Access> accesses,
                              std::span<const uint64_t> times_ns, size_t threads) {
    measure(accesses, times_ns);
    Watch watch(this, accesses, threads);
    for (size_t i = 0; i < accesses.size(); ++i)
        watch.take(accesses[i], i < times_ns.size() ? times_ns[i] : 0);
    watch.finish();
}

void SignatureEvidence::add(const SignatureEvidence& other) {
    accesses_ += other.accesses_;
    bytes_ += other.bytes_;
    size_min_ = std::min(size_min_, other.size_min_);
    size_max_ = std::max(size_max_, other.size_max_);
    first_ns_ = std::min(first_ns_, other.first_ns_);
    last_ns_ = std::max(last_ns_, other.last_ns_);
    streams_ += other.streams_;
    for (size_t i = 0; i < kAlgorithms; ++i) told_by_[i] += other.told_by_[i];
    for (size_t i = 0; i < kCauseCount; ++i) {
        untold_[i].accesses += other.untold_[i].accesses;
        untold_[i].bytes += other.untold_[i].bytes;
    }
    random_bytes_ += other.random_bytes_;
    sequences_ = std::max(sequences_, other.sequences_);
    repeat_period_ = std::max(repeat_period_, other.repeat_period_);
}

SignatureEvidence::Untold SignatureEvidence::untold_sum() const {
    Untold sum;
    for (const Untold& one : untold_) {
        sum.accesses += one.accesses;
        sum.bytes += one.bytes;
    }
    return sum;
}

uint64_t SignatureEvidence::told_bytes() const { return bytes_ - untold_sum().bytes; }

double SignatureEvidence::share(uint64_t bytes) const {
    return bytes_ == 0 ? 0.0 : static_cast<double>(bytes) / static_cast<double>(bytes_);
}

double SignatureEvidence::confidence() const { return share(told_bytes()); }

Algorithm SignatureEvidence::algorithm() const {
    const auto best = std::max_element(told_by_.begin(), told_by_.end());
    if (*best != 0 && share(*best) >= kShareMin)
        return static_cast<Algorithm>(best - told_by_.begin());
    return random() ? Algorithm::kRandom : Algorithm::kNone;
}

void SignatureEvidence::describe(SignatureStream* out) const {
    out->accesses = accesses_;
    out->bytes = bytes_;
    out->told_bytes = told_bytes();
    out->size_min = accesses_ == 0 ? 0 : size_min_;
    out->size_max = size_max_;
    out->first_ns = first_ns_ == UINT64_MAX ? 0 : first_ns_;
    out->last_ns = last_ns_;
    out->sequences = sequences_;
    out->repeat_period = repeat_period_;
    out->algorithm = access::name(algorithm());
    out->confidence = confidence();

    const auto lose = [&](const char* cause, const Untold& untold) {
        if (untold.accesses != 0)
            out->unpredicted.push_back({cause, untold.accesses, 0, untold.bytes});
    };
    if (random()) {
        lose("random: offsets without any pattern", untold_sum());
    } else if (bytes_ != 0 && told_bytes() == 0) {
        const bool few = accesses_ < kFewAccesses * streams_;
        lose(few ? "too few accesses to confirm a pattern"
                 : "no pattern turned often enough to be confirmed",
             untold_sum());
    } else {
        for (size_t i = 0; i < kCauseCount; ++i) lose(kCauses[i], untold_[i]);
    }
}

}  // namespace penstock::file
