// Goal: however a text is cut into slices, whichever engine and filter searches them, the records
// add up to what grep prints. The reference is grep itself for some cases and a plain search for
// thousands.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "scan/access_log.h"
#include "scan/grep_reference.h"
#include "scan/matcher_wide.h"
#include "scan/patterns.h"

namespace penstock::scan {
namespace {

using Random = std::mt19937_64;

struct Answer {
    uint64_t count = 0;
    std::string lines;  // as grep -n prints them
    bool operator==(const Answer&) const = default;
};

// The plain search: every pattern in every line.
Answer search_plainly(const std::string& text, const std::vector<std::string>& patterns) {
    Answer answer;
    uint64_t number = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t newline = text.find('\n', at);
        const std::string line = text.substr(at, newline - at);
        ++number;
        bool found = false;
        for (const std::string& pattern : patterns)
            found = found || line.find(pattern) != std::string::npos;
        if (found) {
            ++answer.count;
            answer.lines += std::to_string(number) + ":" + line + "\n";
        }
        at = newline == std::string::npos ? text.size() : newline + 1;
    }
    return answer;
}

// Runs one slice in a buffer of its own whose padding would match if it were looked at.
class SliceRunner {
public:
    SliceRunner(const PatternTable& table, const std::string& text, const std::string& poison)
        : table_(table), text_(text), poison_(poison) {}

    template <class Engine>
    SliceRecord run(const Engine& engine, size_t begin, size_t end, Wanted wanted,
                    std::vector<LineEntry>* entries) {
        const SliceRecord record = scan_slice(engine, table_, load(begin, end), 0, end - begin,
                                              wanted, nullptr);
        if (wanted == Wanted::kCount || entries == nullptr) return record;
        entries->assign(entry_count(record) + 1, LineEntry{~0u, ~0u});
        const SliceRecord again = scan_slice(engine, table_, text_of(), 0, end - begin,
                                             Wanted::kEntries, entries->data());
        EXPECT_EQ(std::memcmp(&record, &again, sizeof record), 0);
        EXPECT_EQ(entries->back().line, ~0u) << "more entries than the record says";
        entries->pop_back();
        return record;
    }

    Text load(size_t begin, size_t end) {
        const size_t longest = table_.longest > 0 ? table_.longest - 1 : 0;
        limit_ = std::min(text_.size(), end + longest) - begin;
        buffer_.assign(text_, begin, limit_);
        while (buffer_.size() < limit_ + kTextPadding) buffer_ += poison_;
        buffer_.resize(limit_ + kTextPadding);
        return text_of();
    }

private:
    Text text_of() const { return {reinterpret_cast<const uint8_t*>(buffer_.data()), limit_}; }

    const PatternTable& table_;
    const std::string& text_;
    std::string poison_;
    std::string buffer_;
    size_t limit_ = 0;
};

template <class EngineOf>
Answer search_in_slices(const PatternTable& table, const std::string& text,
                        const std::string& poison, const std::vector<size_t>& cuts, Wanted wanted,
                        const EngineOf& engine_of) {
    SliceRunner runner(table, text, poison);
    LineFold fold;
    Answer answer;
    std::vector<LineEntry> entries;
    uint64_t last_number = 0;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        const size_t begin = cuts[i], end = cuts[i + 1];
        const auto engine = engine_of(runner.load(begin, end), end - begin);
        const SliceRecord record = runner.run(engine, begin, end, wanted, &entries);
        if (wanted != Wanted::kCount) {
            for (const LineEntry& entry : entries) {
                if (fold.line_number(entry) == last_number) continue;
                last_number = fold.line_number(entry);
                const uint64_t start = fold.line_start(entry, begin);
                const std::string line = text.substr(start, text.find('\n', start) - start);
                answer.lines += std::to_string(last_number) + ":" + line + "\n";
            }
        }
        fold.add(record, begin);
    }
    answer.count = fold.match_count();
    return answer;
}

