// Goal: a file counts as long hot after many questions in a row found all of it cached, and until
// one did not.
#include "transfer/source.h"

#include <gtest/gtest.h>

#include "storage/ram.h"

namespace penstock::transfer {
namespace {

TEST(Source, IsLongHotUntilSomethingIsMissing) {
    auto ram = std::make_shared<storage::RamStorage>();
    ASSERT_TRUE(ram->create("file", 4096).ok());
    Source source(ram->open("file", 0).value());
    EXPECT_FALSE(source.hot());
    source.record_residency(true);
    EXPECT_TRUE(source.hot());
    EXPECT_FALSE(source.long_hot()) << "after one look";
    for (int i = 0; i < 100; ++i) source.record_residency(true);
    EXPECT_TRUE(source.long_hot());
    source.record_residency(false);
    EXPECT_FALSE(source.hot());
    source.record_residency(true);
    EXPECT_FALSE(source.long_hot()) << "it begins anew";
}

}  // namespace
}  // namespace penstock::transfer
