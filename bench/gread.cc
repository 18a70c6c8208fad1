// Question: how close does gread come to the memory copies that it cannot avoid?
//
// Workload: blocks read a file of known bytes sequentially, 64 KiB or 1 MiB at a time, from
// resident pages (hits) or through misses on a file that the OS has cached. Baselines where the
// host can address the device's memory: the same frames copied by plain memcpy in the same order
// to the same buffers; for misses as many threads as permits, pread into the frames in turn and
// memcpy out. On a GPU: the same frames copied by the copy engine to the same buffer; for misses
// the whole file copied there from pinned memory, with and without one CPU thread that reads it
// into that first (bench/gread/gpu.cc); with readahead, the original's way of reading and a cache
// that holds the file too; random pages against host threads that read them and send them in
// batches (bench/gread/gpu_readahead.cc). Limits there are programs without pages: host threads
// that read sections, each of which is one copy (plain-sections); one call of File::read beside
// them (host-read); both again with CPUs that are idle before each run (-rested); and GPU threads
// that copy pinned memory while host threads read as much (plain-pull). On both backends, with
// library defaults: blocks that share a file piece by piece (bench/gread/grid_stride.cc). Each
// run's rate is printed to standard error at its end. Not measured: cold files, and on the CPU
// backend other readahead (bench readahead).
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/gread/gpu.h"
#include "bench/gread/grid_stride.h"
#include "bench/gread_kernels.h"
#include "bench/harness/report.h"
#include "bench/harness/test_file.h"
#include "penstock/file_system.h"

namespace penstock::bench {
namespace {

constexpr const char*
    kQuestion = "how close does gread come to the memory copies that it cannot avoid?";

// One file system on one device with a file open, ready to run the kernel.
class Setup {
public:
    Setup(const std::string& device_name, const TestFile& file, const FileSystemOptions& options,
          unsigned blocks, unsigned threads, uint64_t request_size)
        : file_(file), blocks_(blocks), threads_(threads), request_size_(request_size) {
        device_ = need(Device::open(device_name), "device");
        fs_ = need(FileSystem::create(device_, options), "file system");
        stream_ = need(Stream::create(device_), "stream");
        descriptor_ = need(fs_.open(file.path()), "open");
        buffers_ = static_cast<unsigned char*>(
            need(device_.allocate(blocks * request_size), "buffers"));
        result_ = static_cast<unsigned long long*>(need(device_.allocate(4096), "result"));
    }

    // Returns the seconds of one run; counts wrong words.
    double run(unsigned rounds) {
        (void)stream_.fill(result_, 0, 16);
        (void)stream_.synchronize();
        const double seconds = timed([&] {
            const ReadJob job{fs_.device_handle(),
                              descriptor_,
                              file_.size(),
                              request_size_,
                              rounds,
                              buffers_,
                              result_};
            need(launch(stream_, {{blocks_}, {threads_}}, read_stream, job), "launch");
            need(stream_.synchronize(std::chrono::minutes(10)), "kernel");
        });
        unsigned long long result[2];
        (void)stream_.copy(result, result_, sizeof result);
        (void)stream_.synchronize();
        wrong_ += result[0] + (result[1] != rounds * file_.size());
        return seconds;
    }

    [[nodiscard]] bool bytes_right() const { return wrong_ == 0; }
    [[nodiscard]] uint64_t requests() const { return fs_.statistics().requests; }
    [[nodiscard]] unsigned char* frames() const {
        return reinterpret_cast<unsigned char*>(fs_.device_handle().state->frames);
    }
    [[nodiscard]] size_t cache_size() const {
        const FileSystemState& state = *fs_.device_handle().state;
        return size_t{state.frame_count} << state.page_shift;
    }
    [[nodiscard]] unsigned char* buffers() const { return buffers_; }
    [[nodiscard]] const FileSystem& fs() const { return fs_; }
    [[nodiscard]] const Device& device() const { return device_; }
    // Of all of the file.
    void advise(Advice advice) {
        need(launch(stream_, {{1}, {32}}, advise_file, fs_.device_handle(), descriptor_, advice),
             "launch");
        need(stream_.synchronize(), "advice");
    }
    // One block reads the file once, without windows, so that page i is in frame i.
    void load_in_order() {
        const unsigned blocks = std::exchange(blocks_, 1);
        advise(Advice::kRandom);
        run(1);
        advise(Advice::kNormal);
        blocks_ = blocks;
    }
    void count_wrong_bytes(uint64_t wrong) { wrong_ += wrong; }

private:
    const TestFile& file_;
    unsigned blocks_, threads_;
    uint64_t request_size_;
    Device device_;
    FileSystem fs_;
    Stream stream_;
    Descriptor descriptor_ = -1;
    unsigned char* buffers_ = nullptr;
    unsigned long long* result_ = nullptr;
    uint64_t wrong_ = 0;
};

// Runs `work(thread)` in as many threads as permits. Returns the seconds from the common start to
// the last end.
double in_threads(unsigned count, const std::function<void(unsigned)>& work) {
    std::barrier start(count + 1);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
            start.arrive_and_wait();
            work(i);
        });
    }
    return timed([&] {
        start.arrive_and_wait();
        for (std::thread& thread : threads) thread.join();
    });
}

