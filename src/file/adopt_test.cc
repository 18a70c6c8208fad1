// Goal: files are adopted by their descriptor, ranges are prefetched, the asynchronous names do
// what the old ones do, and PENSTOCK_EXPLAIN prints a line for each read and write.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "file/host_read_fixture.h"

namespace penstock {
namespace {

class AdoptTest : public HostReadTest {};

TEST_F(AdoptTest, ReadsAndWritesAsTheDescriptorWasOpenedAndClosesIt) {
    const int descriptor = open(path_.c_str(), O_RDWR);
    const int shared = dup(descriptor);
    File file = File::adopt(descriptor).value();
    EXPECT_EQ(file.path(), "/proc/self/fd/" + std::to_string(descriptor));
    EXPECT_EQ(file.options().open_flags, O_RDWR);
    unlink(path_.c_str());  // the name is not needed
    ASSERT_EQ(file.read(memory_, 10'000, 777).value(), 10'000u);
    EXPECT_EQ(std::memcmp(memory_, bytes_.data() + 777, 10'000), 0);
    ASSERT_EQ(file.write("abc", 3, 5).value(), 3u);
    close(shared);
    ASSERT_EQ(file.read(memory_, 3, 5).value(), 3u);
    EXPECT_EQ(std::memcmp(memory_, "abc", 3), 0);
    file.close();
    EXPECT_LT(fcntl(descriptor, F_GETFD), 0);
}

TEST_F(AdoptTest, WhatCannotBeAdoptedStaysTheCallers) {
    EXPECT_EQ(File::adopt(-1).status().error_number(), EBADF);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    EXPECT_EQ(File::adopt(ends[0]).status().error_number(), ESPIPE);
    EXPECT_GE(fcntl(ends[0], F_GETFD), 0);
    close(ends[0]);
    close(ends[1]);
    const int folder = open("/", O_RDONLY | O_DIRECTORY);
    EXPECT_EQ(File::adopt(folder).status().error_number(), EISDIR);
    close(folder);
    const int name = open(path_.c_str(), O_PATH);
    EXPECT_EQ(File::adopt(name).status().error_number(), EBADF);
    close(name);
    for (const int flag : {O_DIRECT, O_NONBLOCK}) {
        const int other = open(path_.c_str(), O_RDWR | flag);
        EXPECT_EQ(File::adopt(other).status().error_number(), EINVAL) << flag;
        EXPECT_NE(fcntl(other, F_GETFL) & flag, 0) << "the flag stays";
        close(other);
    }
    const File reader = File::adopt(open(path_.c_str(), O_RDONLY)).value();
    EXPECT_EQ(reader.write("x", 1, 0).status().error_number(), EBADF);
}

TEST_F(AdoptTest, PrefetchBringsARangeIntoThePageCache) {
    File file = File::open(path_).value();
    fsync(descriptor_);
    posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
    const bool cold = file.residency().value().resident_size == 0;  // not on tmpfs
    EXPECT_TRUE(file.prefetch(1 << 20, 1 << 20).ok());
    if (cold) {
        const uint64_t resident = file.residency().value().resident_size;
        EXPECT_GE(resident, 1u << 20);
        EXPECT_LT(resident, kFileSize);
    }
    EXPECT_TRUE(file.prefetch().ok());
    EXPECT_TRUE(file.prefetch(kFileSize, 5).ok());
    EXPECT_TRUE(file.prefetch(UINT64_MAX, UINT64_MAX).ok());
    EXPECT_EQ(file.residency().value().resident_size, kFileSize);
    FileOptions writing;
    writing.open_flags = O_WRONLY;
    EXPECT_EQ(File::open(path_, {}, writing).value().prefetch().error_number(), EBADF);
    file.close();
    EXPECT_EQ(file.prefetch().error_number(), EBADF);
}

TEST_F(AdoptTest, AsynchronousNames) {
    FileOptions both;
    both.open_flags = O_RDWR;
    const File file = File::open(path_, {}, both).value();
    const ReadPiece in{memory_, 100, 50};
    EXPECT_EQ(file.read_async(memory_, 100, 50).value().result().value(), 100u);
    EXPECT_EQ(file.read_async(memory_, 100, 50, {}).value().result().value(), 100u);
    EXPECT_EQ(file.read_async({&in, 1}, {}).value().result().value(), 100u);
    EXPECT_EQ(std::memcmp(memory_, bytes_.data() + 50, 100), 0);
    const WritePiece out{memory_, 100, 50};
    EXPECT_EQ(file.write_async(memory_, 100, 50).value().result().value(), 100u);
    EXPECT_EQ(file.write_async(memory_, 100, 50, {}).value().result().value(), 100u);
    EXPECT_EQ(file.write_async({&out, 1}, {}).value().result().value(), 100u);
}

TEST_F(AdoptTest, ExplainsEachCallWhenTheEnvironmentAsks) {
    const auto lines = [this](const char* wish) {
        setenv("PENSTOCK_EXPLAIN", wish, 1);
        FileOptions both;
        both.open_flags = O_RDWR;
        const auto file = File::open(path_, {}, both);
        unsetenv("PENSTOCK_EXPLAIN");
        if (!file.ok()) return std::string(file.status().origin());
        ::testing::internal::CaptureStderr();
        EXPECT_TRUE(file.value().read(memory_, 100, 7).ok());
        EXPECT_TRUE(file.value().write(memory_, 100, 7).ok());
        EXPECT_FALSE(file.value().read(nullptr, 100, 7).ok());
        const ReadPiece pieces[] = {{memory_, 10, 3}, {memory_, 20, 30}};
        EXPECT_TRUE(file.value().readv(pieces, {}).ok());
        const Future future = file.value().pread(memory_, 1 << 20, 0).value();
        EXPECT_TRUE(future.result().ok());
        usleep(300'000);  // the line may follow the result
        return ::testing::internal::GetCapturedStderr();
    };
    const std::string told = lines("1");
    const std::string head = "penstock: " + path_ + ": ";
    EXPECT_EQ(told.rfind(head + "read 100 bytes at 7: 100 of 100 bytes: 100 cached; because small "
                                "100; 1 transfers, queue ",
                         0),
              0u)
        << told;
    EXPECT_NE(told.find(head + "write 100 bytes at 7: 100 of 100 bytes: 100 cached"),
              std::string::npos);
    EXPECT_NE(told.find(head + "readv 30 bytes at 3: 30 of 30"), std::string::npos);
    EXPECT_NE(told.find(head + "pread 1048576 bytes at 0: 1048576 of"), std::string::npos);
    EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 4);
    EXPECT_EQ(lines("0"), "");
    EXPECT_EQ(lines("maybe"), "PENSTOCK_EXPLAIN");

    Report failed;
    failed.bytes_asked = 8;
    failed.error_number = EIO;
    failed.error_offset = 4;
    EXPECT_EQ(explain(failed),
              "0 of 8 bytes: none; 0 transfers, queue 0.000 ms, plan 0.000 ms, read 0.000 ms, copy "
              "0.000 ms; Input/output error at offset 4 (cached)");
    failed.error_number = 500;  // a FUSE server may return any number below 512
    EXPECT_TRUE(explain(failed).ends_with("; Unknown error 500 at offset 4 (cached)"));
}

}  // namespace
}  // namespace penstock
