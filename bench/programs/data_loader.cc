// Reads all files of a folder as the data loader of a training program does, and prints the seconds
// of an epoch and the sum of the checksums of all files.
//
//   penstock-program-data_loader FOLDER COUNT SEED THREADS
//
// The files are named 0, 1, ... Each is opened, read as a whole and closed. Threads take the next
// file of an order that SEED tells. The kernel forgets its pages of a file behind the read, as if
// it were short of memory: so the next epoch is served from elsewhere. The program does not know
// Penstock.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "checksum.h"

namespace {

using Bytes = std::vector<unsigned char>;

bool read_file(const std::string& path, Bytes* bytes) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (fd < 0 || fstat(fd, &status) != 0) return false;
    bytes->resize(static_cast<size_t>(status.st_size));
    size_t done = 0;
    for (ssize_t got = 1; done < bytes->size() && got > 0; done += static_cast<size_t>(got))
        got = std::max<ssize_t>(0, read(fd, bytes->data() + done, bytes->size() - done));
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return done == bytes->size();
}

}  // namespace

int main(int count, char** words) {
    if (count != 5) return 2;
    const std::string folder = std::string(words[1]) + "/";
    std::vector<unsigned> order(static_cast<size_t>(std::atol(words[2])));
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), std::mt19937(std::strtoul(words[3], nullptr, 10)));
    std::vector<Bytes> samples(order.size());
    std::atomic<size_t> next{0};
    std::atomic<bool> good{true};
    const auto load = [&] {
        for (size_t at = next++; at < order.size() && good; at = next++) {
            const unsigned file = order[at];
            if (!read_file(folder + std::to_string(file), &samples[file])) good = false;
        }
    };
    const auto begun = std::chrono::steady_clock::now();
    std::vector<std::thread> threads(static_cast<size_t>(std::atol(words[4])));
    for (std::thread& thread : threads) thread = std::thread(load);
    for (std::thread& thread : threads) thread.join();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
    if (!good) return 1;
    uint64_t sum = 0;
    for (const Bytes& sample : samples)
        sum += penstock::bench::checksum(sample.data(), sample.size());
    std::printf("%.9f %llu\n", taken.count(), static_cast<unsigned long long>(sum));
    return 0;
}
