// What tests of file caches share: a folder with files, a cache of small chunks, and a file whose
// bytes are known.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "penstock/file_cache.h"
#include "testing/bytes.h"

namespace penstock {

inline constexpr uint64_t kChunk = 4096;
inline constexpr uint64_t kCacheSize = 1024 * kChunk;  // one slab
inline constexpr uint64_t kPiece = 512;                // of a chunk, which one thread uses

// Makes files no longer than this until it ends. It stands for disks that are full.
class FileSizeLimit {
public:
    explicit FileSizeLimit(rlim_t size) {
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit small{size, before_.rlim_max};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &small);
    }
    ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
    FileSizeLimit(const FileSizeLimit&) = delete;
    FileSizeLimit& operator=(const FileSizeLimit&) = delete;

private:
    rlimit before_{};
};

// A file in a cache, and the bytes that it should have.
struct FlatFile {
    CachedFile file;
    std::vector<std::byte> flat;

    void truncate(uint64_t size) {
        flat.resize(size);
        ASSERT_TRUE(file.truncate(size).ok());
    }
    void write(uint64_t size, uint64_t offset, uint64_t seed) {
        const auto bytes = testing::random_bytes(seed, size);
        flat.resize(std::max(flat.size(), offset + size));
        std::memcpy(&flat[offset], bytes.data(), size);
        ASSERT_EQ(file.write(bytes.data(), size, offset).value(), size);
    }
    void expect_read(uint64_t size, uint64_t offset) const {
        const uint64_t end = std::min(flat.size(), offset + size);
        std::vector<std::byte> bytes(size);
        const auto got = file.read(bytes.data(), size, offset);
        ASSERT_TRUE(got.ok()) << got.status().message();
        ASSERT_EQ(got.value(), end - std::min(offset, end));
        ASSERT_EQ(std::memcmp(bytes.data(), flat.data() + end - got.value(), got.value()), 0);
    }
};

class FileCacheTest : public ::testing::Test {
protected:
    using Bytes = std::vector<std::byte>;

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
    static Bytes some_bytes(uint64_t size, uint64_t seed) {
        return testing::random_bytes(seed, size);
    }
    // Threads write pieces of their own, which share chunks, and read as many of 4 times. `then` is
    // called after each. Returns what the file should have.
    Bytes use_pieces_at_once(const std::string& path, uint64_t pieces, uint64_t steps,
                             unsigned reads,
                             const std::function<void(base::Prng&, CachedFile&)>& then) {
        constexpr unsigned kThreads = 4;
        Bytes expected = bytes_of(path);
        std::vector<std::thread> threads;
        for (unsigned thread = 0; thread < kThreads; ++thread) {
            threads.emplace_back([&, thread] {
                base::Prng prng(thread);
                CachedFile file = open(path);
                for (uint64_t step = 0; step < steps; ++step) {
                    const uint64_t piece = prng.below(pieces / kThreads) * kThreads + thread;
                    std::byte bytes[kPiece];
                    std::byte* const own = &expected[piece * kPiece];
                    if (prng.below(4) < reads) {
                        EXPECT_EQ(file.read(bytes, kPiece, piece * kPiece).value(), kPiece);
                        EXPECT_EQ(std::memcmp(bytes, own, kPiece), 0) << "piece " << piece;
                    } else {
                        testing::fill_randomly(own, kPiece, prng.next());
                        EXPECT_EQ(file.write(own, kPiece, piece * kPiece).value(), kPiece);
                    }
                    then(prng, file);
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        return expected;
    }

    char folder_[32] = "/tmp/penstock-cache-XXXXXX";
    std::vector<std::string> made_;
    Device device_;
    FileCache cache_;
};

}  // namespace penstock