std::vector<size_t> random_cuts(Random& random, size_t size) {
    std::vector<size_t> cuts = {0};
    const size_t mean = 1 + random() % (random() % 2 == 0 ? 20 : 2 * size + 1);
    while (cuts.back() < size)
        cuts.push_back(std::min(size, cuts.back() + 1 + random() % (2 * mean)));
    return cuts;
}

// All engines and filters that apply, in all forms, against `expected`.
void check_all(const std::vector<std::string>& patterns, const std::string& text,
               const std::vector<size_t>& cuts, const Answer& expected) {
    const auto words = compile_patterns(patterns);
    ASSERT_TRUE(words.ok());
    const PatternTable& table = table_of(words.value());
    const std::string poison = patterns.empty() || patterns.back().empty() ? std::string("\n")
                                                                           : patterns.back();
    for (const Wanted wanted : {Wanted::kCount, Wanted::kNumbers}) {
        const auto check = [&](const char* name, const auto& engine_of) {
            Answer want = expected;
            if (wanted == Wanted::kCount) want.lines.clear();
            const Answer got = search_in_slices(table, text, poison, cuts, wanted, engine_of);
            ASSERT_EQ(got.count, want.count) << name;
            ASSERT_EQ(got.lines, want.lines) << name;
        };
        check("scalar", [](const Text&, size_t) { return ScalarEngine(); });
        check("picked",
              [&](const Text& slice, size_t end) { return WideEngine(table, slice, 0, end); });
        for (const Filter filter : {Filter::kScalar, Filter::kPair, Filter::kRun})
            if (filter_applies(table, filter))
                check(filter_name(filter), [&](const Text&, size_t) { return WideEngine(filter); });
    }
}

std::string random_bytes(Random& random, size_t size, const std::string& alphabet) {
    std::string bytes;
    for (size_t i = 0; i < size; ++i) bytes += alphabet[random() % alphabet.size()];
    return bytes;
}

// Few letters, so that patterns overlap, repeat and nearly match; often newlines, NUL and CR; all
// bytes at times.
struct RandomCase {
    std::vector<std::string> patterns;
    std::string text;
    std::vector<size_t> cuts;

    explicit RandomCase(uint64_t seed) {
        Random random(seed);
        std::string alphabets[] = {
            "ab", "abc\n", std::string("a\0\r\nb", 5), "0123456789.\n", "the quick\n", ""};
        for (int byte = 0; byte < 256; ++byte) alphabets[5] += static_cast<char>(byte);
        const std::string& alphabet = alphabets[random() % 6];
        text = random_bytes(random, random() % (random() % 4 == 0 ? 3000 : 100), alphabet);
        const size_t size_max = 1 + random() % (random() % 3 == 0 ? 40 : 12);
        const size_t size_min = random() % 2 == 0 ? 1 : std::min<size_t>(size_max, 4);
        for (size_t left = random() % (random() % 4 == 0 ? 60 : 5) + (random() % 8 != 0); left > 0;
             --left) {
            const size_t size = size_min + random() % (size_max - size_min + 1);
            const bool taken = random() % 2 == 0 && text.size() > size;
            std::string pattern = taken ? text.substr(random() % (text.size() - size), size)
                                        : random_bytes(random, size, alphabet);
            std::erase(pattern, '\n');
            if (!pattern.empty() || random() % 20 == 0) patterns.push_back(pattern);
        }
        cuts = random_cuts(random, text.size());
    }
};

TEST(Matcher, RandomCasesEqualThePlainSearch) {
    for (uint64_t seed = 1; seed <= 2000; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const RandomCase input(seed);
        check_all(input.patterns, input.text, input.cuts,
                  search_plainly(input.text, input.patterns));
        if (HasFatalFailure()) return;
    }
}

class AgainstGrep : public testing::Test {
protected:
    // grep's answer, through files; patterns must not hold newlines.
    Answer grep(const std::vector<std::string>& patterns, const std::string& text) {
        const std::string list = folder_.write("list", pattern_list(patterns)),
                          file = folder_.write("text", text);
        Answer answer;
        answer.lines = grep_output("-n", list, file);
        const std::string count = grep_output("-c", list, file);
        answer.count = count.empty() ? 0 : std::stoull(count);
        return answer;
    }

