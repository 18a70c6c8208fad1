// Goal: every kind of storage keeps the promises of storage.h: the right bytes at any offset,
// alignment and scattering, the truth about ends, changes and bad requests, and each operation
// completed exactly once.
#include "storage/storage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "base/units.h"
#include "storage/kinds_fixture.h"

namespace penstock::storage {
namespace {

using StorageTest = KindsTest;
INSTANTIATE_TEST_SUITE_P(Kinds, StorageTest, ::testing::ValuesIn(kKindCases),
                         [](const auto& made) { return std::string(made.param.label); });

TEST_P(StorageTest, RandomScatteredReadsEqualTheFile) {
    const Bytes bytes = random_bytes(1, 300'001);
    write("f", 0, bytes);
    const std::shared_ptr<File> file = open("f");
    EXPECT_EQ(file->size(), bytes.size());
    const std::unique_ptr<Queue> q = queue();
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        const uint64_t offset = prng.below(bytes.size() + 5000);
        Bytes got(prng.below(70'000), std::byte{0xee});
        const std::vector<iovec> pieces = split(&prng, got.data(), got.size());
        const Completion completion = read_pieces(q.get(), file.get(), offset, pieces);
        const uint64_t there = offset < bytes.size() ? bytes.size() - offset : 0;
        const uint64_t expected = std::min<uint64_t>(got.size(), there);
        ASSERT_EQ(completion.error, 0);
        ASSERT_EQ(completion.bytes, expected);
        ASSERT_TRUE(std::equal(got.begin(), got.begin() + static_cast<ptrdiff_t>(expected),
                               bytes.begin() + static_cast<ptrdiff_t>(expected > 0 ? offset : 0)));
        ASSERT_TRUE(std::all_of(got.begin() + static_cast<ptrdiff_t>(expected), got.end(),
                                [](std::byte byte) { return byte == std::byte{0xee}; }));
    }
}

TEST_P(StorageTest, ManyInFlightCompleteOnceEach) {
    const Bytes bytes = random_bytes(2, 64 * 4096);
    write("f", 0, bytes);
    const std::shared_ptr<File> file = open("f");
    const std::unique_ptr<Queue> q = queue(5);
    Bytes got(bytes.size());
    std::vector<iovec> pieces;
    std::vector<Operation> operations;
    for (size_t i = 0; i < 64; ++i) pieces.push_back({got.data() + i * 4096, 4096});
    for (size_t i = 0; i < 64; ++i) {
        operations.push_back({file.get(), i * 4096, {&pieces[i], 1}, i});
    }
    std::vector<int> seen(64, 0);
    std::span<const Operation> left = operations;
    EXPECT_EQ(q->submit(left), 5u);  // full is a state: the rest is not taken
    EXPECT_EQ(q->submit(left.subspan(5)), 0u);
    EXPECT_EQ(q->outstanding(), 5u);
    left = left.subspan(5);
    while (q->outstanding() > 0) {
        Completion out[3];
        const size_t count = q->reap(out, true);
        ASSERT_GE(count, 1u);
        for (size_t i = 0; i < count; ++i) {
            EXPECT_EQ(out[i].error, 0);
            EXPECT_EQ(out[i].bytes, 4096u);
            ++seen[out[i].cookie];
        }
        left = left.subspan(q->submit(left));
    }
    EXPECT_TRUE(left.empty());
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 64);
    EXPECT_EQ(got, bytes);
    Completion none;
    EXPECT_EQ(q->reap({&none, 1}, true), 0u);  // nothing outstanding: does not wait
}

TEST_P(StorageTest, ReapWithoutWaitingFindsItInTheEnd) {
    const Bytes bytes = random_bytes(3, 4096);
    write("f", 0, bytes);
    const std::shared_ptr<File> file = open("f");
    const std::unique_ptr<Queue> q = queue(1);
    Bytes got(4096);
    const iovec piece{got.data(), got.size()};
    const Operation operation{file.get(), 0, {&piece, 1}, 9};
    ASSERT_EQ(q->submit({&operation, 1}), 1u);
    Completion completion;
    while (q->reap({&completion, 1}, false) == 0) std::this_thread::yield();
    EXPECT_EQ(completion.bytes, 4096u);
    EXPECT_EQ(got, bytes);
}

TEST_P(StorageTest, ReadsAtTheEndAreShort) {
    const Bytes bytes = random_bytes(4, 1000);
    write("f", 0, bytes);
    write("empty", 0, {});
    const std::shared_ptr<File> file = open("f");
    const std::unique_ptr<Queue> q = queue();
    Bytes got(100);
    const auto bytes_at = [&](File* from, uint64_t offset) {
        const Completion completion = read_into(q.get(), from, offset, &got);
        EXPECT_EQ(completion.error, 0);
        return completion.bytes;
    };
    EXPECT_EQ(bytes_at(file.get(), 900), 100u);
    EXPECT_EQ(bytes_at(file.get(), 901), 99u);
    EXPECT_EQ(bytes_at(file.get(), 999), 1u);
    EXPECT_EQ(bytes_at(file.get(), 1000), 0u);
    EXPECT_EQ(bytes_at(file.get(), uint64_t{1} << 40), 0u);
    EXPECT_EQ(bytes_at(open("empty").get(), 0), 0u);
}

TEST_P(StorageTest, NothingAskedIsNothingRead) {
    write("f", 0, random_bytes(5, 10));
    const std::shared_ptr<File> file = open("f");
    const std::unique_ptr<Queue> q = queue();
    const std::vector<iovec> empty(5, iovec{nullptr, 0});
    for (const std::span<const iovec> pieces : {std::span<const iovec>{}, std::span(empty)}) {
        for (const uint64_t offset : {uint64_t{0}, uint64_t{10}, uint64_t{INT64_MAX}}) {
            const Completion completion = read_pieces(q.get(), file.get(), offset, pieces);
            EXPECT_EQ(completion.error, 0);
            EXPECT_EQ(completion.bytes, 0u);
        }
    }
}

TEST_P(StorageTest, MorePiecesThanOneCallTakes) {
    const Bytes bytes = random_bytes(6, 3000 * 37);
    write("f", 0, bytes);
    const std::shared_ptr<File> file = open("f");
    Bytes got(bytes.size());
    std::vector<iovec> pieces;
    for (size_t i = 0; i < 3000; ++i) pieces.push_back({got.data() + i * 37, 37});
    const Completion completion = read_pieces(queue().get(), file.get(), 0, pieces);
    EXPECT_EQ(completion.error, 0);
    EXPECT_EQ(completion.bytes, bytes.size());
    EXPECT_EQ(got, bytes);
}

TEST_P(StorageTest, SparseBeyondFourGiB) {
    const uint64_t mark = 4 * base::kGiB + 12'345;
    const Bytes bytes = random_bytes(7, 5000);
    resize("f", 5 * base::kGiB);
    write("f", mark, bytes);
    const std::shared_ptr<File> file = open("f");
    EXPECT_EQ(file->size(), 5 * base::kGiB);
    const std::unique_ptr<Queue> q = queue();
    Bytes got(7000, std::byte{1});
    Completion completion = read_into(q.get(), file.get(), mark - 1000, &got);
    EXPECT_EQ(completion.bytes, 7000u);
    Bytes expected(7000);
    std::copy(bytes.begin(), bytes.end(), expected.begin() + 1000);
    EXPECT_EQ(got, expected);
    completion = read_into(q.get(), file.get(), 12'345, &got);  // as if offsets had 32 bits
    EXPECT_EQ(completion.bytes, 7000u);
    EXPECT_EQ(got, Bytes(7000));
}

TEST_P(StorageTest, RefusedBeforeAnyByteMoves) {
    write("f", 0, random_bytes(8, 100));
    const std::shared_ptr<File> file = open("f");
    const std::unique_ptr<Queue> q = queue();
    Bytes got(16);
    const auto error_of = [&](File* from, uint64_t offset, std::vector<iovec> pieces) {
        const Completion completion = read_pieces(q.get(), from, offset, pieces);
        EXPECT_EQ(completion.bytes, 0u);
        return completion.error;
    };
    const iovec piece{got.data(), got.size()};
    EXPECT_EQ(error_of(file.get(), uint64_t{1} << 63, {piece}), EINVAL);
    EXPECT_EQ(error_of(file.get(), UINT64_MAX, {piece}), EINVAL);
    EXPECT_EQ(error_of(file.get(), INT64_MAX - 15, {piece}), EINVAL);
    EXPECT_EQ(error_of(file.get(), INT64_MAX - 16, {piece}), 0);
    EXPECT_EQ(error_of(file.get(), 0, {piece, {got.data(), SIZE_MAX}}), EINVAL);
    EXPECT_EQ(error_of(file.get(), 0, {piece, {nullptr, 1}}), EFAULT);
    EXPECT_EQ(error_of(nullptr, 0, {piece}), EBADF);
    EXPECT_EQ(got, Bytes(16));
}

TEST_P(StorageTest, TruncatedWhileOpen) {
    const Bytes bytes = random_bytes(9, 10'000);
    write("f", 0, bytes);
    const std::shared_ptr<File> file = open("f");
    const std::unique_ptr<Queue> q = queue();
    resize("f", 4000);
    Identity now;
    ASSERT_TRUE(file->stat(&now).ok());
    EXPECT_EQ(now.size, 4000u);
    EXPECT_EQ(file->size(), 10'000u);  // as of the open
    EXPECT_TRUE(now.same_file(file->identity()));
    EXPECT_NE(now, file->identity());
    Bytes got(10'000);
    const Completion completion = read_into(q.get(), file.get(), 0, &got);
    EXPECT_EQ(completion.error, 0);
    EXPECT_EQ(completion.bytes, 4000u);
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + 4000, bytes.begin()));
    resize("f", 10'000);  // what grows back is zeros
    EXPECT_EQ(read_into(q.get(), file.get(), 0, &got).bytes, 10'000u);
    EXPECT_TRUE(std::all_of(got.begin() + 4000, got.end(),
                            [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_P(StorageTest, ReplacedWhileOpen) {
    const Bytes before = random_bytes(10, 5000);
    const Bytes after = random_bytes(11, 5000);
    write("f", 0, before);
    const std::shared_ptr<File> old_file = open("f");
    replace("f", after);
    const std::shared_ptr<File> new_file = open("f");
    EXPECT_FALSE(new_file->identity().same_file(old_file->identity()));
    const std::unique_ptr<Queue> q = queue();
    Bytes got(5000);
    EXPECT_EQ(read_into(q.get(), old_file.get(), 0, &got).bytes, 5000u);
    EXPECT_EQ(got, before);
    EXPECT_EQ(read_into(q.get(), new_file.get(), 0, &got).bytes, 5000u);
    EXPECT_EQ(got, after);
}

TEST_P(StorageTest, UntouchedFilesKeepTheirIdentity) {
    write("f", 0, random_bytes(12, 10));
    const std::shared_ptr<File> first = open("f");
    const std::shared_ptr<File> second = open("f");
    EXPECT_EQ(first->identity(), second->identity());
    Identity now;
    ASSERT_TRUE(second->stat(&now).ok());
    EXPECT_EQ(now, first->identity());
}

TEST_P(StorageTest, AQueueThatGoesLeavesMemoryAlone) {
    const Bytes bytes = random_bytes(13, 1 << 20);
    write("f", 0, bytes);
    const std::shared_ptr<File> file = open("f");
    if (file->descriptor() >= 0) {  // out of the OS page cache, so that the read takes its time
        fsync(file->descriptor());
        posix_fadvise(file->descriptor(), 0, 0, POSIX_FADV_DONTNEED);
    }
    auto got = std::make_unique<Bytes>(bytes.size());
    const iovec piece{got->data(), got->size()};
    const Operation operation{file.get(), 0, {&piece, 1}, 0};
    {
        const std::unique_ptr<Queue> q = queue();
        ASSERT_EQ(q->submit({&operation, 1}), 1u);
    }
    EXPECT_EQ(*got, bytes);  // all of it came before the queue was gone
}

TEST_P(StorageTest, EveryThreadWithItsOwnQueue) {
    const Bytes bytes = random_bytes(14, 200'000);
    write("f", 0, bytes);
    const std::shared_ptr<File> file = open("f");
    std::vector<std::thread> threads;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
        threads.emplace_back([&, seed] {
            std::unique_ptr<Queue> q;
            base::Prng prng(seed);
            for (int i = 0; i < 50; ++i) {
                if (i % 5 == 0) q = queue(2);  // where the ring of another thread was, maybe
                Bytes got(1 + prng.below(20'000));
                const uint64_t offset = prng.below(bytes.size() - got.size());
                EXPECT_EQ(read_into(q.get(), file.get(), offset, &got).bytes, got.size());
                EXPECT_TRUE(std::equal(got.begin(), got.end(),
                                       bytes.begin() + static_cast<ptrdiff_t>(offset)))
                    << "seed " << seed;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

TEST_P(StorageTest, BadArguments) {
    write("f", 0, {});
    EXPECT_EQ(storage_->open(path("missing"), O_RDONLY).status().error_number(), ENOENT);
    EXPECT_EQ(storage_->open(path("f"), O_DIRECT).status().error_number(), EINVAL);
    EXPECT_EQ(storage_->make_queue(0).status().error_number(), EINVAL);
    EXPECT_EQ(storage_->make_queue(kQueueDepthMax + 1).status().error_number(), EINVAL);
    EXPECT_TRUE(storage_->make_queue(kQueueDepthMax).ok());
}

TEST(StorageKinds, AreNamed) {
    EXPECT_STREQ(name(Kind::kUring), "uring");
    EXPECT_EQ(make_storage({.kind = Kind::kPosix}).value()->description(), "posix");
    EXPECT_TRUE(make_storage({}).value()->description().starts_with("posix")) << "auto";
    const Options slow{.kind = Kind::kThrottle, .throttle = {100, 2000}, .under = Kind::kRam};
    EXPECT_EQ(make_storage(slow).value()->description(), "throttle (100 us, 2000 MB/s) over ram");
}

}  // namespace
}  // namespace penstock::storage
