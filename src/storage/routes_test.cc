// Goal: reads and writes move the same bytes by every route and every kind of storage; what cannot
// go its route says so and harms nothing; direct and dropping reads leave the OS page cache as it
// was, and direct writes leave nothing stale there.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "base/prng.h"
#include "storage/storage_fixture.h"

namespace penstock::storage {
namespace {

constexpr uint64_t kPage = 4096;

struct Case {
    const char* label;
    Kind kind;
};

class RoutesTest : public ::testing::TestWithParam<Case> {
protected:
    void SetUp() override {
        Result<std::shared_ptr<Storage>> made = make_storage({.kind = GetParam().kind});
        if (!made.ok()) GTEST_SKIP() << made.status().message();
        storage_ = made.value();
        bytes_ = random_bytes(7, 300'001);
        folder_.write("f", 0, bytes_);
        auto opened = storage_->open(folder_.path("f"), O_RDWR);
        ASSERT_TRUE(opened.ok()) << opened.status().message();
        file_ = opened.value();
        auto queue = storage_->make_queue(8);
        ASSERT_TRUE(queue.ok());
        queue_ = std::move(queue.value());
        memory_ = static_cast<std::byte*>(
            mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        ASSERT_NE(memory_, MAP_FAILED);
    }
    void TearDown() override {
        if (memory_ != nullptr) munmap(memory_, kMemory);
    }

    Completion read(uint64_t offset, uint64_t size, Route route, bool drop = false) {
        return move(offset, size, route, drop, false);
    }
    Completion write(uint64_t offset, uint64_t size, Route route, bool drop = false) {
        return move(offset, size, route, drop, true);
    }
    Completion move(uint64_t offset, uint64_t size, Route route, bool drop, bool write) {
        const iovec piece{memory_, size};
        Operation operation{.file = file_.get(), .offset = offset, .pieces = {&piece, 1}};
        operation.route = route;
        operation.drop = drop;
        operation.write = write;
        EXPECT_EQ(queue_->submit({&operation, 1}), 1u);
        Completion completion;
        EXPECT_EQ(queue_->reap({&completion, 1}, true), 1u);
        return completion;
    }

    // Writes dirty pages back and drops what may go; false: some of it stays all the same.
    bool make_cold() {
        for (int attempt = 0; attempt < 50; ++attempt) {
            fsync(file_->descriptor());
            posix_fadvise(file_->descriptor(), 0, 0, POSIX_FADV_DONTNEED);
            if (cached_pages() == 0) return true;
            usleep(2000);
        }
        return false;
    }

    // As its owner sees it by mincore.
    uint64_t cached_pages() {
        void* view = mmap(nullptr, bytes_.size(), PROT_READ, MAP_SHARED, file_->descriptor(), 0);
        std::vector<unsigned char> pages((bytes_.size() + kPage - 1) / kPage);
        EXPECT_EQ(mincore(view, bytes_.size(), pages.data()), 0);
        munmap(view, bytes_.size());
        uint64_t count = 0;
        for (unsigned char page : pages) count += page & 1;
        return count;
    }

    static constexpr size_t kMemory = 512 << 10;
    ScratchFolder folder_;
    Bytes bytes_;
    std::shared_ptr<Storage> storage_;
    std::shared_ptr<File> file_;
    std::unique_ptr<Queue> queue_;
    std::byte* memory_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Kinds, RoutesTest,
                         ::testing::Values(Case{"auto", Kind::kAuto}, Case{"posix", Kind::kPosix},
                                           Case{"uring", Kind::kUring}),
                         [](const auto& made) { return std::string(made.param.label); });

TEST_P(RoutesTest, DirectReadsGiveTheBytesOfTheFileUpToItsEnd) {
    const uint64_t alignment = file_->direct_alignment().offset;
    if (alignment == 0) GTEST_SKIP() << "no direct I/O on this file system";
    base::Prng prng(1);
    for (int turn = 0; turn < 200; ++turn) {
        const uint64_t offset = prng.below(bytes_.size() / alignment + 4) * alignment;
        const uint64_t size = (1 + prng.below(100)) * alignment;
        std::memset(memory_, 0xee, size);
        const Completion completion = read(offset, size, Route::kDirect);
        const uint64_t there = offset < bytes_.size() ? bytes_.size() - offset : 0;
        ASSERT_EQ(completion.error, 0) << offset << " + " << size;
        ASSERT_EQ(completion.bytes, std::min(size, there)) << offset << " + " << size;
        ASSERT_EQ(std::memcmp(memory_, bytes_.data() + (there > 0 ? offset : 0), completion.bytes),
                  0);
    }
}

TEST_P(RoutesTest, DirectReadOfAnUnalignedRangeIsRefusedInItsCompletion) {
    if (file_->direct_alignment().offset == 0) GTEST_SKIP() << "no direct I/O on this file system";
    EXPECT_EQ(read(13, kPage, Route::kDirect).error, EINVAL);
    EXPECT_EQ(read(0, kPage, Route::kDirect).bytes, kPage);
}

TEST_P(RoutesTest, NoStorageHereReadsByPeer) {
    const Completion completion = read(0, kPage, Route::kPeer);
    EXPECT_EQ(completion.error, EOPNOTSUPP);
    EXPECT_EQ(completion.bytes, 0u);
}

TEST_P(RoutesTest, DirectReadsBringNothingIntoTheCache) {
    if (file_->direct_alignment().offset == 0) GTEST_SKIP() << "no direct I/O on this file system";
    if (!make_cold()) GTEST_SKIP() << "this file system keeps pages in its cache";
    for (uint64_t offset = 0; offset < 256 << 10; offset += 64 << 10) {
        ASSERT_EQ(read(offset, 64 << 10, Route::kDirect).bytes, 64u << 10);
    }
    EXPECT_EQ(cached_pages(), 0u);
}

// How far it reads ahead where it may is the kernel's affair, and when what it reads is there.
TEST_P(RoutesTest, TheKernelReadsAheadOnlyWhereItMay) {
    constexpr uint64_t kRead = 32;
    static constexpr std::chrono::seconds kPatience{10};
    const auto read_them = [this] {
        for (uint64_t i = 0; i < kRead; ++i)
            ASSERT_EQ(read(i * kPage, kPage, Route::kCached).bytes, kPage);
    };
    const auto comes_ahead = [this] {
        const auto limit = std::chrono::steady_clock::now() + kPatience;
        while (cached_pages() <= kRead && std::chrono::steady_clock::now() < limit)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return cached_pages() > kRead;
    };
    if (!make_cold()) GTEST_SKIP() << "this file system keeps pages in its cache";
    read_them();
    if (!comes_ahead()) GTEST_SKIP() << "the kernel reads nothing ahead here";
    ASSERT_TRUE(make_cold());
    file_->read_ahead(false);
    read_them();
    EXPECT_EQ(cached_pages(), kRead);
    ASSERT_TRUE(make_cold());
    file_->read_ahead(true);
    read_them();
    EXPECT_TRUE(comes_ahead());
}

TEST_P(RoutesTest, DroppingReadsGiveTheBytesWhetherTheKernelDropsThemOrNot) {
    const bool cold = make_cold();
    const Completion completion = read(100, 200'000, Route::kCached, true);
    ASSERT_EQ(completion.error, 0);
    ASSERT_EQ(completion.bytes, 200'000u);
    EXPECT_EQ(std::memcmp(memory_, bytes_.data() + 100, 200'000), 0);
    // Found out by the first read, remembered for the others.
    const bool refused = file_->drop_refused();
    ASSERT_EQ(read(0, kPage, Route::kCached, true).bytes, kPage);
    EXPECT_EQ(file_->drop_refused(), refused);
    if (cold && !refused) {
        EXPECT_LT(cached_pages(), 200'000 / kPage);
    }
}

// In a file of tmpfs, whose bytes nothing can drop: found out by the first call, then remembered.
TEST_P(RoutesTest, WhatMustNotStayDoesNotMoveWhereTheKernelTakesNoSuchCalls) {
    char name[] = "/dev/shm/penstock-routes-XXXXXX";
    const int descriptor = mkstemp(name);
    if (descriptor < 0) GTEST_SKIP() << "no /dev/shm";
    ASSERT_EQ(pwrite(descriptor, bytes_.data(), kPage, 0), ssize_t{kPage});
    close(descriptor);
    for (const bool write : {false, true}) {
        file_ = storage_->open(name, O_RDWR).value();
        std::memset(memory_, 0xee, kPage);
        const iovec piece{memory_, kPage};
        Operation operation{.file = file_.get(), .pieces = {&piece, 1}};
        operation.drop = operation.must_drop = true;
        operation.write = write;
        for (int turn = 0; turn < 2; ++turn) {
            ASSERT_EQ(queue_->submit({&operation, 1}), 1u);
            Completion completion;
            ASSERT_EQ(queue_->reap({&completion, 1}, true), 1u);
            if (completion.error == 0) {
                unlink(name);
                GTEST_SKIP() << "the kernel takes them on tmpfs";
            }
            EXPECT_EQ(completion.error, EOPNOTSUPP);
            EXPECT_EQ(completion.bytes, 0u);
            EXPECT_TRUE(file_->drop_refused());
        }
        EXPECT_EQ(memory_[0], std::byte{0xee});
        EXPECT_EQ(read(0, kPage, Route::kCached, true).bytes, kPage);
        EXPECT_EQ(std::memcmp(memory_, bytes_.data(), kPage), 0);
    }
    unlink(name);
}

TEST_P(RoutesTest, WritesByAllRoutesInTurnEqualAFlatArray) {
    const uint64_t alignment = file_->direct_alignment().offset;
    if (alignment == 0) GTEST_SKIP() << "no direct I/O on this file system";
    base::Prng prng(2);
    Bytes flat = bytes_;
    for (int turn = 0; turn < 200; ++turn) {
        const bool direct = prng.below(2) == 0;
        const uint64_t grain = direct ? alignment : 1;
        const uint64_t offset = prng.below(400'000 / grain) * grain;
        const uint64_t size = (1 + prng.below(100'000 / grain)) * grain;
        const Bytes bytes = random_bytes(prng.next(), size);
        std::memcpy(memory_, bytes.data(), size);
        const Completion completion = write(offset, size, direct ? Route::kDirect : Route::kCached,
                                            prng.below(4) == 0);
        ASSERT_EQ(completion.error, 0) << offset << " + " << size;
        ASSERT_EQ(completion.bytes, size);
        flat.resize(std::max<uint64_t>(flat.size(), offset + size));
        std::copy(bytes.begin(), bytes.end(), flat.begin() + static_cast<ptrdiff_t>(offset));
        const uint64_t from = prng.below(flat.size() / alignment) * alignment;
        const uint64_t count = std::min<uint64_t>(64 << 10, flat.size() - from);
        const Route back = prng.below(2) == 0 ? Route::kDirect : Route::kCached;
        ASSERT_EQ(read(from, back == Route::kDirect ? 64 << 10 : count, back).bytes, count);
        ASSERT_EQ(std::memcmp(memory_, flat.data() + from, count), 0) << from;
    }
}

TEST_P(RoutesTest, DirectWriteOfAnUnalignedRangeIsRefusedInItsCompletion) {
    if (file_->direct_alignment().offset == 0) GTEST_SKIP() << "no direct I/O on this file system";
    EXPECT_EQ(write(13, kPage, Route::kDirect).error, EINVAL);
    EXPECT_EQ(write(0, kPage + 13, Route::kDirect).error, EINVAL);
    const Completion peer = write(0, kPage, Route::kPeer);
    EXPECT_EQ(peer.error, EOPNOTSUPP);
    ASSERT_EQ(read(0, 256 << 10, Route::kCached).bytes, 256u << 10);
    EXPECT_EQ(std::memcmp(memory_, bytes_.data(), 256 << 10), 0);
}

}  // namespace
}  // namespace penstock::storage
