// runs FILE SHARE SEED: runs each kernel once and prints its results, and how many blocks left.
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "kernels.h"
#include "penstock/device.h"
#include "penstock/file_system.h"
#include "penstock/preemption.h"

static void check(const char* what, const penstock::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "runs: %s: %s\n", what, status.message().c_str());
    std::exit(1);
}

template <class T>
static T checked(const char* what, penstock::Result<T> result) {
    check(what, result.status());
    return std::move(result.value());
}

template <class T>
static void print(const char* name, const T* values, unsigned count) {
    std::printf("%s", name);
    for (unsigned i = 0; i < count; ++i) std::printf(" %.17g", static_cast<double>(values[i]));
    std::printf("\n");
}

int main(int, char** argv) {
    constexpr unsigned kBlocks = 6, kThreads = 64, kCount = kBlocks * kThreads;
    auto device = checked("device", penstock::Device::open("cpu"));
    penstock::PreemptionOptions options;
    options.forced_share = std::atof(argv[2]);
    options.forced_seed = std::strtoull(argv[3], nullptr, 10);
    check("options", penstock::set_preemption(device, options));
    auto files = checked("file system", penstock::FileSystem::create(device));
    const auto file = checked(argv[1], files.open(argv[1]));
    auto stream = checked("stream", penstock::Stream::create(device));
    const auto take = [&](size_t size) { return checked("memory", device.allocate(size)); };
    auto* in = static_cast<float*>(take(4096 * sizeof(float)));
    auto* in_doubles = static_cast<double*>(take(4096 * sizeof(double)));
    auto* out = static_cast<float*>(take(kCount * sizeof(float)));
    auto* out_doubles = static_cast<double*>(take(kCount * sizeof(double)));
    auto* bytes = static_cast<unsigned char*>(take(kBlocks * 4096));
    auto* sums = static_cast<long long*>(take(kCount * sizeof(long long)));
    for (int i = 0; i < 4096; ++i) in[i] = in_doubles[i] = i % 29 / 4.0f;
    for (unsigned i = 0; i < kCount; ++i) sums[i] = 0;

    check("locals", penstock::launch(stream, {kBlocks, kThreads}, locals, in, out, 5));
    check("locals", stream.synchronize());
    print("locals", out, kCount);
    check("shared", penstock::launch(stream, {kBlocks, kThreads, kThreads * sizeof(float)},
                                     shared<float, 8>, in, out, 6));
    check("shared", stream.synchronize());
    print("shared<float>", out, kCount);
    check("shared", penstock::launch(stream, {kBlocks, kThreads, kThreads * sizeof(double)},
                                     shared<double, 8>, in_doubles, out_doubles, 6));
    check("shared", stream.synchronize());
    print("shared<double>", out_doubles, kCount);
    check("reads", penstock::launch(stream, {kBlocks, kThreads}, reads, files.device_handle(), file,
                                    bytes, sums, 3));
    check("reads", stream.synchronize());
    print("reads", sums, kCount);
    check("groups", penstock::launch(stream, {kBlocks, kThreads}, groups, in, out, 7));
    check("groups", stream.synchronize());
    print("groups", out, kCount);
    std::fprintf(stderr, "%llu\n",
                 static_cast<unsigned long long>(penstock::preemption_statistics(device).left));
    check("file", files.close(file));
}
