// Goal: a crash loses nothing that was synced, keeps of the rest whole sectors that somebody wrote
// there and nothing else, and ends what is open.
#include "testing/crash_storage.h"

#include <gtest/gtest.h>

#include <set>

#include "storage/ram.h"
#include "storage/storage_fixture.h"

namespace penstock::testing {
namespace {

using storage::Bytes;
using storage::random_bytes;

constexpr uint64_t kSector = CrashStorage::kSectorSize;

class CrashStorageTest : public ::testing::Test {
protected:
    void open(int flags = O_RDWR | O_CREAT) {
        file_ = storage_->open("f", flags).value();
        queue_ = std::move(storage_->make_queue(4).value());
    }
    void write(uint64_t offset, const Bytes& bytes) {
        EXPECT_EQ(storage::write_from(queue_.get(), file_.get(), offset, bytes).bytes,
                  bytes.size());
    }
    Bytes read_all() {
        storage::Identity now;
        EXPECT_TRUE(file_->stat(&now).ok());
        Bytes got(now.size);
        EXPECT_EQ(storage::read_into(queue_.get(), file_.get(), 0, &got).bytes, now.size);
        return got;
    }

    std::shared_ptr<CrashStorage> storage_ = std::make_shared<CrashStorage>(
        std::make_shared<storage::RamStorage>());
    std::shared_ptr<storage::File> file_;
    std::unique_ptr<storage::Queue> queue_;
};

TEST_F(CrashStorageTest, SeedZeroLosesAllThatIsNotSynced) {
    const Bytes first = random_bytes(1, 5000), second = random_bytes(2, 5000);
    open();
    write(0, first);
    EXPECT_EQ(read_all(), first);
    ASSERT_TRUE(file_->sync(false).ok());
    write(2500, second);
    ASSERT_TRUE(file_->truncate(6000).ok());
    EXPECT_EQ(storage_->unsynced(), 2u);
    ASSERT_TRUE(storage_->crash(0).ok());
    Bytes byte(1);
    EXPECT_EQ(storage::read_into(queue_.get(), file_.get(), 0, &byte).error, EIO);
    EXPECT_EQ(storage::write_from(queue_.get(), file_.get(), 0, byte).error, EIO);
    EXPECT_EQ(file_->sync(false).error_number(), EIO);
    EXPECT_EQ(file_->truncate(0).error_number(), EIO);
    storage::Identity now;
    EXPECT_EQ(file_->stat(&now).error_number(), EIO);
    open();
    EXPECT_EQ(read_all(), first);
}

TEST_F(CrashStorageTest, EachSectorIsOneThatWasWrittenThere) {
    uint64_t old_kept = 0, new_kept = 0, mixed = 0;
    for (uint64_t seed = 1; seed <= 100; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const Bytes first = random_bytes(seed, 16 * kSector);
        const Bytes second = random_bytes(seed + 1000, 16 * kSector);
        open(O_RDWR | O_CREAT | O_TRUNC);
        write(0, first);
        ASSERT_TRUE(file_->sync(true).ok());
        write(0, second);
        ASSERT_TRUE(storage_->crash(seed).ok());
        open();
        const Bytes now = read_all();
        ASSERT_EQ(now.size(), first.size());
        std::set<bool> kinds;
        for (uint64_t at = 0; at < now.size(); at += kSector) {
            const auto same = [&](const Bytes& bytes) {
                return std::equal(now.begin() + static_cast<ptrdiff_t>(at),
                                  now.begin() + static_cast<ptrdiff_t>(at + kSector),
                                  bytes.begin() + static_cast<ptrdiff_t>(at));
            };
            ASSERT_TRUE(same(first) || same(second)) << at;
            kinds.insert(same(second));
            ++(same(second) ? new_kept : old_kept);
        }
        mixed += kinds.size() == 2 ? 1 : 0;
    }
    EXPECT_GT(old_kept, 300u);  // the crashes differ
    EXPECT_GT(new_kept, 300u);
    EXPECT_GT(mixed, 30u);
}

TEST_F(CrashStorageTest, NothingSyncedIsLostUnderRandomWritesAndCuts) {
    for (uint64_t seed = 1; seed <= 50; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        open(O_RDWR | O_CREAT | O_TRUNC);
        for (int i = 0; i < 20; ++i) {
            write(prng.below(20'000), random_bytes(prng.next(), prng.below(5000)));
            if (prng.below(4) == 0) {
                ASSERT_TRUE(file_->truncate(prng.below(20'000)).ok());
            }
        }
        const Bytes before = read_all();
        ASSERT_TRUE(file_->sync(false).ok());
        ASSERT_TRUE(storage_->crash(seed).ok());
        open();
        ASSERT_EQ(read_all(), before);
    }
}

}  // namespace
}  // namespace penstock::testing
