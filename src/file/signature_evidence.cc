// Counts how many accesses each algorithm predicted, and why the others were not predicted.
#include "file/signature_evidence.h"

#include <algorithm>

#include "access/names.h"

namespace penstock::file {
namespace {

// An algorithm that predicted a smaller share of the accesses was right by chance.
constexpr double kShareMin = 0.1;
// The detector confirms a stride at its third access, and nests and periods at their third turn.
constexpr uint64_t kFewAccesses = 8;

void lose(std::vector<SignatureLoss>* out, const char* cause, uint64_t count) {
    if (count != 0) out->push_back({cause, count, 0});
}

}  // namespace

void SignatureEvidence::watch(std::span<const access::Access> accesses,
                              std::span<const uint64_t> times_ns) {
    access::Detector detector;
    for (size_t i = 0; i < accesses.size(); ++i) {
        const access::Algorithm before = detector.algorithm();
        const uint64_t right = detector.statistics().right;
        detector.observe(accesses[i], i < times_ns.size() ? times_ns[i] : 0);
        if (detector.statistics().right != right) ++right_[static_cast<size_t>(before)];
    }
    const access::Statistics& seen = detector.statistics();
    statistics_.observed += seen.observed;
    statistics_.predicted += seen.predicted;
    statistics_.right += seen.right;
    statistics_.outliers += seen.outliers;
    ++streams_;
    if (detector.algorithm() == access::Algorithm::kRandom) random_ += seen.observed - seen.right;
}

void SignatureEvidence::add(const SignatureEvidence& other) {
    for (size_t i = 0; i < kAlgorithms; ++i) right_[i] += other.right_[i];
    statistics_.observed += other.statistics_.observed;
    statistics_.predicted += other.statistics_.predicted;
    statistics_.right += other.statistics_.right;
    statistics_.outliers += other.statistics_.outliers;
    streams_ += other.streams_;
    random_ += other.random_;
}

void SignatureEvidence::describe(SignatureStream* out) const {
    const access::Statistics& seen = statistics_;
    const auto share = [&](uint64_t count) {
        return seen.observed == 0 ? 0.0
                                  : static_cast<double>(count) / static_cast<double>(seen.observed);
    };
    const auto best = std::max_element(right_.begin(), right_.end());
    const bool random = share(random_) > 0.5;
    auto algorithm = random ? access::Algorithm::kRandom : access::Algorithm::kNone;
    if (*best != 0 && share(*best) >= kShareMin)
        algorithm = static_cast<access::Algorithm>(best - right_.begin());
    out->accesses = seen.observed;
    out->algorithm = access::name(algorithm);
    out->confidence = share(seen.right);

    const uint64_t wrong = seen.predicted - seen.right;
    const uint64_t early = seen.observed - seen.predicted;
    if (random) {
        lose(&out->unpredicted, "random: offsets without any pattern", seen.observed - seen.right);
    } else if (seen.predicted == 0) {
        const bool few = seen.observed < kFewAccesses * streams_;
        lose(&out->unpredicted,
             few ? "too few accesses to confirm a pattern"
                 : "no pattern turned often enough to be confirmed",
             early);
    } else {
        lose(&out->unpredicted, "before a pattern was confirmed, or confirmed anew", early);
        lose(&out->unpredicted, "isolated, beside the pattern", std::min(seen.outliers, wrong));
        lose(&out->unpredicted, "where the pattern changed",
             wrong - std::min(seen.outliers, wrong));
    }
}

}  // namespace penstock::file
