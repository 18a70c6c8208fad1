// Goal: a range of a file is searched as a text that begins with it, with the file's line numbers
// and offsets; a Follower tells each line of a growing file once.
#include "scan/follow.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "scan/grep_reference.h"

namespace penstock::scan {
namespace {

struct Form {
    const char* name;
    bool by_lanes;
    unsigned threads;
    bool map_cached;
};

class FollowTest : public testing::TestWithParam<Form> {
protected:
    Result<Scanner> create() {
        DeviceOptions device_options;
        device_options.memory_size = 256 << 20;
        auto device = Device::open("cpu:2", device_options);
        if (!device.ok()) return device.status();
        ScanOptions options;
        options.lines = true;
        options.by_lanes = GetParam().by_lanes;
        options.threads = GetParam().threads;
        options.map_cached = GetParam().map_cached;
        options.stride_size = 4096;
        return Scanner::create(device.value(), {"needle", "spanning two appends"}, options);
    }

    // Lines of a file, a match in every seventh.
    static std::string text(int first, int count) {
        std::string bytes;
        for (int i = first; i < first + count; ++i)
            bytes += (i % 7 == 0 ? "needle " : "hay ") + std::to_string(i) + "\n";
        return bytes;
    }

    TemporaryFolder folder_;
};

class Collector final : public ScanListener {
public:
    void on_text(const TextResult& result) override { results.push_back(result); }
    bool on_line(const LineMatch& match) override {
        lines.emplace_back(std::to_string(match.number) + "@" + std::to_string(match.offset) + ":" +
                           std::string(match.bytes));
        return true;
    }
    std::vector<TextResult> results;
    std::vector<std::string> lines;
};

TEST_P(FollowTest, RangesHaveTheNumbersAndOffsetsOfTheirFile) {
    auto scanner = create();
    ASSERT_TRUE(scanner.ok()) << scanner.status().message();
    const std::string whole = text(0, 5000);
    const int file = open(folder_.write("text", whole).c_str(), O_RDONLY);
    Collector expected, found;
    ASSERT_TRUE(scanner.value().scan({{"text", file, 0, whole.size(), 0}}, expected).ok());
    ASSERT_EQ(expected.lines.size(), 715u);
    EXPECT_EQ(expected.lines.back(),
              "4999@" + std::to_string(whole.find("needle 4998")) + ":needle 4998");
    uint64_t line_count = 0, match_count = 0;
    for (int begin = 0; begin < 5000; begin += 625) {
        const TextRange range{"text", file, text(0, begin).size(), text(0, begin + 625).size(),
                              line_count};
        ASSERT_TRUE(scanner.value().scan({range}, found).ok());
        EXPECT_TRUE(found.results.back().status.ok());
        EXPECT_EQ(found.results.back().size, range.end - range.begin);
        line_count = found.results.back().line_count;
        match_count += found.results.back().match_count;
    }
    EXPECT_EQ(found.lines, expected.lines);
    EXPECT_EQ(line_count, 5000u);
    EXPECT_EQ(match_count, 715u);
    close(file);
}

// Appends a piece to the file at each look, and ends when all have been looked at.
class Writer final : public FollowListener {
public:
    Writer(std::string path, std::vector<std::string> pieces)
        : path_(std::move(path)), pieces_(std::move(pieces)) {}
    bool on_line(const LineMatch& match) override {
        lines.emplace_back(std::to_string(match.number) + ":" + std::string(match.bytes));
        return true;
    }
    void on_notice(Notice, const std::string& path, const std::string& text) override {
        notices.push_back(path + ": " + text);
    }
    bool on_idle() override {
        if (next_ == pieces_.size()) return false;
        std::ofstream(path_, std::ios::binary | std::ios::app) << pieces_[next_++];
        return true;
    }
    std::vector<std::string> lines, notices;

private:
    std::string path_;
    std::vector<std::string> pieces_;
    size_t next_ = 0;
};

TEST_P(FollowTest, PiecesOfLinesAreJoined) {
    auto scanner = create();
    ASSERT_TRUE(scanner.ok()) << scanner.status().message();
    const std::string path = folder_.write("log", "one needle\nspanning tw");
    const std::string long_line(10'000, 'x');
    Writer writer(path, {"o app", "ends\n" + text(0, 5000) + "nee", "dle\n" + long_line,
                         "needle" + long_line, "\nno newline: needle"});
    Follower follower(&scanner.value(), &writer, {path}, -1);
    const Status status = follower.run();
    EXPECT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(writer.lines.size(), 719u);
    EXPECT_EQ(writer.lines[0], "1:one needle");
    EXPECT_EQ(writer.lines[1], "2:spanning two appends");
    EXPECT_EQ(writer.lines[717], "5003:needle");
    EXPECT_EQ(writer.lines[718], "5004:" + long_line + "needle" + long_line);
    EXPECT_EQ(follower.results()[0].match_count, 719u);
    EXPECT_EQ(follower.report().match_count, 719u);
    EXPECT_TRUE(writer.notices.empty());
}

INSTANTIATE_TEST_SUITE_P(Forms, FollowTest,
                         testing::Values(Form{"leader", false, 0, false},
                                         Form{"mapped", false, 0, true},
                                         Form{"lanes", true, 32, false}),
                         [](const auto& form) { return std::string(form.param.name); });

}  // namespace
}  // namespace penstock::scan
