#include "file/file_below.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "storage/system_calls.h"

namespace penstock::file {
namespace {

bool is_gpu(const Device& device) { return !device.host_addressable(); }

}  // namespace

class FilesOfDevices {
public:
    FilesOfDevices(const std::vector<Device>& devices, int descriptor, const FileOptions& options)
        : devices_(devices),
          files_(devices.size() + 1),
          descriptor_(descriptor),
          options_(options) {}

    // `device` is a place in devices_, or their count for the host.
    Result<File> of(size_t device) {
        const std::lock_guard lock(mutex_);
        File& file = files_[device];
        if (!file.closed()) return file;
        const int copy = storage::system::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
        if (copy < 0) return Status{errno, "file cache", "too many files are open"};
        const bool host = device == devices_.size();
        auto adopted = File::adopt(copy, host ? Device() : devices_[device], options_);
        if (!adopted.ok()) {
            storage::system::close(copy);
            return adopted.status();
        }
        return file = std::move(adopted.value());
    }
    [[nodiscard]] const std::vector<Device>& devices() const { return devices_; }

private:
    const std::vector<Device>& devices_;
    std::mutex mutex_;
    std::vector<File> files_;
    const int descriptor_;  // of FileBelow::file
    const FileOptions options_;
};

Result<FileBelow> FileBelow::adopt(int descriptor, const std::vector<Device>& devices,
                                   const FileOptions& options) {
    const auto gpu = std::ranges::find_if(devices, is_gpu);
    auto adopted = File::adopt(descriptor, gpu == devices.end() ? Device() : *gpu, options);
    if (!adopted.ok()) return adopted.status();
    FileBelow below{std::move(adopted.value()), descriptor, nullptr};
    if (gpu != devices.end())
        below.more = std::make_shared<FilesOfDevices>(devices, descriptor, options);
    return below;
}

Result<File> FileBelow::on(uint32_t device) const {
    if (more == nullptr) return file;
    const std::vector<Device>& devices = more->devices();
    if (devices[device].host_addressable()) return on_host();
    const auto first = std::ranges::find_if(devices, is_gpu) - devices.begin();
    return device == first ? Result<File>(file) : more->of(device);
}

Result<File> FileBelow::on_host() const {
    return more == nullptr ? Result<File>(file) : more->of(more->devices().size());
}

}  // namespace penstock::file
