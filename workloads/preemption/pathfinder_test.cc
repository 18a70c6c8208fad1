// Goal: PathFinder equals the reference with the wall in memory and in a file, where strips end
// with the wall and where they do not, and for a last launch of fewer rows.
#include "preemption/pathfinder.h"

#include "preemption/workload_fixture.h"

namespace penstock::workloads {
namespace {

class PathTest : public WorkloadTest {
protected:
    void expect_right_in_all_sizes(bool reads_file) {
        for (const PathOptions& options :
             {PathOptions{.columns = 1000, .rows = 41}, PathOptions{.columns = 50, .rows = 7},
              PathOptions{.columns = 216, .rows = 2},
              PathOptions{.columns = 777, .rows = 72, .rows_per_launch = kPathRowsMax},
              PathOptions{.columns = 1, .rows = 4, .rows_per_launch = 1}}) {
            SCOPED_TRACE(std::to_string(options.columns) + " columns");
            PathOptions with = options;
            with.reads_file = reads_file;
            auto made = make_path(site_, with);
            ASSERT_TRUE(made.ok()) << made.status().message();
            for (const Part part : {Part::kAll, Part::kCompute, Part::kAll})
                expect_right(*made.value(), part);
        }
    }
};

TEST_F(PathTest, WithTheWallInMemory) { expect_right_in_all_sizes(false); }

TEST_F(PathTest, WithTheWallInAFile) { expect_right_in_all_sizes(true); }

TEST_F(PathTest, ReferenceOfASmallWall) {
    EXPECT_EQ(path_reference({3, 1, 2, 4, 5, 6, 9, 8, 7}, 3), (std::vector<int>{14, 13, 13}));
    EXPECT_EQ(path_reference({2, 9, 4, 1, 1, 1}, 3), (std::vector<int>{3, 3, 5}));
}

TEST_F(PathTest, RefusesOtherSizes) {
    for (const PathOptions& options :
         {PathOptions{.columns = 0}, PathOptions{.rows = 1}, PathOptions{.rows_per_launch = 0},
          PathOptions{.rows_per_launch = kPathRowsMax + 1}}) {
        EXPECT_EQ(make_path(site_, options).status().error_number(), EINVAL);
    }
}

}  // namespace
}  // namespace penstock::workloads
