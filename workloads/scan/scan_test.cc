// Goal: the whole scan, kernel and page cache included, answers as grep does: for single files,
// trees, streams, texts that grow, patterns that cross strides and pages; and it tells what it
// could not read, and stops when asked.
#include "scan/scan.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "penstock/residency.h"
#include "scan/access_log.h"
#include "scan/grep_reference.h"
#include "scan/patterns.h"

namespace penstock::scan {
namespace {

// Keeps all it is told, in grep's format.
class Collector : public ScanListener {
public:
    explicit Collector(bool lines) : lines_(lines) {}
    void on_text(const TextResult& result) override {
        if (!result.status.ok())
            failures.push_back(result);
        else if (!lines_)
            output += result.path + ":" + std::to_string(result.match_count) + "\n";
    }
    bool on_line(const LineMatch& match) override {
        output.append(match.path)
            .append(":" + std::to_string(match.number) + ":")
            .append(match.bytes) += '\n';
        return true;
    }

    std::string output;
    std::vector<TextResult> failures;

private:
    bool lines_;
};

std::string sorted_lines(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    std::string joined;
    for (const std::string& line : lines) joined += line + "\n";
    return joined;
}

struct Form {
    const char* name;
    bool by_lanes;
    unsigned threads;
    uint32_t stride_size;
    uint32_t page_size;
    bool map_cached = false;
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

class ScanTest : public testing::TestWithParam<Form> {
protected:
    ScanOptions options(bool lines) const {
        ScanOptions options;
        options.lines = lines;
        options.by_lanes = GetParam().by_lanes;
        options.threads = GetParam().threads;
        options.stride_size = GetParam().stride_size;
        options.map_cached = GetParam().map_cached;
        options.file_system.page_size = GetParam().page_size;
        return options;
    }

    void SetUp() override {
        DeviceOptions device_options;
        device_options.memory_size = 256 << 20;
        auto device = Device::open("cpu:3", device_options);
        ASSERT_TRUE(device.ok()) << device.status().message();
        device_ = device.value();
    }

    Collector scan(const std::vector<std::string>& patterns, const std::vector<std::string>& paths,
                   bool lines) {
        Collector collector(lines);
        auto scanner = Scanner::create(device_, patterns, options(lines));
        EXPECT_TRUE(scanner.ok()) << scanner.status().message();
        if (!scanner.ok()) return collector;
        const Status status = scanner.value().scan(paths, collector);
        EXPECT_TRUE(status.ok()) << status.message() << " " << device_.diagnosis();
        report_ = scanner.value().report();
        return collector;
    }

    void expect_as_grep(const std::vector<std::string>& patterns, const std::string& path) {
        const std::string list = folder_.write("list", pattern_list(patterns));
        for (const bool lines : {false, true}) {
            const Collector found = scan(patterns, {path}, lines);
            const std::string expected = grep_output(lines ? "-r -H -n" : "-r -H -c", list, path);
            EXPECT_TRUE(found.failures.empty()) << found.failures.front().status.message();
            const bool tree = std::filesystem::is_directory(path);  // grep does not sort
            const bool same = tree ? sorted_lines(found.output) == sorted_lines(expected)
                                   : found.output == expected;
            EXPECT_TRUE(same) << path << ": " << found.output.size() << " bytes, grep "
                              << expected.size();
        }
    }

    // Scans `text` from a pipe that it is written to in pieces.
    Collector scan_pipe(const std::vector<std::string>& patterns, const std::string& text,
                        size_t piece_size) {
        int ends[2];
        EXPECT_EQ(pipe(ends), 0);
        const int saved = dup(STDIN_FILENO);
        dup2(ends[0], STDIN_FILENO);
        std::thread writer([&] {
            for (size_t done = 0; done < text.size();) {
                const ssize_t count = write(ends[1], text.data() + done,
                                            std::min(piece_size, text.size() - done));
                if (count > 0) done += static_cast<size_t>(count);
            }
            close(ends[1]);
        });
        Collector found = scan(patterns, {"-"}, true);
        writer.join();
        dup2(saved, STDIN_FILENO);
        close(saved);
        close(ends[0]);
        return found;
    }

    void expect_pipe_as_grep(const std::vector<std::string>& patterns, const std::string& text,
                             size_t piece_size) {
        const std::string list = folder_.write("list", pattern_list(patterns));
        const std::string found = scan_pipe(patterns, text, piece_size).output;
        std::string expected;
        std::istringstream lines(grep_output("-n", list, folder_.write("text", text)));
        for (std::string line; std::getline(lines, line);) expected += "-:" + line + "\n";
        EXPECT_FALSE(expected.empty());
        EXPECT_TRUE(found == expected)
            << found.size() << " bytes, grep " << expected.size() << ", the same up to byte "
            << std::mismatch(found.begin(), found.end(), expected.begin(), expected.end()).first -
                   found.begin();
    }

