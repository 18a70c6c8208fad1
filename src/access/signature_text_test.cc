// Goal: what a trace signature can carry comes back with the same accesses, what it cannot is
// refused as that; pattern signatures name the classes of the slides; no text breaks the readers.
#include "access/signature_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "access/json.h"
#include "access/programs_fixture.h"
#include "access/validate.h"

namespace penstock::access {
namespace {

using ::testing::HasSubstr;

Program unit_of_two() {
    Node unit = access(5, 1);
    unit.kind = NodeKind::kDeltas;
    unit.trips.base = 2;
    unit.deltas = {{2, 0}, {3, 0}};
    return program_of({unit});
}

TEST(TraceSignature, RandomProgramsComeBackWithTheSameAccesses) {
    size_t carried = 0, refused = 0;
    for (uint64_t seed = 1; seed <= 20000; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const Program program = random_program(seed);
        if (!validate(program).ok()) continue;
        const uint64_t rank = base::Prng(seed).below(program.key.rank_count);
        const auto text = write_trace_signature(program, rank);
        if (!text.ok()) {
            EXPECT_EQ(text.status().error_number(), ENOTSUP);
            ++refused;
            continue;
        }
        ++carried;
        const auto read = parse_trace_signature(text.value());
        ASSERT_TRUE(read.ok()) << read.status().message() << "\n" << text.value();
        const Expansion before = expand(program, rank, 3000), after = expand(read.value(), 0, 3000);
        if (!before.complete) continue;
        ASSERT_TRUE(before.accesses == after.accesses)
            << text.value() << write_json({&program, 1}) << write_json({&read.value(), 1});
        if (!program.nodes.empty()) {
            ASSERT_EQ(read.value().key.operation, program.key.operation);
        }
    }
    std::printf("%zu carried, %zu refused\n", carried, refused);
    EXPECT_GT(carried, 1000u);
}

TEST(TraceSignature, TheFormsOfTheSlides) {
    const std::pair<Program, const char*> cases[] = {
        {program_of({access(100, 8)}), "{READ, 100, 0, ([{0}, {8}, {1}]), 1}\n"},
        {program_of({loop(1, 1000), access(0, 2048, {4096})}),
         "{READ, 0, 1, ([{4096}, {2048}, {1000}]), 1}\n"},
        {program_of({loop(2, 100), loop(1, 8), access(4096, 512, {65536, 4096})}),
         "{READ, 4096, 2, ([{65536}, {512}, {100}], [{4096}, {512}, {8}]), 1}\n"},
        {program_of({loop(1, 10), access(9000, 10, {-1000})}),
         "{READ, 9000, 1, ([{-1000}, {10}, {10}]), 1}\n"},
        {program_of({loop(2, 40), loop(1, 7), access(0, 10, {0, 20})}),
         "{READ, 0, 1, ([{20}, {10}, {7}]), 40}\n"},
        {program_of({loop(2, 9), loop(1, 1, {1}), access(0, 8, {100, 10})}),
         "{READ, 0, 2, ([{100}, {8}, {9}], [{10}, {8}, {1, 1}]), 1}\n"},
        {unit_of_two(), "{READ, 5, 1, ([{2, 3}, {1}, {2}]), 1}\n"},
        {program_of({loop(1, 3), access(0, 8, {8}), access(99, 1)}),
         "{READ, 0, 1, ([{8}, {8}, {3}]), 1}\n{READ, 99, 0, ([{0}, {1}, {1}]), 1}\n"},
    };
    for (const auto& [program, expected] : cases) {
        auto text = write_trace_signature(program);
        ASSERT_TRUE(text.ok()) << text.status().message();
        EXPECT_EQ(text.value(), expected);
        auto read = parse_trace_signature(expected);
        ASSERT_TRUE(read.ok()) << read.status().message() << expected;
        EXPECT_TRUE(read.value() == program) << expected;
    }
}

TEST(TraceSignature, WhatTheFormCannotCarryIsSaid) {
    const Program pair = program_of({loop(2, 4), access(0, 8, {8}), access(99, 1)});
    EXPECT_THAT(write_trace_signature(pair).status().message(), HasSubstr("several nodes"));
    Node list = access(0, 0);
    list.kind = NodeKind::kList;
    list.list = {{1, 1}};
    EXPECT_THAT(write_trace_signature(program_of({list})).status().message(), HasSubstr("a list"));
}

TEST(TraceSignature, OtherTextsAreRefused) {
    const std::pair<const char*, const char*> cases[] = {
        {"READ", "form"},
        {"{read, 0, 0, ([{0}, {8}, {1}]), 1}", "a name"},
        {"{READ, 0, 1, ([{0}, {8}, {1}]), 1", "form"},
        {"{READ, 0, 2, ([{1}, {8}, {1}]), 1}", "as many levels"},
        {"{READ, 0, 0, ([{1}, {8}, {1}]), 1}", "a single access"},
        {"{READ, 0, 1, ([{1}, {8}, {1, 1}]), 1}", "not around"},
        {"{READ, 0, 2, ([{1}, {8}, {2}], [{1}, {9}, {2}]), 1}", "differs between levels"},
        {"{READ, 0, 2, ([{1, 2}, {8}, {2}], [{1}, {8}, {2}]), 1}", "not the innermost"},
        {"{READ, 0, 1, ([{1}, {8, 1, 1}, {2}]), 1}", "more growths"},
        {"{READ, 0, 1, ([{1}, {8}, {99999999999999999999}]), 1}", "beyond 64 bits"},
        {"{READ, 0, 1, ([{1}, {8}, {2}]), -1}", "below 0"},
        {"{READ, -8, 1, ([{1}, {8}, {2}]), 1}", "may be negative"},
        {"{READ, 0, 0, ([{0}, {8}, {1}]), 1}{WRITE, 0, 0, ([{0}, {8}, {1}]), 1}", "two operations"},
        {"{READ, 0, 5, ([{1}, {8}, {2}], [{1}, {8}, {2}], [{1}, {8}, {2}], [{1}, {8}, {2}], [{1}, "
         "{8}, {2}]), 1}",
         "deeper than 4"},
    };
    for (const auto& [text, line] : cases) {
        const auto read = parse_trace_signature(text);
        EXPECT_EQ(read.status().error_number(), EINVAL) << text;
        EXPECT_THAT(read.status().message(), HasSubstr(line)) << text;
    }
}

TEST(TraceSignature, MutatedTextsAreRefusedOrValid) {
    static constexpr std::string_view kCharacters = "{}[](),<>-0123456789 READWIT/";
    size_t accepted = 0;
    for (uint64_t seed = 1; seed <= 40000; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        std::string
            text = "{READ, 4096, 2, ([{65536}, {512, 1}, {10}], [{4, 8}, {512}, {8, 1}]), 1}";
        for (uint64_t i = 1 + prng.below(5); i > 0; --i) {
            const size_t at = prng.below(text.size());
            const char one = kCharacters[prng.below(kCharacters.size())];
            switch (prng.below(3)) {
                case 0:
                    text[at] = one;
                    break;
                case 1:
                    text.erase(at, 1 + prng.below(3));
                    break;
                default:
                    text.insert(at, 1, one);
            }
        }
        const auto read = parse_trace_signature(text);
        if (read.ok()) {
            ++accepted;
            ASSERT_TRUE(validate(read.value()).ok()) << text;
        }
        (void)parse_pattern_signature(text).ok();
    }
    EXPECT_GT(accepted, 100u);
}

TEST(PatternSignature, NamesTheClassesOfTheSlides) {
    Node list = access(0, 0);
    list.kind = NodeKind::kList;
    list.list = {{9, 1}, {500, 1}, {70, 1}, {7, 1}};
    Node random;
    random.kind = NodeKind::kRandom;
    const std::pair<Program, const char*> cases[] = {
        {program_of({access(0, 8)}),
         "{READ, <contiguous, 0>, <single occurrence>, <fixed small>, <unknown>}"},
        {program_of({loop(1, 100), access(0, 65536, {65536})}),
         "{READ, <contiguous, 1>, <single occurrence>, <fixed large>, <unknown>}"},
        {program_of({loop(2, 10), loop(1, 10), access(0, 4096, {40960, 4096})}),
         "{READ, <contiguous, 1>, <single occurrence>, <fixed medium>, <unknown>}"},
        {program_of({loop(1, 100), access(0, 512, {4096})}),
         "{READ, <fixed strided, 1>, <single occurrence>, <fixed small>, <unknown>}"},
        {program_of({loop(2, 9), loop(1, 8), access(0, 512, {65536, 4096})}),
         "{READ, <2-d strided, 2>, <repeating>, <fixed small>, <unknown>}"},
        {program_of({loop(3, 9), loop(2, 9), loop(1, 8), access(0, 512, {1 << 20, 65536, 4096})}),
         "{READ, <3-d strided, 3>, <repeating>, <fixed small>, <unknown>}"},
        {program_of({loop(1, 10), access(40960, 512, {-4096})}),
         "{READ, <negative strided, 1>, <single occurrence>, <fixed small>, <unknown>}"},
        {program_of({list}),
         "{READ, <random strided, 1>, <single occurrence>, <fixed small>, <unknown>}"},
        {program_of({random}),
         "{READ, <random strided, 1>, <single occurrence>, <unknown>, <unknown>}"},
        {unit_of_two(), "{READ, <combination, 1>, <repeating>, <fixed small>, <unknown>}"},
        // A combination of contiguous and non-contiguous ones, and one of each in a loop.
        {program_of(
             {loop(1, 40), access(0, 4096, {4096}), loop(1, 30), access(1 << 24, 4096, {65536})}),
         "{READ, <combination, 1>, <single occurrence>, <fixed medium>, <unknown>}"},
        {program_of({loop(3, 9), loop(1, 8), access(0, 4096, {1 << 20, 4096}),
                     access(1 << 30, 100, {-4096})}),
         "{READ, <combination, 2>, <repeating>, <varying medium>, <unknown>}"},
        {program_of({loop(2, 9), loop(1, 8), access(1 << 20, 512, {65536, -4096})}),
         "{READ, <negative strided, 2>, <repeating>, <fixed small>, <unknown>}"},
        {program_of({loop(1, 5), access(0, 65536)}),
         "{READ, <contiguous, 0>, <repeating>, <fixed large>, <unknown>}"},
    };
    for (const auto& [program, expected] : cases) {
        const PatternSignature pattern = pattern_of(program);
        EXPECT_EQ(write_pattern_signature(pattern), expected);
    }
}

TEST(PatternSignature, TellsVaryingSizesAndTheTimeBetween) {
    Program program = program_of({loop(1, 10), access(0, 512, {4096})});
    program.key.operation = Operation::kReadWrite;
    program.nodes[1].size.per_loop[0] = 8;
    program.nodes[1].think = {1000, 200, 10};
    EXPECT_EQ(write_pattern_signature(pattern_of(program)),
              "{READ/WRITE, <fixed strided, 1>, <single occurrence>, <varying small>, <fixed>}");
    program.nodes[1].think.deviation_ns = 300;
    EXPECT_EQ(pattern_of(program).interval, Interval::kRandom);
}

TEST(PatternSignature, SequencesOfAnySizesAreContiguous) {
    for (const size_t count : {10, 1000}) {
        Program program;
        Node& list = program.nodes.emplace_back();
        list.kind = NodeKind::kList;
        int64_t end = 77;
        for (size_t i = 0; i < count; ++i) {
            const auto size = static_cast<int64_t>(1 + i * 7919 % 5000);
            list.list.push_back({end, size});
            end += size;
        }
        EXPECT_EQ(write_pattern_signature(pattern_of(program)),
                  "{READ, <contiguous, 1>, <single occurrence>, <varying medium>, <unknown>}");
        list.list.back().offset += 1;
        EXPECT_EQ(pattern_of(program).spatial, Spatial::kRandomStrided);
    }
}

TEST(PatternSignature, AListThatComesAgainRepeats) {
    Program program;
    program.nodes.resize(2);
    program.nodes[0].kind = NodeKind::kLoop;
    program.nodes[0].body = 1;
    program.nodes[0].trips.base = 5;
    program.nodes[1].kind = NodeKind::kList;
    for (int64_t i = 0; i < 100; ++i) program.nodes[1].list.push_back({i * i * 7919 % 65537, 512});
    EXPECT_EQ(write_pattern_signature(pattern_of(program)),
              "{READ, <random strided, 1>, <repeating>, <fixed small>, <unknown>}");
}

TEST(PatternSignature, EveryPatternComesBack) {
    for (uint64_t i = 0; i < 3 * 6 * 6 * 2 * 2 * 4 * 3; ++i) {
        base::Prng prng(i);
        PatternSignature pattern;
        pattern.operation = static_cast<Operation>(prng.below(3));
        pattern.spatial = static_cast<Spatial>(prng.below(6));
        pattern.dimension = static_cast<uint32_t>(prng.below(6));
        if (pattern.spatial == Spatial::kNestedStrided) pattern.dimension = 2 + i % 4;
        pattern.repetition = static_cast<Repetition>(prng.below(2));
        pattern.size = static_cast<SizeClass>(prng.below(4));
        pattern.size_fixed = pattern.size == SizeClass::kUnknown || prng.below(2) == 0;
        pattern.interval = static_cast<Interval>(prng.below(3));
        const std::string text = write_pattern_signature(pattern);
        auto read = parse_pattern_signature(text);
        ASSERT_TRUE(read.ok()) << read.status().message() << text;
        ASSERT_TRUE(read.value() == pattern) << text;
        for (size_t size = 0; size < text.size(); ++size) {
            ASSERT_FALSE(parse_pattern_signature(text.substr(0, size)).ok()) << size << text;
        }
    }
}

}  // namespace
}  // namespace penstock::access
