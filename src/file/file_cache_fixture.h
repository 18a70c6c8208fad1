// What tests of file caches share: a folder with files, and a cache of small chunks.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "penstock/file_cache.h"
#include "testing/bytes.h"

namespace penstock {

inline constexpr uint64_t kChunk = 4096;
inline constexpr uint64_t kCacheSize = 1024 * kChunk;  // one slab

class FileCacheTest : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_NE(mkdtemp(folder_), nullptr);
        device_ = Device::open("cpu:1", {.memory_size = 64 << 20}).value();
        make({});
    }
    void TearDown() override {
        for (const std::string& path : made_) unlink(path.c_str());
        rmdir(folder_);
    }
    // Makes a cache of one slab on one device, where `options` say nothing else.
    void make(FileCacheOptions options) {
        if (options.devices.empty()) options.devices = {device_};
        options.chunk_size = kChunk;
        if (options.size == FileCacheOptions().size) options.size = kCacheSize;
        cache_ = FileCache::create(options).value();
    }
    std::string write_file(const char* name, uint64_t size) {
        std::vector<std::byte> bytes(size);
        testing::fill_randomly(bytes.data(), size, size);
        const std::string path = std::string(folder_) + "/" + name;
        const int descriptor = ::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
        EXPECT_EQ(::write(descriptor, bytes.data(), size), static_cast<ssize_t>(size));
        ::close(descriptor);
        made_.push_back(path);
        return path;
    }
    CachedFile open(const std::string& path, int flags = O_RDWR) {
        auto file = cache_.adopt(::open(path.c_str(), flags, 0600));
        EXPECT_TRUE(file.ok()) << file.status().message();
        return file.value();
    }
    static std::vector<std::byte> bytes_of(const std::string& path) {
        const int descriptor = ::open(path.c_str(), O_RDONLY);
        std::vector<std::byte> bytes(static_cast<size_t>(lseek(descriptor, 0, SEEK_END)));
        EXPECT_EQ(pread(descriptor, bytes.data(), bytes.size(), 0),
                  static_cast<ssize_t>(bytes.size()));
        ::close(descriptor);
        return bytes;
    }
    static std::vector<std::byte> read(const CachedFile& file, uint64_t size, uint64_t offset) {
        std::vector<std::byte> bytes(size);
        const auto got = file.read(bytes.data(), size, offset);
        EXPECT_TRUE(got.ok()) << got.status().message();
        bytes.resize(got.value());
        return bytes;
    }

    char folder_[32] = "/tmp/penstock-cache-XXXXXX";
    std::vector<std::string> made_;
    Device device_;
    FileCache cache_;
};

}  // namespace penstock
