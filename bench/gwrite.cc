// Question: how close does gwrite come to what a program writes without it?
//
// sequential-64k: blocks write a file of twice the cache, 64 KiB a call, and the host syncs it.
// Baseline: as many threads memcpy each 64 KiB into frames in turn, pwrite it out of them, and
// fsync. random-4k: blocks read and write random pages of 4 KiB of a file that the OS has cached;
// the cache holds half of it, and the last close writes back. Baseline: a pool of as many threads
// with preadv and pwritev. sparse-granules: bytes that reach storage if 64 bytes are written in
// each page of 4 KiB, against writes of whole pages. scattered-counters: bench/gwrite/counters.h.
// After each run the whole file is compared. The first two baselines use memcpy, so the host must
// be able to address the device's memory; on a GPU they are left out.
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "bench/gwrite/counters.h"
#include "bench/gwrite_kernels.h"
#include "bench/harness/crew.h"
#include "bench/harness/report.h"
#include "bench/harness/test_file.h"
#include "penstock/file_system.h"

namespace penstock::bench {
namespace {

constexpr const char* kQuestion = "how close does gwrite come to what a program writes without it?";
constexpr unsigned kThreads = 32;  // of a block

// Number of words of a file that are not as they were written. run_of(page) is the run that wrote
// the checked word of a page; 0 if none did.
uint64_t wrong_words(const TestFile& file, const std::function<uint64_t(uint64_t)>& run_of) {
    uint64_t words[512];
    uint64_t wrong = 0;
    for (uint64_t at = 0; at < file.size(); at += sizeof words) {
        if (pread(file.descriptor(), words, sizeof words, static_cast<off_t>(at)) !=
            ssize_t{sizeof words}) {
            ++wrong;
        }
        const uint64_t run = run_of(at / sizeof words);
        for (uint64_t i = 0; i < 512; ++i)
            wrong += words[i] != written_word(at + i * 8, i * 8 == checked_word(at) ? run : 0);
    }
    return wrong;
}

// A device, a file system on it, a file, and the bytes to write to it.
class Setup {
public:
    Setup(const std::string& device_name, const TestFile& file, const FileSystemOptions& options)
        : file_(file), permits_(std::thread::hardware_concurrency()) {
        device_ = need(Device::open(device_name), "device");
        fs_ = need(FileSystem::create(device_, options), "file system");
        stream_ = need(Stream::create(device_), "stream");
        source_ = static_cast<unsigned char*>(need(device_.allocate(file.size()), "source"));
        buffers_ = static_cast<unsigned char*>(need(device_.allocate(permits_ * 4096), "buffers"));
        result_ = static_cast<unsigned long long*>(need(device_.allocate(4096), "result"));
        fill(true);
    }
    ~Setup() {
        if (descriptor_ >= 0) (void)fs_.close(descriptor_);
    }
    Setup(const Setup&) = delete;
    Setup& operator=(const Setup&) = delete;

    // Bytes that are written from here on differ from all earlier ones.
    void next_run() {
        ++run_;
        fill(false);
        need(stream_.fill(result_, 0, 16), "fill");
        need(stream_.synchronize(), "fill");
    }
    // A file that changed since its close has no page in the cache at its next open.
    void open() { descriptor_ = need(fs_.open(file_.path(), kOpenReadWrite), "open"); }
    void close() { need(fs_.close(std::exchange(descriptor_, -1)), "close"); }
    void sync() { need(fs_.sync(descriptor_), "sync"); }

    // Every `step` bytes a request.
    void write_stream(uint64_t request_size, uint64_t step) {
        const WriteJob job{
            fs_.device_handle(), descriptor_, file_.size(), request_size, step, source_, result_};
        need(launch(stream_, {{permits_}, {kThreads}}, bench::write_stream, job), "launch");
        need(stream_.synchronize(std::chrono::minutes(10)), "kernel");
    }
    void write_random(uint64_t count) {
        const MixedJob job{fs_.device_handle(),
                           descriptor_,
                           file_.size() / 4096,
                           count,
                           run_,
                           source_,
                           buffers_,
                           result_};
        need(launch(stream_, {{permits_}, {kThreads}}, bench::write_random, job), "launch");
        need(stream_.synchronize(std::chrono::minutes(10)), "kernel");
    }
    // Whether the kernels of this run counted so many bytes, and no error.
    [[nodiscard]] bool kernel_right(uint64_t bytes) {
        unsigned long long result[2];
        need(stream_.copy(result, result_, sizeof result), "copy");
        need(stream_.synchronize(), "copy");
        return result[0] == 0 && result[1] == bytes;
    }

