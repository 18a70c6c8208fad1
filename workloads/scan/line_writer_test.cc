// Goal: lines are written as grep writes them or as JSON that keeps every byte, and a closed pipe
// is told.
#include "scan/line_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace penstock::scan {
namespace {

TEST(LineWriter, WritesAsGrepDoesAndTellsOfAClosedPipe) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    LineWriter writer(ends[1], LineForm::kPath);
    EXPECT_TRUE(writer.write_line({"a", 12, 0, "x\ry"}));
    EXPECT_TRUE(writer.write_count({"b", 9, 3, {}, {}}));
    EXPECT_TRUE(writer.flush());
    char buffer[64];
    const ssize_t size = read(ends[0], buffer, sizeof buffer);
    EXPECT_EQ(std::string(buffer, static_cast<size_t>(size)), "a:12:x\ry\nb:3\n");
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    writer.write_line({"a", 1, 0, "x"});
    EXPECT_FALSE(writer.flush());
    EXPECT_EQ(writer.error_number(), EPIPE);
    close(ends[1]);
}

TEST(LineWriter, JsonKeepsEveryByte) {
    std::string out;
    append_json("a\"\\\t\x7f \xc3\xa9 \xf0\x9f\x98\x80", &out);
    EXPECT_EQ(out, "\"a\\\"\\\\\\u0009\x7f \xc3\xa9 \xf0\x9f\x98\x80\"");
    out.clear();
    append_json("\xff\xc3 \xed\xa0\x80", &out);  // no lead, a cut sequence, a surrogate
    EXPECT_EQ(out, "\"\\udcff\\udcc3 \\udced\\udca0\\udc80\"");
}

}  // namespace
}  // namespace penstock::scan
