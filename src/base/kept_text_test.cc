// Goal: texts of errors last, are kept once, and are bounded in number and length.
#include "base/kept_text.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace penstock::base {
namespace {

TEST(KeptText, IsOneStringForOneTextAndEndsSomewhere) {
    const char* otherwise = "no more room";
    const char* kept = kept_text("kernel a stopped", otherwise);
    EXPECT_STREQ(kept, "kernel a stopped");
    EXPECT_EQ(kept, kept_text("kernel a stopped", otherwise));
    const std::string long_text(5000, 'x');
    EXPECT_EQ(std::strlen(kept_text(long_text, otherwise)), kKeptTextSizeMax);
    std::set<const char*> different;
    for (size_t i = 0; i < 2 * kKeptTextsMax; ++i)
        different.insert(kept_text("text " + std::to_string(i), otherwise));
    EXPECT_LE(different.size(), kKeptTextsMax + 1);
    EXPECT_TRUE(different.contains(otherwise));
    EXPECT_EQ(kept, kept_text("kernel a stopped", otherwise)) << "what is kept stays";
}

}  // namespace
}  // namespace penstock::base
