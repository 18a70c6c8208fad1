// Goal: if a host read meets errors of storage, all other bytes arrive, once, and the first error
// in the file is named. What was refused takes another route, and the report says so. A stopped
// read ends.
#include "file/host_read_fixture.h"
#include "file/open_file.h"
#include "testing/bytes.h"
#include "testing/fault_storage.h"
#include "testing/remote_device.h"

namespace penstock {
namespace {

// With a storage of its own, whose faults the test chooses.
class FaultyReadTest : public HostReadTest {
protected:
    void open(unsigned threads = 2, const Device& device = {}) {
        auto under = storage::make_storage({});
        ASSERT_TRUE(under.ok());
        faulty_ = std::make_shared<testing::FaultStorage>(under.value());
        FileOptions options;
        options.threads = threads;
        auto opened = file::OpenFile::open(path_, device, options, faulty_);
        ASSERT_TRUE(opened.ok()) << opened.status().message();
        file_ = opened.value();
    }
    testing::FaultPlan& plan() { return faulty_->plan(); }

    std::shared_ptr<testing::FaultStorage> faulty_;
    std::shared_ptr<file::OpenFile> file_;
};

TEST_F(FaultyReadTest, OneBadByteCostsItsExtentAndIsNamed) {
    for (const CachePolicy policy :
         {CachePolicy::kAuto, CachePolicy::kKeep, CachePolicy::kBypass}) {
        open();
        constexpr uint64_t kBad = 5'000'000;
        plan().inject(
            {.action = testing::Action::kBad, .count = UINT64_MAX, .error = EIO, .offset = kBad});
        std::memset(memory_, 0xee, 16 << 20);
        Report report;
        ReadOptions options;
        options.cache = policy;
        const auto got = file_->read(memory_, 16 << 20, 0, options, &report);
        ASSERT_FALSE(got.ok());
        EXPECT_EQ(got.status().error_number(), EIO);
        EXPECT_EQ(report.error_number, EIO);
        EXPECT_LE(report.error_offset, kBad);
        EXPECT_GT(report.error_offset + (5 << 20), kBad);
        expect_sums(report);
        // All that does not lie in the bad transfer, at most four megabytes and its ends.
        EXPECT_TRUE(testing::equal(memory_, bytes_.data(), report.error_offset));
        constexpr uint64_t kBehind = kBad + (4 << 20) + 4096;
        EXPECT_TRUE(
            testing::equal(memory_ + kBehind, bytes_.data() + kBehind, (16 << 20) - kBehind));
    }
}

// In long calls through the page cache, aligned or not, and whatever memory they read to.
TEST_F(FaultyReadTest, OneBadPageCostsThatPage) {
    constexpr uint64_t kSize = 9 << 20;
    ReadOptions options;
    options.cache = CachePolicy::kKeep;
    for (uint64_t seed = 1; seed <= 30; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        open(static_cast<unsigned>(1 + prng.below(2)));
        const uint64_t begin = prng.below(2) == 0 ? 0 : prng.below(100'000);
        const uint64_t bad = begin + prng.below(kSize);
        plan().inject(
            {.action = testing::Action::kBad, .count = UINT64_MAX, .error = EIO, .offset = bad});
        std::memset(memory_, 0xee, kSize);
        Report report;
        const auto got = file_->read(memory_, kSize, begin, options, &report);
        ASSERT_EQ(got.status().error_number(), EIO);
        EXPECT_EQ(report.error_offset, bad);
        expect_sums(report);
        const uint64_t behind = std::min(bad / 4096 * 4096 + 4096, begin + kSize);
        EXPECT_EQ(report.bytes, kSize - (behind - bad));
        EXPECT_TRUE(testing::equal(memory_, bytes_.data() + begin, bad - begin));
        EXPECT_TRUE(testing::equal(memory_ + (behind - begin), bytes_.data() + behind,
                                   begin + kSize - behind));
    }
}

// Each may take storage seconds to give up: a call that meets several is continued behind the first
// and no more. What that costs is counted right, and nothing arrives that is not told.
TEST_F(FaultyReadTest, ManyBadPagesCostACallOneMore) {
    constexpr uint64_t kSize = 16 << 20, kPage = 4096, kEvery = 37;
    ReadOptions options;
    options.cache = CachePolicy::kKeep;
    for (const unsigned threads : {1u, 2u}) {
        open(threads);
        ASSERT_TRUE(file_->read(memory_, kSize, 0, options, nullptr).ok());
        const uint64_t calls = plan().calls(testing::Call::kRead);
        for (uint64_t page = 11; page < kSize / kPage; page += kEvery) {
            plan().inject({.action = testing::Action::kBad,
                           .count = UINT64_MAX,
                           .error = EIO,
                           .offset = page * kPage});
        }
        std::memset(memory_, 0xee, kSize);
        Report report;
        const auto got = file_->read(memory_, kSize, 0, options, &report);
        EXPECT_EQ(got.status().error_number(), EIO);
        EXPECT_EQ(report.error_offset, 11 * kPage);
        expect_sums(report);
        EXPECT_LE(plan().calls(testing::Call::kRead) - calls, 2 * calls);
        uint64_t arrived = 0;
        for (uint64_t at = 0; at < kSize; at += kPage)
            arrived += testing::equal(memory_ + at, bytes_.data() + at, kPage) ? kPage : 0;
        EXPECT_EQ(report.bytes, arrived);
        EXPECT_GE(arrived, calls * kEvery * kPage);
    }
}

TEST_F(FaultyReadTest, TheNthReadFails) {
    for (uint64_t n = 1; n <= 40; ++n) {
        SCOPED_TRACE(::testing::Message() << "read " << n);
        open();
        plan().inject({.first = n, .error = EIO});
        Report report;
        const auto got = file_->read(memory_, 16 << 20, 77, {}, &report);
        expect_sums(report);
        if (plan().calls(testing::Call::kRead) < n) {
            ASSERT_TRUE(got.ok());
            EXPECT_TRUE(testing::equal(memory_, bytes_.data() + 77, 16 << 20));
            return;
        }
        ASSERT_EQ(got.status().error_number(), EIO);
        ASSERT_EQ(report.error_number, EIO);
        ASSERT_TRUE(testing::equal(memory_, bytes_.data() + 77, report.error_offset - 77));
    }
    FAIL() << "the scenario never passed";
}

TEST_F(FaultyReadTest, OneThreadThatSharesWithNobodyTakesAllInOneWindow) {
    for (const unsigned threads : {1u, 2u}) {
        open(threads);
        const ReadPiece piece{memory_, 8 << 20, 0};
        const auto job = file_->start({&piece, 1}, {}).value();
        EXPECT_EQ(job->window_count() == 1, threads == 1);
        EXPECT_TRUE(job->wait(std::chrono::seconds(30)));
    }
}

// Whatever its neighbours' sizes, routes and memory.
TEST_F(FaultyReadTest, OneBadPieceOfManyFailsAlone) {
    auto cpu = backend::open_cpu({.permits = 2, .memory_size = 96 << 20});
    ASSERT_TRUE(cpu.ok());
    const Device device(std::make_shared<testing::RemoteDevice>(cpu.value()));
    auto* const remote = static_cast<std::byte*>(device.allocate(kMemory).value());
    for (uint64_t seed = 1; seed <= 24; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        const bool far = seed % 3 == 0;
        open(static_cast<unsigned>(1 + prng.below(3)), far ? device : Device());
        std::byte* const memory = far ? remote : memory_;
        std::vector<ReadPiece> pieces;
        uint64_t offset = prng.below(3) * 7, size = 0;
        for (; pieces.size() < 24; offset += 8192 + prng.below(2) * 300'000) {
            const uint64_t sizes[] = {500, 5000, 70'000, 300'000, 1'200'000};
            pieces.push_back({memory + size, sizes[prng.below(5)], offset});
            size += pieces.back().size;
            offset += pieces.back().size;
            if (offset > kFileSize - (3 << 20)) break;
        }
        const ReadPiece& bad = pieces[prng.below(pieces.size())];
        plan().inject({.action = testing::Action::kBad,
                       .count = UINT64_MAX,
                       .error = EIO,
                       .offset = bad.offset + prng.below(bad.size)});
        std::memset(memory, 0xee, size);
        ReadOptions options;
        options.cache = static_cast<CachePolicy>(prng.below(4));
        Report report;
        const auto got = file_->readv(pieces, options, &report);
        ASSERT_EQ(got.status().error_number(), EIO);
        EXPECT_GE(report.error_offset, bad.offset);
        EXPECT_LT(report.error_offset, bad.offset + bad.size);
        EXPECT_GE(report.bytes, size - bad.size);
        expect_sums(report);
        for (const ReadPiece& piece : pieces) {
            if (piece.offset == bad.offset) continue;
            ASSERT_TRUE(testing::equal(piece.to, bytes_.data() + piece.offset, piece.size))
                << piece.size << " at " << piece.offset;
        }
    }
    file_.reset();
    device.free(remote);
}

// First in the file, whichever piece it is and whichever is over first.
TEST_F(FaultyReadTest, OfTwoPiecesThatFailTheFirstInTheFileIsNamed) {
    constexpr uint64_t kSize = 1 << 20, kFar = 8 << 20;
    const ReadPiece near{memory_, kSize, 0}, far{memory_ + kFar, kSize, kFar};
    for (const bool far_first : {false, true}) {
        for (const bool in_step : {false, true}) {
            open(1);
            for (const auto& [offset, error] : {std::pair{near.offset, ENXIO}, {kFar, EIO}}) {
                plan().inject({.action = testing::Action::kBad,
                               .count = UINT64_MAX,
                               .error = error,
                               .offset = offset + 70'000});
            }
            const std::vector<ReadPiece> pieces = far_first ? std::vector{far, near}
                                                            : std::vector{near, far};
            Report report;
            int error = 0;
            if (in_step) {
                error = file_->readv(pieces, {}, &report).status().error_number();
            } else {
                const auto job = file_->start(pieces, {}).value();
                ASSERT_TRUE(job->wait(std::chrono::seconds(30)));
                error = job->result().status().error_number();
                report = job->report();
            }
            EXPECT_EQ(error, ENXIO);
            EXPECT_EQ(report.error_number, ENXIO);
            EXPECT_LT(report.error_offset, kSize);
        }
    }
}

TEST_F(FaultyReadTest, DirectReadsThatAreRefusedFallBackAndSaySoAndStrictRaises) {
    open();
    ReadOptions direct;
    direct.route = Route::kDirect;
    fsync(descriptor_);  // dirty pages are not read past the cache
    plan().inject({.count = 1, .error = EINVAL});
    std::memset(memory_, 0, 8 << 20);
    Report report;
    const auto got = file_->read(memory_, 8 << 20, 0, direct, &report);
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_TRUE(testing::equal(memory_, bytes_.data(), 8 << 20));
    EXPECT_GT(report.bytes_by(RouteReason::kRefused), 0u);
    expect_sums(report);
    // The file remembers.
    ASSERT_TRUE(file_->read(memory_, 8 << 20, 0, direct, &report).ok());
    EXPECT_EQ(report.bytes_by(RouteReason::kRefused), 8u << 20);
    direct.strict = true;
    const auto refused = file_->read(memory_, 8 << 20, 0, direct, &report);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().error_number(), EOPNOTSUPP);
    EXPECT_EQ(report.error_number, EOPNOTSUPP);
}

// Symptom: EOPNOTSUPP of a read that had asked for no route.
TEST_F(FaultyReadTest, StrictAloneInsistsOnNothing) {
    constexpr uint64_t kSize = 1 << 20;  // one call, which is the first
    open(1);
    fsync(descriptor_);
    posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
    plan().inject({.action = testing::Action::kBad, .count = 1, .error = EINVAL, .offset = 0});
    ReadOptions strict;
    strict.strict = true;
    Report report;
    const auto got = file_->read(memory_, kSize, 0, strict, &report);
    if (report.error_route == Route::kCached && report.error_number == EINVAL)
        GTEST_SKIP() << "it was a cached one that met the fault";
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_TRUE(testing::equal(memory_, bytes_.data(), kSize));
    EXPECT_GT(report.bytes_by(RouteReason::kRefused), 0u);
    expect_sums(report);
}

// Each byte once, whatever of its neighbours had been read by then.
TEST_F(FaultyReadTest, OneDirectReadThatIsRefusedAmongCachedOnesIsReadOnce) {
    constexpr uint64_t kPart = 1 << 20, kSize = 16 * kPart;
    uint64_t refused = 0;
    base::Prng prng(4);
    for (uint64_t round = 0; round < 48; ++round) {
        fsync(descriptor_);
        posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
        posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);  // or the parts between come too
        for (uint64_t at = 0; at < kSize; at += (2 + round % 2) * kPart)
            ASSERT_EQ(pread(descriptor_, memory_, kPart, static_cast<off_t>(at)), ssize_t{kPart});
        open(1 + static_cast<unsigned>(round % 3));
        plan().inject({.action = testing::Action::kBad,
                       .count = 1,
                       .error = round % 2 == 0 ? EINVAL : EMFILE,
                       .offset = kPart + prng.below(kPart)});
        std::memset(memory_, 0xee, kSize);
        Report report;
        const auto job = file_->start(std::vector<ReadPiece>{{memory_, kSize, 0}}, {}).value();
        ASSERT_TRUE(job->wait(std::chrono::seconds(30))) << "round " << round;
        if (!job->result().ok()) {  // it was a cached one that met the fault
            EXPECT_EQ(job->report().error_route, Route::kCached);
            continue;
        }
        ASSERT_EQ(job->result().value(), kSize);
        ASSERT_TRUE(testing::equal(memory_, bytes_.data(), kSize)) << "round " << round;
        expect_sums(job->report());
        EXPECT_EQ(job->report().bytes, kSize);
        refused += job->report().bytes_by(RouteReason::kRefused);
    }
    EXPECT_GT(refused, 0u) << "or the test shows nothing";
}

// While it is read: from the n-th call on all stand before they move a byte, until it was cut.
TEST_F(FaultyReadTest, AFileThatIsCutWhileItIsReadGivesWhatIsLeft) {
    constexpr uint64_t kSize = 16 << 20, kLeft = 12'345'679;
    for (const CachePolicy policy : {CachePolicy::kAuto, CachePolicy::kBypass}) {
        for (const unsigned threads : {1u, 3u}) {
            // Of many threads the first call may be of the last window.
            for (uint64_t n = 1; n <= (threads == 1 ? 2 : 1); ++n) {
                SCOPED_TRACE(::testing::Message() << static_cast<int>(policy) << ", " << threads
                                                  << " threads, call " << n);
                ASSERT_EQ(pwrite(descriptor_, bytes_.data(), kFileSize, 0),
                          static_cast<ssize_t>(kFileSize));
                ASSERT_EQ(fsync(descriptor_), 0);
                open(threads);
                plan().inject({.action = testing::Action::kBlock, .first = n, .count = UINT64_MAX});
                std::memset(memory_, 0xee, kSize);
                const ReadPiece pieces[] = {{memory_, kSize, 0}};
                ReadOptions options;
                options.cache = policy;
                const auto job = file_->start(pieces, options);
                ASSERT_TRUE(job.ok());
                ASSERT_TRUE(plan().wait_blocked(1, 10'000'000'000));
                EXPECT_EQ(ftruncate(descriptor_, kLeft), 0);
                plan().release();
                ASSERT_TRUE(job.value()->wait(std::chrono::seconds(30)));
                const auto got = job.value()->result();
                ASSERT_TRUE(got.ok()) << got.status().message();
                EXPECT_EQ(got.value(), kLeft);
                EXPECT_EQ(job.value()->report().bytes, kLeft);
                expect_sums(job.value()->report());
                EXPECT_TRUE(testing::equal(memory_, bytes_.data(), kLeft));
                // Nothing that was cut. The kernel fills what a direct read asked for behind the
                // end with zeros.
                for (uint64_t i = kLeft; i < kSize; i += 61)
                    ASSERT_TRUE(memory_[i] == std::byte{0xee} || memory_[i] == std::byte{}) << i;
            }
        }
    }
}

TEST_F(FaultyReadTest, StoppedAndCancelledReadsEnd) {
    open(1);
    plan().inject({.action = testing::Action::kBlock, .count = UINT64_MAX});
    std::vector<ReadPiece> pieces;  // more than are begun at once
    for (uint64_t i = 0; i < 40; ++i) pieces.push_back({memory_ + i * 400'000, 400'000, i});
    auto first = file_->start(pieces, {});
    ASSERT_TRUE(first.ok());
    ASSERT_TRUE(plan().wait_blocked(1, 10'000'000'000));
    auto second = file_->start(pieces, {});
    ASSERT_TRUE(second.ok());
    EXPECT_FALSE(first.value()->cancel());
    EXPECT_TRUE(second.value()->cancel());
    EXPECT_TRUE(second.value()->done());
    EXPECT_EQ(second.value()->result().status().error_number(), ECANCELED);
    EXPECT_FALSE(first.value()->wait(std::chrono::milliseconds(10)));
    first.value()->stop();
    plan().release();
    ASSERT_TRUE(first.value()->wait(std::chrono::seconds(30)));
    EXPECT_EQ(first.value()->result().status().error_number(), ECANCELED);
}

}  // namespace
}  // namespace penstock
