// Goal: bytes of a cached read arrive where they shall and nowhere else, however memory and file
// lie to each other; also when the file ends within them.
#include <gtest/gtest.h>

#include "storage/posix.h"
#include "storage/storage_fixture.h"

namespace penstock::storage {
namespace {

constexpr uint64_t kFileSize = (3 << 20) + 1234;
constexpr size_t kMargin = 64;
constexpr std::byte kCanary{0x5a};

class AlignmentTest : public ::testing::Test {
protected:
    void SetUp() override {
        folder_.write("file", 0, bytes_);
        auto file = storage_->open(folder_.path("file"), O_RDONLY);
        auto queue = storage_->make_queue(1);
        ASSERT_TRUE(file.ok() && queue.ok());
        file_ = file.value();
        queue_ = std::move(queue.value());
    }

    // Reads `size` bytes from `offset` to an address that is `shift` modulo 64.
    void read(uint64_t offset, uint64_t size, size_t shift, bool drop) {
        SCOPED_TRACE("offset " + std::to_string(offset) + ", size " + std::to_string(size) +
                     ", shift " + std::to_string(shift));
        const auto start = reinterpret_cast<uintptr_t>(memory_.data());
        std::byte* const to = memory_.data() + kMargin + (shift - start) % 64;
        std::fill(to - kMargin, to + size + kMargin, kCanary);
        const iovec piece{to, size};
        Operation operation{file_.get(), offset, {&piece, 1}};
        operation.drop = drop;
        Completion done;
        ASSERT_EQ(queue_->submit({&operation, 1}), 1u);
        ASSERT_EQ(queue_->reap({&done, 1}, true), 1u);
        const uint64_t there = std::min(size, kFileSize - std::min(offset, kFileSize));
        EXPECT_EQ(done.error, 0);
        ASSERT_EQ(done.bytes, there);
        EXPECT_TRUE(std::equal(to, to + there, bytes_.data() + offset));
        EXPECT_TRUE(std::all_of(to - kMargin, to, [](std::byte b) { return b == kCanary; }));
        EXPECT_TRUE(
            std::all_of(to + there, to + size + kMargin, [](std::byte b) { return b == kCanary; }));
    }

    const ScratchFolder folder_;
    const Bytes bytes_ = random_bytes(1, kFileSize);
    Bytes memory_ = Bytes(kFileSize + (1 << 20));
    const std::shared_ptr<Storage> storage_ = open_posix();
    std::shared_ptr<File> file_;
    std::unique_ptr<Queue> queue_;
};

TEST_F(AlignmentTest, EveryMisalignmentArrives) {
    for (size_t shift = 0; shift < 64; ++shift) {
        for (const uint64_t size : {uint64_t{4095}, uint64_t{4096}, uint64_t{70001}}) {
            read(0, size, shift, false);
            read(13, size, shift, false);
            read(kFileSize - 5000, size, shift, false);  // beyond the end, or just to it
        }
    }
}

TEST_F(AlignmentTest, RandomReadsArrive) {
    const uint64_t seed = 7;
    base::Prng prng(seed);
    for (int i = 0; i < 300; ++i) {
        SCOPED_TRACE("seed 7, number " + std::to_string(i));
        const uint64_t offset = prng.below(kFileSize);
        read(offset, 1 + prng.below(kFileSize), prng.below(64), prng.below(4) == 0);
    }
}

}  // namespace
}  // namespace penstock::storage
