// Question: what does a plain read by this library cost against what a C programmer would write?
//
// Workload and baselines. hot-64m: requests of 64 MiB of a file that the OS has cached, against
// pread into the same memory, with the number of threads and the call size that are fastest here.
// cold-64m: the same for a file of which the OS has cached nothing. It runs against fio at its
// fastest engine, depth, block size and number of threads, direct or buffered, with fio's own
// buffers (fio-best); against direct reads of fio on one thread, with buffers on huge pages and
// with its own; and against a plain loop with the same memory, since fio reuses as little as 4 MiB.
// plain-loop-64m is that loop alone, into 64 MiB against 8 MiB. random-4k-vectored: 1024 pieces of
// 4 KiB at random places of a hot file in one call, against a loop of pread. small-512: single
// reads of 512 bytes one after another, hot, against pread. All memory but fio's is page-aligned
// and on huge pages. Settings are chosen in runs that do not count. Not measured: device memory,
// several readers, network file systems.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "base/units.h"
#include "bench/harness/huge_buffer.h"
#include "bench/harness/plain_reads.h"
#include "bench/harness/report.h"
#include "bench/harness/test_file.h"
#include "bench/pread/cold.h"
#include "penstock/file.h"

namespace penstock::bench {
namespace {

using base::kKiB;
using base::kMiB;

constexpr const char* kQuestion =
    "what does a plain read by this library cost against what a C programmer would "
    "write?";
constexpr uint64_t kSeed = 4;

// A file that the OS has cached, open in the library, and memory to read it to.
struct HotFile {
    HotFile(uint64_t size, uint64_t buffer_size) : file(size), buffer(buffer_size) {
        library = need(File::open(file.path()), "open");
    }
    void prepare() { hot = file.make_hot() && hot; }