    [[nodiscard]] uint64_t run() const { return run_; }
    [[nodiscard]] unsigned permits() const { return permits_; }
    [[nodiscard]] const unsigned char* source() const { return source_; }
    [[nodiscard]] FileSystemStatistics statistics() const { return fs_.statistics(); }
    [[nodiscard]] Device& device() { return device_; }

private:
    void fill(bool all) {
        need(launch(stream_, {{permits_}, {kThreads}}, fill_source, source_, file_.size(), run_,
                    all),
             "launch");
        need(stream_.synchronize(std::chrono::minutes(10)), "source");
    }

    const TestFile& file_;
    const unsigned permits_;
    Device device_;
    FileSystem fs_;
    Stream stream_;
    Descriptor descriptor_ = -1;
    unsigned char* source_ = nullptr;
    unsigned char* buffers_ = nullptr;
    unsigned long long* result_ = nullptr;
    uint64_t run_ = 0;
};

void measure_sequential(Report& report, const Arguments& arguments, const TestFile& file) {
    constexpr uint64_t kRequest = 64 << 10;
    FileSystemOptions options;
    options.cache_size = file.size() / 2;
    Setup setup(arguments.device, file, options);
    const unsigned threads = setup.permits();
    Crew crew(threads);
    // The baseline's own frames: the file system's frames hold bytes that are not written yet.
    const uint64_t places = options.cache_size / kRequest / threads * threads;
    auto* frames = static_cast<unsigned char*>(
        need(setup.device().allocate(options.cache_size), "frames"));
    bool right = true;
    const auto check = [&] {
        right = right && wrong_words(file, [&](uint64_t) { return setup.run(); }) == 0;
    };
    Row row;
    row.name = "sequential-64k";
    row.against = "memcpy-pwrite";
    row.pairs = take_pairs(
        arguments.pairs,
        [&] {
            setup.next_run();
            setup.open();
            const double seconds = timed([&] {
                setup.write_stream(kRequest, kRequest);
                setup.sync();
            });
            setup.close();
            right = right && setup.kernel_right(file.size());
            check();
            return seconds;
        },
        [&] {
            setup.next_run();
            std::atomic<uint64_t> wrong{0};
            const double seconds = timed([&] {
                crew.run(threads, [&](unsigned thread) {
                    for (uint64_t offset = thread * kRequest; offset < file.size();
                         offset += threads * kRequest) {
                        unsigned char* frame = frames + offset / kRequest % places * kRequest;
                        std::memcpy(frame, setup.source() + offset, kRequest);
                        if (pwrite(file.descriptor(), frame, kRequest,
                                   static_cast<off_t>(offset)) != ssize_t{kRequest}) {
                            ++wrong;
                        }
                    }
                });
                if (fsync(file.descriptor()) != 0) ++wrong;
            });
            right = right && wrong == 0;
            check();
            return seconds;
        },
        &row.cpu_seconds);
    row.bytes = file.size();
    row.verified = right && cached_share(file.path()) == 1.0;
    row.note = std::to_string(threads) + " blocks of " + std::to_string(kThreads) +
               " GPU threads, " + std::to_string(options.page_size >> 10) +
               " KiB pages, cache of half the file, which the OS has cached; synced at the end";
    report.add(std::move(row));
    setup.device().free(frames);
}

void measure_random(Report& report, const Arguments& arguments, const TestFile& file) {
    FileSystemOptions options;
    options.page_size = 4096;
    options.cache_size = file.size() / 2;
    Setup setup(arguments.device, file, options);
    const unsigned threads = setup.permits();
    Crew crew(threads);
    const uint64_t pages = file.size() / 4096, count = pages;
    std::vector<unsigned char> buffers(threads * size_t{4096});
    bool right = true;
    // The pages that the run has written. Pages of earlier runs are written again.
    std::vector<uint64_t> last(pages, 0);
    const auto check = [&] {
        for (uint64_t i = 0; i < count; ++i) {
            const uint64_t page = random_page(setup.run(), i, pages);
            if ((page & 1) != 0) last[page] = setup.run();
        }
        right = right && wrong_words(file, [&](uint64_t page) { return last[page]; }) == 0;
    };
    Row row;
    row.name = "random-4k";
    row.against = "preadv-pwritev-pool";
    row.pairs = take_pairs(
        arguments.pairs,
        [&] {
            setup.next_run();
            setup.open();
            const double seconds = timed([&] {
                setup.write_random(count);
                setup.close();
            });
            right = right && setup.kernel_right(count * 4096);
            check();
            return seconds;
        },
        [&] {
            setup.next_run();
            std::atomic<uint64_t> wrong{0};
            const double seconds = timed([&] {
                crew.run(threads, [&](unsigned thread) {
                    unsigned char* buffer = buffers.data() + thread * size_t{4096};
                    uint64_t mine = 0;
                    for (uint64_t i = thread; i < count; i += threads) {
                        const uint64_t page = random_page(setup.run(), i, pages);
                        const auto at = static_cast<off_t>(page * 4096);
                        const bool writes = (page & 1) != 0;
                        auto* bytes = const_cast<unsigned char*>(setup.source()) + at;
                        const iovec piece{writes ? bytes : buffer, 4096};
                        const ssize_t moved = writes ? pwritev(file.descriptor(), &piece, 1, at)
                                                     : preadv(file.descriptor(), &piece, 1, at);
                        mine += moved != 4096;
                        if (!writes) mine += count_wrong(buffer, page * 4096, 4096);
                    }
                    wrong += mine;
                });
            });
            right = right && wrong == 0;
            check();
            return seconds;
        },
        &row.cpu_seconds);
    row.bytes = count * 4096;
    row.verified = right && cached_share(file.path()) == 1.0;
    row.note = std::to_string(threads) + " blocks of " + std::to_string(kThreads) +
               " GPU threads, 4 KiB pages, half of the operations write; cache of half the file, "
               "written back at the close; the file changed between the runs, so each begins with "
               "no page of it";
    report.add(std::move(row));
}

void measure_sparse(Report& report, const Arguments& arguments, const TestFile& file) {
    FileSystemOptions options;
    options.page_size = 4096;
    options.cache_size = 2 * file.size();
    Setup setup(arguments.device, file, options);
    bool right = true;
    const auto bytes_of = [&](uint64_t request_size) {
        setup.next_run();
        const uint64_t before = setup.statistics().bytes_written;
        setup.write_stream(request_size, 4096);
        setup.sync();
        right = right && setup.kernel_right(file.size() / 4096 * request_size);
        // The checked word of a page is among its first 64 bytes in every 64th page.
        const uint64_t run = setup.run();
        const auto run_of = [&](uint64_t page) {
            return checked_word(page * 4096) < request_size ? run : 0;
        };
        right = right && wrong_words(file, run_of) == 0;
        return static_cast<double>(setup.statistics().bytes_written - before);
    };
    Row row;
    row.name = "sparse-granules";
    row.against = "whole-pages";
    row.unit = "B";
    setup.open();
    const double sparse = bytes_of(64);
    row.pairs = {{sparse, bytes_of(4096)}};
    row.bytes = file.size() / 4096 * 64;
    row.verified = right;
    row.note = "bytes that reach storage at a sync; 64 bytes written in each 4 KiB page";
    report.add(std::move(row));
}

}  // namespace

int run_all(const Arguments& arguments) {
    Report report("gwrite", kQuestion, arguments);
    const Device device = need(Device::open(arguments.device), "device");
    report.describe("device", device.name());
    const uint64_t large = arguments.smoke ? 8 << 20 : 512 << 20;
    const uint64_t hot = arguments.smoke ? 8 << 20 : 256 << 20;
    const uint64_t small = arguments.smoke ? 4 << 20 : 64 << 20;
    if (device.host_addressable() && wanted(arguments, "sequential-64k"))
        measure_sequential(report, arguments, TestFile(large));
    if (device.host_addressable() && wanted(arguments, "random-4k"))
        measure_random(report, arguments, TestFile(hot));
    if (wanted(arguments, "scattered-counters")) measure_counters(report, arguments);
    if (wanted(arguments, "sparse-granules")) measure_sparse(report, arguments, TestFile(small));
    report.write();
    return 0;
}

}  // namespace penstock::bench

int main(int argc, char** argv) {
    return penstock::bench::run_all(
        penstock::bench::parse_arguments(argc, argv, penstock::bench::kQuestion));
}