    TemporaryFolder folder_;
    Device device_;
    ScanReport report_;
};

std::string access_log(const AccessLogOptions& options, size_t size) {
    std::string text;
    AccessLog(options).append(size, &text);
    return text;
}

TEST_P(ScanTest, AccessLogs) {
    for (const uint32_t count : {1u, 100u, 10000u}) {
        const AccessLogOptions options{count, count, count == 10000 ? 0.3 : 0.01};
        const std::string path = folder_.write("access.log", access_log(options, 3 << 20));
        expect_as_grep(suspicious_addresses(options), path);
        EXPECT_GT(report_.match_count, 0u);
        EXPECT_EQ(report_.size, std::filesystem::file_size(path));
    }
}

TEST_P(ScanTest, SystemHeaders) {
    expect_as_grep({"struct", "#include <sys", "\t\t}", "e", "unsigned long long"},
                   "/usr/include/linux");
}

TEST_P(ScanTest, EdgesOfFiles) {
    const std::string texts[] = {"",    "\n",      "a",          "a\n",
                                 "\na", "b\n\n\n", "xx\na\r\nb", std::string("a\0\0b\n", 5)};
    for (const std::string& text : texts) {
        const std::string path = folder_.write("text", text);
        expect_as_grep({"a"}, path);
        expect_as_grep({""}, path);
        expect_as_grep({std::string("\0b", 2), "\r"}, path);
        EXPECT_EQ(scan({}, {path}, false).output, path + ":0\n");  // grep says nothing then
    }
}

TEST_P(ScanTest, PatternsAndLinesAcrossStridesAndPages) {
    std::mt19937_64 random(5);
    std::string line;
    while (line.size() < 700000) line += static_cast<char>('a' + random() % 26);
    const std::string text = "head\n" + line + line + "\n" + line.substr(1) + "\ntail " +
                             line.substr(0, 5000);
    const std::string path = folder_.write("text", text);
    expect_as_grep({line.substr(100000, 300000)}, path);
    expect_as_grep({line}, path);
    expect_as_grep({line + "x", "tail"}, path);
    for (int i = 0; i < 8; ++i)
        expect_as_grep({text.substr(65536 * (i + 1) - 3, 7), "zzzzzz"}, path);
}

// More matching lines in a stride than a launch has room for: they come in a second one.
TEST_P(ScanTest, MoreMatchingLinesThanALaunchHolds) {
    expect_as_grep({"", "x"}, folder_.write("text", std::string(1'300'000, '\n')));
}

TEST_P(ScanTest, TreesAsGrepWalksThem) {
    const std::string tree = folder_.file("tree");
    std::filesystem::create_directories(tree + "/b/c");
    std::filesystem::create_directories(tree + "/empty");
    folder_.write("tree/a", "needle\n");
    folder_.write("tree/b/c/d", "x\nneedle");
    folder_.write("outside", "needle\n");
    std::filesystem::create_symlink(folder_.file("outside"), tree + "/link");
    std::filesystem::create_directory_symlink(tree, folder_.file("link"));
    ASSERT_EQ(mkfifo((tree + "/fifo").c_str(), 0600), 0);
    expect_as_grep({"needle"}, tree);
    expect_as_grep({"needle"}, folder_.file("link"));
    EXPECT_EQ(report_.text_count, 2u);
}

TEST_P(ScanTest, ManySmallFilesInOrder) {
    const std::string tree = folder_.file("tree");
    std::filesystem::create_directories(tree);
    std::string expected;
    for (int i = 0; i < 700; ++i) {
        char name[16];
        snprintf(name, sizeof name, "%03d", i);
        folder_.write(std::string("tree/") + name, std::string(i, 'y') + "\nneedle " + name);
        expected += tree + "/" + name + ":2:needle " + name + "\n";
    }
    EXPECT_EQ(scan({"needle"}, {tree}, true).output, expected);
}

TEST_P(ScanTest, WhatCannotBeReadIsToldAndTheRestIsScanned) {
    const std::string good = folder_.write("good", "needle\n"), fifo = folder_.file("fifo");
    ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    const Collector found = scan({"needle"},
                                 {folder_.file("missing"), good, fifo, "/dev/null", good}, false);
    EXPECT_EQ(found.output, good + ":1\n" + good + ":1\n");
    ASSERT_EQ(found.failures.size(), 3u);
    EXPECT_EQ(found.failures[0].status.error_number(), ENOENT);
    EXPECT_EQ(found.failures[1].status.error_number(), EINVAL);
    EXPECT_EQ(found.failures[2].status.error_number(), EINVAL);
    EXPECT_EQ(report_.failed_count, 3u);
}

// Appends to the text when the scan first says how far it is, so that the end it opened with is not
// the last.
TEST_P(ScanTest, ATextThatGrowsIsScannedToItsNewEnd) {
    const std::string path = folder_.write("text", std::string(300'000, 'x') + "nee");
    class Growing : public Collector {
    public:
        explicit Growing(std::string path) : Collector(true), path_(std::move(path)) {}
        bool on_progress(const ScanProgress&) override {
            if (++calls_ <= 3)
                std::ofstream(path_, std::ios::app) << "dle\nfour " << calls_ << "\nneedle\nnee";
            return true;
        }

    private:
        std::string path_;
        int calls_ = 0;
    };
    Growing found(path);
    auto scanner = Scanner::create(device_, {"needle", "four"}, options(true));
    ASSERT_TRUE(scanner.ok());
    ASSERT_TRUE(scanner.value().scan({path}, found).ok());
    const std::string list = folder_.write("list", "needle\nfour\n");
    EXPECT_EQ(found.output, grep_output("-H -n", list, path));
    EXPECT_EQ(scanner.value().report().match_count, 9u);
}

TEST_P(ScanTest, StandardInputIsTakenAsItComes) {
    const AccessLogOptions log{9, 20, 0.2};
    expect_pipe_as_grep(suspicious_addresses(log), access_log(log, 2'000'000), 77'777);
}

// A line was cut where the pipe's bytes ended when its match was found.
TEST_P(ScanTest, LongLinesOfAPipeAreWhole) {
    std::mt19937_64 random(7);
    std::string text;
    for (const size_t size : {300'000, 10, 1'500'000, 262'144, 700'000, 0, 2'500'000}) {
        std::string line;
        while (line.size() < size) line += static_cast<char>('a' + random() % 26);
        for (const size_t at : {size_t{0}, size / 2, size})
            if (random() % 3 != 0) line.insert(at, "NEEDLE");
        text += line + "\n";
    }
    text += "tail NEEDLE " + std::string(400'000, 'z');  // without a newline
    expect_pipe_as_grep({"NEEDLE"}, text, 50'000);
    expect_pipe_as_grep({"NEEDLE", "zzzz"}, text, 1'000'003);
}

TEST_P(ScanTest, AListenerCanStopIt) {
    const std::string path = folder_.write("text", std::string(3'000'000, '\n'));
    class Closed : public Collector {
    public:
        Closed() : Collector(true) {}
        bool on_line(const LineMatch&) override { return ++calls < 10; }
        int calls = 0;
    };
    Closed closed;
    auto scanner = Scanner::create(device_, {""}, options(true));
    ASSERT_TRUE(scanner.ok());
    EXPECT_TRUE(scanner.value().scan({path, path}, closed).ok());
    EXPECT_EQ(closed.calls, 10);
    EXPECT_TRUE(scanner.value().report().stopped);
}

TEST_P(ScanTest, AFlagStopsAScanThatWaitsForSlowStorage) {
    const std::string path = folder_.write("text", std::string(2'000'000, 'x'));
    std::atomic<bool> stop = false;
    ScanOptions slow = options(false);
    slow.stop = &stop;
    slow.file_system.study.throttle_latency_us = 300'000;
    auto scanner = Scanner::create(device_, {"needle"}, slow);
    ASSERT_TRUE(scanner.ok()) << scanner.status().message();
    std::thread killer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(250));
        stop = true;
    });
    Collector found(false);
    const auto began = std::chrono::steady_clock::now();
    const Status status = scanner.value().scan({path}, found);
    killer.join();
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(scanner.value().report().stopped);
    EXPECT_EQ(found.output, "");
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST_P(ScanTest, AFlagStopsAScanThatWaitsForStandardInput) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const int saved = dup(STDIN_FILENO);
    dup2(ends[0], STDIN_FILENO);
    std::atomic<bool> stop = false;
    ScanOptions patient = options(false);
    patient.stop = &stop;
    auto scanner = Scanner::create(device_, {"needle"}, patient);
    ASSERT_TRUE(scanner.ok()) << scanner.status().message();
    std::thread killer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        stop = true;
    });
    Collector found(false);
    EXPECT_TRUE(scanner.value().scan({"-"}, found).ok());
    killer.join();
    EXPECT_TRUE(scanner.value().report().stopped);
    dup2(saved, STDIN_FILENO);
    close(saved);
    close(ends[0]);
    close(ends[1]);
}

// grep: "input file is also the output". Found by a scan that fed itself for ever.
TEST_P(ScanTest, TheOutputIsNoInput) {
    const std::string path = folder_.write("out", "needle\n"),
                      other = folder_.write("other", "needle\n");
    const int output = open(path.c_str(), O_WRONLY | O_APPEND);
    ScanOptions with_output = options(true);
    with_output.output = output;
    auto scanner = Scanner::create(device_, {"needle"}, with_output);
    ASSERT_TRUE(scanner.ok());
    Collector found(true);
    EXPECT_TRUE(scanner.value().scan({path, other}, found).ok());
    EXPECT_EQ(found.output, other + ":1:needle\n");
    ASSERT_EQ(found.failures.size(), 1u);
    EXPECT_EQ(found.failures[0].path, path);
    close(output);
}

TEST_P(ScanTest, APatternOfMegabytesTakesFewerBlocks) {
    std::mt19937_64 random(6);
    std::string giant;
    while (giant.size() < 1'000'000) giant += static_cast<char>('a' + random() % 26);
    expect_as_grep({giant},
                   folder_.write("text", "x" + giant + "\n" + giant.substr(1) + "\n" + giant));
    EXPECT_EQ(report_.match_count, 2u);
}

// Those with small strides show no more races, and take ThreadSanitizer a minute.
INSTANTIATE_TEST_SUITE_P(Forms, ScanTest,
                         testing::Values(Form{"Leader", false, 0, 0, 64 << 10},
                                         Form{"Mapped", false, 0, 4096, 4096, true},
#ifndef __SANITIZE_THREAD__
                                         Form{"LeaderSmallStrides", false, 32, 4096, 4096},
                                         Form{"LanesOddStrides", true, 96, 12345, 16 << 10},
#endif
                                         Form{"Lanes", true, 32, 0, 64 << 10}),
                         [](const auto& form) { return std::string(form.param.name); });

class MappedScanTest : public ScanTest {
protected:
    // All of it is in the OS page cache, as the file system says.
    static bool is_cached(const std::string& path) {
        const Result<ResidencyReport> told = residency(path);
        return told.ok() && told.value().resident_size == told.value().size;
    }
};

TEST_P(MappedScanTest, CachedTextsAreNotCopied) {
    const AccessLogOptions log{3, 50, 0.1};
    const std::string path = folder_.write("text", access_log(log, 8 << 20));
    if (!is_cached(path)) GTEST_SKIP() << "what was written is not in the OS page cache";
    expect_as_grep(suspicious_addresses(log), path);
    for (const bool lines : {false, true}) {
        (void)scan(suspicious_addresses(log), {path}, lines);
        EXPECT_GT(report_.match_count, 0u);
        EXPECT_LT(report_.files.bytes_read, 600u << 10);  // the end, and readahead there
    }
}

// The scan is under way when the file loses all but its first megabyte; the strides of the third
// batch are planned later. What it answers is its business, but it ends.
TEST_P(MappedScanTest, ATextThatIsCutOffEndsNothing) {
    std::string text;
    while (text.size() < 12 << 20) text += "needle\n";
    class Cutting : public Collector {
    public:
        Cutting(std::string path, bool lines) : Collector(lines), path_(std::move(path)) {}
        bool on_progress(const ScanProgress&) override {
            return std::exchange(cut_, true) || truncate(path_.c_str(), 1 << 20) == 0;
        }

    private:
        std::string path_;
        bool cut_ = false;
    };
    for (const bool lines : {false, true}) {
        const std::string path = folder_.write("text", text);
        Cutting found(path, lines);
        auto scanner = Scanner::create(device_, {"needle"}, options(lines));
        ASSERT_TRUE(scanner.ok());
        EXPECT_TRUE(scanner.value().scan({path}, found).ok());
        EXPECT_FALSE(scanner.value().report().stopped);
        if (found.failures.empty()) {
            EXPECT_LT(scanner.value().report().match_count, text.size() / 7);
        } else {
            EXPECT_EQ(found.failures[0].status.error_number(), EIO);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, MappedScanTest,
                         testing::Values(Form{"Mapped", false, 0, 4096, 4096, true}),
                         [](const auto& form) { return std::string(form.param.name); });

TEST(Scanner, OptionsOutOfRangeAreErrors) {
    auto device = Device::open("cpu:1");
    ASSERT_TRUE(device.ok());
    ScanOptions options;
    options.stride_size = 2 << 20;
    EXPECT_EQ(Scanner::create(device.value(), {"a"}, options).status().error_number(), EINVAL);
    options.stride_size = 4096;
    EXPECT_EQ(Scanner::create(device.value(), {std::string(5 << 20, 'a')}, options)
                  .status()
                  .error_number(),
              EINVAL);
    options = {};
    options.threads = 257;
    EXPECT_EQ(Scanner::create(device.value(), {"a"}, options).status().error_number(), EINVAL);
}

}  // namespace
}  // namespace penstock::scan
