// Writes and reads a file through penstock::FileCache, and copies as many bytes between pinned
// memory and the device, which is what the link does. Prints the seconds of the writes, the reads,
// the copies to the device and those from it.
//
//   penstock-program-file_cache_calls DEVICE FILE SIZE STEP PASSES
//
// Each call has STEP bytes of pinned memory; a pass is SIZE. All passes stay in the cache. A first
// one is not timed. Exit code 1: it failed, or other bytes were read than written.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "penstock/file_cache.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Work {
    size_t size, step;
    long passes;
    char* from;
    char* to;
};

// Returns the seconds of all passes but the first, or -1 after an error.
double time_passes(const Work& work, const std::function<bool(size_t)>& step) {
    Clock::time_point begun;
    for (long pass = 0; pass <= work.passes; ++pass) {
        if (pass == 1) begun = Clock::now();
        for (size_t at = 0; at < work.size; at += work.step)
            if (!step(at)) return -1;
    }
    return std::chrono::duration<double>(Clock::now() - begun).count();
}

bool is_right(const Work& work, const penstock::CachedFile& file) {
    for (size_t at = 0; at < work.size; at += work.step) {
        std::memset(work.to, 0, work.step);
        const auto got = file.read(work.to, work.step, at);
        std::memcpy(work.from, &at, sizeof at);
        if (!got.ok() || std::memcmp(work.from, work.to, work.step) != 0) return false;
    }
    return true;
}

double time_copies(const Work& work, const penstock::Device& device, void* memory, bool to_device) {
    auto stream = penstock::Stream::create(device);
    if (!stream.ok()) return -1;
    return time_passes(work, [&](size_t at) {
        char* const there = static_cast<char*>(memory) + at;
        void* const to = to_device ? there : work.to;
        const void* const from = to_device ? work.from : there;
        if (device.host_addressable()) return std::memcpy(to, from, work.step) != nullptr;
        return stream.value().copy(to, from, work.step).ok() && stream.value().synchronize().ok();
    });
}

bool run(const penstock::Device& device, const char* path, const Work& work) {
    penstock::FileCacheOptions options;
    options.devices = {device};
    options.size = 2 * work.size;
    options.dirty_size_max = 2 * work.size;
    options.dirty_age = std::chrono::hours(1);
    auto cache = penstock::FileCache::create(options);
    if (!cache.ok()) return false;
    auto file = cache.value().adopt(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file.ok()) return false;
    const double written = time_passes(work, [&](size_t at) {
        std::memcpy(work.from, &at, sizeof at);
        return file.value().write(work.from, work.step, at).ok();
    });
    const double read = time_passes(work, [&](size_t at) {
        const auto got = file.value().read(work.to, work.step, at);
        return got.ok() && got.value() == work.step;
    });
    if (!is_right(work, file.value())) return false;
    const auto memory = device.allocate(work.size);
    if (!memory.ok()) return false;
    const double to_device = time_copies(work, device, memory.value(), true);
    const double from_device = time_copies(work, device, memory.value(), false);
    device.free(memory.value());
    std::printf("%.9f %.9f %.9f %.9f\n", written, read, to_device, from_device);
    return written > 0 && read > 0 && to_device > 0 && from_device > 0;
}

}  // namespace

int main(int count, char** words) {
    if (count != 6) return 2;
    const auto device = penstock::Device::open(words[1], {.runs_kernels = false});
    Work work{static_cast<size_t>(std::atol(words[3])), static_cast<size_t>(std::atol(words[4])),
              std::atol(words[5]), nullptr, nullptr};
    if (!device.ok() || work.step < sizeof(size_t) || work.size % work.step != 0) return 1;
    const auto from = device.value().allocate_pinned(work.step);
    const auto to = device.value().allocate_pinned(work.step);
    if (!from.ok() || !to.ok()) return 1;
    work.from = static_cast<char*>(from.value());
    work.to = static_cast<char*>(to.value());
    for (size_t i = 0; i < work.step; ++i) work.from[i] = static_cast<char>(i * 7 + (i >> 12));
    return run(device.value(), words[2], work) ? 0 : 1;
}
