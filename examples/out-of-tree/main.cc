// out-of-tree FILE: counts FILE's lines with a kernel, and again with the C++ library.
//
// Runs on the device that PENSTOCK_DEVICE names; on the CPU backend where there is no GPU.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "count_lines.h"
#include "penstock/device.h"
#include "penstock/file_system.h"

namespace {

int failed(const char* what, const penstock::Status& status) {
    std::fprintf(stderr, "out-of-tree: %s: %s\n", what, status.message().c_str());
    return 1;
}

long long lines_by_the_library(const char* path) {
    std::ifstream file(path, std::ios::binary);
    return std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n');
}

// What the kernel writes.
struct Answer {
    unsigned long long lines = 0;
    long long error = 0;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: out-of-tree FILE\n");
        return 2;
    }
    const char* path = argv[1];
    auto device = penstock::Device::open();
    if (!device.ok()) return failed("device", device.status());
    auto files = penstock::FileSystem::create(device.value());
    if (!files.ok()) return failed("file system", files.status());
    auto file = files.value().open(path);
    if (!file.ok()) return failed(path, file.status());
    auto stream = penstock::Stream::create(device.value());
    if (!stream.ok()) return failed("stream", stream.status());
    auto memory = device.value().allocate(sizeof(Answer));
    if (!memory.ok()) return failed("device memory", memory.status());

    auto* on_device = static_cast<Answer*>(memory.value());
    Answer answer;
    penstock::Status status = penstock::launch(stream.value(), {8, 64}, count_lines,
                                               files.value().device_handle(), file.value(),
                                               &on_device->lines, &on_device->error);
    if (status.ok()) status = stream.value().copy(&answer, on_device, sizeof answer);
    if (status.ok()) status = stream.value().synchronize();
    device.value().free(on_device);
    if (!status.ok()) return failed("kernel", status);
    if (answer.error != 0) return failed(path, {static_cast<int>(-answer.error), "gread", ""});
    status = files.value().close(file.value());
    if (!status.ok()) return failed(path, status);

    const long long expected = lines_by_the_library(path);
    std::printf("%s: %llu lines on %s, %lld by the C++ library\n", path, answer.lines,
                device.value().name().c_str(), expected);
    return static_cast<long long>(answer.lines) == expected ? 0 : 1;
}
