// random FILE SHARE SEED KEEPS_POPPING: runs each kernel that random_kernels.py made once, and
// prints its results, and how many blocks left. The test puts the declarations of random_kernels.py
// ahead of it.
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "penstock/device.h"
#include "penstock/file_system.h"
#include "penstock/preemption.h"

static void check(const char* what, const penstock::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "random: %s: %s\n", what, status.message().c_str());
    std::exit(1);
}

template <class T>
static T checked(const char* what, penstock::Result<T> result) {
    check(what, result.status());
    return std::move(result.value());
}

int main(int, char** argv) {
    constexpr unsigned kBlocks = 6, kThreads = 64, kCount = kBlocks * kThreads;
    auto device = checked("device", penstock::Device::open("cpu"));
    penstock::PreemptionOptions options;
    options.forced_share = std::atof(argv[2]);
    options.forced_seed = std::strtoull(argv[3], nullptr, 10);
    options.keeps_popping = std::atoi(argv[4]) != 0;
    check("options", penstock::set_preemption(device, options));
    auto files = checked("file system", penstock::FileSystem::create(device));
    const auto file = checked(argv[1], files.open(argv[1]));
    auto stream = checked("stream", penstock::Stream::create(device));
    const auto take = [&](size_t size) { return checked("memory", device.allocate(size)); };
    auto* in = static_cast<unsigned*>(take(4096 * sizeof(unsigned)));
    auto* out = static_cast<unsigned*>(take(kCount * sizeof(unsigned)));
    auto* bytes = static_cast<unsigned char*>(take(kBlocks * 4096));
    for (unsigned i = 0; i < 4096; ++i) in[i] = i * 2654435761u >> 7;
    const auto run = [&](const char* name, auto* kernel) {
        check(name, penstock::launch(stream, {kBlocks, kThreads}, kernel, files.device_handle(),
                                     file, bytes, in, out, 4));
        check(name, stream.synchronize());
        std::printf("%s", name);
        for (unsigned i = 0; i < kCount; ++i) std::printf(" %x", out[i]);
        std::printf("\n");
    };
#define X(kernel) run(#kernel, kernel);
    RANDOM_KERNELS
#undef X
    std::fprintf(stderr, "%llu\n",
                 static_cast<unsigned long long>(penstock::preemption_statistics(device).left));
    check("file", files.close(file));
}
