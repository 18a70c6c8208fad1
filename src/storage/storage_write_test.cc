// Goal: every kind of storage keeps what storage.h promises of writes: any gathering at any offset
// leaves a file that equals a flat byte array, ends and errors are told, and no signal comes.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "base/units.h"
#include "storage/kinds_fixture.h"

namespace penstock::storage {
namespace {

class StorageWriteTest : public KindsTest {
protected:
    Bytes all_of(File* file) {
        Identity now;
        EXPECT_TRUE(file->stat(&now).ok());
        Bytes got(now.size);
        const std::unique_ptr<Queue> q = queue();
        EXPECT_EQ(read_into(q.get(), file, 0, &got).bytes, now.size);
        return got;
    }
    int open_error(const std::string& name, int flags) {
        return storage_->open(path(name), flags).status().error_number();
    }
};

INSTANTIATE_TEST_SUITE_P(Kinds, StorageWriteTest, ::testing::ValuesIn(kKindCases),
                         [](const auto& made) { return std::string(made.param.label); });

void write_into(Bytes* flat, uint64_t offset, const Bytes& bytes) {
    if (bytes.empty()) return;
    flat->resize(std::max<uint64_t>(flat->size(), offset + bytes.size()));
    std::copy(bytes.begin(), bytes.end(), flat->begin() + static_cast<ptrdiff_t>(offset));
}

TEST_P(StorageWriteTest, RandomGatheredWritesAndCutsEqualAFlatArray) {
    const std::shared_ptr<File> file = open("f", O_RDWR | O_CREAT);
    const std::unique_ptr<Queue> q = queue();
    Bytes flat;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        if (prng.below(8) == 0) {
            const uint64_t size = prng.below(300'000);
            ASSERT_TRUE(file->truncate(size).ok());
            flat.resize(size);
        }
        const uint64_t offset = prng.below(flat.size() + 5000);
        Bytes bytes = random_bytes(seed, prng.below(70'000));
        const std::vector<iovec> pieces = split(&prng, bytes.data(), bytes.size());
        const Completion completion = write_pieces(q.get(), file.get(), offset, pieces);
        ASSERT_EQ(completion.error, 0);
        ASSERT_EQ(completion.bytes, bytes.size());
        write_into(&flat, offset, bytes);
        if (prng.below(8) == 0) {
            ASSERT_TRUE(file->sync(prng.below(2) == 0).ok());
        }
        ASSERT_EQ(all_of(file.get()), flat);
    }
}

TEST_P(StorageWriteTest, ReadsAndWritesInFlightTogether) {
    constexpr size_t kCount = 64, kSize = 4096;
    const Bytes before = random_bytes(2, kCount * kSize), after = random_bytes(3, kCount * kSize);
    write("f", 0, before);
    const std::shared_ptr<File> file = open("f", O_RDWR);
    const std::unique_ptr<Queue> q = queue(5);
    Bytes memory(before.size());
    std::vector<iovec> pieces;
    std::vector<Operation> operations;
    for (size_t i = 0; i < kCount; ++i) {  // odd ones are written, even ones read
        auto* from = const_cast<std::byte*>(after.data()) + i * kSize;
        pieces.push_back({i % 2 == 1 ? from : memory.data() + i * kSize, kSize});
    }
    for (size_t i = 0; i < kCount; ++i) {
        operations.push_back({file.get(), i * kSize, {&pieces[i], 1}, i});
        operations.back().write = i % 2 == 1;
    }
    std::vector<int> seen(kCount, 0);
    std::span<const Operation> left = operations;
    while (!left.empty() || q->outstanding() > 0) {
        left = left.subspan(q->submit(left));
        Completion out[3];
        const size_t count = q->reap(out, true);
        for (size_t i = 0; i < count; ++i) {
            EXPECT_EQ(out[i].error, 0);
            EXPECT_EQ(out[i].bytes, kSize);
            ++seen[out[i].cookie];
        }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<ptrdiff_t>(kCount));
    const Bytes end = all_of(file.get());
    for (size_t i = 0; i < kCount; ++i) {
        const Bytes& expected = i % 2 == 1 ? after : before;
        EXPECT_EQ(std::memcmp(end.data() + i * kSize, expected.data() + i * kSize, kSize), 0) << i;
        if (i % 2 == 1) continue;
        EXPECT_EQ(std::memcmp(memory.data() + i * kSize, before.data() + i * kSize, kSize), 0) << i;
    }
}

TEST_P(StorageWriteTest, MorePiecesThanOneCallTakes) {
    Bytes bytes = random_bytes(6, 3000 * 37);
    std::vector<iovec> pieces;
    for (size_t i = 0; i < 3000; ++i) pieces.push_back({bytes.data() + i * 37, 37});
    const std::shared_ptr<File> file = open("f", O_RDWR | O_CREAT | O_EXCL);
    const Completion completion = write_pieces(queue().get(), file.get(), 11, pieces);
    EXPECT_EQ(completion.error, 0);
    EXPECT_EQ(completion.bytes, bytes.size());
    Bytes expected(11);
    write_into(&expected, 11, bytes);
    EXPECT_EQ(all_of(file.get()), expected);
}

TEST_P(StorageWriteTest, AHoleIsZerosAlsoBeyondFourGiB) {
    const Bytes bytes = random_bytes(7, 5000);
    const std::shared_ptr<File> file = open("f", O_RDWR | O_CREAT);
    const std::unique_ptr<Queue> q = queue();
    const uint64_t mark = 4 * base::kGiB + 12'345;
    EXPECT_EQ(write_from(q.get(), file.get(), mark, bytes).bytes, bytes.size());
    Identity now;
    ASSERT_TRUE(file->stat(&now).ok());
    EXPECT_EQ(now.size, mark + bytes.size());
    EXPECT_NE(now, file->identity());
    Bytes got(6000, std::byte{1}), expected(1000);
    write_into(&expected, 1000, bytes);
    EXPECT_EQ(read_into(q.get(), file.get(), mark - 1000, &got).bytes, 6000u);
    EXPECT_EQ(got, expected);
}

TEST_P(StorageWriteTest, NothingAskedIsNothingWritten) {
    write("f", 0, random_bytes(5, 10));
    const std::shared_ptr<File> file = open("f", O_RDWR);
    const std::unique_ptr<Queue> q = queue();
    const std::vector<iovec> empty(5, iovec{nullptr, 0});
    for (const uint64_t offset : {uint64_t{0}, uint64_t{10}, uint64_t{INT64_MAX}}) {
        const Completion completion = write_pieces(q.get(), file.get(), offset, empty);
        EXPECT_EQ(completion.error, 0);
        EXPECT_EQ(completion.bytes, 0u);
    }
    EXPECT_EQ(all_of(file.get()), random_bytes(5, 10));
}

TEST_P(StorageWriteTest, RefusedBeforeAnyByteMoves) {
    const Bytes bytes = random_bytes(8, 100);
    write("f", 0, bytes);
    const std::shared_ptr<File> file = open("f", O_RDWR), read_only = open("f");
    const std::unique_ptr<Queue> q = queue();
    Bytes from(16);
    const auto error_of = [&](File* to, uint64_t offset, std::vector<iovec> pieces) {
        const Completion completion = write_pieces(q.get(), to, offset, pieces);
        EXPECT_EQ(completion.bytes, 0u);
        return completion.error;
    };
    const iovec piece{from.data(), from.size()};
    EXPECT_EQ(error_of(file.get(), uint64_t{1} << 63, {piece}), EINVAL);
    EXPECT_EQ(error_of(file.get(), UINT64_MAX, {piece}), EINVAL);
    EXPECT_EQ(error_of(file.get(), INT64_MAX - 15, {piece}), EINVAL);
    EXPECT_EQ(error_of(file.get(), 0, {piece, {from.data(), SIZE_MAX}}), EINVAL);
    EXPECT_EQ(error_of(file.get(), 0, {piece, {nullptr, 1}}), EFAULT);
    EXPECT_EQ(error_of(nullptr, 0, {piece}), EBADF);
    EXPECT_EQ(error_of(read_only.get(), 0, {piece}), EBADF);
    EXPECT_EQ(read_only->truncate(0).error_number(), EBADF);
    EXPECT_EQ(file->truncate(UINT64_MAX).error_number(), EINVAL);
    EXPECT_EQ(all_of(file.get()), bytes);
}

TEST_P(StorageWriteTest, AppendsGoToTheEndWhateverTheirOffset) {
    const std::shared_ptr<File> file = open("f", O_RDWR | O_CREAT | O_APPEND);
    const std::shared_ptr<File> other = open("f", O_RDWR);
    const std::unique_ptr<Queue> q = queue();
    EXPECT_TRUE(file->rights().append);
    EXPECT_FALSE(other->rights().append);
    Bytes flat;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        if (prng.below(5) == 0) {
            const uint64_t size = prng.below(300'000);
            ASSERT_TRUE(other->truncate(size).ok());
            flat.resize(size);
        }
        const Bytes bytes = random_bytes(seed, prng.below(70'000));
        Bytes from = bytes;
        const std::vector<iovec> pieces = split(&prng, from.data(), from.size());
        const Completion done = write_pieces(q.get(), file.get(), prng.below(1000), pieces);
        ASSERT_EQ(done.error, 0);
        ASSERT_EQ(done.bytes, bytes.size());
        EXPECT_TRUE(bytes.empty() || done.offset == flat.size());
        flat.insert(flat.end(), bytes.begin(), bytes.end());
    }
    EXPECT_EQ(all_of(file.get()), flat);
}

TEST_P(StorageWriteTest, FlagsOfOpen) {
    const Bytes bytes = random_bytes(9, 100);
    write("f", 0, bytes);
    EXPECT_EQ(open_error("none", O_RDWR), ENOENT);
    EXPECT_EQ(open_error("none", O_WRONLY), ENOENT);
    EXPECT_EQ(open_error("f", O_RDWR | O_CREAT | O_EXCL), EEXIST);
    EXPECT_EQ(open_error("f", O_RDONLY | O_TRUNC), EINVAL);
    EXPECT_EQ(open_error("f", O_RDWR | O_EXCL), EINVAL);
    EXPECT_EQ(open_error("f", O_RDONLY | O_APPEND), EINVAL);
    EXPECT_EQ(open_error("f", O_RDWR | O_NONBLOCK), EINVAL);
    EXPECT_EQ(open_error("f", O_RDWR | O_DIRECT), EINVAL);
    EXPECT_EQ(open_error("f", O_ACCMODE), EINVAL);
    EXPECT_EQ(all_of(open("f", O_RDWR | O_CREAT).get()), bytes);
    const std::shared_ptr<File> wider = open("f", O_WRONLY);
    EXPECT_TRUE(wider->rights().write);
    EXPECT_TRUE(wider->rights().read);  // as this user may
    EXPECT_FALSE(open("f")->rights().write);
    EXPECT_EQ(open("f", O_WRONLY | O_TRUNC)->size(), 0u);
    EXPECT_EQ(open("new", O_WRONLY | O_CREAT)->size(), 0u);
}

TEST_P(StorageWriteTest, UnlinkedWhileOpen) {
    const Bytes bytes = random_bytes(10, 5000), more = random_bytes(11, 5000);
    write("f", 0, bytes);
    const std::shared_ptr<File> file = open("f", O_RDWR);
    ASSERT_TRUE(storage_->unlink(path("f")).ok());
    EXPECT_EQ(storage_->unlink(path("f")).error_number(), ENOENT);
    EXPECT_EQ(open_error("f", O_RDONLY), ENOENT);
    EXPECT_EQ(write_from(queue().get(), file.get(), 5000, more).bytes, more.size());
    Bytes expected = bytes;
    write_into(&expected, 5000, more);
    EXPECT_EQ(all_of(file.get()), expected);
    EXPECT_TRUE(file->sync(false).ok());
}

TEST_P(StorageWriteTest, EveryThreadWritesItsOwnPart) {
    constexpr uint64_t kPart = 50'001;
    const std::shared_ptr<File> file = open("f", O_RDWR | O_CREAT);
    Bytes flat(4 * kPart);
    ASSERT_TRUE(file->truncate(flat.size()).ok());
    std::vector<std::thread> threads;
    for (uint64_t part = 0; part < 4; ++part) {
        threads.emplace_back([&, part] {
            const std::unique_ptr<Queue> q = queue(2);
            base::Prng prng(part + 1);
            for (int i = 0; i < 50; ++i) {
                const Bytes bytes = random_bytes(prng.next(), 1 + prng.below(20'000));
                const uint64_t offset = part * kPart + prng.below(kPart - bytes.size());
                EXPECT_EQ(write_from(q.get(), file.get(), offset, bytes).bytes, bytes.size());
                std::copy(bytes.begin(), bytes.end(),
                          flat.begin() + static_cast<ptrdiff_t>(offset));
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(all_of(file.get()), flat);
}

// In a process of its own, whose limit it is, and which a signal would end.
TEST_P(StorageWriteTest, BeyondTheFileSizeLimitIsAnErrorAndNoSignal) {
    if (open("f", O_RDWR | O_CREAT)->descriptor() < 0) GTEST_SKIP() << "no files of the kernel";
    const pid_t child = fork();
    if (child == 0) {
        const rlimit limit{8192, 8192};
        std::signal(SIGXFSZ, SIG_DFL);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
        Result<std::shared_ptr<Storage>> own = make_storage(GetParam().options);
        if (!own.ok()) _exit(2);
        const auto file = own.value()->open(path("f"), O_RDWR).value();
        const std::unique_ptr<Queue> q = std::move(own.value()->make_queue(4).value());
        const Completion over = write_from(q.get(), file.get(), 4096, Bytes(8192));
        if (over.error != EFBIG || over.bytes != 4096) _exit(3);
        const Completion beyond = write_from(q.get(), file.get(), 8192, Bytes(1));
        if (beyond.error != EFBIG || beyond.bytes != 0) _exit(4);
        if (file->truncate(8193).error_number() != EFBIG) _exit(5);
        sigset_t pending, mask;
        if (sigpending(&pending) != 0 || sigismember(&pending, SIGXFSZ) != 0) _exit(6);
        if (pthread_sigmask(SIG_BLOCK, nullptr, &mask) != 0 || sigismember(&mask, SIGXFSZ) != 0)
            _exit(7);
        _exit(0);
    }
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFEXITED(state)) << "ended by signal " << WTERMSIG(state);
    EXPECT_EQ(WEXITSTATUS(state), 0);
}

}  // namespace
}  // namespace penstock::storage
