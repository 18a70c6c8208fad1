// Calls write(2) many times for a file of its own, and prints how many seconds that took.
//
//   penstock-program-foreign_write FILE CALLS
//
// A call writes 64 bytes. After each MiB the program writes from the beginning again, so that all
// but the first MiB are hot. It does not know Penstock. Exit code 1: the file has other bytes.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t kSize = 64;
constexpr long kCallsOfRound = (1 << 20) / kSize;
using Record = std::array<char, kSize>;

void number(Record& record, long call) { std::memcpy(record.data(), &call, sizeof call); }

bool write_all(int fd, Record& record, long calls) {
    for (long i = 0; i < calls; ++i) {
        if (i % kCallsOfRound == 0 && lseek(fd, 0, SEEK_SET) != 0) return false;
        number(record, i);
        if (write(fd, record.data(), kSize) != static_cast<ssize_t>(kSize)) return false;
    }
    return true;
}

// Returns whether the last round of calls left the right bytes.
bool holds(int fd, Record& record, long calls) {
    const long first = (calls - 1) / kCallsOfRound * kCallsOfRound;
    for (long i = first; i < calls; ++i) {
        Record read{};
        number(record, i);
        const off_t offset = (i - first) * static_cast<off_t>(kSize);
        if (pread(fd, read.data(), kSize, offset) != static_cast<ssize_t>(kSize)) return false;
        if (read != record) return false;
    }
    return true;
}

}  // namespace

int main(int count, char** words) {
    if (count != 3) return 2;
    const int fd = open(words[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const long calls = std::atol(words[2]);
    Record record{};
    record.fill('p');
    if (fd < 0 || calls < 1 || !write_all(fd, record, kCallsOfRound)) return 1;
    const auto begun = std::chrono::steady_clock::now();
    const bool written = write_all(fd, record, calls);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
    if (!written || !holds(fd, record, calls)) return 1;
    std::printf("%.9f\n", taken.count());
    return 0;
}
