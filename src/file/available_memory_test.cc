// Goal: a file cache takes no memory that the kernel would end it for.
#include "file/available_memory.h"

#include <gtest/gtest.h>

#include <string>

namespace penstock::file {
namespace {

TEST(AvailableMemoryTest, NumbersAreThoseOfTheirLines) {
    const std::string text = "cache 5\ninactive_file 7\nactive_file 9\nMemAvailable:    11 kB\n";
    EXPECT_EQ(number_behind(text, "active_file "), 9u);
    EXPECT_EQ(number_behind(text, "inactive_file "), 7u);
    EXPECT_EQ(number_behind(text, "MemAvailable:"), 11u);
    EXPECT_EQ(number_behind(text, "file "), UINT64_MAX);
    EXPECT_EQ(number_behind("max\n", ""), UINT64_MAX);
    EXPECT_EQ(number_behind("4096\n", ""), 4096u);
    EXPECT_EQ(number_behind("", ""), UINT64_MAX);
    EXPECT_EQ(number_behind("", "key"), UINT64_MAX);
}

TEST(AvailableMemoryTest, ThereIsSome) { EXPECT_GT(available_memory(), 1u << 20); }

}  // namespace
}  // namespace penstock::file