    void check(const std::vector<std::string>& patterns, const std::string& text,
               uint64_t seed = 1) {
        Random random(seed);
        const Answer expected = grep(patterns, text);
        for (int round = 0; round < 3; ++round) {
            check_all(patterns, text, random_cuts(random, text.size()), expected);
            if (HasFatalFailure()) return;
        }
    }

    TemporaryFolder folder_;
};

TEST_F(AgainstGrep, RandomCases) {
    for (uint64_t seed = 10001; seed <= 10200; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const RandomCase input(seed);
        check_all(input.patterns, input.text, input.cuts, grep(input.patterns, input.text));
        if (HasFatalFailure()) return;
    }
}

TEST_F(AgainstGrep, LineEndsAndOddBytes) {
    const std::string nul("x\0y", 3);
    check({"a"}, "");
    check({"a"}, "a");
    check({"a"}, "\n");
    check({"a"}, "b\na");
    check({"a"}, "\n\n\na\n\n");
    check({""}, "");
    check({""}, "\n");
    check({""}, "a\n\nb");
    check({"", "zzz"}, "a\n\nb\n");
    check({}, "a\n\nb\n");
    check({nul}, "x\n" + nul + "\n" + std::string(9, '\0') + nul);
    check({std::string(1, '\0')}, "a\n" + std::string(3, '\0') + "\nb\n");
    check({"x\r"}, "x\r\nx\ny\r\n");
    check({"\r"}, "x\r\nx\n\r");
    check({"\xff\xfe", "\x80"},
          "a\xff\xfe"
          "b\n\x80\n\xff\n");
}

TEST_F(AgainstGrep, PatternsThatOverlapContainOrRepeatEachOther) {
    check({"aa", "aaa", "aaaa", "aa"}, "a\naa\naaa\nbaaab\naaaaaaa\n");
    check({"abcabd", "bcabc"}, "abcabcabd\nabcab\nbcabd\nxxbcabcx\n");
    check({"abcdefgh", "bcd", "fgh"}, "abcdefg\nbc d\nfgh\nabcdefgh");
    check({"abcdefghij", "abcdefghik", "abcdefghil", "abcdefgh!"},
          "abcdefghik\nabcdefghi\nabcdefgh!\nabcdefghim\n");
}

TEST_F(AgainstGrep, PatternsAndLinesLongerThanASlice) {
    Random random(7);
    const std::string giant = random_bytes(random, 5000, "abcdefgh");
    check({giant}, "xx\n" + giant + "\ny" + giant + giant.substr(0, 4999) + "\n" + giant.substr(1),
          7);
    check({giant, giant + "x", "hhhhhhhh"}, giant.substr(0, 4999) + "\n" + giant + giant, 8);
    check({"needle"}, std::string(20000, 'x') + "needle" + std::string(20000, 'y') + "\nneedl\ne",
          9);
}

TEST_F(AgainstGrep, EveryByteAlone) {
    Random random(11);
    std::string all;
    for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
    const std::string text = random_bytes(random, 3000, all);
    for (int byte = 0; byte < 256; byte += 15)
        if (byte != '\n') check({std::string(1, static_cast<char>(byte))}, text, 11);
    check({"a", "bc", "def", "ghij"}, random_bytes(random, 20000, "abcdefghij\n"), 12);
}

TEST_F(AgainstGrep, AccessLogWithTenThousandAddresses) {
    for (const double share : {0.0, 0.01, 0.3, 1.0}) {
        const AccessLogOptions options{42, 10000, share};
        std::string text;
        AccessLog log(options);
        log.append(2 << 20, &text);
        const auto patterns = suspicious_addresses(options);
        const Answer expected = grep(patterns, text);
        EXPECT_GE(expected.count, log.hit_count());
        check_all(patterns, text, {0, 100000, 100001, 700000, text.size()}, expected);
    }
}

}  // namespace
}  // namespace penstock::scan
