#include "bench/gwrite/counters.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/gwrite_kernels.h"
#include "bench/harness/crew.h"
#include "bench/harness/test_file.h"
#include "penstock/file_system.h"

namespace penstock::bench {
namespace {

constexpr uint64_t kStep = 32 << 10;
constexpr unsigned kThreads = 16;               // of the baseline
constexpr unsigned kBlocks = 512, kLanes = 32;  // of the kernel

// Returns the number of words of the file that are wrong after `rounds` rounds.
uint64_t wrong_words(const TestFile& file, uint64_t rounds) {
    std::vector<uint64_t> words(kStep / sizeof(uint64_t));
    uint64_t wrong = 0;
    for (uint64_t at = 0; at < file.size(); at += kStep) {
        if (pread(file.descriptor(), words.data(), kStep, static_cast<off_t>(at)) !=
            ssize_t{kStep}) {
            ++wrong;
        }
        for (uint64_t i = 0; i < words.size(); ++i)
            wrong += words[i] != stamp(at + i * 8) + (i == 0 ? rounds : 0);
    }
    return wrong;
}

// Counts up counter `first` and every kThreads-th after it; returns how many failed.
uint64_t count_plainly(const TestFile& file, unsigned first) {
    uint64_t wrong = 0;
    for (uint64_t at = first * kStep; at < file.size(); at += kThreads * kStep) {
        uint64_t word = 0;
        const auto offset = static_cast<off_t>(at);
        wrong += pread(file.descriptor(), &word, sizeof word, offset) != ssize_t{sizeof word};
        ++word;
        wrong += pwrite(file.descriptor(), &word, sizeof word, offset) != ssize_t{sizeof word};
    }
    return wrong;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// Time of each run without the disk's sync, for the note.
struct Parts {
    std::vector<double> ours, theirs;
};

}  // namespace

void measure_counters(Report& report, const Arguments& arguments) {
    const TestFile file(arguments.smoke ? 8 << 20 : 1 << 30);
    const uint64_t count = file.size() / kStep;
    Device device = need(Device::open(arguments.device), "device");
    FileSystemOptions options;
    options.page_size = 4096;
    options.cache_size = std::max<uint64_t>(2 * count * options.page_size, 8 << 20);
    FileSystem fs = need(FileSystem::create(device, options), "file system");
    Stream stream = need(Stream::create(device), "stream");
    auto* const memory = static_cast<unsigned long long*>(
        need(device.allocate((kBlocks + 1) * sizeof(unsigned long long)), "memory"));
    Crew crew(kThreads);
    bool right = true;
    uint64_t rounds = 0;
    Parts parts;
    Row row;
    row.name = "scattered-counters";
    row.against = "pread-pwrite-fsync-threads";
    row.pairs = take_pairs(
        arguments.pairs,
        [&] {
            right = right && file.make_hot();
            need(stream.fill(memory, 0, sizeof *memory), "fill");
            need(stream.synchronize(), "fill");
            // A file that changed since its close has no page in the cache at its next open.
            const Descriptor descriptor = need(fs.open(file.path(), kOpenReadWrite), "open");
            const CountJob job{fs.device_handle(), descriptor, count, kStep, memory + 1, memory};
            const double kernel = timed([&] {
                need(launch(stream, {{kBlocks}, {kLanes}}, count_up, job), "launch");
                need(stream.synchronize(std::chrono::minutes(10)), "kernel");
            });
            const double sync = timed([&] { need(fs.sync(descriptor), "sync"); });
            parts.ours.push_back(kernel);
            need(fs.close(descriptor), "close");
            unsigned long long wrong = 1;
            need(stream.copy(&wrong, memory, sizeof wrong), "copy");
            need(stream.synchronize(), "copy");
            right = right && wrong == 0 && wrong_words(file, ++rounds) == 0;
            return kernel + sync;
        },
        [&] {
            right = right && file.make_hot();
            std::atomic<uint64_t> wrong{0};
            const double loop = timed([&] {
                crew.run(kThreads, [&](unsigned thread) { wrong += count_plainly(file, thread); });
            });
            const double sync = timed([&] { wrong += fsync(file.descriptor()) != 0; });
            parts.theirs.push_back(loop);
            right = right && wrong == 0 && wrong_words(file, ++rounds) == 0;
            return loop + sync;
        },
        &row.cpu_seconds);
    row.bytes = count * sizeof(uint64_t);
    row.verified = right;
    char note[200];
    std::snprintf(note, sizeof note,
                  "%llu counters, one each 32 KiB; %u blocks against %u threads; before the sync "
                  "%.0f ms against %.0f ms",
                  static_cast<unsigned long long>(count), kBlocks, kThreads,
                  1e3 * median(parts.ours), 1e3 * median(parts.theirs));
    row.note = note;
    report.add(std::move(row));
    device.free(memory);
}

}  // namespace penstock::bench