// Copies the frames by memcpy, in the order and to the buffers that the kernel uses.
double copy_frames(Setup& setup, unsigned threads, uint64_t size, uint64_t request_size,
                   unsigned rounds) {
    std::atomic<uint64_t> wrong{0};
    const double seconds = in_threads(threads, [&](unsigned thread) {
        unsigned char* buffer = setup.buffers() + thread * request_size;
        uint64_t mine = 0;
        for (unsigned round = 0; round < rounds; ++round) {
            for (uint64_t offset = thread * request_size; offset < size;
                 offset += threads * request_size) {
                std::memcpy(buffer, setup.frames() + offset, request_size);
                mine += count_wrong(buffer, offset, request_size);
            }
        }
        wrong += mine;
    });
    setup.count_wrong_bytes(wrong);
    return seconds;
}

// Reads by pread into the frames in turn, over the whole cache, then copies to the buffer: the
// least work of any system that keeps read bytes in a cache. Each thread has its own frames, so
// that no thread laps another.
double two_copies(Setup& setup, const TestFile& file, unsigned threads, uint64_t request_size,
                  unsigned rounds) {
    std::atomic<uint64_t> wrong{0};
    const uint64_t places = setup.cache_size() / request_size / threads * threads;
    const double seconds = in_threads(threads, [&](unsigned thread) {
        unsigned char* buffer = setup.buffers() + thread * request_size;
        uint64_t mine = 0;
        for (unsigned round = 0; round < rounds; ++round) {
            for (uint64_t offset = thread * request_size; offset < file.size();
                 offset += threads * request_size) {
                const uint64_t place = offset / request_size % places;
                unsigned char* frame = setup.frames() + place * request_size;
                if (pread(file.descriptor(), frame, request_size, static_cast<off_t>(offset)) !=
                    static_cast<ssize_t>(request_size)) {
                    ++mine;
                }
                std::memcpy(buffer, frame, request_size);
                mine += count_wrong(buffer, offset, request_size);
            }
        }
        wrong += mine;
    });
    setup.count_wrong_bytes(wrong);
    return seconds;
}

std::string describe_memory(const Setup& setup) {
    return setup.device().huge_pages() ? "arena, frames and buffers on huge pages"
                                       : "no huge pages given";
}

struct HitCase {
    const char* name;
    const char* against;
    uint32_t page_size;
    unsigned threads;
};

void measure_hits(Report& report, const Arguments& arguments, const TestFile& file,
                  const HitCase& chosen) {
    constexpr uint64_t kRequest = 64 << 10;
    const unsigned permits = std::thread::hardware_concurrency();
    const unsigned rounds = arguments.smoke ? 1 : 4;
    FileSystemOptions options;
    options.page_size = chosen.page_size;
    options.cache_size = file.size() + (16 << 20);
    Setup setup(arguments.device, file, options, permits, chosen.threads, kRequest);
    setup.load_in_order();
    const uint64_t before = setup.requests();
    Row row;
    row.name = chosen.name;
    row.against = chosen.against;
    row.pairs = take_pairs(
        arguments.pairs, [&] { return setup.run(rounds); },
        [&] { return copy_frames(setup, permits, file.size(), kRequest, rounds); },
        &row.cpu_seconds);
    row.bytes = rounds * file.size();
    row.verified = setup.bytes_right() && setup.requests() == before;
    row.note = std::to_string(permits) + " blocks of " + std::to_string(chosen.threads) +
               " GPU threads, " + std::to_string(chosen.page_size >> 10) +
               " KiB pages, 64 KiB requests; " + describe_memory(setup);
    report.add(std::move(row));
}

struct MissCase {
    const char* name;
    const char* against;
    uint32_t page_size;
    uint64_t request_size;
    bool helping;
    unsigned threads = 32;
};

void measure_misses(Report& report, const Arguments& arguments, const TestFile& file,
                    const MissCase& chosen) {
    const unsigned permits = std::thread::hardware_concurrency();
    FileSystemOptions options;
    options.page_size = chosen.page_size;
    options.cache_size = file.size() / 2;
    options.helping = chosen.helping;
    options.readahead = Readahead::kOff;
    Setup setup(arguments.device, file, options, permits, chosen.threads, chosen.request_size);
    bool hot = true;  // the file was hot before each run
    const uint64_t before = setup.requests();
    Row row;
    row.name = chosen.name;
    row.against = chosen.against;
    row.pairs = take_pairs(
        arguments.pairs,
        [&] {
            setup.advise(Advice::kDontNeed);
            return setup.run(1);
        },
        [&] { return two_copies(setup, file, permits, chosen.request_size, 1); }, &row.cpu_seconds,
        [&] { hot = file.make_hot() && hot; });
    row.bytes = file.size();
    const uint64_t expected = (arguments.pairs + 1) * (file.size() / chosen.page_size);
    // The baseline overwrites the frames, so each run must have requested every page again.
    row.verified = setup.bytes_right() && setup.requests() - before == expected && hot;
    row.note = std::string(chosen.helping ? "helping on" : "helping off, 4 workers") +
               ", file twice the cache, hot; " + describe_memory(setup);
    report.add(std::move(row));
}

