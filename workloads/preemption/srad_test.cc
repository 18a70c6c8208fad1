// Goal: SRAD equals the reference with the image in memory and in a file, for blocks of one tile
// and of many; and it does what it is for: an image with speckle becomes smoother.
#include "preemption/srad.h"

#include "preemption/workload_fixture.h"

namespace penstock::workloads {
namespace {

class SradTest : public WorkloadTest {
protected:
    void expect_right_in_all_sizes(bool reads_file) {
        for (const SradOptions& options :
             {SradOptions{.tile_columns = 6, .tile_rows = 5, .blocks = 10, .iterations = 3},
              SradOptions{.tile_columns = 1, .tile_rows = 1, .blocks = 1},
              SradOptions{.tile_columns = 20, .tile_rows = 15, .blocks = 300, .iterations = 1}}) {
            SCOPED_TRACE(std::to_string(options.blocks) + " blocks");
            SradOptions with = options;
            with.reads_file = reads_file;
            auto made = make_srad(site_, with);
            ASSERT_TRUE(made.ok()) << made.status().message();
            for (const Part part : {Part::kAll, Part::kCompute, Part::kAll})
                expect_right(*made.value(), part);
        }
    }
};

TEST_F(SradTest, WithTheImageInMemory) { expect_right_in_all_sizes(false); }

TEST_F(SradTest, WithTheImageInAFile) { expect_right_in_all_sizes(true); }

TEST_F(SradTest, ReferenceSmoothsSpeckle) {
    const auto spread = [](const std::vector<float>& image) {
        double sum = 0, squares = 0;
        for (const float cell : image) {
            sum += cell;
            squares += double{cell} * cell;
        }
        const double mean = sum / static_cast<double>(image.size());
        return squares / static_cast<double>(image.size()) - mean * mean;
    };
    std::vector<float> image(16 * kSradThreads);
    Draw draw(7);
    for (float& cell : image) cell = 0.9F + 0.2F * draw.unit();
    const SradOptions options{.tile_columns = 4, .tile_rows = 4, .blocks = 1, .iterations = 5};
    EXPECT_LT(spread(srad_reference(image, options)), spread(image) / 2);
    const std::vector<float> other = srad_reference(image, options);
    for (const float cell : other) {
        EXPECT_GT(cell, 0.85F);
        EXPECT_LT(cell, 1.15F);
    }
}

TEST_F(SradTest, RefusesOtherSizes) {
    for (const SradOptions& options : {SradOptions{.tile_columns = 0}, SradOptions{.blocks = 0},
                                       SradOptions{.tile_rows = 3, .blocks = 7}}) {
        EXPECT_EQ(make_srad(site_, options).status().error_number(), EINVAL);
    }
}

}  // namespace
}  // namespace penstock::workloads
