// Goal: only regular files open; everything else is refused at once, with the errno and a sentence
// that say why.
#include "storage/descriptor_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/units.h"
#include "storage/mounts_fixture.h"
#include "storage/posix.h"
#include "storage/storage_fixture.h"

namespace penstock::storage {
namespace {

int error_of(const std::string& path, int flags = O_RDONLY) {
    const Result<std::shared_ptr<File>> file = DescriptorFile::open(path, flags);
    EXPECT_TRUE(file.ok() || *file.status().text() != '\0') << path;
    return file.status().error_number();
}

TEST(DescriptorFile, RefusesWhatIsNoRegularFile) {
    const ScratchFolder folder;
    ASSERT_EQ(mkfifo(folder.path("fifo").c_str(), 0644), 0);
    EXPECT_EQ(error_of(folder.path("fifo")), ESPIPE);  // and does not wait for a writer
    EXPECT_EQ(error_of(folder.path("")), EISDIR);
    EXPECT_EQ(error_of("/dev/zero"), ENOTSUP);
    EXPECT_EQ(error_of(folder.path("missing")), ENOENT);
    EXPECT_EQ(error_of(""), ENOENT);
    EXPECT_EQ(error_of(folder.path("missing") + "/below"), ENOENT);
    EXPECT_EQ(error_of(std::string("/dev/null\0x", 11)), EINVAL);
    EXPECT_EQ(error_of(folder.path(std::string(5000, 'x'))), ENAMETOOLONG);
    ASSERT_EQ(symlink("loop", folder.path("loop").c_str()), 0);
    EXPECT_EQ(error_of(folder.path("loop")), ELOOP);

    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    folder.path("socket").copy(address.sun_path, sizeof address.sun_path - 1);
    const int socket_descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(socket_descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(error_of(folder.path("socket")), ESPIPE);
    close(socket_descriptor);
}

TEST(DescriptorFile, RefusesWhatThisUserMayNotRead) {
    const ScratchFolder folder;
    folder.write("secret", 0, random_bytes(1, 10));
    ASSERT_EQ(chmod(folder.path("secret").c_str(), 0000), 0);
    const bool root = geteuid() == 0;  // who may read everything
    if (root) {
        ASSERT_EQ(seteuid(65534), 0);
    }
    const int error = error_of(folder.path("secret"));
    if (root) {
        ASSERT_EQ(seteuid(0), 0);
    }
    EXPECT_EQ(error, EACCES);
}

TEST(DescriptorFile, FollowsLinks) {
    const ScratchFolder folder;
    folder.write("f", 0, random_bytes(2, 10));
    ASSERT_EQ(symlink("f", folder.path("link").c_str()), 0);
    const auto direct = DescriptorFile::open(folder.path("f"), O_RDONLY);
    const auto linked = DescriptorFile::open(folder.path("link"), O_RDONLY);
    ASSERT_TRUE(direct.ok() && linked.ok());
    EXPECT_EQ(direct.value()->identity(), linked.value()->identity());
}

TEST(DescriptorFile, DescriptorIsNotInheritedAndBlocks) {
    const ScratchFolder folder;
    folder.write("f", 0, {});
    int descriptor;
    {
        const auto file = DescriptorFile::open(folder.path("f"), O_RDONLY);
        ASSERT_TRUE(file.ok());
        descriptor = file.value()->descriptor();
        EXPECT_EQ(fcntl(descriptor, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        EXPECT_EQ(fcntl(descriptor, F_GETFL) & O_NONBLOCK, 0);
    }
    EXPECT_EQ(fcntl(descriptor, F_GETFD), -1);  // closed with the last reference
}

TEST(DescriptorFile, IdentityIsWhatTheFileSystemSays) {
    const ScratchFolder folder;
    folder.write("f", 0, random_bytes(3, 12'345));
    const auto file = DescriptorFile::open(folder.path("f"), O_RDONLY);
    ASSERT_TRUE(file.ok());
    struct stat state {};
    ASSERT_EQ(stat(folder.path("f").c_str(), &state), 0);
    const Identity& identity = file.value()->identity();
    EXPECT_EQ(identity.device, state.st_dev);
    EXPECT_EQ(identity.inode, state.st_ino);
    EXPECT_EQ(identity.size, 12'345u);
    EXPECT_EQ(identity.mtime_ns, state.st_mtim.tv_sec * 1'000'000'000 + state.st_mtim.tv_nsec);
    EXPECT_EQ(identity.ctime_ns, state.st_ctim.tv_sec * 1'000'000'000 + state.st_ctim.tv_nsec);
    const DirectAlignment alignment = file.value()->direct_alignment();
    if (alignment.offset != 0) {
        EXPECT_TRUE(base::is_power_of_two(alignment.offset));
        EXPECT_TRUE(base::is_power_of_two(alignment.memory));
    }
}

TEST(DescriptorFile, TellsAFileThatGotADeletedOnesInode) {
    const ScratchFolder folder;
    Identity before;
    int reused = 0;
    for (int i = 0; i < 10; ++i) {
        folder.write("f", 0, random_bytes(6, 100));
        const auto file = DescriptorFile::open(folder.path("f"), O_RDONLY);
        ASSERT_TRUE(file.ok());
        const Identity now = file.value()->identity();
        if (now.generation != 0 && now.inode == before.inode) {
            ++reused;
            EXPECT_FALSE(now.same_file(before));
        }
        before = now;
        std::filesystem::remove(folder.path("f"));
    }
    if (reused == 0) GTEST_SKIP() << "no inode was reused, or generations are not told here";
}

TEST(DescriptorFile, TellsAFileWhoseTimeWasSetBack) {
    const ScratchFolder folder;
    folder.write("f", 0, random_bytes(4, 100));
    const auto file = DescriptorFile::open(folder.path("f"), O_RDONLY);
    ASSERT_TRUE(file.ok());
    const Identity before = file.value()->identity();
    usleep(20'000);  // beyond the grain of the file system's clock
    folder.write("f", 0, random_bytes(5, 100));
    const int64_t second = 1'000'000'000;
    const timespec times[2] = {{0, UTIME_OMIT},
                               {before.mtime_ns / second, before.mtime_ns % second}};
    ASSERT_EQ(utimensat(AT_FDCWD, folder.path("f").c_str(), times, 0), 0);
    Identity now;
    ASSERT_TRUE(file.value()->stat(&now).ok());
    EXPECT_EQ(now.mtime_ns, before.mtime_ns);
    EXPECT_NE(now, before);  // the change time tells
}

TEST(DescriptorFile, WritesNothingThatIsNoRegularFile) {
    const ScratchFolder folder;
    ASSERT_EQ(mkfifo(folder.path("fifo").c_str(), 0644), 0);
    for (const int flags : {O_WRONLY, O_RDWR, O_RDWR | O_CREAT, O_WRONLY | O_CREAT | O_TRUNC}) {
        EXPECT_EQ(error_of(folder.path("fifo"), flags), ESPIPE);
        EXPECT_EQ(error_of(folder.path(""), flags), EISDIR);
        EXPECT_EQ(error_of("/dev/null", flags), ENOTSUP);
        EXPECT_EQ(error_of(folder.path("missing") + "/below", flags), ENOENT);
    }
    EXPECT_EQ(error_of(folder.path("fifo"), O_RDWR | O_CREAT | O_EXCL), EEXIST);
    ASSERT_EQ(symlink("nowhere", folder.path("link").c_str()), 0);
    EXPECT_EQ(error_of(folder.path("link"), O_RDWR | O_CREAT | O_EXCL), EEXIST);
    EXPECT_EQ(error_of(folder.path("link"), O_RDWR | O_CREAT), 0);  // what it points to
    EXPECT_TRUE(std::filesystem::exists(folder.path("nowhere")));
    EXPECT_EQ(DescriptorFile::unlink(folder.path("")).error_number(), EISDIR);
    EXPECT_EQ(DescriptorFile::unlink(std::string("f\0x", 3)).error_number(), EINVAL);
}

TEST(DescriptorFile, WritesWhatThisUserMayNotRead) {
    const ScratchFolder folder;
    folder.write("f", 0, random_bytes(1, 10));
    ASSERT_EQ(chmod(folder.path("f").c_str(), 0222), 0);
    const bool root = geteuid() == 0;  // who may read everything
    if (root) {
        ASSERT_EQ(seteuid(65534), 0);
    }
    const auto file = DescriptorFile::open(folder.path("f"), O_WRONLY);
    const int both = error_of(folder.path("f"), O_RDWR);
    if (root) {
        ASSERT_EQ(seteuid(0), 0);
    }
    EXPECT_EQ(both, EACCES);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_FALSE(file.value()->rights().read);
    const std::unique_ptr<Queue> queue = std::move(open_posix()->make_queue(1).value());
    EXPECT_EQ(write_from(queue.get(), file.value().get(), 3, Bytes(4)).bytes, 4u);
    Bytes got(4);
    EXPECT_EQ(read_into(queue.get(), file.value().get(), 3, &got).error, EBADF);
}

TEST(DescriptorFile, SaysWhyAFileSystemTakesNoBytes) {
    const Mount mount("tmpfs");
    if (!mount.skips().empty()) GTEST_SKIP() << mount.skips();
    const std::unique_ptr<Queue> queue = std::move(open_posix()->make_queue(1).value());
    {
        const auto file = DescriptorFile::open(mount.path("f"), O_RDWR | O_CREAT).value();
        ASSERT_EQ(run_quietly("mount -o remount,size=64k " + mount.path()), 0);
        const Completion full = write_from(queue.get(), file.get(), 0, Bytes(1 << 20));
        EXPECT_EQ(full.error, ENOSPC);
        EXPECT_LT(full.bytes, 1u << 20);
        Identity now;
        ASSERT_TRUE(file->stat(&now).ok());
        EXPECT_EQ(full.bytes, now.size);
    }
    ASSERT_EQ(run_quietly("mount -o remount,ro " + mount.path()), 0);
    EXPECT_EQ(error_of(mount.path("f")), 0);
    EXPECT_EQ(error_of(mount.path("f"), O_RDWR), EROFS);
    EXPECT_EQ(error_of(mount.path("f"), O_WRONLY | O_TRUNC), EROFS);
    EXPECT_EQ(error_of(mount.path("new"), O_RDWR | O_CREAT), EROFS);
    EXPECT_EQ(DescriptorFile::unlink(mount.path("f")).error_number(), EROFS);
}

}  // namespace
}  // namespace penstock::storage
