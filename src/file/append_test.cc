// Goal: what a File opened with O_APPEND writes goes to the end that the file has at that time, by
// any call, from any memory, in the order of the calls, and beside other processes; the report
// tells where; offsets are refused.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>
#include <utility>

#include "file/host_read_fixture.h"
#include "file/open_file.h"
#include "testing/bytes.h"
#include "testing/effort.h"
#include "testing/fault_storage.h"
#include "testing/remote_device.h"

namespace penstock {
namespace {

using testing::Bytes;
using testing::random_bytes;

enum class Memory : uint8_t { kHost, kAddressable, kRemote };

Bytes bytes_of(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    const std::string all((std::istreambuf_iterator<char>(stream)), {});
    const auto* data = reinterpret_cast<const std::byte*>(all.data());
    return {data, data + all.size()};
}

FileOptions appending(int more = 0, unsigned threads = 3) {
    FileOptions options;
    options.open_flags = O_RDWR | O_APPEND | more;
    options.threads = threads;
    return options;
}

class AppendTest : public HostReadTest, public ::testing::WithParamInterface<Memory> {
protected:
    void SetUp() override {
        HostReadTest::SetUp();
        if (GetParam() == Memory::kHost) return;
        auto cpu = backend::open_cpu({.permits = 2, .memory_size = 64 << 20}).value();
        device_ = GetParam() == Memory::kAddressable
                      ? Device(cpu)
                      : Device(std::make_shared<testing::RemoteDevice>(cpu));
    }
    // Holds `bytes`: in memory of the device if there is one.
    std::shared_ptr<std::byte> memory(const Bytes& bytes) {
        std::shared_ptr<std::byte> at;
        if (GetParam() == Memory::kHost) {
            auto whole = std::make_shared<Bytes>(bytes.size() + 1);
            at = {whole, whole->data()};
        } else {
            at = {static_cast<std::byte*>(device_.allocate(bytes.size() + 1).value()),
                  [device = device_](std::byte* last) mutable { device.free(last); }};
        }
        std::copy(bytes.begin(), bytes.end(), at.get());
        return at;
    }