// Share of samples, of those in which the ring holds work, in which all workers are busy. Samples
// are taken while the kernel runs.
double busy_share(const Arguments& arguments, const TestFile& file, unsigned blocks, RequestMap map,
                  bool* right, uint64_t* samples) {
    constexpr uint64_t kRequest = 128 << 10;
    constexpr unsigned kWorkers = 4;
    constexpr uint64_t kSamplesMin = 100;  // with work in the ring: fewer prove nothing
    FileSystemOptions options;
    options.page_size = kRequest;
    options.cache_size = std::max(file.size() / 2, 2 * blocks * kRequest);
    options.helping = false;
    options.workers = kWorkers;
    options.study.map = map;
    options.readahead = Readahead::kOff;
    // The disk of seed 000: an NVMe drive of 2.8 GB/s.
    options.study.throttle_latency_us = 100;
    options.study.throttle_bandwidth_mbs = 2800;
    Setup setup("cpu:" + std::to_string(blocks), file, options, blocks, 32, kRequest);
    std::atomic<bool> done{false};
    uint64_t held = 0, busy = 0;  // samples
    std::thread sampler([&] {
        while (!done.load()) {
            const QueueLoad load = setup.fs().queue_load();
            held += load.backlog > 0;
            busy += load.backlog > 0 && load.busy_workers == kWorkers;
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    });
    setup.run(arguments.smoke ? 1 : 2);
    done = true;
    sampler.join();
    *right = *right && setup.bytes_right() && (held >= kSamplesMin || arguments.smoke);
    *samples += held;
    return held == 0 ? 0.0 : static_cast<double>(busy) / static_cast<double>(held);
}

void measure_workers(Report& report, const Arguments& arguments, const TestFile& file,
                     RequestMap map, const char* name) {
    Row row;
    row.name = name;
    row.against = "always-busy";
    row.unit = "share";
    row.verified = true;
    uint64_t samples = 0;
    const double sixty = busy_share(arguments, file, 60, map, &row.verified, &samples);
    const double more = busy_share(arguments, file, 120, map, &row.verified, &samples);
    row.pairs = {{std::min(sixty, more), 1.0}};
    row.bytes = file.size();
    row.note =
        "4 workers, helping off, 128 KiB requests, throttle (100 us, 2800 MB/s); 60 "
        "blocks " +
        std::to_string(sixty) + ", 120 blocks " + std::to_string(more) + "; " +
        std::to_string(samples) + " samples with work in the ring";
    report.add(std::move(row));
}

void measure_host_addressable(Report& report, const Arguments& arguments) {
    const uint64_t small = arguments.smoke ? 4 << 20 : 128 << 20;
    const uint64_t large = arguments.smoke ? 8 << 20 : 512 << 20;
    report.describe("file of the hits", std::to_string(small >> 20) + " MiB");
    report.describe("file of the misses", std::to_string(large >> 20) + " MiB");
    {
        const TestFile file(small);
        for (const HitCase& chosen : {HitCase{"hits-4k", "memcpy-64k", 4096, 32},
                                      HitCase{"hits-64k", "memcpy-64k-frames", 65536, 32},
                                      HitCase{"hits-4k-512-threads", "memcpy-64k", 4096, 512}}) {
            if (wanted(arguments, chosen.name)) measure_hits(report, arguments, file, chosen);
        }
    }
    const TestFile file(large);
    for (const MissCase& chosen :
         {MissCase{"pages-64k", "two-copy-limit", 64 << 10, 64 << 10, true},
          MissCase{"pages-1m-workers", "two-copy-limit-1m", 1 << 20, 1 << 20, false},
          MissCase{"pages-64k-workers", "two-copy-limit", 64 << 10, 64 << 10, false},
          MissCase{"pages-64k-512-threads", "two-copy-limit", 64 << 10, 64 << 10, true, 512}}) {
        if (wanted(arguments, chosen.name)) measure_misses(report, arguments, file, chosen);
    }
    for (const auto& [name, map] : {std::pair{"worker-busy", RequestMap::kShared},
                                    std::pair{"worker-busy-static-map", RequestMap::kStatic}}) {
        if (wanted(arguments, name)) measure_workers(report, arguments, file, map, name);
    }
}

}  // namespace

int run_all(const Arguments& arguments) {
    const Device device = need(Device::open(arguments.device), "device");
    Report report("gread", kQuestion, arguments);
    report.describe("device", device.name());
    if (device.host_addressable()) {
        measure_host_addressable(report, arguments);
        measure_grid_stride(report, arguments);
    } else {
        measure_gpu(report, arguments, device);
    }
    report.write();
    return 0;
}

}  // namespace penstock::bench

int main(int argc, char** argv) {
    return penstock::bench::run_all(
        penstock::bench::parse_arguments(argc, argv, penstock::bench::kQuestion));
}
