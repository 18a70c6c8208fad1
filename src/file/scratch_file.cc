#include "file/scratch_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "base/units.h"

namespace penstock::file {
namespace {

namespace system = storage::system;

constexpr const char* kOrigin = "scratch file";
constexpr int kTriesMax = 20;

// Returns `path` if it is a folder, else the folder of the file `path`.
std::string folder_of(const std::string& path) {
    struct stat told {};
    if (system::stat(path.c_str(), &told) == 0 && S_ISDIR(told.st_mode)) return path;
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Result<uint64_t> ScratchFile::room(const std::string& path) {
    struct stat there {};
    if (system::stat(path.c_str(), &there) != 0)
        return Status{errno, kOrigin, "there is no such path"};
    struct statfs told {};
    if (system::statfs(folder_of(path).c_str(), &told) != 0)
        return Status{errno, kOrigin, "the file system does not tell what is free"};
    return uint64_t{told.f_bavail} * static_cast<uint64_t>(told.f_frsize);
}

Result<std::unique_ptr<ScratchFile>> ScratchFile::create(const std::string& path, uint64_t size,
                                                         storage::Storage& storage) {
    std::string name = folder_of(path) + "/.penstock-calibrate-XXXXXX";
    const int descriptor = system::make_unique_file(&name);
    if (descriptor < 0) return Status{errno, kOrigin, "no file can be made there"};
    std::unique_ptr<ScratchFile> file(new ScratchFile(descriptor, size));
    Status status;
    if (system::ftruncate(descriptor, static_cast<off_t>(size)) != 0) {
        status = {errno, kOrigin, "it cannot be made so long"};
    } else if (auto opened = storage.open(name, O_RDONLY); !opened.ok()) {
        status = opened.status();
    } else {
        file->source_ = std::make_unique<transfer::Source>(std::move(opened.value()));
        (void)file->source_->file->direct_descriptor();  // opens it while the file has a name
    }
    system::unlink(name.c_str());
    if (!status.ok()) return status;
    return file;
}

Status ScratchFile::fill(uint64_t offset, uint64_t size) {
    // The bytes are random, because storage may compress or share equal blocks.
    base::Prng prng(offset + 1);
    std::vector<uint64_t> words(128 << 10);
    while (size > 0) {
        for (uint64_t& word : words) word = prng.next();
        const size_t wanted = std::min<uint64_t>(size, words.size() * sizeof words[0]);
        const ssize_t count = system::pwrite(descriptor_.get(), words.data(), wanted,
                                             static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return {errno, kOrigin, "it cannot be written"};
        offset += static_cast<uint64_t>(count);
        size -= static_cast<uint64_t>(count);
    }
    return {};
}

Status ScratchFile::sync() {
    if (system::fsync(descriptor_.get()) == 0) return {};
    return {errno, kOrigin, "it cannot be written to storage"};
}

ScratchState ScratchFile::state() {
    if (source_->probe.in_memory()) return ScratchState::kHot;
    constexpr uint64_t kWindow = 8 * base::kMiB;
    std::vector<extent::ResidencyRun> runs(kWindow / 4096 + 2);
    uint64_t resident = 0;
    for (uint64_t at = 0; at < size_;) {
        storage::ResidencyQuestion question;
        question.range = {at, std::min(kWindow, size_ - at)};
        question.grain = kWindow;  // only the sum matters
        const storage::ResidencyAnswer answer = source_->probe.ask(question, runs);
        if (answer.method == storage::ResidencyMethod::kNone) return ScratchState::kUntold;
        for (size_t i = 0; i < answer.runs; ++i) {
            if (runs[i].state == extent::Residency::kUnknown) return ScratchState::kUntold;
            resident += runs[i].resident_size;
        }
        at = answer.end;
    }
    if (resident == 0) return ScratchState::kCold;
    return resident >= size_ ? ScratchState::kHot : ScratchState::kMixed;
}

ScratchState ScratchFile::make_cold() {
    ScratchState found = ScratchState::kUntold;
    for (int i = 0; i < kTriesMax; ++i) {
        // Pages written or read just now stay in per-CPU lists of the kernel for some milliseconds.
        if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(i));
        (void)system::fadvise(descriptor_.get(), 0, 0, POSIX_FADV_DONTNEED);
        found = state();
        if (found != ScratchState::kMixed && found != ScratchState::kHot) break;
        if (source_->probe.in_memory()) break;
    }
    return found;
}

}  // namespace penstock::file
