// Goal: what a File writes, from any memory, by any route, from several threads, beside reads, cuts
// and syncs, is what a flat byte array would hold; bad requests are refused with their errno and
// touch nothing.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "file/host_read_fixture.h"
#include "testing/bytes.h"
#include "testing/effort.h"
#include "testing/remote_device.h"

namespace penstock {
namespace {

using testing::Bytes;
using testing::random_bytes;

enum class Memory : uint8_t { kHost, kAddressable, kRemote };

class HostWriteTest : public HostReadTest, public ::testing::WithParamInterface<Memory> {
protected:
    void SetUp() override {
        HostReadTest::SetUp();
        make_device();
    }
    void make_device() {
        if (GetParam() == Memory::kHost) return;
        auto cpu = backend::open_cpu({.permits = 2, .memory_size = 64 << 20}).value();
        device_ = GetParam() == Memory::kAddressable
                      ? Device(cpu)
                      : Device(std::make_shared<testing::RemoteDevice>(cpu));
    }

    File open(int flags = O_RDWR) {
        FileOptions options;
        options.open_flags = flags;
        options.threads = 3;
        auto opened = File::open(path_, device_, options);
        EXPECT_TRUE(opened.ok()) << opened.status().message();
        return opened.value();
    }
    // `size` bytes, of the device half of the time if there is one.
    std::shared_ptr<std::byte> memory(base::Prng* prng, size_t size) {
        if (GetParam() == Memory::kHost || prng->below(2) == 0) {
            auto whole = std::make_shared<Bytes>(size + 8192);
            std::byte* at = whole->data();
            at += (4096 - reinterpret_cast<uintptr_t>(at) % 4096) % 4096;
            return {whole, at + (prng->below(2) == 0 ? 0 : prng->below(4096))};
        }
        auto* at = static_cast<std::byte*>(device_.allocate(size + 4096).value());
        return {at, [device = device_](std::byte* last) mutable { device.free(last); }};
    }
    // By the kernel alone.
    Bytes file_now() const {
        std::ifstream stream(path_, std::ios::binary);
        const std::string all((std::istreambuf_iterator<char>(stream)), {});
        const auto* data = reinterpret_cast<const std::byte*>(all.data());
        return {data, data + all.size()};
    }

