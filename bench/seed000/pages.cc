#include <algorithm>
#include <memory>

#include "base/units.h"
#include "bench/harness/cold_file.h"
#include "bench/seed000/cases.h"
#include "bench/seed000/threads.h"

namespace penstock::bench {
namespace {

using base::kKiB;
using base::kMiB;

struct Scale {
    unsigned blocks, threads;
    uint64_t stride;  // bytes of each block
};

Scale scale_of(const Arguments& arguments) {
    if (arguments.smoke) return {4, 32, kMiB};
    if (arguments.full) return {120, 512, 8 * kMiB};
    return {30, 32, 4 * kMiB};
}

// How a file system reads.
struct Way {
    uint32_t page_size = 4096;
    Readahead readahead = Readahead::kSeed;
    uint64_t prefetch_size = 0;
    Replacement replacement = Replacement::kGlobalLra;
    bool inside = true;  // the cache holds the file, else half of it
};

class Microbenchmark {
public:
    Microbenchmark(Report& report, const Arguments& arguments, const WalkKernels& kernels)
        : report_(report),
          arguments_(arguments),
          scale_(scale_of(arguments)),
          device_(device_of(arguments), {}, kernels, scale_.blocks, scale_.threads,
                  std::min(scale_.stride, 4 * kMiB)),
          cold_(scale_.blocks * scale_.stride),
          threads_(cold_.file(), kHostThreads, 4 * kMiB) {}

    // Reads of one page each.
    [[nodiscard]] WalkRunner runner(const Way& way, bool cold) {
        FileSystemOptions options;
        options.storage = StorageKind::kPosix;
        options.helping = false;
        options.workers = kHostThreads;
        options.page_size = way.page_size;
        const uint64_t size = cold_.file().size();
        options.cache_size = std::max(way.inside ? size + 16 * kMiB : size / 2,
                                      uint64_t{device_.device().permits()} * way.page_size);
        options.readahead = way.readahead;
        options.replacement = way.replacement;
        if (way.readahead == Readahead::kStatic) options.prefetch_size = way.prefetch_size;
        auto system = std::make_shared<WalkSystem>(device_, options,
                                                   std::vector<const TestFile*>{&cold_.file()});
        return [this, system, way, cold](bool* right) {
            prepare(cold, right);
            const WalkRun run = system->run(
                {sequential_walk(device_, cold_.file(), way.page_size)});
            *right = *right && run.right && run.read_all(cold_.file().size(), way.page_size);
            return run.seconds;
        };
    }
    [[nodiscard]] WalkRunner plain_threads() {
        return [this](bool* right) {
            prepare(true, right);
            return threads_.in_order(128 * kKiB, right);
        };
    }

    [[nodiscard]] bool takes(const std::string& name, uint64_t page_size) const {
        return wanted(arguments_, name) && page_size <= scale_.stride;
    }
    void compare(const std::string& name, const char* against, const std::string& note,
                 const WalkRunner& one, const WalkRunner& other) {
        bench::compare(report_, arguments_,
                       {name, against,
                        note + "; " + std::to_string(scale_.blocks) + " strides of " +
                            size_name(scale_.stride) + ", " + std::to_string(scale_.threads) +
                            " GPU threads a block",
                        cold_.file().size()},
                       one, other);
    }
    [[nodiscard]] bool full() const { return arguments_.full; }

private:
    void prepare(bool cold, bool* right) {
        if (cold) {
            *right = cold_.make_cold() && *right;
        } else {
            *right = cold_.file().make_hot() && *right;
        }
    }

    Report& report_;
    const Arguments& arguments_;
    const Scale scale_;
    WalkDevice device_;
    ColdFile cold_;
    ReadingThreads threads_;
};

void measure_page_sizes(Microbenchmark& bench) {
    for (uint64_t size = 4 * kKiB; size <= 4 * kMiB; size *= bench.full() ? 2 : 4) {
        const std::string name = "pages-" + size_name(size);
        if (!bench.takes(name, size)) continue;
        Way way;
        way.page_size = static_cast<uint32_t>(size);
        bench.compare(name, "cpu-4-threads", "figure 2: the original, cold",
                      bench.runner(way, true), bench.plain_threads());
    }
}

void measure_prefetch_sizes(Microbenchmark& bench) {
    const auto against_64k = [&](const std::string& name, const Way& way) {
        if (!bench.takes(name, 64 * kKiB)) return;
        Way large;
        large.page_size = 64 * kKiB;
        bench.compare(name, "pages-64k", "figure 9: 4 KiB pages and reads, cold",
                      bench.runner(way, true), bench.runner(large, true));
    };
    against_64k("prefetch-none", {});
    const bool full = bench.full();
    for (uint64_t fetch = (full ? 8 : 16) * kKiB; fetch <= 256 * kKiB; fetch *= full ? 2 : 4) {
        Way way;
        way.readahead = Readahead::kStatic;
        way.prefetch_size = fetch - 4 * kKiB;
        against_64k("prefetch-" + size_name(way.prefetch_size), way);
    }
    Way own;
    own.readahead = Readahead::kAuto;
    against_64k("prefetch-grows", own);
}

void measure_replacement(Microbenchmark& bench) {
    struct Policy {
        const char* name;
        Replacement replacement;
    };
    Way original;
    original.inside = false;
    for (const bool cold : {true, false}) {
        for (const Policy& policy :
             {Policy{"rings", Replacement::kRings}, Policy{"global-lra", Replacement::kGlobalLra},
              Policy{"clock", Replacement::kClock}}) {
            const std::string name = std::string("twice-the-cache-") + policy.name +
                                     (cold ? "" : "-hot");
            if (!bench.takes(name, 64 * kKiB)) continue;
            Way way = original;
            way.readahead = Readahead::kStatic;
            way.prefetch_size = 60 * kKiB;
            way.replacement = policy.replacement;
            bench.compare(name, cold ? "original-4k" : "original-4k-hot",
                          std::string("figure 10: 60 KiB behind every miss, ") +
                              (cold ? "cold" : "hot") + "; original: global LRA",
                          bench.runner(way, cold), bench.runner(original, cold));
        }
    }
}

}  // namespace

void measure_pages(Report& report, const Arguments& arguments, const WalkKernels& kernels) {
    Microbenchmark bench(report, arguments, kernels);
    measure_page_sizes(bench);
    measure_prefetch_sizes(bench);
    measure_replacement(bench);
}

}  // namespace penstock::bench
