// Reads 4 KiB at each 64 KiB of a file by pread(2), and prints the seconds and a checksum of the
// bytes in the order of the file.
//
//   penstock-program-strided_reader FILE strided|shuffled
//
// `shuffled` reads the same places in an order that is the same in every run. The program does not
// know Penstock.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string_view>
#include <vector>

#include "checksum.h"

namespace {

constexpr size_t kSize = 4096;
constexpr off_t kStride = 65536;
constexpr unsigned kSeed = 1;

std::vector<off_t> places(off_t size, std::string_view order) {
    std::vector<off_t> all;
    for (off_t at = 0; at + static_cast<off_t>(kSize) <= size; at += kStride) all.push_back(at);
    if (order == "shuffled") std::shuffle(all.begin(), all.end(), std::mt19937(kSeed));
    return all;
}

}  // namespace

int main(int count, char** words) {
    if (count != 3) return 2;
    const int fd = open(words[1], O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (fd < 0 || fstat(fd, &status) != 0) return 1;
    const std::vector<off_t> offsets = places(status.st_size, words[2]);
    std::vector<unsigned char> read(offsets.size() * kSize);
    const auto begun = std::chrono::steady_clock::now();
    for (const off_t offset : offsets) {
        unsigned char* to = read.data() + static_cast<size_t>(offset / kStride) * kSize;
        if (pread(fd, to, kSize, offset) != static_cast<ssize_t>(kSize)) return 1;
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
    std::printf("%.9f %u\n", taken.count(), penstock::bench::checksum(read.data(), read.size()));
    return 0;
}
