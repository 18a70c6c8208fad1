// File systems for tests. They are mounted where no other process sees them, and end with the test.
//
// Only *_test.cc files include it. Needs root and the right to mount; skips() says what is missing.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

namespace penstock::storage {

// Runs `command` with sh. Returns 0 if it succeeds.
inline int run_quietly(const std::string& command) {
    return std::system(("{ " + command + "; } >/dev/null 2>&1").c_str());
}

// One mounted file system in a folder of its own. From the first one on, this process has a mount
// namespace of its own, so that what a crash leaves behind goes with the process.
class Mount {
public:
    // "ext4", "xfs", "btrfs" on a loop device; "tmpfs"; "overlay" of two folders; "fuse", "fuse
    // direct" by bindfs.
    explicit Mount(const std::string& kind)
        : root_(::testing::TempDir() + "/penstock-mount-XXXXXX") {
        if (mkdtemp(root_.data()) == nullptr) throw std::runtime_error("no scratch folder");
        for (const char* folder : {"", "mnt", "under", "upper", "work"}) {
            std::filesystem::create_directories(root_ + "/" + folder);
            chmod((root_ + "/" + folder).c_str(), 0755);
        }
        skips_ = own_namespace();
        if (skips_.empty()) skips_ = mount_kind(kind);
    }
    ~Mount() {
        if (mounted_) umount2(path().c_str(), MNT_DETACH);
        std::filesystem::remove_all(root_);
    }
    Mount(const Mount&) = delete;
    Mount& operator=(const Mount&) = delete;

    // Returns why this file system is not available here; empty if it is mounted.
    [[nodiscard]] const std::string& skips() const { return skips_; }
    [[nodiscard]] std::string path(const std::string& name = "") const {
        return root_ + "/mnt" + (name.empty() ? "" : "/" + name);
    }
    // Returns the path of the file that an overlay or FUSE shows as `name`.
    [[nodiscard]] std::string under(const std::string& name) const {
        return root_ + "/under/" + name;
    }

private:
    static std::string own_namespace() {
        static const std::string why = [] {
            if (geteuid() != 0) return std::string("mounting needs root");
            if (unshare(CLONE_NEWNS) != 0 ||
                mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
                return std::string("no mounts of our own: ") + std::strerror(errno);
            }
            return std::string();
        }();
        return why;
    }

    std::string mount_kind(const std::string& kind) {
        std::string command;
        if (kind == "tmpfs") {
            command = "mount -t tmpfs none " + path();
        } else if (kind == "overlay") {
            command = "mount -t overlay none -o lowerdir=" + root_ + "/under,upperdir=" + root_ +
                      "/upper,workdir=" + root_ + "/work " + path();
        } else if (kind.starts_with("fuse")) {
            if (run_quietly("command -v bindfs") != 0) return "bindfs is not installed";
            command = std::string("bindfs ") + (kind == "fuse direct" ? "-o direct_io " : "") +
                      root_ + "/under " + path();
        } else {
            if (run_quietly("command -v mkfs." + kind) != 0) {
                return "mkfs." + kind + " is not installed";
            }
            const std::string image = root_ + "/image";
            const std::string force = kind == "ext4" ? " -F " : " -f ";
            command = "truncate -s 320M " + image + " && mkfs." + kind + " -q" + force + image +
                      " && mount -o loop " + image + " " + path();
        }
        mounted_ = run_quietly(command) == 0;
        return mounted_ ? "" : "cannot be mounted here: " + command;
    }

    std::string root_;
    std::string skips_;
    bool mounted_ = false;
};

}  // namespace penstock::storage
