// Goal: what storage refuses of a write, a sync or a cut is told, once, with how far the bytes got,
// and the file stays usable; and what fsync() has promised no crash undoes.
#include <algorithm>
#include <thread>

#include "file/host_read_fixture.h"
#include "file/open_file.h"
#include "storage/ram.h"
#include "testing/bytes.h"
#include "testing/crash_storage.h"
#include "testing/effort.h"
#include "testing/fault_storage.h"
#include "testing/remote_device.h"

namespace penstock {
namespace {

using testing::Bytes;
using testing::Call;
using testing::random_bytes;

std::shared_ptr<file::OpenFile> open(const std::string& path, int flags,
                                     const std::shared_ptr<storage::Storage>& storage,
                                     const Device& device = {}) {
    FileOptions options;
    options.open_flags = flags;
    options.threads = 2;
    auto opened = file::OpenFile::open(path, device, options, storage);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return opened.value();
}

class FaultyWriteTest : public HostReadTest {
protected:
    void SetUp() override {
        HostReadTest::SetUp();
        faulty_ = std::make_shared<testing::FaultStorage>(storage::make_storage({}).value());
        device_ = Device(std::make_shared<testing::RemoteDevice>(
            backend::open_cpu({.permits = 1, .memory_size = 64 << 20}).value()));
        file_ = open(path_, O_RDWR, faulty_, device_);
        device_memory_ = static_cast<std::byte*>(device_.allocate(16 << 20).value());
    }
    void TearDown() override {
        device_.free(device_memory_);
        HostReadTest::TearDown();
    }
    testing::FaultPlan& plan() { return faulty_->plan(); }
    void fail(Call call, uint64_t n, int error) {
        plan().clear();
        plan().inject({.call = call, .first = plan().calls(call) + n, .error = error});
    }

