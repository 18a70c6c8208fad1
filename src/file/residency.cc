// The public picture of what is cached of a file: windows of it, one after another, in grains that
// grow when there are too many runs.
#include "penstock/residency.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "storage/residency.h"
#include "storage/storage.h"

namespace penstock {
namespace {

using extent::Extent;
using extent::ResidencyRun;

constexpr const char* kOrigin = "residency";
// Asked about at once. Where it is in pieces, each halving looks at half of it again; where it is
// not, half a microsecond tells all.
constexpr uint64_t kWindow = 8 * base::kMiB;
constexpr uint64_t kRangesMin = 16;

// What one grain holds, put together from pieces of runs.
class Grain {
public:
    void add(Residency state, uint64_t size, uint64_t resident_size) {
        if (size_ == 0) state_ = state;
        if (state != state_) state_ = joined(state);
        size_ += size;
        resident_size_ += resident_size;
    }
    [[nodiscard]] ResidencyRun run(uint64_t offset) const {
        const uint64_t resident = state_ == Residency::kUnknown ? 0 : resident_size_;
        return {{offset, size_}, state_, resident};
    }

private:
    [[nodiscard]] Residency joined(Residency state) const {
        for (const Residency wins : {Residency::kDirty, Residency::kUnknown}) {
            if (state_ == wins || state == wins) return wins;
        }
        return Residency::kMixed;
    }

    Residency state_ = Residency::kUnknown;
    uint64_t size_ = 0, resident_size_ = 0;
};

// Runs that can be told again in larger grains.
class Picture {
public:
    explicit Picture(uint64_t grain) : grain_(grain) {}

    [[nodiscard]] uint64_t grain() const { return grain_; }
    [[nodiscard]] const std::vector<ResidencyRun>& runs() const { return runs_; }

    // `run` begins where the last one ends, and is told in grains of grain().
    void add(const ResidencyRun& run) {
        size_t count = runs_.size();
        if (!extent::append_run(runs_, &count, run)) runs_.push_back(run);
    }

    // A run keeps its sum, wherever it is cut: of mixed and dirty ones nobody knows which bytes
    // are resident, and their pieces stay neighbours of one state.
    void coarsen(uint64_t grain) {
        Picture coarse(grain);
        for (size_t i = 0; i < runs_.size();) {
            const uint64_t begin = runs_[i].range.offset;
            uint64_t end = base::align_down(begin, grain) + grain;
            // Whole grains of one run go at once.
            end = std::max(end, base::align_down(runs_[i].range.end(), grain));
            Grain told;
            while (i < runs_.size() && runs_[i].range.offset < end) {
                ResidencyRun& run = runs_[i];
                const uint64_t size = std::min(run.range.size, end - run.range.offset);
                const uint64_t resident = std::min(run.resident_size, size);
                told.add(run.state, size, resident);
                run.range = {run.range.offset + size, run.range.size - size};
                run.resident_size -= resident;
                if (run.range.empty()) ++i;
            }
            coarse.add(told.run(begin));
        }
        *this = std::move(coarse);
    }

private:
    uint64_t grain_;
    std::vector<ResidencyRun> runs_;
};

storage::ResidencyMethod joined(storage::ResidencyMethod a, storage::ResidencyMethod b) {
    if (a == storage::ResidencyMethod::kNone || a == b) return b;
    return b == storage::ResidencyMethod::kNone ? a : storage::ResidencyMethod::kBoth;
}

// What is asked of a file of `size` bytes.
Extent asked(const ResidencyOptions& options, uint64_t size) {
    const uint64_t offset = std::min(options.offset, size);
    return {offset, std::min(options.size, size - offset)};
}

void fill(const Picture& picture, ResidencyReport* report) {
    report->grain = picture.grain();
    report->ranges.reserve(picture.runs().size());
    for (const ResidencyRun& run : picture.runs()) {
        report->ranges.push_back({run.range.offset, run.range.size, run.state, run.resident_size});
        report->bytes[static_cast<size_t>(run.state)] += run.range.size;
        report->resident_size += run.resident_size;
    }
}

}  // namespace

Result<ResidencyReport> residency(const std::string& path, const ResidencyOptions& options) {
    if (options.ranges_max < kRangesMin) {
        return Status{EINVAL, kOrigin, "fewer than 16 runs tell nothing"};
    }
    auto storage = storage::make_storage({.kind = storage::Kind::kPosix});
    if (!storage.ok()) return storage.status();
    auto file = storage.value()->open(path, O_RDONLY);
    if (!file.ok()) return file.status();

    storage::ResidencyProbe probe(*file.value());
    ResidencyReport report;
    report.size = file.value()->size();
    report.page_size = probe.page_size();
    Picture picture(report.page_size);
    auto method = storage::ResidencyMethod::kNone;
    std::vector<ResidencyRun> runs(4096);  // more of one window are asked for again
    const Extent range = asked(options, report.size);
    for (uint64_t at = range.offset; at < range.end();) {
        const Extent window{at, std::min(kWindow - at % kWindow, range.end() - at)};
        const auto answer = probe.ask(
            {.range = window, .grain = picture.grain(), .probes_max = UINT32_MAX}, runs);
        for (size_t i = 0; i < answer.runs; ++i) picture.add(runs[i]);
        while (picture.runs().size() > options.ranges_max) picture.coarsen(2 * picture.grain());
        method = joined(method, answer.method);
        if (*answer.reason != '\0') report.reason = answer.reason;
        at = answer.end;
        if (options.on_progress && !options.on_progress(at - range.offset, range.size)) {
            return Status{ECANCELED, kOrigin, "cancelled"};
        }
    }
    report.method = name(method);
    fill(picture, &report);
    return report;
}

}  // namespace penstock
