// Writes a file from front to end by write(2), and prints the seconds and a checksum of the bytes.
//
//   penstock-program-file_writer FILE SIZE STEP PASSES [fsync]
//
// Each pass writes the whole file, with other bytes. A first pass is not timed. With `fsync` each
// pass ends with one, which is timed. The file is opened for writing alone, and once more to
// compare it. Exit code 1: it has other bytes at the end. The program does not know Penstock.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "checksum.h"

namespace {

struct Work {
    int fd;
    size_t size, step;
    bool syncs;
    std::vector<unsigned char> bytes;  // of one step; each begins with its number in the file
};

void number(Work& work, size_t at, long pass) {
    const uint64_t mark = at * 1000 + static_cast<uint64_t>(pass);
    std::memcpy(work.bytes.data(), &mark, sizeof mark);
}

bool write_all(Work& work, long pass) {
    if (lseek(work.fd, 0, SEEK_SET) != 0) return false;
    for (size_t at = 0; at < work.size; at += work.step) {
        number(work, at, pass);
        if (write(work.fd, work.bytes.data(), work.step) != static_cast<ssize_t>(work.step))
            return false;
    }
    return !work.syncs || fsync(work.fd) == 0;
}

// Returns whether the file holds what the last pass wrote.
bool holds(Work& work, const char* path, long pass, penstock::bench::Checksum* sum) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    std::vector<unsigned char> read(work.step);
    for (size_t at = 0; at < work.size; at += work.step) {
        number(work, at, pass);
        if (pread(fd, read.data(), read.size(), static_cast<off_t>(at)) !=
            static_cast<ssize_t>(read.size()))
            return false;
        if (read != work.bytes) return false;
        sum->add(read.data(), read.size());
    }
    return true;
}

}  // namespace

int main(int count, char** words) {
    if (count < 5 || count > 6) return 2;
    const int fd = open(words[1], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const auto size = static_cast<size_t>(std::atol(words[2]));
    const auto step = static_cast<size_t>(std::atol(words[3]));
    const long passes = std::atol(words[4]);
    if (fd < 0 || step < sizeof(uint64_t) || size % step != 0 || passes < 1) return 1;
    Work work{fd, size, step, count == 6, std::vector<unsigned char>(step)};
    for (size_t i = 0; i < step; ++i) work.bytes[i] = static_cast<unsigned char>(i * 31 >> 3);
    if (!write_all(work, 0)) return 1;
    const auto begun = std::chrono::steady_clock::now();
    for (long pass = 1; pass <= passes; ++pass)
        if (!write_all(work, pass)) return 1;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
    penstock::bench::Checksum sum;
    if (!holds(work, words[1], passes, &sum)) return 1;
    std::printf("%.9f %u\n", taken.count(), sum.value());
    return 0;
}
