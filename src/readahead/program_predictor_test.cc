// Goal: an access program predicts a stream exactly, also one that skips accesses; a stream that is
// another one is predicted by what it does.
#include "readahead/program_predictor.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

namespace penstock::readahead {
namespace {

constexpr int64_t kStride = 65536, kSize = 4096, kTrips = 1000;

std::shared_ptr<const access::Program> strided() {
    access::Program program;
    program.key.file = "data";
    access::Node loop;
    loop.kind = access::NodeKind::kLoop;
    loop.body = 1;
    loop.trips.base = kTrips;
    access::Node read;
    read.offset.per_loop[0] = kStride;
    read.size.base = kSize;
    program.nodes = {loop, read};
    return std::make_shared<const access::Program>(program);
}

access::Access nth(int64_t i) { return {i * kStride, kSize}; }

TEST(ProgramPredictor, PredictsBeforeTheFirstAccess) {
    const ProgramPredictor predictor(strided());
    std::array<access::Access, 3> next;
    ASSERT_EQ(predictor.predict_from(2, next), 3u);
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(next[static_cast<size_t>(i)], nth(2 + i));
}

TEST(ProgramPredictor, FollowsAStreamThatSkipsAccesses) {
    ProgramPredictor predictor(strided());
    std::array<access::Access, 1> next;
    int64_t at = 0;
    for (const int64_t skip : {0, 0, 5, 1, 63, 0}) {
        at += skip;
        predictor.observe(nth(at), 0);
        ASSERT_EQ(predictor.predict_from(0, next), 1u);
        EXPECT_EQ(next[0], nth(++at));
    }
}

TEST(ProgramPredictor, EndsWithTheProgram) {
    ProgramPredictor predictor(strided());
    for (int64_t i = 0; i < kTrips; ++i) predictor.observe(nth(i), 0);
    std::array<access::Access, 1> next;
    EXPECT_EQ(predictor.predict_from(0, next), 0u);
}

TEST(ProgramPredictor, LearnsAnotherStreamAndComesBack) {
    ProgramPredictor predictor(strided());
    std::array<access::Access, 1> next;
    int64_t offset = 777;
    for (int i = 0; i < 200; ++i) predictor.observe({offset += 10'000, 512}, 0);
    ASSERT_EQ(predictor.predict_from(0, next), 1u);
    EXPECT_EQ(next[0], (access::Access{offset + 10'000, 512}));
    predictor.observe(nth(0), 0);
    ASSERT_EQ(predictor.predict_from(0, next), 1u);
    EXPECT_EQ(next[0], nth(1));
}

}  // namespace
}  // namespace penstock::readahead