    Device device_;
    std::shared_ptr<testing::FaultStorage> faulty_;
    std::shared_ptr<file::OpenFile> file_;
    std::byte* device_memory_ = nullptr;
};

TEST_F(FaultyWriteTest, TheNthWriteFailsIsToldOnceAndTheFileStaysUsable) {
    constexpr uint64_t kOffset = 777, kSize = 9 << 20;
    const Bytes bytes = random_bytes(1, kSize);
    std::memcpy(device_memory_, bytes.data(), kSize);
    for (const int error : {EIO, ENOSPC, EDQUOT}) {
        for (const CachePolicy cache : {CachePolicy::kAuto, CachePolicy::kBypass}) {
            for (const std::byte* from : {bytes.data(), (const std::byte*)device_memory_}) {
                bool failed = true;
                for (uint64_t n = 1; failed; n += n < 3 ? 1 : 7) {
                    SCOPED_TRACE(::testing::Message() << error << " n " << n);
                    ASSERT_LT(n, 100u);
                    fail(Call::kWrite, n, error);
                    WriteOptions options;
                    options.cache = cache;
                    Report report;
                    const auto done = file_->write(from, kSize, kOffset, options, &report);
                    plan().clear();
                    failed = !done.ok();
                    expect_sums(report);
                    if (failed) {
                        ASSERT_EQ(done.status().error_number(), error);
                        ASSERT_EQ(report.error_number, error);
                        ASSERT_GE(report.error_offset, kOffset);
                        ASSERT_LT(report.error_offset, kOffset + kSize);
                    }
                    const uint64_t good = failed ? report.error_offset - kOffset : kSize;
                    ASSERT_EQ(pread(descriptor_, memory_, kSize, kOffset), ssize_t{kSize});
                    ASSERT_TRUE(testing::equal(memory_, bytes.data(), good));
                    const auto again = file_->write(from, kSize, kOffset, options, nullptr);
                    ASSERT_TRUE(again.ok()) << again.status().message();
                    ASSERT_TRUE(file_->truncate(kFileSize).ok());
                    const Bytes old(kSize);
                    ASSERT_TRUE(file_->write(old.data(), kSize, kOffset, {}, nullptr).ok());
                }
            }
        }
    }
}

TEST_F(FaultyWriteTest, SmallWritesSyncsAndCutsFailOnce) {
    const Bytes bytes = random_bytes(2, 100);
    for (const int error : {EIO, ENOSPC, EDQUOT}) {
        fail(Call::kWrite, 1, error);
        EXPECT_EQ(file_->write(bytes.data(), 100, 5, {}, nullptr).status().error_number(), error);
        EXPECT_EQ(file_->write(bytes.data(), 100, 5, {}, nullptr).value(), 100u);
        fail(Call::kSync, 1, error);
        EXPECT_EQ(file_->fsync(false).error_number(), error);
        EXPECT_TRUE(file_->fsync(false).ok());
        fail(Call::kTruncate, 1, error);
        EXPECT_EQ(file_->truncate(1000).error_number(), error);
        EXPECT_EQ(file_->size().value(), kFileSize);
        EXPECT_TRUE(file_->truncate(kFileSize).ok());
    }
    std::copy(bytes.begin(), bytes.end(), bytes_.begin() + 5);
    ASSERT_EQ(pread(descriptor_, memory_, 1000, 0), 1000);
    EXPECT_TRUE(testing::equal(memory_, bytes_.data(), 1000));
}

// What was written behind the last fsync() before a crash: any of it may have been kept.
struct Unsynced {
    uint64_t offset = 0;
    Bytes bytes;
};

// The first byte of `now` that is neither what was synced nor what somebody wrote there since.
uint64_t first_wrong(const Bytes& now, const Bytes& synced, const std::vector<Unsynced>& later) {
    for (uint64_t at = 0; at < now.size(); ++at) {
        const std::byte before = at < synced.size() ? synced[at] : std::byte{0};
        if (now[at] == before) continue;
        const auto wrote = [&](const Unsynced& write) {
            return at >= write.offset && at - write.offset < write.bytes.size() &&
                   write.bytes[at - write.offset] == now[at];
        };
        if (std::none_of(later.begin(), later.end(), wrote)) return at;
    }
    return now.size();
}

// 200 crashes (30 under ThreadSanitizer), each at another point of a random program of two threads.
TEST(Durability, WhatFsyncPromisedNoCrashUndoes) {
    constexpr uint64_t kPart = 100'000;
    auto crashing = std::make_shared<testing::CrashStorage>(
        std::make_shared<storage::RamStorage>());
    Bytes synced;
    const uint64_t crashes = testing::usually(200, 30);
    uint64_t lost = 0;  // crashes that took something
    for (uint64_t seed = 1; seed <= crashes; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng chance(seed);
        auto file = open("f", O_RDWR | O_CREAT, crashing);
        Bytes flat = synced;
        flat.resize(2 * kPart);
        std::vector<Unsynced> later[2];
        const auto write_some = [&](uint64_t part, uint64_t thread_seed) {
            base::Prng prng(thread_seed);
            for (uint64_t i = prng.below(8); i > 0; --i) {
                const uint64_t offset = part * kPart + prng.below(kPart);
                const uint64_t size = prng.below((part + 1) * kPart - offset + 1);
                Unsynced write{offset, random_bytes(prng.next(), size)};
                const auto done = file->write(write.bytes.data(), size, offset, {}, nullptr);
                ASSERT_TRUE(done.ok()) << done.status().message();
                std::copy(write.bytes.begin(), write.bytes.end(),
                          flat.begin() + static_cast<ptrdiff_t>(offset));
                later[part].push_back(std::move(write));
            }
        };
        const auto write_all = [&] {
            std::thread other(write_some, 1, chance.next());
            write_some(0, chance.next());
            other.join();
        };
        write_all();
        ASSERT_TRUE(file->truncate(2 * kPart).ok());
        ASSERT_TRUE(file->fsync(seed % 2 == 0).ok());
        synced = flat;
        for (auto& writes : later) writes.clear();
        write_all();  // and nobody syncs
        ASSERT_TRUE(crashing->crash(seed % 10 == 0 ? 0 : seed).ok());
        EXPECT_EQ(file->write(synced.data(), 10, 0, {}, nullptr).status().error_number(), EIO);
        file = open("f", O_RDWR, crashing);
        Bytes now(file->size().value());
        ASSERT_EQ(now.size(), synced.size());
        ASSERT_EQ(file->read(now.data(), now.size(), 0, {}, nullptr).value(), now.size());
        std::vector<Unsynced> all = later[0];
        all.insert(all.end(), later[1].begin(), later[1].end());
        ASSERT_EQ(first_wrong(now, synced, all), now.size());
        lost += now != flat ? 1 : 0;
        synced = now;
    }
    EXPECT_GT(lost, crashes / 2);
}

}  // namespace
}  // namespace penstock
