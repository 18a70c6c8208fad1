#include "bench/tio/measure.h"

#include <algorithm>

#include "bench/harness/report.h"

namespace penstock::bench {
namespace {

// Reads past the page cache cost the same in every state and at every place, so this many in each
// thread are timed, and scaled to all.
constexpr size_t kPastCacheReads = 256;
constexpr uint64_t kSizeMax = 8 * base::kMiB;
constexpr uint64_t kDestinationSize = 2 * kTioFileSize;

}  // namespace

struct TioMeasurement::Run {
    const TioCell& cell;
    std::vector<std::vector<TioRead>> reads;  // for each thread
    TioResult& result;
};

TioMeasurement::TioMeasurement(const Device& device)
    : device_(device),
      crew_(kTioThreadsMax),
      destination_(
          static_cast<unsigned char*>(need(device.allocate(kDestinationSize), "device memory"))),
      stream_(need(Stream::create(device), "stream")) {
    std::vector<std::string> paths;
    for (unsigned i = 0; i < kTioThreadsMax; ++i) {
        files_.push_back(std::make_unique<ThreadFile>(kTioFileSize));
        paths.push_back(files_.back()->file.path());
    }
    mechanisms_ = tio_mechanisms(device_, paths, kSizeMax);
    if (device_.host_addressable()) return;
    host_copy_ = static_cast<unsigned char*>(
        need(device_.allocate_pinned(kDestinationSize), "pinned memory"));
}

TioMeasurement::~TioMeasurement() {
    mechanisms_.clear();
    device_.free(host_copy_);
    device_.free(destination_);
}

void TioMeasurement::lay(unsigned cached_percent) {
    if (laid_percent_ == cached_percent) return;
    for (unsigned i = 0; i < files_.size(); ++i) {
        files_[i]->wanted = tio_cached_pages(cached_percent, i);
        files_[i]->state.lay(files_[i]->wanted);
    }
    laid_percent_ = cached_percent;
}

unsigned char* TioMeasurement::part(const TioCell& cell, unsigned thread) const {
    return destination_ + thread * tio_part_size(cell.threads);
}

void TioMeasurement::read_part(const Run& run, Mechanism& reads, unsigned thread, unsigned passes,
                               size_t count) {
    unsigned char* to = part(run.cell, thread);
    for (; passes > 0; --passes) {
        for (size_t i = 0; i < count; ++i) {
            const TioRead& one = run.reads[thread][i];
            reads.read(thread, to + one.place, run.cell.size, one.offset);
        }
    }
    reads.finish(thread);
}

// Returns whether the first `count` reads of each thread brought the right bytes. Wipes them.
bool TioMeasurement::check(const Run& run, size_t count) {
    uint64_t wrong = 0;
    for (unsigned thread = 0; thread < run.cell.threads; ++thread) {
        unsigned char* bytes = part(run.cell, thread);
        if (host_copy_ != nullptr) {
            need(stream_.copy(host_copy_, bytes, count * run.cell.size), "copy");
            need(stream_.fill(bytes, 0, count * run.cell.size), "fill");
            need(stream_.synchronize(), "copy");
            bytes = host_copy_;
        }
        for (size_t i = 0; i < count; ++i) {
            const TioRead& one = run.reads[thread][i];
            wrong += count_wrong_and_wipe(bytes + one.place, one.offset, run.cell.size);
        }
    }
    return wrong == 0;
}

// Sets the state, reads, checks. Returns the seconds of all reads.
double TioMeasurement::run_side(Run& run, size_t side) {
    const TioCell& cell = run.cell;
    TioResult& result = run.result;
    const NamedMechanism& mechanism = mechanisms_[side];
    for (unsigned thread = 0; thread < cell.threads; ++thread) {
        ThreadFile& own = *files_[thread];
        result.verified = own.state.set(own.wanted) && result.verified;
    }
    const size_t all = run.reads[0].size();
    const size_t count = mechanism.past_cache ? std::min(all, kPastCacheReads) : all;
    const unsigned passes = mechanism.past_cache ? 1 : tio_passes(cell);
    const auto read = [&](unsigned times) {
        crew_.run(cell.threads,
                  [&](unsigned thread) { read_part(run, *mechanism.reads, thread, times, count); });
    };
    // After direct reads the destination is in no CPU's cache, and CPUs that waited are slow at
    // first. Without this, the next run would pay for it.
    if (cell.hot()) read(1);
    const double before = cpu_time();
    const double seconds = timed([&] { read(passes); });
    const double scale = static_cast<double>(all * tio_passes(cell)) /
                         static_cast<double>(count * passes);
    result.cpu_seconds[side] += (cpu_time() - before) * scale;
    ++result.runs[side];
    result.verified = check(run, count) && result.verified;
    return seconds * scale;
}

TioResult TioMeasurement::measure(const TioCell& cell, unsigned pairs) {
    TioResult result;
    result.cell = cell;
    lay(cell.cached_percent);
    const size_t sides = mechanisms_.size();
    for (const NamedMechanism& mechanism : mechanisms_) result.mechanisms.push_back(mechanism.name);
    Run run{cell, {}, result};
    for (unsigned thread = 0; thread < cell.threads; ++thread) {
        run.reads.push_back(tio_reads(cell, thread));
        result.bytes += tio_passes(cell) * run.reads.back().size() * cell.size;
    }
    const auto clear = [&] {
        result.cpu_seconds.assign(sides, 0);
        result.runs.assign(sides, 0);
    };
    clear();
    mechanisms_.back().reads->watch_routes();
    for (size_t side = sides; side > 0; --side) {
        run_side(run, side - 1);
        if (side == sides) result.routes = mechanisms_.back().reads->routes(&result.verified);
    }
    clear();
    const auto run_one = [&](size_t side) { return run_side(run, side); };
    result.choice = choose_best(&prng_, sides - 1, pairs, run_one);
    std::vector<double> seconds(sides);
    for (unsigned i = 0; i < pairs; ++i) {
        take_round(&prng_, {result.choice.best, sides - 1}, &seconds, run_one);
        result.judged.emplace_back(seconds.back(), seconds[result.choice.best]);
    }
    return result;
}

}  // namespace penstock::bench
