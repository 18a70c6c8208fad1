// The cases of bench gread for a device whose memory the host cannot address: a GPU.
#include "bench/gread/gpu.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "bench/gread_kernels.h"
#include "bench/harness/test_file.h"
#include "penstock/file_system.h"
#include "penstock/kernel.h"

namespace penstock::bench {
namespace {

// On a GPU. Requests go to their places in one buffer as large as the file; after every run, of a
// case or a baseline, a kernel compares all of it.
struct GpuCase {
    const char* name;
    uint32_t page_size;
    uint64_t request_size;
    unsigned blocks, threads;
    bool sweep = false;  // only with --full
};

constexpr std::chrono::minutes kRunLimit{1};  // then the benchmark gives up

// Says how a run went, so that a slow device is seen at once; returns `seconds`.
double tell(const char* name, uint64_t bytes, double seconds) {
    std::fprintf(stderr, "  %-28s %10.3f ms %9.3f GB/s\n", name, seconds * 1e3,
                 static_cast<double>(bytes) / seconds * 1e-9);
    return seconds;
}

class GpuRig {
public:
    GpuRig(const Device& device, const TestFile& file) : device_(device), file_(file) {
        stream_ = need(Stream::create(device), "stream");
        buffer_ = static_cast<unsigned char*>(need(device.allocate(file.size()), "buffer"));
        result_ = static_cast<unsigned long long*>(need(device.allocate(4096), "result"));
        pinned_ = static_cast<unsigned char*>(
            need(device.allocate_pinned(file.size()), "pinned memory"));
        read_file();
    }
    ~GpuRig() {
        (void)stream_.synchronize();
        for (void* memory : {static_cast<void*>(buffer_), static_cast<void*>(result_),
                             static_cast<void*>(pinned_)}) {
            device_.free(memory);
        }
    }
    GpuRig(const GpuRig&) = delete;
    GpuRig& operator=(const GpuRig&) = delete;

    // A file system whose cache is empty and has room for the file.
    void open(uint32_t page_size) {
        fs_ = FileSystem();
        FileSystemOptions options;
        options.page_size = page_size;
        options.cache_size = std::max<size_t>(file_.size() + (16 << 20),
                                              size_t{device_.permits()} * page_size);
        options.workers = workers();
        options.helping = false;
        fs_ = need(FileSystem::create(device_, options), "file system");
        descriptor_ = need(fs_.open(file_.path()), "open");
    }
    [[nodiscard]] static unsigned workers() {
        return std::clamp(std::thread::hardware_concurrency() / 2, 1u, 8u);
    }
    [[nodiscard]] uint64_t requests() const { return fs_.statistics().requests; }
    [[nodiscard]] bool bytes_right() const { return wrong_ == 0; }
    void count_wrong_state(bool right) { wrong_ += !right; }

    // Seconds of the kernel. It is waited for by sleeping, since who asks the driver again and
    // again keeps the workers from it; the last sleep, half a millisecond, is part of the time.
    // `hits`: there is nobody to keep.
    double read(const GpuCase& chosen, unsigned rounds, bool hits) {
        ReadJob job{fs_.device_handle(),
                    descriptor_,
                    file_.size(),
                    chosen.request_size,
                    rounds,
                    buffer_,
                    result_};
        prepare();
        const double seconds = timed([&] {
            need(launch(stream_, {{chosen.blocks}, {chosen.threads}}, read_in_place, job),
                 "launch");
            if (hits) spin();
            need(stream_.synchronize(kRunLimit), "kernel");
        });
        check(rounds * file_.size());
        return seconds;
    }
    // The file's frames, in the order in which read() by one warp has filled them, to the buffer.
    double copy_frames(unsigned rounds) {
        const std::byte* frames = frames_of_device();
        prepare();
        const double seconds = timed([&] {
            for (unsigned round = 0; round < rounds; ++round)
                need(stream_.copy(buffer_, frames, file_.size()), "copy");
            spin();
        });
        check(0);
        return seconds;
    }
    double copy_pinned() {
        prepare();
        const double seconds = timed([&] { send_pinned(); });
        check(0);
        return seconds;
    }
    double read_then_copy() {
        prepare();
        const double seconds = timed([&] {
            read_file();
            send_pinned();
        });
        check(0);
        return seconds;
    }

private:
    void read_file() {
        constexpr uint64_t kPiece = 1 << 20;
        for (uint64_t offset = 0; offset < file_.size(); offset += kPiece) {
            wrong_ += pread(file_.descriptor(), pinned_ + offset, kPiece,
                            static_cast<off_t>(offset)) != static_cast<ssize_t>(kPiece);
        }
    }
    void send_pinned() {
        constexpr uint64_t kPiece = 32 << 20;
        for (uint64_t offset = 0; offset < file_.size(); offset += kPiece) {
            need(stream_.copy(buffer_ + offset, pinned_ + offset,
                              std::min(kPiece, file_.size() - offset)),
                 "copy");
        }
        spin();
    }
    void spin() {
        while (!need(stream_.idle(), "stream")) {
        }
    }
    // No byte of an earlier run is left in the buffer.
    void prepare() {
        need(stream_.fill(buffer_, 0xa5, file_.size()), "fill");
        need(stream_.fill(result_, 0, 16), "fill");
        need(stream_.synchronize(), "fill");
    }
    // `expected`: the bytes that the kernel says it has read.
    void check(uint64_t expected) {
        unsigned long long result[2] = {1, 0};
        need(launch(stream_, {{512}, {256}}, check_bytes,
                    static_cast<const unsigned char*>(buffer_), file_.size(), result_),
             "launch");
        need(stream_.copy(result, result_, sizeof result), "copy");
        need(stream_.synchronize(), "check");
        wrong_ += result[0] + (result[1] != expected);
    }
    const std::byte* frames_of_device() {
        const FileSystemState* state = fs_.device_handle().state;
        const std::byte* frames = nullptr;
        need(stream_.copy(&frames, &state->frames, sizeof frames), "copy");
        need(stream_.synchronize(), "copy");
        return frames;
    }

