// Goal: whichever write, sync or truncation of the storage fails, its errno is told once, nothing
// that was written is dropped in silence, no kernel hangs, the cache goes on; and what was synced
// outlives a crash.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "system/machine.h"
#include "testing/crash_storage.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

using testing::Call;

constexpr uint64_t kPage = 4096;

Shape shape_of(bool remote, uint64_t frames) {
    Shape shape;
    shape.frames = frames;
    shape.faults = true;
    shape.remote = remote;
    shape.helping = !remote;
    return shape;
}

Bytes read_back(Machine& machine, const char* path, uint64_t size) {
    auto* out = machine.scratch().array<std::byte>(size);
    const auto done = machine.run_block(
        {open_step(0, path), read_step(0, 0, size, out), close_step(0)});
    EXPECT_EQ(done[1].result, static_cast<int64_t>(size));
    return {out, out + size};
}

class WriteFaults : public ::testing::TestWithParam<bool> {};

// The n-th of them fails, n = 1, 2, ...: one call tells it, and the next sync has all of it
// written.
TEST_P(WriteFaults, AreToldOnceAndWhatWasWrittenIsKept) {
    for (const int error : {EIO, ENOSPC}) {
        for (uint64_t n = 1; n < 40; ++n) {
            SCOPED_TRACE("write " + std::to_string(n) + ", errno " + std::to_string(error));
            Machine machine(shape_of(GetParam(), 16));
            ASSERT_TRUE(machine.ok());
            const uint64_t size = 30 * kPage + 100;
            machine.create_file("f", size, 1);
            const char* path = machine.scratch().text(machine.files().path("f"));
            const Bytes bytes = storage::random_bytes(n, size);
            std::byte* from = machine.put(bytes);
            machine.faults().inject({.call = Call::kWrite, .first = n, .error = error});
            const auto done = machine.run_block({open_step(0, path, kOpenReadWrite),
                                                 write_step(0, 0, size, from), sync_step(0),
                                                 sync_step(0), close_step(0)});
            EXPECT_EQ(done[1].result, static_cast<int64_t>(size));
            const bool failed = machine.faults().calls(Call::kWrite) >= n && done[2].result != 0;
            EXPECT_EQ(done[2].result, failed ? -error : 0);
            EXPECT_EQ(done[3].result, 0);
            EXPECT_EQ(done[4].result, 0);
            EXPECT_TRUE(read_back(machine, path, size) == bytes);
            if (machine.faults().calls(Call::kWrite) < n) break;
            EXPECT_TRUE(failed);
        }
    }
}

// The last close has to give up what it cannot write: it says so, and the file's slot is clean.
TEST_P(WriteFaults, TheLastCloseTellsWhatItGivesUp) {
    Machine machine(shape_of(GetParam(), 16));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 3 * kPage, 1);
    const char* path = machine.scratch().text(machine.files().path("f"));
    std::byte* from = machine.put(storage::random_bytes(2, 3 * kPage));
    machine.faults().inject({.call = Call::kWrite, .count = UINT64_MAX, .error = EDQUOT});
    const auto done = machine.run_block(
        {open_step(0, path, kOpenReadWrite), write_step(0, 0, 3 * kPage, from), close_step(0)});
    EXPECT_EQ(done[1].result, static_cast<int64_t>(3 * kPage));
    EXPECT_EQ(done[2].result, -EDQUOT);
    machine.faults().clear();
    const testing::ReferenceFile& file = machine.files().file("f");
    const Bytes found = read_back(machine, path, 3 * kPage);
    EXPECT_EQ(file.mismatch(0, found), found.size()) << "the file is as it was";
}

TEST_P(WriteFaults, AFullDiskEndsWithItsErrno) {
    Machine machine(shape_of(GetParam(), 8), 16 << 20, 1);
    ASSERT_TRUE(machine.ok());
    const uint64_t size = (machine.frame_count() + 42) * kPage;
    machine.create_file("f", kPage, 1);
    machine.create_file("g", 20 * kPage, 2);
    const char* path = machine.scratch().text(machine.files().path("f"));
    const char* other = machine.scratch().text(machine.files().path("g"));
    std::byte* from = machine.put(storage::random_bytes(3, size));
    machine.faults().inject({.call = Call::kWrite, .count = UINT64_MAX, .error = ENOSPC});
    auto done = machine.run_block({open_step(0, path, kOpenReadWrite), write_step(0, 0, size, from),
                                   sync_step(0), close_step(0)});
    EXPECT_EQ(done[1].result, -ENOSPC);
    EXPECT_EQ(done[2].result, -ENOSPC);
    EXPECT_EQ(done[3].result, -ENOSPC);
    machine.faults().clear();
    EXPECT_EQ(machine.files().file("g").mismatch(0, read_back(machine, other, 20 * kPage)),
              20 * kPage);
    done = machine.run_block({open_step(0, path, kOpenReadWrite), write_step(0, 0, size, from),
                              sync_step(0), close_step(0)});
    for (size_t i = 2; i < done.size(); ++i) EXPECT_EQ(done[i].result, 0);
    EXPECT_EQ(done[1].result, static_cast<int64_t>(size));
}

TEST_P(WriteFaults, SyncsAndCutsTellTheirOwn) {
    Machine machine(shape_of(GetParam(), 16));
    ASSERT_TRUE(machine.ok());
    machine.create_file("f", 3 * kPage, 1);
    const char* path = machine.scratch().text(machine.files().path("f"));
    machine.faults().inject({.call = Call::kSync, .error = EIO});
    machine.faults().inject({.call = Call::kTruncate, .error = EIO});
    const auto done = machine.run_block({open_step(0, path, kOpenReadWrite), sync_step(0),
                                         sync_step(0), cut_step(0, 100), stat_step(0),
                                         cut_step(0, 100), stat_step(0), close_step(0)});
    const int64_t wanted[] = {0, -EIO, 0, -EIO, static_cast<int64_t>(3 * kPage), 0, 100, 0};
    for (size_t i = 1; i < done.size(); ++i) EXPECT_EQ(done[i].result, wanted[i]) << i;
}

