#include "preemption/workload.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace penstock::workloads {

uint64_t Draw::word() {
    uint64_t word = state_ += 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
}

Status InputFile::write(const Site& site, const void* bytes, size_t size) {
    std::string path = site.folder + "/penstock-input-XXXXXX";
    const int file = mkstemp(path.data());
    if (file < 0) return {errno, "mkstemp", "no file can be made in the folder for inputs"};
    path_ = path;
    int error = 0;
    for (size_t done = 0; done < size && error == 0;) {
        const ssize_t count = ::write(file, static_cast<const char*>(bytes) + done, size - done);
        if (count >= 0)
            done += static_cast<size_t>(count);
        else if (errno != EINTR)
            error = errno;
    }
    if (close(file) != 0 && error == 0) error = errno;
    if (error != 0) return {error, "write", "an input file could not be written"};
    auto opened = site.files->open(path_);
    if (!opened.ok()) return opened.status();
    files_ = site.files;
    descriptor_ = opened.value();
    return {};
}

InputFile::~InputFile() {
    if (files_ != nullptr) (void)files_->close(descriptor_);
    if (!path_.empty()) (void)unlink(path_.c_str());
}

}  // namespace penstock::workloads