    const Device device_;
    const TestFile& file_;
    Stream stream_;
    FileSystem fs_;
    Descriptor descriptor_ = -1;
    unsigned char *buffer_ = nullptr, *pinned_ = nullptr;
    unsigned long long* result_ = nullptr;
    uint64_t wrong_ = 0;
};

std::string describe(const GpuCase& chosen) {
    return std::to_string(chosen.blocks) + " blocks of " + std::to_string(chosen.threads) +
           " GPU threads, " + std::to_string(chosen.page_size >> 10) + " KiB pages, " +
           std::to_string(chosen.request_size >> 10) + " KiB requests";
}

void measure_gpu_hits(Report& report, const Arguments& arguments, const Device& device,
                      const TestFile& file, const GpuCase& chosen) {
    const unsigned rounds = arguments.smoke ? 1 : 8;
    GpuRig rig(device, file);
    rig.open(chosen.page_size);
    // One warp, so that page i lies in frame i.
    tell("one warp", file.size(),
         rig.read({"", chosen.page_size, uint64_t{chosen.page_size} * 32, 1, 32}, 1, false));
    const uint64_t before = rig.requests();
    Row row;
    row.name = chosen.name;
    row.against = "device-copy";
    row.bytes = rounds * file.size();
    row.pairs = take_pairs(
        arguments.pairs,
        [&] { return tell(chosen.name, row.bytes, rig.read(chosen, rounds, true)); },
        [&] { return tell("device-copy", row.bytes, rig.copy_frames(rounds)); }, &row.cpu_seconds);
    row.verified = rig.bytes_right() && rig.requests() == before;
    row.simulated = device.simulated();
    row.note = describe(chosen) +
               "; all resident, every byte of every run compared; cpu_seconds with the checks";
    report.add(std::move(row));
}

void measure_gpu_misses(Report& report, const Arguments& arguments, const Device& device,
                        const TestFile& file, const GpuCase& chosen) {
    for (const bool pinned : {true, false}) {
        GpuRig rig(device, file);
        file.warm();
        Row row;
        row.name = chosen.name;
        row.against = pinned ? "pinned-h2d" : "cpu-read-then-copy";
        row.bytes = file.size();
        row.pairs = take_pairs(
            arguments.pairs,
            [&] {
                rig.open(chosen.page_size);
                const double seconds = tell(chosen.name, row.bytes, rig.read(chosen, 1, false));
                rig.count_wrong_state(rig.requests() == file.size() / chosen.page_size);
                return seconds;
            },
            [&] {
                return tell(row.against.c_str(), row.bytes,
                            pinned ? rig.copy_pinned() : rig.read_then_copy());
            },
            &row.cpu_seconds);
        row.verified = rig.bytes_right() && cached_share(file.path()) == 1.0;
        row.simulated = device.simulated();
        row.note = describe(chosen) + ", a file of " + std::to_string(file.size() >> 20) +
                   " MiB; " + std::to_string(GpuRig::workers()) +
                   " workers, the GPU's cache empty, the OS's hot, every byte of every run "
                   "compared; cpu_seconds with set-up and checks";
        report.add(std::move(row));
    }
}

}  // namespace

void measure_gpu(Report& report, const Arguments& arguments, const Device& device) {
    const uint64_t size = arguments.smoke ? 32 << 20 : 1 << 30;
    report.describe("file", std::to_string(size >> 20) + " MiB");
    const TestFile file(size);
    constexpr uint64_t kMiB = 1 << 20;
    for (const GpuCase& chosen : {GpuCase{"hits-4k-gpu", 4096, kMiB, 512, 256},
                                  GpuCase{"hits-4k-gpu-264-blocks", 4096, kMiB, 264, 512, true},
                                  GpuCase{"hits-4k-gpu-1024-blocks", 4096, kMiB, 1024, 128, true},
                                  GpuCase{"hits-4k-gpu-warps", 4096, kMiB / 8, 4096, 32, true},
                                  GpuCase{"hits-64k-gpu-warps", 65536, kMiB, 1024, 32, true}}) {
        if (wanted(arguments, chosen.name) && (!chosen.sweep || arguments.full))
            measure_gpu_hits(report, arguments, device, file, chosen);
    }
    for (const GpuCase& chosen :
         {GpuCase{"sequential-4k", 4096, kMiB, 264, 256},
          GpuCase{"sequential-64k", 65536, kMiB, 264, 256},
          GpuCase{"sequential-1m", 1 << 20, kMiB, 264, 256},
          GpuCase{"sequential-4k-64k-requests", 4096, kMiB / 16, 1056, 32, true},
          GpuCase{"sequential-64k-64k-requests", 65536, kMiB / 16, 1056, 32, true}}) {
        if (wanted(arguments, chosen.name) && (!chosen.sweep || arguments.full))
            measure_gpu_misses(report, arguments, device, file, chosen);
    }
}

}  // namespace penstock::bench
