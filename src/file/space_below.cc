#include "file/space_below.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <unistd.h>

#include <cerrno>

#include "storage/system_calls.h"

namespace penstock::file {
namespace {

constexpr int64_t kXfs = 0x58465342;  // XFS_SUPER_MAGIC, which linux/magic.h has since Linux 5.16
constexpr int kTriesMax = 3;          // of a call that a signal has ended
constexpr uint32_t kBlockMin = 512, kBlockMax = 4096;
// Bytes that st_blocks may count for what file systems note about a file. A program that has more
// has taken blocks behind its end for itself.
constexpr uint64_t kMetadataMax = 128 << 10;

}  // namespace

// btrfs, bcachefs and ZFS write copies: they may lack room for what is written to blocks that they
// have given. Network file systems and FUSE do not tell what they do.
SpaceRules space_rules(int descriptor) {
    struct statfs told {};
    if (storage::system::fstatfs(descriptor, &told) != 0) return {};
    const auto block = static_cast<uint64_t>(told.f_bsize);
    const bool power = block >= kBlockMin && (block & (block - 1)) == 0;
    SpaceRules rules{.block = power ? static_cast<uint32_t>(std::min<uint64_t>(block, kBlockMax))
                                    : kBlockMin};
    switch (static_cast<int64_t>(told.f_type)) {
        case EXT4_SUPER_MAGIC:  // of ext2 and ext3 too
        case TMPFS_MAGIC:
        case F2FS_SUPER_MAGIC:
            rules.reserves = rules.keeps = rules.leases = true;
            break;
        case OVERLAYFS_SUPER_MAGIC:  // the folder in it that is written may be of XFS or btrfs
        case kXfs:                   // two files may share blocks, until one of them is written
            rules.reserves = rules.leases = true;
            break;
        default:
            break;
    }
    return rules;
}

int reserve_space(int descriptor, uint64_t begin, uint64_t end) {
    if (end > INT64_MAX) return EFBIG;
    int error = 0;
    for (int tries = 0; tries < kTriesMax; ++tries) {
        const int result = storage::system::fallocate(descriptor, FALLOC_FL_KEEP_SIZE,
                                                      static_cast<off_t>(begin),
                                                      static_cast<off_t>(end - begin));
        error = result == 0 ? 0 : errno;
        if (error != EINTR) break;
    }
    return error;
}

uint64_t end_of_space(int descriptor, uint64_t begin) {
    const off_t hole = storage::system::lseek(descriptor, static_cast<off_t>(begin), SEEK_HOLE);
    return hole < 0 ? begin : static_cast<uint64_t>(hole);
}

bool is_own_file(int descriptor) {
    struct stat state {};
    return storage::system::fstat(descriptor, &state) == 0 &&
           (state.st_uid == geteuid() || geteuid() == 0);
}

uint64_t free_space(int descriptor) {
    struct statfs told {};
    if (storage::system::fstatfs(descriptor, &told) != 0) return 0;
    return told.f_bavail * static_cast<uint64_t>(told.f_frsize);
}

// Of the calls that free such blocks only a truncation does so on all file systems. What another
// program appended just before would be cut off too, so the lease shuts all others out.
int give_back_space(int descriptor, uint64_t size, uint64_t reserved_end, struct stat* now) {
    f_owner_ex owner{F_OWNER_TID, gettid()};
    if (storage::system::fcntl(descriptor, F_SETOWN_EX, &owner) != 0 ||
        storage::system::fcntl(descriptor, F_SETLEASE, F_WRLCK) != 0)
        return errno;
    int error = storage::system::fstat(descriptor, now) == 0 ? 0 : errno;
    const uint64_t blocks = static_cast<uint64_t>(now->st_blocks) * kBlockMin;
    // A truncation takes these from a file.
    const bool privileged = (now->st_mode & (S_ISUID | S_ISGID)) != 0 ||
                            storage::system::fgetxattr(descriptor, "security.capability", nullptr,
                                                       0) >= 0;
    const bool expected = !privileged && static_cast<uint64_t>(now->st_size) == size &&
                          now->st_nlink > 0 &&
                          blocks <= reserved_end + reserved_end / 64 + kMetadataMax;
    if (error == 0 && !expected) error = ESTALE;
    if (error == 0 && storage::system::ftruncate(descriptor, static_cast<off_t>(size)) != 0)
        error = errno;
    if (error == 0) {
        const timespec times[] = {{0, UTIME_OMIT}, now->st_mtim};
        (void)storage::system::utimensat(descriptor, nullptr, times, 0);
        error = storage::system::fstat(descriptor, now) == 0 ? 0 : errno;
    }
    (void)storage::system::fcntl(descriptor, F_SETLEASE, F_UNLCK);
    return error;
}

bool is_lack_of_space(int error) { return error == ENOSPC || error == EDQUOT; }

}  // namespace penstock::file
