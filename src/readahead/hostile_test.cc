// Goal: accesses, ranges, file sizes and times at the edges of 64 bits overflow nothing, and what
// is fetched lies in the file and is given back. Run under ASan and UBSan, where an overflow is an
// error.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "readahead/detector_predictor.h"
#include "readahead/readahead.h"
#include "testing/effort.h"

namespace penstock::readahead {
namespace {

constexpr uint64_t kEnd = std::numeric_limits<int64_t>::max();  // of any file

uint64_t seeds() { return testing::nightly() ? 20'000 : 400; }

uint64_t edge(base::Prng& prng) {
    constexpr std::array<uint64_t, 6> kEdges = {0,    UINT64_MAX,   uint64_t{1} << 63,
                                                kEnd, kEnd / 2 + 1, uint64_t{1} << 40};
    switch (prng.below(4)) {
        case 0:
            return prng.next();
        case 1:
            return prng.below(1 << 20);
        default:
            return kEdges[prng.below(kEdges.size())] + prng.below(5) - 2;
    }
}

// Any extent whose end is one.
Extent range(base::Prng& prng) {
    const uint64_t offset = edge(prng);
    return {offset, std::min(edge(prng), UINT64_MAX - offset)};
}

class Stream {
public:
    explicit Stream(uint64_t seed) : prng_(seed) {
        Options options;
        options.granule = uint64_t{1} << prng_.below(20);
        if (prng_.below(2) == 0) options.unused_size_max = edge(prng_);
        if (prng_.below(2) == 0) options.request_size_max = edge(prng_);
        if (prng_.below(2) == 0) options.credit_size_first = edge(prng_);
        if (prng_.below(4) == 0) options.ahead_max = edge(prng_);
        size_ = edge(prng_);
        budget_.emplace(edge(prng_));
        readahead_.emplace(options, 1, size_, Shared{model_, *budget_, flights_}, predictor_);
    }

    // Returns how many fetches there were.
    size_t run() {
        for (int part = 0; part < 12; ++part) {
            // A run of which something can be told, near an edge.
            uint64_t offset = edge(prng_);
            const uint64_t stride = edge(prng_), size = edge(prng_);
            for (uint64_t i = 4 + prng_.below(12); i > 0; --i, offset += stride) {
                const bool odd = prng_.below(10) == 0;
                access(
                    {static_cast<int64_t>(odd ? edge(prng_) : offset), static_cast<int64_t>(size)});
                meddle();
                if (::testing::Test::HasFatalFailure()) return fetches_;
            }
        }
        readahead_.reset();
        EXPECT_EQ(budget_->reserved(), 0U);
        return fetches_;
    }

private:
    void access(const access::Access& one) {
        const uint64_t now = edge(prng_);
        readahead_->demand(one, now);
        std::array<Target, 16> out;
        const size_t count = readahead_->next(now, {out.data(), prng_.below(out.size() + 1)});
        fetches_ += count;
        for (size_t i = 0; i < count; ++i) {
            const Extent& fetch = out[i].extent;
            ASSERT_FALSE(fetch.empty());
            ASSERT_LE(fetch.size, kEnd - std::min(fetch.offset, kEnd));
            ASSERT_LE(fetch.end(), size_);
        }
        ASSERT_TRUE(flights_.check_invariants());
        readahead_->served(edge(prng_));
    }

    // What a cache may tell meanwhile.
    void meddle() {
        while (prng_.below(3) > 0) {
            const std::optional<Flight> flight = flights_.start();
            if (!flight) break;
            model_.started(edge(prng_));
            model_.finished(edge(prng_), edge(prng_), flight->extent.size);
            flights_.finish(flight->id);
            const bool failed = prng_.below(5) == 0;
            readahead_->completed(flight->id, failed ? Outcome::kFailed : Outcome::kArrived);
        }
        switch (prng_.below(12)) {
            case 0:
                return readahead_->evicted(range(prng_));
            case 1:
                return readahead_->displaced(range(prng_));
            case 2:
                return readahead_->missed(range(prng_));
            case 3:
                return readahead_->used_by_other(range(prng_));
            case 4:
                static_cast<void>(readahead_->advise(range(prng_)));
                return;
            case 5:
                size_ = edge(prng_);
                return readahead_->resize(size_);
            default:
                budget_->demand_waited(edge(prng_));
        }
    }

    base::Prng prng_;
    uint64_t size_ = 0;
    size_t fetches_ = 0;
    DetectorPredictor predictor_;
    FetchModel model_{1'000'000, 1e9};
    Flights flights_{64};
    std::optional<Budget> budget_;
    std::optional<Readahead> readahead_;
};

TEST(Hostile, StreamsAtTheEdges) {
    size_t fetches = 0;
    for (uint64_t seed = 1; seed <= seeds(); ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        fetches += Stream(seed).run();
        if (HasFatalFailure()) return;
    }
    std::printf("%zu fetches\n", fetches);
    EXPECT_GT(fetches, seeds());
}

}  // namespace
}  // namespace penstock::readahead
