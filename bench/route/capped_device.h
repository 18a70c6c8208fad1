// A disk with a bandwidth that everything goes through, whoever reads and by whatever means: a loop
// device with ext4 on a file of this machine's disk, capped by the block layer for this process
// (blkio, cgroup v1).
//
// Needs root. Goes when the object goes, and also when the program is killed: the mount is seen by
// this process only, and the kernel takes the loop device down with it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace penstock::bench {

class CappedDevice {
public:
    // Room for a file of `size` bytes. Before the program has a second thread: only threads that
    // begin later see the mount. Null where this is not permitted, with the reason.
    static std::unique_ptr<CappedDevice> create(uint64_t size, std::string* why_not);
    ~CappedDevice();
    CappedDevice(const CappedDevice&) = delete;
    CappedDevice& operator=(const CappedDevice&) = delete;

    [[nodiscard]] const std::string& folder() const { return folder_; }
    // From here on this process reads at most so many 10^6 bytes a second from it. Empty: so it is;
    // else why not.
    std::string cap(double bandwidth_mbs);

private:
    CappedDevice() = default;
    std::string attach(const std::string& image, uint64_t size);
    std::string mount_device();

    std::string folder_;  // where it is mounted; empty: nothing to unmount
    std::string device_;  // "/dev/loop3"
    std::string cgroup_;
    int loop_ = -1;
};

}  // namespace penstock::bench