// A page that is written in part cannot be read: whoever waits for the write is told, at once or
// not, and the next write reads it again.
TEST_P(WriteFaults, AReadThatAWriteNeedsIsToldToWhoWaits) {
    for (const unsigned failed : {0u, 1u}) {  // the first page, the last page
        SCOPED_TRACE(failed);
        Machine machine(shape_of(GetParam(), 16));
        ASSERT_TRUE(machine.ok());
        const uint64_t size = 6 * kPage;
        machine.create_file("f", size, 1);
        const char* path = machine.scratch().text(machine.files().path("f"));
        std::byte* from = machine.put(storage::random_bytes(2, size));
        machine.faults().inject({.call = Call::kRead, .first = failed + 1, .error = EIO});
        const auto done = machine.run_block(
            {open_step(0, path, kOpenReadWrite), begin_write_step(0, 0, 100, 3 * kPage, from),
             wait_step(0), write_step(0, 100, 3 * kPage, from), close_step(0)});
        EXPECT_GE(done[1].result, 0);
        EXPECT_EQ(done[2].result, -EIO);
        EXPECT_EQ(done[3].result, static_cast<int64_t>(3 * kPage));
        EXPECT_EQ(done[4].result, 0);
        const Bytes found = read_back(machine, path, size);
        EXPECT_TRUE(std::equal(from, from + 3 * kPage, found.begin() + 100));
        EXPECT_EQ(machine.files().file("f").mismatch(0, {found.data(), 100}), 100u);
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, WriteFaults, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& remote) {
                             return remote.param ? "remote" : "cpu";
                         });

// 200 crashes (15 under ThreadSanitizer, and on a GPU, where it takes longer to make a machine than
// to use it): what was synced is there, and where nothing was synced over it, all of it.
TEST(WriteDurability, NothingThatWasSyncedIsLost) {
    const uint64_t crashes = on_gpu() ? 15 : testing::usually(200, 15);
    for (uint64_t seed = 0; seed < crashes; ++seed) {
        SCOPED_TRACE(seed);
        base::Prng prng(seed + 1);
        Shape shape;
        shape.frames = 8 + prng.below(20);
        shape.storage = storage::Kind::kRam;
        shape.remote = seed % 4 == 0;
        shape.helping = !shape.remote && seed % 2 == 0;
        Machine machine(shape);
        ASSERT_TRUE(machine.ok());
        const uint64_t size = 20'000 + prng.below(60'000);
        machine.create_file("f", size, seed);
        auto storage = std::make_shared<testing::CrashStorage>(machine.ram().shared_from_this());
        FileSystemOptions options;
        options.page_size = shape.page_size;
        options.cache_size = machine.frame_count() * shape.page_size;
        options.helping = shape.helping;
        auto fs = file::System::create(machine.device(), storage, options);
        ASSERT_TRUE(fs.ok()) << fs.status().message();
        machine.use(std::move(fs.value()));
        const char* path = machine.scratch().text(machine.files().path("f"));
        struct Write {
            uint64_t at;
            Bytes bytes;
        };
        std::vector<Write> later;  // behind the sync: of its bytes either may be found
        std::vector<Step> steps{open_step(0, path, kOpenReadWrite)};
        const auto write = [&](uint64_t at, uint64_t count) {
            Bytes bytes = storage::random_bytes(prng.next(), count);
            steps.push_back(write_step(0, static_cast<int64_t>(at), count, machine.put(bytes)));
            return Write{at, std::move(bytes)};
        };
        Bytes synced = write(0, size).bytes;
        for (uint64_t i = prng.below(20); i > 0; --i) {
            if (prng.below(5) == 0) {  // shorter or longer
                synced.resize(1 + prng.below(synced.size() + 10'000));
                steps.push_back(cut_step(0, synced.size()));
            }
            const Write made = write(prng.below(synced.size() + 3000), 1 + prng.below(5000));
            synced.resize(std::max<uint64_t>(synced.size(), made.at + made.bytes.size()));
            std::copy(made.bytes.begin(), made.bytes.end(),
                      synced.begin() + static_cast<int64_t>(made.at));
        }
        steps.push_back(sync_step(0));
        for (uint64_t i = prng.below(6); i > 0; --i) {
            const uint64_t count = 1 + prng.below(std::min<uint64_t>(synced.size(), 5000));
            later.push_back(write(prng.below(synced.size() - count + 1), count));
        }
        const auto may_be = [&](uint64_t i, std::byte found) {
            return found == synced[i] || std::any_of(later.begin(), later.end(), [&](auto& made) {
                       return i >= made.at && i < made.at + made.bytes.size() &&
                              made.bytes[i - made.at] == found;
                   });
        };
        const auto done = machine.run_block(steps);
        for (size_t i = 1; i < done.size(); ++i) EXPECT_GE(done[i].result, 0);
        ASSERT_TRUE(storage->crash(seed).ok());
        auto file = storage->open(path, 0);
        ASSERT_TRUE(file.ok());
        auto queue = storage->make_queue(1);
        Bytes found(synced.size() + 1);
        EXPECT_EQ(storage::read_into(queue.value().get(), file.value().get(), 0, &found).bytes,
                  synced.size());
        for (uint64_t i = 0; i < synced.size(); ++i)
            ASSERT_TRUE(may_be(i, found[i])) << "byte " << i;
    }
}

}  // namespace
}  // namespace penstock::system_test
