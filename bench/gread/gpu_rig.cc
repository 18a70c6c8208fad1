#include "bench/gread/gpu_rig.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "penstock/kernel.h"

namespace penstock::bench {
namespace {

constexpr std::chrono::minutes kRunLimit{1};  // the benchmark gives up after it

}  // namespace

std::string describe(const GpuCase& chosen) {
    return std::to_string(chosen.blocks) + " blocks of " + std::to_string(chosen.threads) +
           " GPU threads, " + std::to_string(chosen.page_size >> 10) + " KiB pages, " +
           std::to_string(chosen.request_size >> 10) + " KiB requests";
}

double tell(const char* name, uint64_t bytes, double seconds) {
    std::fprintf(stderr, "  %-28s %10.3f ms %9.3f GB/s\n", name, seconds * 1e3,
                 static_cast<double>(bytes) / seconds * 1e-9);
    return seconds;
}

GpuRig::GpuRig(const Device& device, const TestFile& file, unsigned pool_threads)
    : device_(device), file_(file), crew_(pool_threads) {
    stream_ = need(Stream::create(device), "stream");
    for (unsigned i = 0; i < pool_threads; ++i)
        streams_.push_back(need(Stream::create(device), "stream"));
    buffer_ = static_cast<unsigned char*>(need(device.allocate(file.size()), "buffer"));
    result_ = static_cast<unsigned long long*>(need(device.allocate(4096), "result"));
    pinned_ = static_cast<unsigned char*>(
        need(device.allocate_pinned(file.size()), "pinned memory"));
    read_file();
}

GpuRig::~GpuRig() {
    (void)stream_.synchronize();
    for (void* memory : {static_cast<void*>(buffer_), static_cast<void*>(result_),
                         static_cast<void*>(pinned_), static_cast<void*>(staging_)}) {
        if (memory != nullptr) device_.free(memory);
    }
}

void GpuRig::open(FileSystemOptions options) {
    fs_ = FileSystem();
    if (options.cache_size == 0) options.cache_size = file_.size() + (16 << 20);
    options.cache_size = std::max<size_t>(options.cache_size,
                                          size_t{device_.permits()} * options.page_size);
    fs_ = need(FileSystem::create(device_, options), "file system");
    descriptor_ = need(fs_.open(file_.path()), "open");
}

void GpuRig::open_plain(uint32_t page_size) {
    FileSystemOptions options;
    options.page_size = page_size;
    options.workers = workers();
    options.helping = false;
    options.readahead = Readahead::kOff;
    open(options);
}

unsigned GpuRig::workers() { return std::clamp(std::thread::hardware_concurrency() / 2, 1u, 8u); }

void GpuRig::advise(Advice advice) {
    need(launch(stream_, {{1}, {32}}, advise_file, fs_.device_handle(), descriptor_, advice),
         "launch");
    need(stream_.synchronize(kRunLimit), "advice");
}

double GpuRig::read(const GpuCase& chosen, ReadKernel kernel, unsigned rounds, bool hits) {
    const ReadJob job{fs_.device_handle(),
                      descriptor_,
                      file_.size(),
                      chosen.request_size,
                      rounds,
                      buffer_,
                      result_};
    prepare();
    const double seconds = timed([&] {
        need(launch(stream_, {{chosen.blocks}, {chosen.threads}}, kernel, job), "launch");
        if (hits) spin();
        need(stream_.synchronize(kRunLimit), "kernel");
    });
    check(rounds * file_.size());
    return seconds;
}

double GpuRig::read_random(const GpuCase& chosen, uint64_t count, uint64_t seed) {
    const RandomJob job{
        fs_.device_handle(), descriptor_, file_.size() / 4096, count, seed, buffer_, result_};
    prepare();
    const double seconds = timed([&] {
        need(launch(stream_, {{chosen.blocks}, {chosen.threads}}, bench::read_random, job),
             "launch");
        need(stream_.synchronize(kRunLimit), "kernel");
    });
    check_pages(count, seed, count * 4096);
    return seconds;
}

double GpuRig::copy_frames(unsigned rounds) {
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

double GpuRig::copy_pinned() {
    prepare();
    const double seconds = timed([&] { send_pinned(); });
    check(0);
    return seconds;
}

double GpuRig::read_then_copy() {
    prepare();
    const double seconds = timed([&] {
        read_file();
        send_pinned();
    });
    check(0);
    return seconds;
}

double GpuRig::pool(const PoolShape& shape, uint64_t count, uint64_t seed) {
    prepare();
    std::atomic<uint64_t> wrong{0}, next{0};
    const double seconds = timed([&] {
        crew_.run(shape.threads, [&](unsigned thread) {
            Stream& stream = streams_[thread];
            for (;;) {
                const uint64_t first = next.fetch_add(shape.batch);
                if (first >= count) break;
                const uint64_t end = std::min(first + shape.batch, count);
                for (uint64_t i = first; i < end; ++i) {
                    const uint64_t offset = random_page(seed, i, file_.size() / 4096) * 4096;
                    wrong += pread(file_.descriptor(), pinned_ + i * 4096, 4096,
                                   static_cast<off_t>(offset)) != 4096;
                }
                need(stream.copy(buffer_ + first * 4096, pinned_ + first * 4096,
                                 (end - first) * 4096),
                     "copy");
            }
            while (!need(stream.idle(), "stream")) {
            }
        });
    });
    for (Stream& stream : streams_) need(stream.synchronize(kRunLimit), "copy");
    wrong_ += wrong;
    check_pages(count, seed, 0);
    return seconds;
}

void GpuRig::read_file() {
    constexpr uint64_t kPiece = 1 << 20;
    for (uint64_t offset = 0; offset < file_.size(); offset += kPiece) {
        wrong_ += pread(file_.descriptor(), pinned_ + offset, kPiece, static_cast<off_t>(offset)) !=
                  static_cast<ssize_t>(kPiece);
    }
}

void GpuRig::send_pinned() {
    constexpr uint64_t kPiece = 32 << 20;
    for (uint64_t offset = 0; offset < file_.size(); offset += kPiece) {
        need(stream_.copy(buffer_ + offset, pinned_ + offset,
                          std::min(kPiece, file_.size() - offset)),
             "copy");
    }
    spin();
}

void GpuRig::spin() {
    while (!need(stream_.idle(), "stream")) {
    }
}

// Clears the buffer, so that no byte of an earlier run is left in it, and then rests.
void GpuRig::prepare() {
    need(stream_.fill(buffer_, 0xa5, file_.size()), "fill");
    need(stream_.fill(result_, 0, 16), "fill");
    need(stream_.synchronize(), "fill");
    std::this_thread::sleep_for(rest_);
}

// `expected` is the number of bytes that the kernel must report.
void GpuRig::check(uint64_t expected) {
    unsigned long long result[2] = {1, 0};
    need(launch(stream_, {{512}, {256}}, check_bytes, static_cast<const unsigned char*>(buffer_),
                file_.size(), result_),
         "launch");
    need(stream_.copy(result, result_, sizeof result), "copy");
    need(stream_.synchronize(), "check");
    wrong_ += result[0] + (result[1] != expected);
}

// The same of pages at random.
void GpuRig::check_pages(uint64_t count, uint64_t seed, uint64_t expected) {
    unsigned long long result[2] = {1, 0};
    const RandomJob job{{}, -1, file_.size() / 4096, count, seed, buffer_, result_};
    need(launch(stream_, {{512}, {256}}, check_random, job), "launch");
    need(stream_.copy(result, result_, sizeof result), "copy");
    need(stream_.synchronize(), "check");
    wrong_ += result[0] + (result[1] != expected);
}

const std::byte* GpuRig::frames_of_device() {
    const FileSystemState* state = fs_.device_handle().state;
    const std::byte* frames = nullptr;
    need(stream_.copy(&frames, &state->frames, sizeof frames), "copy");
    need(stream_.synchronize(), "copy");
    return frames;
}

}  // namespace penstock::bench
