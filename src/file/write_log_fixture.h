// What the tests of the write log share: a folder for the log beside the one that is cached.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "file/file_birth.h"
#include "file/file_cache_fixture.h"
#include "file/write_log.h"

namespace penstock {

class WriteLogTest : public FileCacheTest {
protected:
    static constexpr uint64_t kGeneration = 7;  // that storage would know, where a test has none

    void SetUp() override {
        FileCacheTest::SetUp();
        ASSERT_NE(mkdtemp(tier_), nullptr);
    }
    void TearDown() override {
        cache_ = FileCache();
        std::filesystem::remove_all(tier_);
        FileCacheTest::TearDown();
    }
    std::unique_ptr<file::WriteLog> open_log(uint64_t size_max = 1 << 20) {
        auto log = file::WriteLog::open(tier_, folder_, size_max);
        EXPECT_TRUE(log.ok()) << log.status().message();
        if (log.value()->key(0) == 0) {
            EXPECT_TRUE(log.value()->reserve(kGeneration).ok());
        }
        return std::move(log.value());
    }
    static file::LoggedFile file_at(const std::string& path) {
        file::LoggedFile file;
        const int descriptor = ::open(path.c_str(), O_PATH);
        EXPECT_TRUE(file::describe_birth(descriptor, &file));
        ::close(descriptor);
        return file;
    }
    static void append(file::WriteLog& log, const file::LoggedFile& file, const char* path,
                       file::LogRecord::Kind kind, uint64_t offset, uint64_t size,
                       const Bytes& bytes = {}) {
        file::LogRecord record;
        record.file = file;
        record.kind = kind;
        record.offset = offset;
        record.size = size;
        const auto lock = log.begin();
        EXPECT_TRUE(log.append(record, path, bytes).ok());
    }
    std::vector<std::string> kept() const {
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(tier_))
            if (entry.path().filename().string().starts_with("penstock-kept-"))
                names.push_back(entry.path());
        return names;
    }
    void make_with_log(FileCacheOptions options = {}) {
        options.tier = tier_;
        options.tier_size = options.tier_size == 0 ? 4 * kCacheSize : options.tier_size;
        options.tier_root = folder_;
        options.tier_writes = true;
        cache_ = FileCache();
        make(std::move(options));
    }
    // Returns a descriptor of this process that has a file open so.
    static int descriptor_of(const std::string& path, int access) {
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            const int found = std::stoi(entry.path().filename());
            std::error_code ignored;
            if (std::filesystem::read_symlink(entry.path(), ignored) == path &&
                (fcntl(found, F_GETFL) & O_ACCMODE) == access)
                return found;
        }
        return -1;
    }
    // Returns a file that was synced before, so that the log takes what is written to it.
    CachedFile open_logged(const std::string& path) {
        CachedFile file = open(path);
        EXPECT_TRUE(file.sync().ok());
        return file;
    }

    char tier_[32] = "/tmp/penstock-tier-XXXXXX";
};

}  // namespace penstock
