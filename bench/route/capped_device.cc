#include "bench/route/capped_device.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/units.h"
#include "bench/harness/command.h"
#include "bench/harness/test_file.h"

namespace penstock::bench {
namespace {

constexpr const char* kBlkio = "/sys/fs/cgroup/blkio";
constexpr int kTriesMax = 10;  // other programs take loop devices too

std::string because(const std::string& what) { return what + ": " + std::strerror(errno); }

bool write_line(const std::string& path, const std::string& line) {
    std::ofstream file(path);
    file << line << std::flush;
    return file.good();
}

}  // namespace

std::unique_ptr<CappedDevice> CappedDevice::create(uint64_t size, std::string* why_not) {
    std::unique_ptr<CappedDevice> made(new CappedDevice);
    const auto refuse = [&](const std::string& reason) {
        *why_not = reason;
        return nullptr;
    };
    if (access((std::string(kBlkio) + "/blkio.throttle.read_bps_device").c_str(), W_OK) != 0)
        return refuse(because("no blkio throttle of cgroup v1 to write to"));
    // Later mounts are visible to this process only; unmounts of other processes still arrive here.
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
        return refuse(because("no mount namespace of its own"));
    std::string image = temporary_folder() + "/penstock-bench-image-XXXXXX";
    const int descriptor = mkstemp(image.data());
    if (descriptor < 0) return refuse(because(image));
    // A fifth and 64 MiB more, for ext4's own blocks.
    const uint64_t image_size = base::align_up(size + size / 5, base::kMiB) + 64 * base::kMiB;
    const bool sized = posix_fallocate(descriptor, 0, static_cast<off_t>(image_size)) == 0;
    close(descriptor);
    std::string reason = sized ? made->attach(image, image_size) : image + ": disk full";
    unlink(image.c_str());
    if (reason.empty()) reason = made->mount_device();
    if (!reason.empty()) return refuse(reason);
    return made;
}

std::string CappedDevice::attach(const std::string& image, uint64_t size) {
    const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0) return because("/dev/loop-control");
    loop_config config{};
    config.fd = static_cast<uint32_t>(open(image.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
    config.info.lo_sizelimit = size;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
    bool attached = false;
    for (int i = 0; i < kTriesMax && !attached; ++i) {
        if (loop_ >= 0) close(loop_);
        device_ = "/dev/loop" + std::to_string(ioctl(control, LOOP_CTL_GET_FREE));
        loop_ = open(device_.c_str(), O_RDWR | O_CLOEXEC);
        attached = loop_ >= 0 && ioctl(loop_, LOOP_CONFIGURE, &config) == 0;
    }
    std::string reason = attached ? "" : because(device_);
    close(static_cast<int>(config.fd));
    close(control);
    return reason;
}

std::string CappedDevice::mount_device() {
    const CommandResult made = run_command({"mkfs.ext4", "-q", "-F", "-E",
                                            "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
                                            device_});
    if (made.exit_code != 0) return "mkfs.ext4 failed or is not installed";
    std::string folder = temporary_folder() + "/penstock-bench-mount-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) return because(folder);
    if (mount(device_.c_str(), folder.c_str(), "ext4", MS_NOATIME, nullptr) != 0) {
        std::string reason = because("mount " + device_);
        rmdir(folder.c_str());
        return reason;
    }
    folder_ = folder;
    return "";
}

std::string CappedDevice::cap(double bandwidth_mbs) {
    struct stat status {};
    if (fstat(loop_, &status) != 0) return because(device_);
    cgroup_ = std::string(kBlkio) + "/penstock-bench-" + std::to_string(getpid());
    if (mkdir(cgroup_.c_str(), 0755) != 0) return because(cgroup_);
    const std::string rule = std::to_string(major(status.st_rdev)) + ":" +
                             std::to_string(minor(status.st_rdev)) + " " +
                             std::to_string(static_cast<uint64_t>(bandwidth_mbs * 1e6));
    if (!write_line(cgroup_ + "/blkio.throttle.read_bps_device", rule) ||
        !write_line(cgroup_ + "/cgroup.procs", std::to_string(getpid()))) {
        return cgroup_ + ": cannot be written";
    }
    return "";
}

CappedDevice::~CappedDevice() {
    if (!cgroup_.empty()) {
        write_line(std::string(kBlkio) + "/cgroup.procs", std::to_string(getpid()));
        rmdir(cgroup_.c_str());
    }
    if (!folder_.empty()) {
        umount2(folder_.c_str(), MNT_DETACH);
        rmdir(folder_.c_str());
    }
    if (loop_ >= 0) close(loop_);
}

}  // namespace penstock::bench
