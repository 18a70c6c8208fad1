#include "bench/harness/test_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/harness/report.h"

namespace penstock::bench {
namespace {

constexpr uint64_t kPiece = 1 << 20;

}  // namespace

std::string temporary_folder() {
    const char* folder = std::getenv("TMPDIR");
    return folder != nullptr ? folder : "/var/tmp";
}

TestFile::TestFile(uint64_t size, const std::string& folder)
    : path_((folder.empty() ? temporary_folder() : folder) + "/penstock-bench-XXXXXX"),
      size_(size) {
    descriptor_ = mkstemp(path_.data());
    if (descriptor_ < 0) fail(path_ + ": cannot be created");
    std::vector<uint64_t> words(kPiece / 8);
    for (uint64_t offset = 0; offset < size; offset += kPiece) {
        for (size_t i = 0; i < words.size(); ++i) words[i] = stamp(offset + i * 8);
        if (write(descriptor_, words.data(), kPiece) != static_cast<ssize_t>(kPiece)) {
            unlink(path_.c_str());
            fail(path_ + ": cannot be written (disk full?)");
        }
    }
    fsync(descriptor_);
}

TestFile::~TestFile() {
    close(descriptor_);
    unlink(path_.c_str());
}

bool TestFile::warm() const { return warm_file(path_); }

bool TestFile::make_hot() const { return cached_share(path_) == 1.0 || warm(); }

bool warm_file(const std::string& path, double enough) {
    constexpr int kTriesMax = 10;
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) fail(path + ": cannot be read");
    std::vector<char> buffer(kPiece);
    bool cached = false;
    for (int i = 0; i < kTriesMax && !cached; ++i) {
        ssize_t count = 0;
        for (off_t offset = 0; (count = pread(descriptor, buffer.data(), kPiece, offset)) > 0;)
            offset += count;
        if (count < 0) fail(path + ": cannot be read");
        cached = cached_share(path) >= enough;
    }
    close(descriptor);
    return cached;
}

uint64_t count_wrong_and_wipe(unsigned char* bytes, uint64_t offset, uint64_t size) {
    uint64_t wrong = 0;
    const auto look = [&](uint64_t at) {
        if (at < offset || at + 8 > offset + size) return;
        uint64_t word = 0;
        std::memcpy(&word, bytes + (at - offset), sizeof word);
        wrong += word != stamp(at);
        std::memset(bytes + (at - offset), 0, sizeof word);
    };
    if (size < 4096 && offset % 8 == 0) {
        look(offset);
        return wrong;
    }
    for (uint64_t page = offset & ~uint64_t{4095}; page < offset + size; page += 4096)
        look(page + checked_word(page));
    return wrong;
}

double cached_share(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0 || status.st_size == 0) {
        if (file >= 0) close(file);
        return -1;
    }
    const size_t size = static_cast<size_t>(status.st_size);
    void* map = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (map == MAP_FAILED) return -1;
    std::vector<unsigned char> pages((size + 4095) / 4096);
    const int error = mincore(map, size, pages.data());
    munmap(map, size);
    if (error != 0) return -1;
    uint64_t cached = 0;
    for (const unsigned char page : pages) cached += page & 1;
    return static_cast<double>(cached) / static_cast<double>(pages.size());
}

}  // namespace penstock::bench