    Device device_;
};

std::string name_of_memory(const ::testing::TestParamInfo<Memory>& made) {
    constexpr const char* kNames[] = {"host", "addressable", "remote"};
    return kNames[static_cast<size_t>(made.param)];
}

INSTANTIATE_TEST_SUITE_P(Memories, AppendTest,
                         ::testing::Values(Memory::kHost, Memory::kAddressable, Memory::kRemote),
                         name_of_memory);

// One append in flight, and where it must go.
struct Begun {
    std::shared_ptr<std::byte> from;
    Future future;
    uint64_t offset = 0, size = 0;
};

void expect_done(const Begun& begun) {
    const auto done = begun.future.result();
    ASSERT_TRUE(done.ok()) << done.status().message();
    EXPECT_EQ(done.value(), begun.size);
    EXPECT_EQ(begun.future.report().bytes, begun.size);
    EXPECT_TRUE(begun.size == 0 || begun.future.report().offset == begun.offset);
}

TEST_P(AppendTest, RandomProgramsEqualAFlatArray) {
    for (uint64_t seed = 1; seed <= testing::usually(6, 2); ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        const File file = File::open(path_, device_, appending(seed == 1 ? 0 : O_TRUNC)).value();
        Bytes flat = seed == 1 ? bytes_ : Bytes();
        std::deque<Begun> begun;
        for (int step = 0; step < 40; ++step) {
            ReadOptions options = random_options(&prng);
            const uint64_t most = prng.below(6) == 0 ? 5 << 20 : 30'000;
            const Bytes bytes = random_bytes(prng.next(), prng.below(most));
            Begun next{memory(bytes), {}, flat.size(), bytes.size()};
            std::vector<WritePiece> pieces{{next.from.get(), bytes.size(), kAtEnd}};
            while (prng.below(3) != 0 && pieces.back().size > 1) {
                WritePiece& last = pieces.back();
                const uint64_t head = prng.below(last.size);
                const auto* const tail = static_cast<const std::byte*>(last.from) + head;
                const WritePiece rest{tail, std::exchange(last.size, head) - head, kAtEnd};
                pieces.push_back(rest);
            }
            flat.insert(flat.end(), bytes.begin(), bytes.end());
            if (prng.below(2) == 0) {
                auto future = file.pwritev(pieces, options);
                ASSERT_TRUE(future.ok()) << future.status().message();
                next.future = future.value();
                begun.push_back(std::move(next));
            } else {
                Report report;
                const auto done = file.writev(pieces, options, &report);
                ASSERT_TRUE(done.ok()) << done.status().message();
                EXPECT_EQ(done.value(), bytes.size());
                EXPECT_EQ(report.bytes_asked, bytes.size());
                expect_sums(report);
                EXPECT_TRUE(bytes.empty() || report.offset == next.offset);
            }
            if (prng.below(8) == 0) {  // all is there, then a part of it is cut off
                for (; !begun.empty(); begun.pop_front()) expect_done(begun.front());
                ASSERT_EQ(file.size().value(), flat.size());
                flat.resize(prng.below(flat.size() + 1));
                ASSERT_TRUE(file.truncate(flat.size()).ok());
            }
        }
        for (; !begun.empty(); begun.pop_front()) expect_done(begun.front());
        EXPECT_EQ(bytes_of(path_), flat);
        const uint64_t seen = std::min<uint64_t>(flat.size(), kMemory);
        ASSERT_EQ(file.read(memory_, seen, flat.size() - seen).value(), seen);
        EXPECT_TRUE(testing::equal(memory_, flat.data() + flat.size() - seen, seen));
    }
}

TEST_P(AppendTest, OffsetsAreRefusedAndTouchNothing) {
    const File file = File::open(path_, device_, appending()).value();
    const auto from = memory(random_bytes(1, 100));
    const WritePiece mixed[] = {{from.get(), 10, kAtEnd}, {from.get(), 10, 5}};
    for (const uint64_t offset : {uint64_t{0}, uint64_t{5}, uint64_t{kFileSize}, kAtEnd - 1}) {
        EXPECT_EQ(file.write(from.get(), 10, offset).status().error_number(), EINVAL);
        EXPECT_EQ(file.pwrite(from.get(), 10, offset).status().error_number(), EINVAL);
    }
    EXPECT_EQ(file.writev(mixed, {}).status().error_number(), EINVAL);
    EXPECT_EQ(file.pwritev(mixed, {}).status().error_number(), EINVAL);
    EXPECT_EQ(file.write(nullptr, 10, kAtEnd).status().error_number(), EFAULT);
    EXPECT_EQ(file.write(from.get(), UINT64_MAX, kAtEnd).status().error_number(), EINVAL);
    EXPECT_EQ(file.write(from.get(), 0, kAtEnd).value(), 0u);
    EXPECT_EQ(file.read(memory_, 10, kAtEnd).status().error_number(), EINVAL);
    FileOptions plain;
    plain.open_flags = O_RDWR;
    const File other = File::open(path_, device_, plain).value();
    EXPECT_EQ(other.write(from.get(), 10, kAtEnd).status().error_number(), EINVAL);
    plain.open_flags = O_RDONLY | O_APPEND;
    EXPECT_EQ(File::open(path_, device_, plain).status().error_number(), EINVAL);
    EXPECT_EQ(bytes_of(path_), bytes_);
}

TEST_P(AppendTest, TheCacheIsBypassedByNoneAndStrictOnesFail) {
    const File file = File::open(path_, device_, appending()).value();
    const Bytes bytes = random_bytes(1, 9 << 20);
    const auto from = memory(bytes);
    WriteOptions options;
    options.cache = CachePolicy::kBypass;
    Report report;
    ASSERT_EQ(file.write(from.get(), bytes.size(), kAtEnd, options, &report).value(), bytes.size());
    EXPECT_EQ(report.bytes_by(RouteReason::kUnaligned), bytes.size());
    EXPECT_EQ(report.bytes_by(Route::kCached), bytes.size());
    EXPECT_EQ(report.transfers, 1u);
    options.strict = true;
    EXPECT_EQ(file.write(from.get(), 10, kAtEnd, options).status().error_number(), EOPNOTSUPP);
    EXPECT_EQ(file.size().value(), kFileSize + bytes.size());
}

// What a process appends in one call: a header, and as many bytes of its own.
struct Record {
    uint64_t process = 0, number = 0, size = 0;
};

// Appends `count` records of up to `most` bytes and exits.
[[noreturn]] void append_records(const std::string& path, uint64_t process, uint64_t count,
                                 uint64_t most) {
    base::Prng prng(process);
    const File file = File::open(path, {}, appending(0, 2)).value();
    const int plain = ::open(path.c_str(), O_WRONLY | O_APPEND);
    std::vector<std::pair<std::unique_ptr<Bytes>, Future>> begun;
    for (uint64_t number = 0; number < count; ++number) {
        const Record record{process, number, prng.below(prng.below(4) == 0 ? most : 10'000)};
        auto bytes = std::make_unique<Bytes>(sizeof record + record.size, std::byte(process));
        std::memcpy(bytes->data(), &record, sizeof record);
        if (process == 3) {  // a program that knows nothing of Penstock
            const auto size = static_cast<ssize_t>(bytes->size());
            if (::write(plain, bytes->data(), bytes->size()) != size) _exit(1);
        } else if (prng.below(2) == 0) {
            begun.emplace_back(std::move(bytes), Future());
            const Bytes& kept = *begun.back().first;
            begun.back().second = file.pwrite(kept.data(), kept.size(), kAtEnd).value();
        } else {
            Report report;
            if (!file.write(bytes->data(), bytes->size(), kAtEnd, &report).ok()) _exit(2);
            Record there;
            if (!file.read(&there, sizeof there, report.offset).ok()) _exit(3);
            if (std::memcmp(&there, &record, sizeof there) != 0) _exit(4);
        }
    }
    for (auto& [bytes, future] : begun)
        if (!future.result().ok()) _exit(5);
    _exit(0);
}

TEST(AppendProcessesTest, RecordsOfThreeProcessesLieWholeAndInOrder) {
    if (testing::kThreadSanitizer)
        GTEST_SKIP() << "it starts no threads in the child of a process that has some";
    std::string path = ::testing::TempDir() + "/penstock-append-XXXXXX";
    close(mkstemp(path.data()));
    constexpr uint64_t kCount = 60, kMost = 3 << 20;
    std::vector<pid_t> children;
    for (uint64_t process = 1; process <= 3; ++process) {
        const pid_t child = fork();
        if (child == 0) append_records(path, process, kCount, kMost);
        children.push_back(child);
    }
    for (const pid_t child : children) {
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
    const Bytes all = bytes_of(path);
    unlink(path.c_str());
    std::map<uint64_t, uint64_t> next;
    for (size_t at = 0; at < all.size();) {
        Record record;
        ASSERT_LE(at + sizeof record, all.size());
        std::memcpy(&record, all.data() + at, sizeof record);
        at += sizeof record;
        ASSERT_TRUE(record.process >= 1 && record.process <= 3) << at;
        ASSERT_EQ(record.number, next[record.process]++) << at;
        ASSERT_LE(record.size, all.size() - at);
        for (const size_t end = at + record.size; at < end; ++at)
            ASSERT_EQ(all[at], std::byte(record.process)) << at;
    }
    for (const auto& [process, count] : next) EXPECT_EQ(count, kCount) << process;
}

class AppendedFileTest : public HostReadTest {};

TEST_F(AppendedFileTest, ThreadsOfOneFileLoseNothing) {
    const File file = File::open(path_, {}, appending(O_TRUNC)).value();
    std::vector<std::thread> threads;
    for (int t = 1; t <= 4; ++t) {
        threads.emplace_back([&file, t] {
            const Bytes line(1000, std::byte(t));
            for (int i = 0; i < 200; ++i) {
                Report report;
                ASSERT_EQ(file.write(line.data(), line.size(), kAtEnd, &report).value(), 1000u);
                ASSERT_EQ(report.offset % 1000, 0u);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    const Bytes all = bytes_of(path_);
    ASSERT_EQ(all.size(), 800'000u);
    std::map<std::byte, int> lines;
    for (size_t at = 0; at < all.size(); at += 1000) {
        ++lines[all[at]];
        ASSERT_EQ(std::count(all.begin() + at, all.begin() + at + 1000, all[at]), 1000) << at;
    }
    for (const auto& [t, count] : lines) EXPECT_EQ(count, 200);
}

TEST_F(AppendedFileTest, AnAdoptedDescriptorAppendsAndItsDuplicatesStay) {
    const int descriptor = open(path_.c_str(), O_RDWR | O_APPEND);
    const int shared = dup(descriptor);
    lseek(shared, 7, SEEK_SET);
    const File file = File::adopt(descriptor).value();
    EXPECT_EQ(file.options().open_flags, O_RDWR | O_APPEND);
    EXPECT_EQ(file.write("abc", 3, 0).status().error_number(), EINVAL);
    Report report;
    ASSERT_EQ(file.write("abc", 3, kAtEnd, &report).value(), 3u);
    EXPECT_EQ(report.offset, kFileSize);
    ASSERT_EQ(write(shared, "de", 2), 2);  // as another owner of the descriptor
    ASSERT_EQ(file.write("fgh", 3, kAtEnd, &report).value(), 3u);
    EXPECT_EQ(report.offset, kFileSize + 5);
    EXPECT_EQ(lseek(shared, 0, SEEK_CUR), static_cast<off_t>(kFileSize + 5));
    close(shared);
    const Bytes all = bytes_of(path_);
    ASSERT_EQ(all.size(), kFileSize + 8);
    EXPECT_EQ(std::memcmp(all.data() + kFileSize, "abcdefgh", 8), 0);
}

class FaultyAppendTest : public HostReadTest {
protected:
    void SetUp() override {
        HostReadTest::SetUp();
        faulty_ = std::make_shared<testing::FaultStorage>(storage::make_storage({}).value());
        auto opened = file::OpenFile::open(path_, {}, appending(O_TRUNC), faulty_);
        ASSERT_TRUE(opened.ok()) << opened.status().message();
        file_ = opened.value();
    }
    std::shared_ptr<transfer::Job> begin(const char* text) {
        const WritePiece piece{text, std::strlen(text), kAtEnd};
        return file_->start({&piece, 1}, WriteOptions()).value();
    }
    std::string text() {
        const Bytes all = bytes_of(path_);
        return {reinterpret_cast<const char*>(all.data()), all.size()};
    }

    std::shared_ptr<testing::FaultStorage> faulty_;
    std::shared_ptr<file::OpenFile> file_;
};

TEST_F(FaultyAppendTest, AnErrorTellsHowFarItCameAndTheNextGoesOn) {
    for (const int error : {EIO, ENOSPC, EDQUOT}) {
        ASSERT_TRUE(file_->truncate(0).ok());
        ASSERT_EQ(file_->write("0123", 4, kAtEnd, {}, nullptr).value(), 4u);
        faulty_->plan().inject({.call = testing::Call::kWrite,
                                .action = testing::Action::kShort,
                                .first = faulty_->plan().calls(testing::Call::kWrite) + 1,
                                .error = error,
                                .bytes = 3});
        Report report;
        EXPECT_EQ(file_->write("456789", 6, kAtEnd, {}, &report).status().error_number(), error);
        EXPECT_EQ(report.offset, 4u);
        EXPECT_EQ(report.bytes, 3u);
        EXPECT_EQ(report.error_offset, 7u);
        faulty_->plan().clear();
        EXPECT_EQ(file_->write("789", 3, kAtEnd, {}, &report).value(), 3u);
        EXPECT_EQ(report.offset, 7u);
        EXPECT_EQ(text(), "0123456789");
    }
}

TEST_F(FaultyAppendTest, FuturesWaitForEachOtherAndCancelledOnesAreLeftOut) {
    faulty_->plan().inject({.call = testing::Call::kWrite,
                            .action = testing::Action::kBlock,
                            .first = faulty_->plan().calls(testing::Call::kWrite) + 1});
    const auto one = begin("one "), two = begin("two "), three = begin("three "),
               four = begin("four ");
    ASSERT_TRUE(faulty_->plan().wait_blocked(1, 10'000'000'000));
    EXPECT_FALSE(one->cancel());
    EXPECT_TRUE(two->cancel());
    EXPECT_FALSE(three->done());
    std::thread last([this] {  // blocks behind them
        EXPECT_EQ(file_->write("five", 4, kAtEnd, {}, nullptr).value(), 4u);
    });
    faulty_->plan().release();
    last.join();
    EXPECT_TRUE(three->done() && four->done());
    EXPECT_EQ(two->result().status().error_number(), ECANCELED);
    EXPECT_EQ(four->report().offset, 10u);
    EXPECT_EQ(text(), "one three four five");
}

}  // namespace
}  // namespace penstock
