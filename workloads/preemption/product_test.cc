// Goal: the product of matrices from a file equals the reference in each form, tile and part of the
// work, and refuses sizes that it cannot do.
#include "preemption/product.h"

#include "preemption/workload_fixture.h"

namespace penstock::workloads {
namespace {

class ProductTest : public WorkloadTest {
protected:
    void expect_right_in_both_tiles(ProductForm form) {
        for (const unsigned tile : {32u, 64u}) {
            SCOPED_TRACE(tile);
            expect_all_right(make_product(
                site_, {.seed = tile, .form = form, .order = 128, .tile = tile, .repeat = 2}));
        }
    }
};

TEST_F(ProductTest, WithOneRead) { expect_right_in_both_tiles(ProductForm::kOneRead); }

TEST_F(ProductTest, WithEightReads) { expect_right_in_both_tiles(ProductForm::kEightReads); }

TEST_F(ProductTest, WithEightReadsThroughSharedMemory) {
    expect_right_in_both_tiles(ProductForm::kEightReadsShared);
}

TEST_F(ProductTest, WithBackoff) {
    for (const ProductForm form : {ProductForm::kOneRead, ProductForm::kEightReads}) {
        auto made = make_product(site_, {.form = form, .order = 64});
        ASSERT_TRUE(made.ok());
        ASSERT_TRUE(made.value()->prepare(stream_, Part::kAll).ok());
        ASSERT_TRUE(launch_with_backoff(stream_, *made.value()).ok());
        const auto wrong = made.value()->count_wrong(stream_, Part::kAll);
        ASSERT_TRUE(wrong.ok()) << wrong.status().message();
        EXPECT_EQ(wrong.value(), 0u);
    }
}

TEST_F(ProductTest, OneKernelThatStays) {
    for (const ProductForm form : {ProductForm::kOneRead, ProductForm::kEightReads}) {
        std::vector<std::unique_ptr<Workload>> products;
        std::vector<Workload*> all;
        for (const uint64_t seed : {1, 2, 3}) {
            auto made = make_product(site_, {.seed = seed, .form = form, .order = 64});
            ASSERT_TRUE(made.ok());
            products.push_back(std::move(made.value()));
            all.push_back(products.back().get());
        }
        PersistentProduct kernel;
        for (const unsigned blocks : {1u, 2u}) {
            for (Workload* product : all) ASSERT_TRUE(product->prepare(stream_, Part::kAll).ok());
            ASSERT_TRUE(kernel.launch(stream_, blocks, all).ok());
            for (Workload* product : all) {
                const auto wrong = product->count_wrong(stream_, Part::kAll);
                ASSERT_TRUE(wrong.ok()) << wrong.status().message();
                EXPECT_EQ(wrong.value(), 0u);
            }
        }
    }
}

TEST_F(ProductTest, ReferenceOfSmallMatrices) {
    const std::vector<float> product = product_reference({1, 2, 3, 4}, {5, 6, 7, 8}, 2);
    EXPECT_EQ(product, (std::vector<float>{17, 23, 39, 53}));
}

TEST_F(ProductTest, CountsWrongResultsAndReads) {
    auto made = make_product(site_, {.order = 32});
    ASSERT_TRUE(made.ok());
    ASSERT_TRUE(made.value()->prepare(stream_, Part::kAll).ok());
    const auto wrong = made.value()->count_wrong(stream_, Part::kAll);  // nothing has run
    ASSERT_TRUE(wrong.ok());
    EXPECT_EQ(wrong.value(), 32u * 32u);
}

TEST_F(ProductTest, RefusesOtherSizes) {
    for (const ProductOptions& options :
         {ProductOptions{.order = 0}, ProductOptions{.order = 40}, ProductOptions{.tile = 16},
          ProductOptions{.order = 256, .repeat = 2048}}) {
        EXPECT_EQ(make_product(site_, options).status().error_number(), EINVAL);
    }
}

}  // namespace
}  // namespace penstock::workloads
