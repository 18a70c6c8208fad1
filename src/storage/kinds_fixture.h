// All kinds of storage in one fixture, with files that the test can change beneath the storage.
//
// Only *_test.cc files include it; each instantiates the suite for kCases.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "storage/ram.h"
#include "storage/storage_fixture.h"

namespace penstock::storage {

struct KindCase {
    const char* label;
    Options options;
    bool ram;
};

inline const KindCase kKindCases[] = {
    {"auto", {.kind = Kind::kAuto}, false},
    {"posix", {.kind = Kind::kPosix}, false},
    {"uring", {.kind = Kind::kUring}, false},
    {"ram", {.kind = Kind::kRam}, true},
    {"throttle_posix",
     {.kind = Kind::kThrottle, .throttle = {1, 1e5}, .under = Kind::kPosix},
     false},
    {"throttle_uring",
     {.kind = Kind::kThrottle, .throttle = {1, 1e5}, .under = Kind::kUring},
     false},
};

class KindsTest : public ::testing::TestWithParam<KindCase> {
protected:
    void SetUp() override {
        if (GetParam().ram) {
            ram_ = std::make_shared<RamStorage>();
            storage_ = ram_;
            return;
        }
        Result<std::shared_ptr<Storage>> made = make_storage(GetParam().options);
        if (!made.ok() && GetParam().options.kind != Kind::kPosix) {
            GTEST_SKIP() << made.status().message();
        }
        ASSERT_TRUE(made.ok()) << made.status().message();
        storage_ = made.value();
    }

    void write(const std::string& name, uint64_t offset, const Bytes& bytes) {
        if (ram_ == nullptr) return folder_.write(name, offset, bytes);
        if (names_.insert(name).second) {
            ASSERT_TRUE(ram_->create(name, 0).ok());
        }
        ASSERT_TRUE(ram_->write(name, offset, bytes).ok());
    }

    void resize(const std::string& name, uint64_t size) {
        if (ram_ == nullptr) return folder_.resize(name, size);
        write(name, 0, {});
        ASSERT_TRUE(ram_->resize(name, size).ok());
    }

    // Replaces the file as rename(2) does: the name then stands for another file.
    void replace(const std::string& name, const Bytes& bytes) {
        if (ram_ == nullptr) {
            folder_.write(name + ".new", 0, bytes);
            std::filesystem::rename(folder_.path(name + ".new"), folder_.path(name));
            return;
        }
        ASSERT_TRUE(ram_->unlink(name).ok());
        names_.erase(name);
        write(name, 0, bytes);
    }

    [[nodiscard]] std::string path(const std::string& name) const {
        return ram_ == nullptr ? folder_.path(name) : name;
    }

    std::shared_ptr<File> open(const std::string& name, int flags = O_RDONLY) {
        Result<std::shared_ptr<File>> file = storage_->open(path(name), flags);
        EXPECT_TRUE(file.ok()) << file.status().message();
        return file.value();
    }

    std::unique_ptr<Queue> queue(uint32_t depth = 8) {
        Result<std::unique_ptr<Queue>> queue = storage_->make_queue(depth);
        EXPECT_TRUE(queue.ok()) << queue.status().message();
        return std::move(queue.value());
    }

    std::shared_ptr<Storage> storage_;

private:
    ScratchFolder folder_;
    std::shared_ptr<RamStorage> ram_;  // null: files are in folder_
    std::set<std::string> names_;      // in ram_
};

// Returns pieces of random lengths, some of them empty, that add up to at most `size`.
inline std::vector<iovec> split(base::Prng* prng, std::byte* base, size_t size) {
    std::vector<iovec> pieces;
    size_t at = 0;
    while (at < size) {
        const size_t length = std::min<size_t>(prng->below(prng->below(4) == 0 ? 3 : 9000),
                                               size - at);
        pieces.push_back({length == 0 ? nullptr : base + at, length});
        at += length;
    }
    return pieces;
}

}  // namespace penstock::storage
