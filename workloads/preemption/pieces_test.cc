// Goal: blocks that read pieces give the sums of the reference in each part of their work, record
// their times in order, and refuse sizes that they cannot do.
#include "preemption/pieces.h"

#include "preemption/workload_fixture.h"

namespace penstock::workloads {
namespace {

class PiecesTest : public WorkloadTest {
protected:
    std::unique_ptr<Pieces> make(const PiecesOptions& options) {
        auto made = make_pieces(site_, options);
        EXPECT_TRUE(made.ok()) << made.status().message();
        return made.ok() ? std::move(made.value()) : nullptr;
    }
};

TEST_F(PiecesTest, GivesTheSumsOfTheReference) {
    for (const unsigned pieces : {1u, 3u}) {
        SCOPED_TRACE(pieces);
        expect_all_right(std::unique_ptr<Workload>(make({.blocks = 5, .pieces = pieces})));
    }
}

TEST_F(PiecesTest, ComputesWithoutAFile) {
    const auto made = make({.reads_file = false, .blocks = 3, .pieces = 2});
    ASSERT_NE(made, nullptr);
    expect_right(*made, Part::kAll);
    EXPECT_EQ(made->read_size(), 0u);
    EXPECT_EQ(made->launch(stream_, Part::kReads).error_number(), ENOTSUP);
}

TEST_F(PiecesTest, RecordsTimesInOrder) {
    const auto made = make({.blocks = 4, .pieces = 2, .records_times = true});
    ASSERT_NE(made, nullptr);
    expect_right(*made, Part::kAll);
    const auto times = made->times(stream_);
    ASSERT_TRUE(times.ok());
    ASSERT_EQ(times.value().size(), 8u);
    for (size_t i = 0; i < times.value().size(); ++i) {
        const PieceTimes& one = times.value()[i];
        EXPECT_LE(one.begun_ns, one.got_ns);
        EXPECT_LE(one.got_ns, one.done_ns);
        EXPECT_LT(one.place, device_.permits());
        if (i % 2 == 1) {
            EXPECT_GE(one.begun_ns, times.value()[i - 1].done_ns);
        }
    }
}

TEST_F(PiecesTest, RefusesOtherSizes) {
    for (const PiecesOptions& options : {PiecesOptions{.blocks = 0}, PiecesOptions{.pieces = 0},
                                         PiecesOptions{.piece_size = 1000}})
        EXPECT_EQ(make_pieces(site_, options).status().error_number(), EINVAL);
}

}  // namespace
}  // namespace penstock::workloads
