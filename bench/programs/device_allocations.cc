// Allocates and frees memory of a device, piece by piece, and prints the seconds of a copy of a
// piece into device memory, of an allocation, and of a free.
//
//   penstock-program-device_allocations DEVICE SIZE COUNT
//
// COUNT pieces are allocated, then filled from host memory, then freed. The first three rounds are
// not timed.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "penstock/device.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 4;  // the last is timed

struct Seconds {
    double copy = 0, allocate = 0, free = 0;
};

double since(Clock::time_point begun) {
    return std::chrono::duration<double>(Clock::now() - begun).count();
}

bool copy_all(const penstock::Device& device, penstock::Stream& stream,
              const std::vector<void*>& pieces, const std::vector<char>& bytes) {
    for (void* piece : pieces) {
        if (device.host_addressable()) {
            std::memcpy(piece, bytes.data(), bytes.size());
        } else if (!stream.copy(piece, bytes.data(), bytes.size()).ok() ||
                   !stream.synchronize().ok()) {
            return false;
        }
    }
    return true;
}

bool run_round(const penstock::Device& device, penstock::Stream& stream,
               const std::vector<char>& bytes, size_t count, Seconds* taken) {
    std::vector<void*> pieces(count);
    auto begun = Clock::now();
    for (void*& piece : pieces) {
        const auto allocated = device.allocate(bytes.size());
        if (!allocated.ok()) return false;
        piece = allocated.value();
    }
    taken->allocate = since(begun);
    begun = Clock::now();
    if (!copy_all(device, stream, pieces, bytes)) return false;
    taken->copy = since(begun);
    begun = Clock::now();
    for (void* piece : pieces) device.free(piece);
    taken->free = since(begun);
    return true;
}

}  // namespace

int main(int count, char** words) {
    if (count != 4) return 2;
    const auto device = penstock::Device::open(words[1]);
    if (!device.ok()) return 1;
    auto stream = penstock::Stream::create(device.value());
    const std::vector<char> bytes(static_cast<size_t>(std::atol(words[2])), 'a');
    const auto pieces = static_cast<size_t>(std::atol(words[3]));
    if (!stream.ok() || bytes.empty() || pieces == 0) return 1;
    Seconds taken;
    for (int i = 0; i < kRounds; ++i)
        if (!run_round(device.value(), stream.value(), bytes, pieces, &taken)) return 1;
    std::printf("%.9f %.9f %.9f\n", taken.copy, taken.allocate, taken.free);
    return 0;
}
