// Reads a file from front to end, 4 KiB a call of pread(2), into memory of a device, and prints the
// seconds and a checksum of the bytes in that memory.
//
//   penstock-program-device_reader FILE DEVICE direct|copy
//
// `direct` passes memory of the device to pread. `copy` reads into pageable memory and copies each
// 4 KiB from there; it needs a device whose memory the host can address.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "checksum.h"
#include "penstock/device.h"

namespace {

constexpr size_t kSize = 4096;

bool read_file(int fd, char* memory, size_t size, bool copies) {
    std::array<char, kSize> between{};
    for (size_t at = 0; at < size; at += kSize) {
        char* to = copies ? between.data() : memory + at;
        if (pread(fd, to, kSize, static_cast<off_t>(at)) != static_cast<ssize_t>(kSize))
            return false;
        if (copies) std::memcpy(memory + at, between.data(), kSize);
    }
    return true;
}

}  // namespace

int main(int count, char** words) {
    if (count != 4) return 2;
    const int fd = open(words[1], O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (fd < 0 || fstat(fd, &status) != 0) return 1;
    const size_t size = static_cast<size_t>(status.st_size) / kSize * kSize;
    const auto device = penstock::Device::open(words[2]);
    if (!device.ok() || !device.value().host_addressable()) return 1;
    const auto memory = device.value().allocate(size);
    if (!memory.ok()) return 1;
    auto* bytes = static_cast<char*>(memory.value());
    std::memset(bytes, 1, size);  // neither way pays for first touches
    const auto begun = std::chrono::steady_clock::now();
    const bool read = read_file(fd, bytes, size, std::string_view(words[3]) == "copy");
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
    if (!read) return 1;
    const auto* const arrived = reinterpret_cast<const unsigned char*>(bytes);
    std::printf("%.9f %u\n", taken.count(), penstock::bench::checksum(arrived, size));
    device.value().free(bytes);
    return 0;
}
