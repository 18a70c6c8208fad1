// Goal: a stored calibration is read back unchanged, for the same memory, file system and storage
// only. Whatever the file holds, reads go on. If many processes store at once, none is lost and
// none sees half of it. Open files of one file system share their costs, and take over what was
// stored.
#include "file/calibration.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/prng.h"
#include "file/cost_book.h"
#include "file/open_file.h"
#include "penstock/calibrate.h"
#include "testing/remote_device.h"

namespace penstock::file {
namespace {

namespace fs = std::filesystem;

// A config folder of its own.
class CalibrationTest : public ::testing::Test {
protected:
    void SetUp() override {
        folder_ = ::testing::TempDir() + "/penstock-calibration-XXXXXX";
        ASSERT_NE(mkdtemp(folder_.data()), nullptr);
        if (const char* old = std::getenv("XDG_CONFIG_HOME"); old != nullptr) old_ = old;
        setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
        path_ = calibration_path();
    }
    void TearDown() override {
        if (old_.empty()) {
            unsetenv("XDG_CONFIG_HOME");
        } else {
            setenv("XDG_CONFIG_HOME", old_.c_str(), 1);
        }
        fs::remove_all(folder_);
    }

    void put(const std::string& text) const {
        fs::create_directories(fs::path(path_).parent_path());
        std::ofstream(path_) << text;
    }
    [[nodiscard]] std::string stored_text() const {
        std::ifstream file(path_);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    // Returns how many files the folder holds: a temporary file beside the calibration must be
    // gone.
    [[nodiscard]] long files() const {
        const fs::directory_iterator all(fs::path(path_).parent_path());
        return std::distance(begin(all), end(all));
    }

    std::string folder_, old_, path_;
};

CalibrationEntry random_entry(base::Prng* prng, uint64_t number) {
    const auto figure = [prng](double most) { return most * prng->fraction(); };
    CalibrationEntry entry;
    entry.key = {prng->below(2) == 0 ? "host" : "cuda:0 Some GPU", "ext4 " + std::to_string(number),
                 "auto"};
    entry.measured_at = prng->below(1ull << 40);
    entry.threads = 1 + prng->below(64);
    entry.depth = 1 + prng->below(4096);
    planner::CostModel model;
    if ((entry.direct = prng->below(2) == 0)) {
        model.direct_ns = figure(1e9);
        model.direct_ns_per_byte = 1e-6 + figure(10);
        model.cutoff_size = prng->below(4 << 20);
        model.direct_start_ns = figure(1e6);
        model.direct_submit_ns = figure(1e-3);
    }
    if ((entry.cached = prng->below(2) == 0)) {
        model.cached_ns = figure(1e6);
        model.cached_ns_per_byte = 1e-6 + figure(1);
    }
    if ((entry.buffered = prng->below(2) == 0)) {
        model.buffered_ns = figure(1e6);
        model.buffered_ns_per_byte = 1e-6 + figure(1);
    }
    entry.model = sane(model);
    // An entry of an older version has no error.
    const auto error = [&](bool measured) {
        return measured && prng->below(3) != 0 ? std::optional<double>(figure(3)) : std::nullopt;
    };
    entry.direct_error = error(entry.direct);
    entry.cached_error = error(entry.cached);
    entry.buffered_error = error(entry.buffered);
    return entry;
}

void expect_same(const CalibrationEntry& a, const CalibrationEntry& b) {
    EXPECT_EQ(a.key, b.key);
    EXPECT_EQ(a.measured_at, b.measured_at);
    EXPECT_EQ(a.threads, b.threads);
    EXPECT_EQ(a.depth, b.depth);
    EXPECT_EQ(a.direct, b.direct);
    EXPECT_EQ(a.cached, b.cached);
    EXPECT_EQ(a.buffered, b.buffered);
    EXPECT_EQ(a.direct_error, b.direct_error);
    EXPECT_EQ(a.cached_error, b.cached_error);
    EXPECT_EQ(a.buffered_error, b.buffered_error);
    EXPECT_EQ(a.model, b.model) << "every bit of every figure";
}

TEST_F(CalibrationTest, ComesBackAsItWas) {
    for (uint64_t seed = 1; seed <= 500; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        base::Prng prng(seed);
        std::vector<CalibrationEntry> entries;
        for (uint64_t i = prng.below(5); i > 0; --i) entries.push_back(random_entry(&prng, i));
        const std::string text = write_calibrations(entries);
        size_t at = 0;
        const auto back = parse_calibrations(text, &at);
        ASSERT_TRUE(back.ok()) << back.status().message() << " at " << at << "\n" << text;
        ASSERT_EQ(back.value().size(), entries.size());
        for (size_t i = 0; i < entries.size(); ++i) expect_same(back.value()[i], entries[i]);
    }
}

TEST_F(CalibrationTest, BrokenTextIsRefusedOrHarmless) {
    base::Prng prng(3);
    std::vector<CalibrationEntry> entries{random_entry(&prng, 1), random_entry(&prng, 2)};
    entries[0].direct = entries[0].cached = entries[0].buffered = true;
    const std::string text = write_calibrations(entries);
    size_t at = 0;
    for (size_t size = 0; size + 1 < text.size(); ++size) {  // the last is the end of the line
        EXPECT_FALSE(parse_calibrations(text.substr(0, size), &at).ok()) << "cut at " << size;
        EXPECT_LE(at, size);
    }
    for (uint64_t seed = 1; seed <= 20'000; ++seed) {
        base::Prng random(seed);
        std::string bad = text;
        for (uint64_t i = 1 + random.below(3); i > 0; --i)
            bad[random.below(bad.size())] = static_cast<char>(random.next());
        const auto told = parse_calibrations(bad, &at);
        EXPECT_LE(at, bad.size()) << "seed " << seed;
        if (!told.ok()) continue;
        for (const CalibrationEntry& entry : told.value())
            EXPECT_EQ(sane(entry.model), entry.model) << "seed " << seed;
    }
}

TEST_F(CalibrationTest, EachRuleIsHeld) {
    const std::string entry =
        R"({"memory": "host", "file_system": "ext4 1", "storage": "auto", "measured_at": 1, )"
        R"("threads": 2, "depth": 16, "cached": {"ns": 400, "ns_per_byte": 0.1}})";
    const auto text = [](const std::string& version, const std::string& entries) {
        return R"({"format": "penstock calibration", "version": )" + version + R"(, "entries": [)" +
               entries + "]}";
    };
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string changed = entry;
        const size_t at = changed.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return text("1", changed.replace(at, from.size(), to));
    };
    size_t at = 0;
    ASSERT_TRUE(parse_calibrations(text("1", entry), &at).ok());
    ASSERT_TRUE(parse_calibrations(text("1", ""), &at).ok());
    ASSERT_TRUE(parse_calibrations(text("2", entry), &at).ok());
    for (const char* const version : {"0", "3"})
        EXPECT_EQ(parse_calibrations(text(version, entry), &at).status().error_number(), ENOTSUP);
    const std::string bad[] = {
        "",
        "null",
        "{}",
        R"({"version": 1, "format": "penstock calibration", "entries": []})",
        R"({"format": "penstock access programs", "version": 1, "entries": []})",
        R"({"format": "penstock calibration", "version": 1})",
        text("1.0", entry),
        text("1", entry) + "x",
        text("1", entry + "," + entry),
        with(R"("depth": 16, )", ""),
        with(R"("depth": 16)", R"("depth": -16)"),
        with(R"("depth": 16)", R"("depth": 16, "depth": 16)"),
        with(R"("depth")", R"("Depth")"),
        with(R"("ns": 400, )", ""),
        with("400", "-1"),
        with("400", "1e300"),
        with("400", "1e999"),
        with("400", "NaN"),
        with("0.1", "0"),
        with("0.1", "1e7"),
        with("0.1", R"(0.1, "error": -0.1)"),
        with("0.1", R"(0.1, "error": 1e7)"),
        with("0.1", R"(0.1, "error": "small")"),
        with("0.1", R"(0.1, "error": 0.1, "error": 0.1)"),
        with("ext4 1", R"(ext4\n1)"),
        with("cached", "direct"),
    };
    for (const std::string& one : bad) {
        const auto told = parse_calibrations(one, &at);
        EXPECT_EQ(told.status().error_number(), EINVAL) << one;
        EXPECT_STRNE(told.status().text(), "") << one;
    }
    std::string many;
    for (size_t i = 0; i <= kCalibrationsMax; ++i) {
        std::string one = entry;
        many += (i > 0 ? "," : "") + one.replace(one.find("ext4 1"), 6, std::to_string(i));
    }
    EXPECT_FALSE(parse_calibrations(text("1", many), &at).ok());
}

TEST_F(CalibrationTest, ABadFileIsOneLineAndIsWrittenAnew) {
    base::Prng prng(5);
    const CalibrationEntry entry = random_entry(&prng, 1);
    EXPECT_EQ(load_calibrations(path_).complaint, "") << "a file that is not there";
    const std::string broken[] = {"", "{", "\n\n}", std::string(kCalibrationBytesMax + 1, ' '),
                                  std::string("\0\xff", 2)};
    for (const std::string& text : broken) {
        put(text);
        const Calibrations loaded = load_calibrations(path_);
        EXPECT_TRUE(loaded.entries.empty());
        EXPECT_TRUE(loaded.complaint.starts_with(path_ + ": ")) << loaded.complaint;
        EXPECT_EQ(loaded.complaint.find('\n'), std::string::npos);
        ASSERT_TRUE(store_calibration(path_, entry).ok());
        ASSERT_EQ(load_calibrations(path_).entries.size(), 1u);
        EXPECT_EQ(files(), 1);
    }
    fs::remove(path_);
    fs::create_directories(path_);  // a folder has its name
    EXPECT_NE(load_calibrations(path_).complaint, "");
    EXPECT_FALSE(store_calibration(path_, entry).ok());
    EXPECT_EQ(files(), 1) << "what was written beside it is gone";
    EXPECT_EQ(store_calibration("", entry).error_number(), ENOENT);
    fs::remove_all(path_);
    put("");
    EXPECT_FALSE(store_calibration(path_ + "/below/calibration.json", entry).ok());
}

TEST_F(CalibrationTest, AnErrorThatIsNotStoredIsAssumed) {
    CalibrationEntry entry;
    EXPECT_EQ(entry.model_with_error(), planner::CostModel{}) << "nothing was measured";
    entry.cached = true;
    entry.cached_error = 0.03;
    EXPECT_EQ(entry.model_with_error().error, 0.03);
    entry.direct = true;
    EXPECT_EQ(entry.model_with_error().error, planner::kModelErrorUnknown);
    entry.direct_error = 0.4;
    EXPECT_EQ(entry.model_with_error().error, 0.4) << "the largest";
    entry.direct_error = 7;
    EXPECT_EQ(entry.model_with_error().error, planner::kModelErrorMax);
}

TEST_F(CalibrationTest, WhatIsStoredIsShownUsedAndRemoved) {
    EXPECT_TRUE(stored_calibrations().all.empty());
    EXPECT_EQ(reset_calibrations().value(), 0u);
    EXPECT_FALSE(fs::exists(folder_ + "/penstock")) << "nothing was made";
    auto storage = storage::make_storage({}).value();
    CalibrationEntry mine;
    mine.key = calibration_key(nullptr, *storage, folder_).value();
    std::ofstream(folder_ + "/file") << "bytes";
    auto file = storage->open(folder_ + "/file", O_RDONLY);
    ASSERT_EQ(calibration_key(nullptr, *storage, *file.value()), mine.key);
    mine.measured_at = 17;
    mine.threads = 3;
    mine.cached = true;
    mine.cached_error = 0.125;
    CalibrationEntry gpu = mine, other = mine;
    gpu.key.memory = "cuda:0 Some GPU";
    other.key.file_system = "ext4 77";
    for (const CalibrationEntry& entry : {mine, gpu, other})
        ASSERT_TRUE(store_calibration(path_, entry).ok());
    EXPECT_EQ(stored_calibrations().all.size(), 3u);
    EXPECT_EQ(stored_calibrations().path, path_);
    const CalibrationInUse used = calibration_in_use(folder_ + "/file").value();
    ASSERT_TRUE(used.stored.has_value());
    EXPECT_EQ(used.file_system, mine.key.file_system);
    EXPECT_EQ(used.stored->measured_at, 17u);
    EXPECT_EQ(used.stored->error, 0.125);
    EXPECT_TRUE(used.stored->cached.measured && !used.stored->direct.measured);
    CostBook book(nullptr, *storage);
    EXPECT_EQ(book.of(*file.value())->model().error, 0.125);

    EXPECT_EQ(reset_calibrations(folder_).value(), 2u) << "of this file system";
    EXPECT_FALSE(calibration_in_use(folder_).value().stored.has_value());
    EXPECT_EQ(book.of(*file.value())->model(), planner::CostModel{}) << "seen without an open";
    ASSERT_EQ(stored_calibrations().all.size(), 1u);
    EXPECT_EQ(stored_calibrations().all[0].file_system, "ext4 77");
    EXPECT_EQ(reset_calibrations(folder_ + "/none").status().error_number(), ENOENT);
    EXPECT_EQ(calibration_in_use(folder_ + "/none").status().error_number(), ENOENT);
    EXPECT_EQ(reset_calibrations().value(), 1u);
    put("broken");
    EXPECT_NE(stored_calibrations().complaint, "");
    EXPECT_EQ(reset_calibrations().value(), 0u);
    EXPECT_EQ(stored_calibrations().complaint, "") << "emptied";
}

TEST_F(CalibrationTest, TheConfigFolder) {
    EXPECT_EQ(path_, folder_ + "/penstock/calibration.json");
    const char* const home = std::getenv("HOME");
    const std::string kept = home != nullptr ? home : "";
    setenv("HOME", "/home/somebody", 1);
    for (const char* config : {"", "not/absolute"}) {
        setenv("XDG_CONFIG_HOME", config, 1);
        EXPECT_EQ(calibration_path(), "/home/somebody/.config/penstock/calibration.json");
    }
    unsetenv("HOME");
    EXPECT_EQ(calibration_path(), "");
    if (home != nullptr) setenv("HOME", kept.c_str(), 1);
}

TEST_F(CalibrationTest, TheOldestGoesWhenThereAreTooMany) {
    base::Prng prng(6);
    std::vector<CalibrationEntry> entries;
    for (uint64_t i = 0; i < kCalibrationsMax; ++i) {
        entries.push_back(random_entry(&prng, i));
        entries.back().measured_at = 1000 + (i * 7) % kCalibrationsMax;
    }
    put(write_calibrations(entries));
    CalibrationEntry entry = entries[3];
    entry.threads += 1;
    ASSERT_TRUE(store_calibration(path_, entry).ok()) << "one that is there takes no room";
    EXPECT_EQ(load_calibrations(path_).entries.size(), kCalibrationsMax);
    ASSERT_TRUE(store_calibration(path_, random_entry(&prng, 9999)).ok());
    const Calibrations loaded = load_calibrations(path_);
    ASSERT_EQ(loaded.entries.size(), kCalibrationsMax) << loaded.complaint;
    for (const CalibrationEntry& one : loaded.entries)
        EXPECT_NE(one.key.file_system, "ext4 0") << "measured at 1000";
}

TEST_F(CalibrationTest, OfManyThatStoreNoneIsLost) {
    constexpr uint64_t kThreads = 4, kEach = 12;
    std::atomic<bool> stop{false};
    std::thread reader([&] {
        while (!stop) EXPECT_EQ(load_calibrations(path_).complaint, "");
    });
    std::vector<std::thread> writers;
    for (uint64_t t = 0; t < kThreads; ++t) {
        writers.emplace_back([&, t] {
            base::Prng prng(t + 1);
            for (uint64_t i = 0; i < kEach; ++i)
                EXPECT_TRUE(store_calibration(path_, random_entry(&prng, t * kEach + i)).ok());
        });
    }
    for (std::thread& writer : writers) writer.join();
    stop = true;
    reader.join();
    EXPECT_EQ(load_calibrations(path_).entries.size(), kThreads * kEach);
    EXPECT_EQ(files(), 1);
}

TEST_F(CalibrationTest, FilesOfAFileSystemShareCostsAndTakeOverWhatIsStored) {
    auto storage = storage::make_storage({});
    ASSERT_TRUE(storage.ok());
    std::vector<std::shared_ptr<storage::File>> two;
    for (const char* name : {"/a", "/b"}) {
        std::ofstream(folder_ + name) << "some bytes";
        auto file = storage.value()->open(folder_ + name, O_RDONLY);
        ASSERT_TRUE(file.ok());
        two.push_back(file.value());
    }
    CalibrationEntry entry;
    entry.key = calibration_key(nullptr, *storage.value(), *two[0]);
    EXPECT_EQ(entry.key, calibration_key(nullptr, *storage.value(), *two[1]));
    EXPECT_EQ(entry.key.memory, "host");
    EXPECT_EQ(entry.key.storage, "auto");
    EXPECT_NE(entry.key.file_system, "");

    CostBook book(nullptr, *storage.value());
    const auto before = book.of(*two[0]);
    EXPECT_EQ(before->model(), planner::CostModel{}) << "nothing is stored";
    EXPECT_EQ(book.of(*two[1]), before);

    entry.cached = true;
    entry.model.cached_ns = 1234;
    ASSERT_TRUE(store_calibration(path_, entry).ok());
    const auto after = book.of(*two[1]);
    EXPECT_EQ(after->model(), entry.model_with_error()) << stored_text();
    EXPECT_EQ(book.of(*two[0]), after);

    // Another storage and another memory are others.
    auto posix = storage::make_storage({.kind = storage::Kind::kPosix});
    ASSERT_TRUE(posix.ok());
    EXPECT_EQ(CostBook(nullptr, *posix.value()).of(*two[0])->model(), planner::CostModel{});
    const auto cpu = Device::open("cpu");
    ASSERT_TRUE(cpu.ok());
    EXPECT_EQ(CostBook(cpu.value().port().get(), *storage.value()).of(*two[0])->model(),
              entry.model_with_error())
        << "memory of the host too";
    const testing::RemoteDevice remote(cpu.value().port());
    EXPECT_EQ(CostBook(&remote, *storage.value()).of(*two[0])->model(), planner::CostModel{});
}

TEST_F(CalibrationTest, ABadFileDoesNotStopAnOpen) {
    std::ofstream(folder_ + "/a") << "some bytes";
    put("{");
    // Other storages than those of the tests before, so that the costs are looked up.
    FileOptions options;
    options.study.throttle_latency_us = 1;
    const auto file = File::open(folder_ + "/a", {}, options);
    ASSERT_TRUE(file.ok());
    char bytes[16];
    const auto got = file.value().read(bytes, sizeof bytes, 0);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got.value(), 10u);
}

// Long reads of a file that is all missing, or all cached.
TEST_F(CalibrationTest, ReadsRefineWhatIsKnown) {
    constexpr size_t kSize = 4 << 20;
    const std::string path = folder_ + "/a";
    std::vector<char> bytes(kSize, 'x');
    std::ofstream(path).write(bytes.data(), kSize);
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(descriptor, 0);
    fsync(descriptor);
    FileOptions options;
    options.threads = 1;
    options.storage = StorageKind::kPosix;
    const auto service = FileService::shared({}, options);
    ASSERT_TRUE(service.ok());
    const auto file = service.value()->storage->open(path, O_RDONLY);
    ASSERT_TRUE(file.ok());
    const auto model = [&] { return service.value()->costs->of(*file.value())->model(); };

    // Defaults stay as they are, what was measured does not.
    EXPECT_EQ(model(), planner::CostModel{});
    EXPECT_TRUE(File::open(path, {}, options).value().read(bytes.data(), kSize, 0).ok());
    EXPECT_EQ(model(), planner::CostModel{});
    CalibrationEntry entry;
    entry.key = calibration_key(nullptr, *service.value()->storage, *file.value());
    ASSERT_TRUE(store_calibration(path_, entry).ok());
    const planner::CostModel before = model();
    Report report;
    uint64_t direct = 0;  // some may be, where the kernel reclaims pages ahead of need
    for (int i = 0; i < 20; ++i) {
        auto reader = File::open(path, {}, options);
        ASSERT_TRUE(reader.ok());
        EXPECT_TRUE(reader.value().read(bytes.data(), kSize, 0, &report).ok());
        direct += report.bytes_by(Route::kDirect);
    }
    if (direct == 0) {
        EXPECT_NE(model().cached_ns_per_byte, before.cached_ns_per_byte);
        EXPECT_EQ(model().direct_ns_per_byte, before.direct_ns_per_byte);
    }

    // So slow that it cannot but look dear.
    options.study.throttle_bandwidth_mbs = 100;
    options.reading.route = Route::kDirect;
    const auto slow = FileService::shared({}, options);
    ASSERT_TRUE(slow.ok());
    entry.key = calibration_key(nullptr, *slow.value()->storage, *file.value());
    ASSERT_TRUE(store_calibration(path_, entry).ok());
    const auto costs = slow.value()->costs->of(*file.value());
    for (int i = 0; i < 5; ++i) {
        auto reader = File::open(path, {}, options);
        ASSERT_TRUE(reader.ok());
        EXPECT_TRUE(reader.value().read(bytes.data(), kSize, 0, &report).ok());
    }
    close(descriptor);
    if (report.bytes_by(Route::kDirect) == kSize) {
        EXPECT_GT(costs->model().direct_ns_per_byte, before.direct_ns_per_byte);
    }
    EXPECT_EQ(costs->model().cached_ns_per_byte, before.cached_ns_per_byte) << "none was cached";
}

}  // namespace
}  // namespace penstock::file
