// Goal: JSON and binary form give back the very program, for any program; and no text or bytes,
// truncated, mutated, hostile or of a later version, are taken for a program that they are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "access/binary.h"
#include "access/cursor.h"
#include "access/json.h"
#include "access/programs_fixture.h"
#include "access/validate.h"

namespace penstock::access {
namespace {

using ::testing::HasSubstr;

std::vector<Program> some_programs(uint64_t seed) {
    base::Prng prng(seed);
    std::vector<Program> programs;
    for (uint64_t i = prng.below(4); i > 0; --i) {
        Program program = random_program(prng.next());
        if (validate(program).ok()) programs.push_back(std::move(program));
    }
    return programs;
}

// The bytes with a checksum that fits them.
std::vector<uint8_t> sealed(std::vector<uint8_t> bytes) {
    const uint32_t sum = checksum(std::span(bytes).first(bytes.size() - 4));
    for (size_t i = 0; i < 4; ++i) bytes[bytes.size() - 4 + i] = static_cast<uint8_t>(sum >> 8 * i);
    return bytes;
}

TEST(Forms, RandomProgramsComeBackFromJsonAndFromBinary) {
    size_t compared = 0;
    for (uint64_t seed = 1; seed <= 4000; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const std::vector<Program> programs = some_programs(seed);
        const std::string text = write_json(programs);
        auto from_text = parse_json(text);
        ASSERT_TRUE(from_text.ok()) << from_text.status().message() << "\n" << text;
        ASSERT_TRUE(from_text.value() == programs) << text;
        const std::vector<uint8_t> bytes = write_binary(programs);
        auto from_bytes = parse_binary(bytes);
        ASSERT_TRUE(from_bytes.ok()) << from_bytes.status().message();
        ASSERT_TRUE(from_bytes.value() == programs);
        compared += programs.size();
    }
    EXPECT_GT(compared, 3000u);
}

TEST(Forms, ExtremeNumbersAreExact) {
    Program program;
    program.key.context = UINT64_MAX;
    program.provenance = {Origin::kOffline, UINT64_MAX, 0.1};
    Node& node = program.nodes.emplace_back();
    node.offset.base = INT64_MAX - 1;
    node.think = {0.1, 5e-324, UINT64_MAX};
    auto from_text = parse_json(write_json({&program, 1}));
    ASSERT_TRUE(from_text.ok()) << from_text.status().message();
    EXPECT_TRUE(from_text.value()[0] == program);
    auto from_bytes = parse_binary(write_binary({&program, 1}));
    ASSERT_TRUE(from_bytes.ok()) << from_bytes.status().message();
    EXPECT_TRUE(from_bytes.value()[0] == program);
}

TEST(Forms, EveryTruncationIsRefused) {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const std::vector<Program> programs = some_programs(seed);
        const std::string text = write_json(programs);
        for (size_t size = 0; size + 1 < text.size(); ++size) {  // the last byte is a line's end
            ASSERT_FALSE(parse_json(std::string_view(text).substr(0, size)).ok()) << size;
        }
        const std::vector<uint8_t> bytes = write_binary(programs);
        for (size_t size = 0; size < bytes.size(); ++size) {
            ASSERT_FALSE(parse_binary(std::span(bytes).first(size)).ok()) << size;
            std::vector<uint8_t> shorter(bytes.begin(),
                                         bytes.begin() + static_cast<ptrdiff_t>(size));
            if (size <= 4) continue;
            ASSERT_FALSE(parse_binary(sealed(shorter)).ok()) << size;
        }
    }
}

// Whatever is read is a valid program, and says the same when it is written and read again.
void expect_sound(Result<std::vector<Program>> read, size_t* accepted) {
    if (!read.ok()) return;
    ++*accepted;
    for (const Program& program : read.value()) {
        ASSERT_TRUE(validate(program).ok());
        Cursor cursor(program, program.key.first_rank);
        for (int i = 0; i < 50 && cursor.next(); ++i) continue;
    }
    auto again = parse_json(write_json(read.value()));
    ASSERT_TRUE(again.ok()) << again.status().message();
    ASSERT_TRUE(again.value() == read.value());
    auto bytes = parse_binary(write_binary(read.value()));
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    ASSERT_TRUE(bytes.value() == read.value());
}

template <class Bytes>
void mutate(Bytes* bytes, base::Prng* prng) {
    using Byte = typename Bytes::value_type;
    static constexpr uint8_t kBytes[] = {0,   1,   2,   0x7f, 0x80, 0xff, '0',
                                         '9', '-', '[', '}',  '"',  ','};
    for (uint64_t i = 1 + prng->below(4); i > 0 && bytes->size() > 8; --i) {
        const size_t at = prng->below(bytes->size());
        const auto place = bytes->begin() + static_cast<ptrdiff_t>(at);
        switch (prng->below(5)) {
            case 0:
                *place = static_cast<Byte>(prng->next());
                break;
            case 1:
                *place = static_cast<Byte>(kBytes[prng->below(std::size(kBytes))]);
                break;
            case 2:
                bytes->erase(place);
                break;
            case 3:
                bytes->insert(place, static_cast<Byte>(kBytes[prng->below(std::size(kBytes))]));
                break;
            default: {
                const size_t count = std::min<size_t>(1 + prng->below(20), bytes->size() - at);
                const Bytes copy(place, place + static_cast<ptrdiff_t>(count));
                const size_t to = prng->below(bytes->size());
                bytes->insert(bytes->begin() + static_cast<ptrdiff_t>(to), copy.begin(),
                              copy.end());
            }
        }
    }
}

TEST(Forms, MutatedFormsAreRefusedOrSound) {
    size_t accepted = 0, tried = 0;
    for (uint64_t seed = 1; seed <= 3000; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        const std::vector<Program> programs = some_programs(seed);
        for (int i = 0; i < 8; ++i, tried += 2) {
            std::string text = write_json(programs);
            mutate(&text, &prng);
            ASSERT_NO_FATAL_FAILURE(expect_sound(parse_json(text), &accepted)) << text;
            std::vector<uint8_t> bytes = write_binary(programs);
            mutate(&bytes, &prng);
            ASSERT_NO_FATAL_FAILURE(expect_sound(parse_binary(sealed(bytes)), &accepted));
        }
    }
    std::printf("%zu of %zu mutated forms were programs\n", accepted, tried);
}

TEST(Forms, ChangedBytesAreSeenByTheChecksum) {
    const std::vector<uint8_t> bytes = write_binary(some_programs(7));
    for (size_t i = 5; i < bytes.size(); ++i) {
        std::vector<uint8_t> changed = bytes;
        changed[i] ^= 1;
        EXPECT_THAT(parse_binary(changed).status().message(), HasSubstr("checksum")) << i;
    }
    const std::string_view digits = "123456789";
    EXPECT_EQ(checksum({reinterpret_cast<const uint8_t*>(digits.data()), 9}), 0xcbf43926u);
}

TEST(Forms, ALaterVersionIsRefusedAsThat) {
    const auto text = parse_json(
        R"({"format": "penstock access programs", "version": 2, "streams": {"new": [1e9]}})");
    EXPECT_EQ(text.status().error_number(), ENOTSUP);
    EXPECT_THAT(text.status().message(), HasSubstr("later version"));
    for (const char* version : {"18446744073709551615", "18446744073709551616",
                                "340282366920938463463374607431768211456"}) {
        size_t at = 0;
        const std::string heading = R"({"format": "penstock access programs", "version": )";
        const auto read = parse_json(heading + version + ", \"x\": 1}", &at);
        EXPECT_EQ(read.status().error_number(), ENOTSUP) << version;
        EXPECT_THAT(read.status().message(), HasSubstr("later version")) << version;
        EXPECT_EQ(at, heading.size() + std::strlen(version));
        // What is no version is none.
        for (const std::string& no : {std::string("-") + version, version + std::string(".5"),
                                      std::string("0") + version, std::string("0")}) {
            EXPECT_EQ(parse_json(heading + no + "}").status().error_number(), EINVAL) << no;
        }
    }
    const std::vector<uint8_t> bytes = {'P', 'S', 'A', 'P', 2, 9, 9};
    EXPECT_EQ(parse_binary(bytes).status().error_number(), ENOTSUP);
    EXPECT_THAT(parse_binary(bytes).status().message(), HasSubstr("later version"));
}

// Digits of 7 bits; from 10 on, or 9 and a last one above 1, they are beyond 64 bits.
TEST(Forms, ALaterVersionIsRefusedAsThatWhateverItsLength) {
    for (size_t length = 1; length <= 40; ++length) {
        for (const uint8_t last : {1, 2, 0x7f}) {
            for (const uint8_t before : {0x80, 0x81, 0xff}) {
                std::vector<uint8_t> bytes = {'P', 'S', 'A', 'P'};
                bytes.resize(bytes.size() + length - 1, before);
                const auto error = [&bytes] { return parse_binary(bytes).status().error_number(); };
                EXPECT_EQ(error(), EINVAL) << length << " digits less one";
                bytes.push_back(last);
                if (length > 1 || last > 1) {
                    EXPECT_EQ(error(), ENOTSUP) << length << " digits";
                }
                bytes.back() |= 0x80;
                bytes.push_back(0);
                EXPECT_EQ(error(), EINVAL) << "not in its shortest form";
            }
        }
    }
}

std::string around(const std::string& program) {
    return R"({"format": "penstock access programs", "version": 1, "programs": [)" + program + "]}";
}

TEST(Forms, JsonByHandNeedsOnlyTheNodes) {
    auto read = parse_json(around(R"({"nodes": [{"kind": "loop", "trips": 3, "body": [
        {"kind": "access", "offset": {"loops": [8]}, "size": 4}]}]})"));
    ASSERT_TRUE(read.ok()) << read.status().message();
    Cursor cursor(read.value()[0]);
    EXPECT_EQ(cursor.count(), 3u);
    ASSERT_TRUE(cursor.seek(2));
    EXPECT_TRUE(cursor.next() == (Access{16, 4}));
}

