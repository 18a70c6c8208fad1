// out-of-tree FILE: counts FILE's lines with a kernel.
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "count_lines.h"
#include "penstock/device.h"
#include "penstock/file_system.h"

// What the kernel writes.
struct Answer {
    unsigned long long lines = 0;
    long long error = 0;
};

void check(const char* what, const penstock::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "out-of-tree: %s: %s\n", what, status.message().c_str());
    std::exit(1);
}

template <class T>
T checked(const char* what, penstock::Result<T> result) {
    check(what, result.status());
    return std::move(result.value());
}

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: out-of-tree FILE\n");
        return 2;
    }
    auto device = checked("device", penstock::Device::open());  // a GPU, else the CPU
    auto files = checked("file system", penstock::FileSystem::create(device));  // the page cache
    auto file = checked(argv[1], files.open(argv[1]));  // kernels can also gopen
    auto stream = checked("stream", penstock::Stream::create(device));
    auto* on_device = static_cast<Answer*>(
        checked("device memory", device.allocate(sizeof(Answer))));
    check("launch", penstock::launch(stream, {8, 64}, count_lines, files.device_handle(), file,
                                     &on_device->lines, &on_device->error));
    Answer answer;
    check("copy", stream.copy(&answer, on_device, sizeof answer));
    check("kernel", stream.synchronize());
    device.free(on_device);
    if (answer.error != 0) check(argv[1], {static_cast<int>(-answer.error), "gread", ""});
    check(argv[1], files.close(file));
    std::printf("%s: %llu lines on %s\n", argv[1], answer.lines, device.name().c_str());
}