    TestFile file;
    HugeBuffer buffer;
    File library;
    bool hot = true;  // the file was hot before each run so far: prepare()
};

struct RawSetting {
    unsigned threads;
    uint64_t call_size;
};

std::string describe(const RawSetting& setting) {
    return std::to_string(setting.threads) + " threads, calls of " +
           (setting.call_size == 0 ? std::string("a whole part")
                                   : std::to_string(setting.call_size / kMiB) + " MiB");
}

// Requests of 64 MiB through the whole file; checks in between are not timed.
template <class Read>
double read_through(HotFile& hot, uint64_t request_size, bool* right, Read read) {
    double seconds = 0;
    for (uint64_t offset = 0; offset < hot.file.size(); offset += request_size) {
        seconds += timed([&] { read(hot.buffer.data(), request_size, offset); });
        *right = count_wrong_and_wipe(hot.buffer.data(), offset, request_size) == 0 && *right;
    }
    return seconds;
}

void measure_hot(Report& report, const Arguments& arguments) {
    const uint64_t request_size = arguments.smoke ? 8 * kMiB : 64 * kMiB;
    HotFile hot(4 * request_size, request_size);
    bool right = true;
    const auto run_raw = [&](CachedReads& raw) {
        return read_through(
            hot, request_size, &right,
            [&](unsigned char* to, uint64_t size, uint64_t offset) { raw.read(to, size, offset); });
    };
    const unsigned cpus = std::max(1u, std::thread::hardware_concurrency());
    std::vector<RawSetting> settings;
    for (const unsigned threads : {1u, cpus / 2, cpus, 2 * cpus}) {
        if (threads == 0 || threads > 64 || (threads == 1 && !settings.empty())) continue;
        for (const uint64_t call_size : {uint64_t{0}, kMiB, 4 * kMiB})
            settings.push_back({threads, call_size});
    }
    std::vector<std::vector<double>> times(settings.size());
    for (unsigned i = 0; i <= arguments.pairs; ++i) {
        for (size_t k = 0; k < settings.size(); ++k) {
            CachedReads raw(hot.file.path(), settings[k].threads, settings[k].call_size);
            hot.prepare();
            times[k].push_back(run_raw(raw));
        }
    }
    for (std::vector<double>& one : times) std::sort(one.begin(), one.end());
    const auto best = std::min_element(
        times.begin(), times.end(),
        [](const auto& a, const auto& b) { return a[a.size() / 2] < b[b.size() / 2]; });
    const RawSetting chosen = settings[static_cast<size_t>(best - times.begin())];
    CachedReads raw(hot.file.path(), chosen.threads, chosen.call_size);
    Row row;
    row.name = "hot-64m";
    row.against = "raw-pread-best";
    row.pairs = take_pairs(
        arguments.pairs,
        [&] {
            return read_through(hot, request_size, &right,
                                [&](unsigned char* to, uint64_t size, uint64_t offset) {
                                    need(hot.library.read(to, size, offset), "read");
                                });
        },
        [&] { return run_raw(raw); }, &row.cpu_seconds, [&] { hot.prepare(); });
    row.bytes = hot.file.size();
    row.verified = right && hot.hot;
    row.note = "pread: " + describe(chosen) + ", best of " + std::to_string(settings.size()) +
               "; requests of " + std::to_string(request_size / kMiB) + " MiB";
    report.add(std::move(row));
}

void measure_vectored(Report& report, const Arguments& arguments) {
    constexpr uint64_t kPiece = 4 * kKiB;
    constexpr size_t kPieces = 1024;  // in one call
    const size_t calls = arguments.smoke ? 1 : 16;
    HotFile hot((arguments.smoke ? 16 : 256) * kMiB, calls * kPieces * kPiece);
    base::Prng random(kSeed);
    std::vector<ReadPiece> pieces;
    for (size_t i = 0; i < calls * kPieces; ++i) {
        pieces.push_back({hot.buffer.data() + i * kPiece, kPiece,
                          random.below(hot.file.size() / kPiece) * kPiece});
    }
    bool right = true;
    const auto check = [&] {
        for (const ReadPiece& piece : pieces) {
            const auto to = static_cast<unsigned char*>(piece.to);
            right = count_wrong_and_wipe(to, piece.offset, piece.size) == 0 && right;
        }
    };
    Row row;
    row.name = "random-4k-vectored";
    row.against = "pread-loop";
    row.pairs = take_pairs(
        arguments.pairs,
        [&] {
            const double seconds = timed([&] {
                for (size_t call = 0; call < calls; ++call) {
                    const std::span<const ReadPiece> part(pieces.data() + call * kPieces, kPieces);
                    need(hot.library.readv(part, hot.library.options().reading), "readv");
                }
            });
            check();
            return seconds;
        },
        [&] {
            const double seconds = timed([&] {
                for (const ReadPiece& piece : pieces) {
                    if (pread(hot.file.descriptor(), piece.to, kPiece,
                              static_cast<off_t>(piece.offset)) != static_cast<ssize_t>(kPiece)) {
                        right = false;
                    }
                }
            });
            check();
            return seconds;
        },
        &row.cpu_seconds, [&] { hot.prepare(); });
    row.bytes = pieces.size() * kPiece;
    row.verified = right && hot.hot;
    row.note = std::to_string(calls) + " calls of " + std::to_string(kPieces) +
               " pieces; pread on one thread";
    report.add(std::move(row));
}

void measure_small(Report& report, const Arguments& arguments) {
    constexpr uint64_t kRead = 512;
    const uint64_t reads = arguments.smoke ? 1000 : 100'000;
    HotFile hot(64 * kMiB, 2 * kMiB);
    bool right = true;
    // The same places for both, all over the file; each read's first word is checked in both.
    const auto run = [&](const auto& read) {
        base::Prng random(kSeed);
        unsigned char* to = hot.buffer.data();
        uint64_t wrong = 0;
        const double seconds = timed([&] {
            for (uint64_t i = 0; i < reads; ++i) {
                const uint64_t offset = random.below(hot.file.size() / kRead) * kRead;
                wrong += read(to, offset) ? 0 : 1;
                uint64_t word = 0;
                std::memcpy(&word, to, sizeof word);
                wrong += word != stamp(offset);
            }
        });
        right = right && wrong == 0;
        return seconds;
    };
    Row row;
    row.name = "small-512";
    row.against = "pread";
    row.pairs = take_pairs(
        arguments.pairs,
        [&] {
            return run([&](unsigned char* to, uint64_t offset) {
                const Result<uint64_t> got = hot.library.read(to, kRead, offset);
                return got.ok() && got.value() == kRead;
            });
        },
        [&] {
            return run([&](unsigned char* to, uint64_t offset) {
                return pread(hot.file.descriptor(), to, kRead, static_cast<off_t>(offset)) ==
                       static_cast<ssize_t>(kRead);
            });
        },
        &row.cpu_seconds, [&] { hot.prepare(); });
    row.bytes = reads * kRead;
    row.verified = right && hot.hot;
    double mine = 0, other = 0;
    for (const auto& [first, second] : row.pairs) {
        mine += first;
        other += second;
    }
    const double each = 1e9 / static_cast<double>(reads * row.pairs.size());
    row.note = std::to_string(reads) + " reads; mean " +
               std::to_string(static_cast<int>(mine * each)) + " ns against " +
               std::to_string(static_cast<int>(other * each)) + " ns";
    report.add(std::move(row));
}

}  // namespace

int run_all(const Arguments& arguments) {
    // No variable may name a route for the whole process here.
    for (const char* variable : {"PENSTOCK_ROUTE", "PENSTOCK_STRICT"}) unsetenv(variable);
    Report report("pread", kQuestion, arguments);
    if (wanted(arguments, "hot-64m")) measure_hot(report, arguments);
    if (wanted(arguments, "cold-64m")) measure_cold(report, arguments);
    if (wanted(arguments, "random-4k-vectored")) measure_vectored(report, arguments);
    if (wanted(arguments, "small-512")) measure_small(report, arguments);
    report.write();
    return 0;
}

}  // namespace penstock::bench

int main(int argc, char** argv) {
    return penstock::bench::run_all(
        penstock::bench::parse_arguments(argc, argv, penstock::bench::kQuestion));
}