TEST(Forms, TheExampleOfTheDocumentationIsTheNestOfLu) {
    std::ifstream file(PENSTOCK_SOURCE_DIR "/docs/access-program.md");
    const std::string page{std::istreambuf_iterator<char>(file), {}};
    const size_t begin = page.find("```json\n") + 8;
    ASSERT_LT(begin, page.size());
    auto read = parse_json(page.substr(begin, page.find("```", begin) - begin));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(Cursor(read.value()[0]).count(), 8125u);
}

TEST(Forms, JsonIsStrict) {
    const std::pair<const char*, const char*> cases[] = {
        {R"({"nodes": [], "nodes": []})", "a key that was there already"},
        {R"({"nodes": [], "note": 1})", "a key that is not known here"},
        {R"({})", "a program without nodes"},
        {R"({"nodes": [],})", "a string was expected"},
        {R"({"nodes": []]})", "a comma or a closing bracket"},
        {R"({"nodes": [{"size": 1}]})", "a key that is not known here"},
        {R"({"nodes": [{"kind": "access", "offset": 0}]})", "a key that its kind needs"},
        {R"({"nodes": [{"kind": "access", "offset": 0, "size": 1, "trips": 0}]})",
         "a key that this kind of node has not"},
        {R"({"nodes": [{"kind": "jump"}]})", "no such kind"},
        {R"({"nodes": [{"kind": "access", "offset": 01, "size": 1}]})", "a whole number"},
        {R"({"nodes": [{"kind": "access", "offset": 1.0, "size": 1}]})", "a whole number"},
        {R"({"nodes": [{"kind": "access", "offset": 1e3, "size": 1}]})", "a whole number"},
        {R"({"nodes": [{"kind": "access", "offset": +1, "size": 1}]})", "a whole number"},
        {R"({"nodes": [{"kind": "access", "offset": 9223372036854775808, "size": 1}]})",
         "beyond 64 bits"},
        {R"({"nodes": [{"kind": "access", "offset": -9223372036854775809, "size": 1}]})",
         "beyond 64 bits"},
        {R"({"nodes": [{"kind": "access", "offset": --1, "size": 1}]})", "a whole number"},
        {R"({"nodes": [{"kind": "access", "offset": 0x10, "size": 1}]})", "a comma"},
        {R"({"nodes": [{"kind": "loop", "trips": 99999999999999999999, "body": []}]})",
         "beyond 64 bits"},
        {R"({"nodes": [], "key": {"context": 18446744073709551616}})", "beyond 64 bits"},
        {R"({"nodes": [], "key": {"rank_count": -0}})", "below 0"},
        {R"({"nodes": [], "provenance": {"support": -18446744073709551616}})", "below 0"},
        {R"({"nodes": [{"kind": "list", "offset": 0, "size": 0, "list": [[1]]}]})", "a pair"},
        {R"({"nodes": [{"kind": "list", "offset": 0, "size": 0, "list": [[1, 2, 3]]}]})", "a pair"},
        {R"({"nodes": [{"kind": "list", "offset": 0, "size": 0, "list": []}]})",
         "a list without accesses"},
        {R"({"nodes": [], "grid": [1, 1, 1, 1]})", "a list that is too long"},
        {R"({"nodes": [], "grid": [-1]})", "below 0"},
        {R"({"nodes": [], "provenance": {"confidence": 1e999}})", "too large"},
        {R"({"nodes": [], "provenance": {"confidence": 1e-999}})", "too small"},
        {R"({"nodes": [], "provenance": {"confidence": 1e}})", "a number was expected"},
        {R"({"nodes": [], "provenance": {"confidence": NaN}})", "a number was expected"},
        {R"({"nodes": [], "key": {"file": "\ud800"}})", "half of a surrogate pair"},
        {R"({"nodes": [], "key": {"file": "\udc00"}})", "half of a surrogate pair"},
        {R"({"nodes": [], "key": {"file": "\x"}})", "no such escape"},
        {"{\"nodes\": [], \"key\": {\"file\": \"\xff\"}}", "not UTF-8"},
        {"{\"nodes\": [], \"key\": {\"file\": \"a\nb\"}}", "a control character"},
        {R"({"nodes": [], "key": {"operation": "READ"}})", "no such operation"},
    };
    for (const auto& [program, line] : cases) {
        const auto read = parse_json(around(program));
        EXPECT_EQ(read.status().error_number(), EINVAL) << program;
        EXPECT_THAT(read.status().message(), HasSubstr(line)) << program;
    }
    EXPECT_THAT(parse_json("{}").status().message(), HasSubstr("no format"));
    EXPECT_THAT(parse_json(around("") + "x").status().message(), HasSubstr("behind the end"));
    EXPECT_THAT(parse_json(R"({"version": 1})").status().message(), HasSubstr("not known"));
}

