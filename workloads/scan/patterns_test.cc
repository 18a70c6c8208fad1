// Goal: lists are split as grep splits them, tables can be moved as bytes, and limits are errors,
// not accidents.
#include "scan/patterns.h"

#include <gtest/gtest.h>

#include <cstring>

#include "scan/access_log.h"
#include "scan/grep_reference.h"
#include "scan/matcher.cuh"

namespace penstock::scan {
namespace {

using Patterns = std::vector<std::string>;

Patterns from_list(std::string_view list) {
    Patterns patterns;
    append_pattern_list(list, &patterns);
    return patterns;
}

Patterns from_text(std::string_view text) {
    Patterns patterns;
    append_pattern_text(text, &patterns);
    return patterns;
}

uint64_t count_lines(const PatternTable& table, const std::string& text) {
    const std::string padded = text + std::string(kTextPadding, 'a');
    const Text slice{reinterpret_cast<const uint8_t*>(padded.data()), text.size()};
    LineFold fold;
    fold.add(scan_slice(ScalarEngine(), table, slice, 0, text.size(), Wanted::kCount, nullptr), 0);
    return fold.match_count();
}

TEST(Patterns, ListsAreSplitAtNewlinesOnly) {
    EXPECT_EQ(from_list(""), Patterns());
    EXPECT_EQ(from_list("\n"), Patterns({""}));
    EXPECT_EQ(from_list("a"), Patterns({"a"}));
    EXPECT_EQ(from_list("a\n"), Patterns({"a"}));
    EXPECT_EQ(from_list("a\n\nb\r\n"), Patterns({"a", "", "b\r"}));
    EXPECT_EQ(from_list(std::string_view("a\0b\nc", 5)), Patterns({std::string("a\0b", 3), "c"}));
}

TEST(Patterns, TextMayHoldSeveralPatterns) {
    EXPECT_EQ(from_text(""), Patterns({""}));
    EXPECT_EQ(from_text("a"), Patterns({"a"}));
    EXPECT_EQ(from_text("a\nb"), Patterns({"a", "b"}));
    EXPECT_EQ(from_text("a\n"), Patterns({"a", ""}));
    EXPECT_EQ(from_text("\n"), Patterns({"", ""}));
}

TEST(Patterns, ListsMeanWhatTheyMeanToGrep) {
    const TemporaryFolder folder;
    const std::string text("abc\n\nxyz\r\na\0b", 13);
    const std::string file = folder.write("text", text);
    const std::string lists[] = {
        "\n", "b", "b\n", "b\n\n", "\r\n", "z\r\n", std::string("a\0b\n", 4), "q\nb\nq\nb"};
    for (const std::string& list : lists) {
        const auto words = compile_patterns(from_list(list));
        ASSERT_TRUE(words.ok());
        const std::string expected = grep_output("-c", folder.write("list", list), file);
        EXPECT_EQ(std::to_string(count_lines(table_of(words.value()), text)) + "\n", expected)
            << list;
    }
}

TEST(Patterns, TheTableIsPositionIndependent) {
    const auto words = compile_patterns(suspicious_addresses({1, 1000, 0}));
    ASSERT_TRUE(words.ok());
    std::vector<uint64_t> copy(words.value().size());
    std::memcpy(copy.data(), words.value().data(), copy.size() * sizeof(uint64_t));
    ASSERT_EQ(table_of(copy).size, copy.size() * sizeof(uint64_t));
    std::string text;
    AccessLog log({1, 1000, 0.5});
    log.append(1 << 16, &text);
    const uint64_t expected = count_lines(table_of(words.value()), text);
    EXPECT_GT(expected, 0u);
    EXPECT_EQ(count_lines(table_of(copy), text), expected);
}

TEST(Patterns, DuplicatesAndPatternsThatBeginWithAnotherAreDropped) {
    const auto words = compile_patterns({"abcd", "abcdef", "abcd", "x", "xyz", "bcdef"});
    ASSERT_TRUE(words.ok());
    EXPECT_EQ(table_of(words.value()).pattern_count, 3u);
    EXPECT_EQ(table_of(words.value()).longest, 5u);
}

TEST(Patterns, TheEmptyPatternMakesTheRestIdle) {
    const auto words = compile_patterns({"abcd", ""});
    ASSERT_TRUE(words.ok());
    EXPECT_EQ(table_of(words.value()).every_line, 1u);
    EXPECT_EQ(count_lines(table_of(words.value()), "a\n\nb"), 3u);
}

TEST(Patterns, AGiantPatternIsRefused) {
    const auto words = compile_patterns({std::string(kPatternSizeMax + 1, 'a')});
    ASSERT_FALSE(words.ok());
    EXPECT_EQ(words.status().error_number(), E2BIG);
}

}  // namespace
}  // namespace penstock::scan