    Device device_;
};

std::string name_of(const ::testing::TestParamInfo<Memory>& made) {
    constexpr const char* kNames[] = {"host", "addressable", "remote"};
    return kNames[static_cast<size_t>(made.param)];
}

INSTANTIATE_TEST_SUITE_P(Memories, HostWriteTest,
                         ::testing::Values(Memory::kHost, Memory::kAddressable, Memory::kRemote),
                         name_of);

TEST_P(HostWriteTest, EachThreadsPartEqualsAFlatArray) {
    constexpr uint64_t kThreads = 4, kPart = 5 << 20;
    const File file = open();
    Bytes flat = bytes_;
    // One operation of a thread within its own part of the file, part of which may be cut off.
    const auto step = [&](base::Prng* prng, uint64_t part) {
        const uint64_t grain = prng->below(2) == 0 ? 1 : 4096;
        const uint64_t size = 1 + prng->below(prng->below(3) == 0 ? kPart : 100'000);
        const uint64_t offset = part * kPart + prng->below(kPart - size + 1) / grain * grain;
        const ReadOptions options = random_options(prng);
        const std::shared_ptr<std::byte> at = memory(prng, size);
        std::byte* const expected = flat.data() + offset;
        Report report;
        if (prng->below(3) == 0) {
            const auto got = file.read(at.get(), size, offset, options, &report);
            ASSERT_TRUE(got.ok()) << got.status().message();
            ASSERT_EQ(got.value(), size);
            ASSERT_TRUE(testing::equal(at.get(), expected, size)) << offset << " + " << size;
            return;
        }
        const Bytes bytes = random_bytes(prng->next(), size);
        std::memcpy(at.get(), bytes.data(), size);
        std::memcpy(expected, bytes.data(), size);
        if (prng->below(2) == 0) {
            const auto done = file.write(at.get(), size, offset, options, &report);
            ASSERT_TRUE(done.ok()) << done.status().message();
            ASSERT_EQ(done.value(), size);
        } else {  // in pieces, a future of them all
            std::vector<WritePiece> pieces;
            for (uint64_t from = 0; from < size;) {
                const uint64_t count = std::min(size - from, 1 + prng->below(size));
                pieces.push_back({at.get() + from, count, offset + from});
                from += count;
            }
            const auto future = file.pwritev(pieces, options);
            ASSERT_TRUE(future.ok()) << future.status().message();
            const auto done = future.value().result();
            ASSERT_TRUE(done.ok()) << done.status().message();
            ASSERT_EQ(done.value(), size);
            report = future.value().report();
        }
        ASSERT_EQ(report.bytes_asked, size);
        ASSERT_EQ(report.bytes, size);
        expect_sums(report);
        if (prng->below(20) == 0) {
            ASSERT_TRUE(file.fsync(prng->below(2) == 0).ok());
        }
    };
    base::Prng chance(17);
    for (int round = 0; round < static_cast<int>(testing::usually(5, 1)); ++round) {
        flat.resize(std::max<uint64_t>(flat.size(), kThreads * kPart));
        ASSERT_TRUE(file.truncate(flat.size()).ok());
        std::vector<std::thread> threads;
        for (uint64_t part = 0; part < kThreads; ++part) {
            threads.emplace_back([&, part, seed = chance.next()] {
                base::Prng prng(seed);
                for (int i = 0; i < 30 && !HasFatalFailure(); ++i) step(&prng, part);
            });
        }
        for (std::thread& thread : threads) thread.join();
        if (HasFatalFailure()) return;
        const Bytes now = file_now();
        ASSERT_EQ(now.size(), flat.size());
        ASSERT_EQ(std::mismatch(now.begin(), now.end(), flat.begin()).first - now.begin(),
                  static_cast<ptrdiff_t>(flat.size()));
        const uint64_t cut = chance.below(flat.size() + 100'000);
        ASSERT_TRUE(file.truncate(cut).ok());
        flat.resize(cut);
        ASSERT_EQ(file.size().value(), cut);
        ASSERT_EQ(file_now(), flat);
    }
}

TEST_P(HostWriteTest, ManyFuturesAtOnceThatDoNotOverlap) {
    const File file = open();
    base::Prng prng(3);
    const Bytes bytes = random_bytes(4, kFileSize);
    std::vector<std::shared_ptr<std::byte>> held;
    std::vector<Future> futures;
    uint64_t sum = 0;
    for (uint64_t at = 0; at < kFileSize;) {
        const uint64_t size = std::min<uint64_t>(
            kFileSize - at, 1 + prng.below(prng.below(4) == 0 ? 3 << 20 : 9000));
        held.push_back(memory(&prng, size));
        std::memcpy(held.back().get(), bytes.data() + at, size);
        auto future = file.pwrite(held.back().get(), size, at);
        ASSERT_TRUE(future.ok()) << future.status().message();
        futures.push_back(future.value());
        at += size;
    }
    for (const Future& future : futures) sum += future.result().value();
    EXPECT_EQ(sum, kFileSize);
    EXPECT_EQ(file_now(), bytes);
}

TEST_P(HostWriteTest, BadRequestsTouchNothing) {
    const File file = open(), reader = open(O_RDONLY), writer = open(O_WRONLY);
    File closed = open();
    closed.close();
    Bytes memory(100, std::byte{7});
    const auto error = [&](const File& to, const void* from, uint64_t size, uint64_t offset) {
        const int done = to.write(from, size, offset).status().error_number();
        EXPECT_EQ(to.pwrite(from, size, offset).status().error_number(), done);
        return done;
    };
    EXPECT_EQ(error(reader, memory.data(), 10, 0), EBADF);
    EXPECT_EQ(error(closed, memory.data(), 10, 0), EBADF);
    EXPECT_EQ(error(file, memory.data(), 10, static_cast<uint64_t>(-1)), EINVAL);
    EXPECT_EQ(error(file, memory.data(), 10, INT64_MAX - 9), EINVAL);
    EXPECT_EQ(error(file, memory.data(), static_cast<uint64_t>(-10), 10), EINVAL);
    EXPECT_EQ(error(file, nullptr, 10, 0), EFAULT);
    EXPECT_EQ(file.write(memory.data(), 0, 10).value(), 0u);
    EXPECT_EQ(writer.read(memory.data(), 10, 0).status().error_number(), EBADF);
    EXPECT_EQ(reader.truncate(0).error_number(), EBADF);
    EXPECT_EQ(closed.truncate(0).error_number(), EBADF);
    EXPECT_EQ(closed.fsync().error_number(), EBADF);
    EXPECT_EQ(file.truncate(UINT64_MAX).error_number(), EINVAL);
    EXPECT_TRUE(reader.fsync().ok());
    EXPECT_EQ(file_now(), bytes_);
    FileOptions odd;
    odd.open_flags = O_RDWR | O_DIRECT;
    EXPECT_EQ(File::open(path_, device_, odd).status().error_number(), EINVAL);
    EXPECT_EQ(writer.write(memory.data(), 100, 0).value(), 100u);
}

TEST_P(HostWriteTest, IsSeenByEveryoneAndOutlivesItsName) {
    const File file = open(), other = open(O_RDONLY);
    base::Prng prng(8);
    const Bytes more = random_bytes(9, 3 << 20);
    const std::shared_ptr<std::byte> from = memory(&prng, more.size());
    std::memcpy(from.get(), more.data(), more.size());
    ASSERT_TRUE(file.write(from.get(), more.size(), kFileSize).ok());
    EXPECT_EQ(other.read(memory_, more.size(), kFileSize).value(), more.size());
    EXPECT_TRUE(testing::equal(memory_, more.data(), more.size()));
    ASSERT_EQ(::truncate(path_.c_str(), 100), 0);  // as another process may
    EXPECT_EQ(file.size().value(), 100u);
    ASSERT_EQ(::unlink(path_.c_str()), 0);
    ASSERT_TRUE(file.write(from.get(), more.size(), 100).ok());
    EXPECT_TRUE(file.fsync().ok());
    EXPECT_EQ(other.read(memory_, 4 << 20, 100).value(), more.size());
    EXPECT_TRUE(testing::equal(memory_, more.data(), more.size()));
}

// Writes at and beyond a limit of this process; exits with 0 if each write says EFBIG.
[[noreturn]] void write_beyond_limit(const File& file, std::byte* from) {
    constexpr rlim_t kLimit = 24 << 20;
    const rlimit limit{kLimit, kLimit};
    std::signal(SIGXFSZ, SIG_DFL);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    for (const CachePolicy cache : {CachePolicy::kAuto, CachePolicy::kBypass}) {
        WriteOptions options;
        options.cache = cache;
        for (const uint64_t size : {uint64_t{100}, uint64_t{8 << 20}}) {
            for (const uint64_t before : {uint64_t{0}, uint64_t{60}}) {
                Report report;
                const auto done = file.write(from, size, kLimit - before, options, &report);
                if (done.status().error_number() != EFBIG) _exit(2);
                if (report.error_offset > kLimit) _exit(3);
                const auto future = file.pwrite(from, size, kLimit - before, options);
                if (future.value().result().status().error_number() != EFBIG) _exit(4);
            }
        }
    }
    if (file.truncate(kLimit + 1).error_number() != EFBIG) _exit(5);
    if (file.truncate(kLimit).error_number() != 0) _exit(6);
    _exit(0);
}

// In a process of its own, whose limit it is, and which a signal would end: started anew, as a
// forked one has none of the device's threads.
TEST_P(HostWriteTest, BeyondTheFileSizeLimitIsAnErrorAndNoSignal) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const File file = open();
    base::Prng prng(1);
    const std::shared_ptr<std::byte> from = memory(&prng, 8 << 20);
    EXPECT_EXIT(write_beyond_limit(file, from.get()), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace penstock