TEST(Forms, DeepAndWideTextsAreBounded) {
    std::string loops;
    for (int i = 0; i < 100000; ++i) loops += R"({"kind": "loop", "trips": 1, "body": [)";
    size_t at = 0;
    const std::string deep = around(R"({"nodes": [)" + loops);
    EXPECT_THAT(parse_json(deep, &at).status().message(), HasSubstr("deeper than 4"));
    EXPECT_LT(at, 400u);
    std::string nodes = R"({"kind": "random", "trips": 1})";
    for (int i = 0; i < 64; ++i) nodes += R"(, {"kind": "random", "trips": 1})";
    EXPECT_THAT(parse_json(around(R"({"nodes": [)" + nodes + "]}")).status().message(),
                HasSubstr("more than 64 nodes"));
    EXPECT_FALSE(parse_json(std::string(1 << 20, '[')).ok());
}

// A count that the bytes behind it cannot hold takes no memory.
TEST(Forms, HostileCountsInBinaryAreRefused) {
    std::vector<uint8_t> bytes = {'P', 'S', 'A', 'P', 1, 0xff, 0xff, 3, 0, 0, 0, 0, 0};
    EXPECT_FALSE(parse_binary(sealed(bytes)).ok());
    bytes[5] = 0x81;  // not the shortest form
    bytes[6] = 0;
    EXPECT_THAT(parse_binary(sealed(bytes)).status().message(), HasSubstr("shortest form"));
}

}  // namespace
}  // namespace penstock::access
