// The public residency report: asks about one window of the file after another. The grain grows
// when there are too many runs.
#include "penstock/residency.h"

#include <fcntl.h>

#include <algorithm>

#include "base/units.h"
#include "file/open_file.h"
#include "file/residency_picture.h"
#include "storage/residency.h"
#include "storage/storage.h"

namespace penstock {
namespace {

using extent::Extent;
using extent::ResidencyRun;
using file::ResidencyPicture;

constexpr const char* kOrigin = "residency";
// Bytes in one question. In a window of many runs each halving asks about half of it again. A
// uniform window takes one question of half a microsecond.
constexpr uint64_t kWindow = 8 * base::kMiB;
constexpr uint64_t kRangesMin = 16;

storage::ResidencyMethod joined(storage::ResidencyMethod a, storage::ResidencyMethod b) {
    if (a == storage::ResidencyMethod::kNone || a == b) return b;
    return b == storage::ResidencyMethod::kNone ? a : storage::ResidencyMethod::kBoth;
}

// Clips the requested range to a file of `size` bytes.
Extent asked(const ResidencyOptions& options, uint64_t size) {
    const uint64_t offset = std::min(options.offset, size);
    return {offset, std::min(options.size, size - offset)};
}

void fill(const ResidencyPicture& picture, ResidencyReport* report) {
    report->grain = picture.grain();
    report->ranges.reserve(picture.runs().size());
    for (const ResidencyRun& run : picture.runs()) {
        report->ranges.push_back({run.range.offset, run.range.size, run.state, run.resident_size});
        report->bytes[static_cast<size_t>(run.state)] += run.range.size;
        report->resident_size += run.resident_size;
    }
}

// Asks `probe` about a file of `size` bytes.
Result<ResidencyReport> look(storage::ResidencyProbe& probe, uint64_t size,
                             const ResidencyOptions& options) {
    if (options.ranges_max < kRangesMin) {
        return Status{EINVAL, kOrigin, "fewer than 16 runs tell nothing"};
    }
    ResidencyReport report;
    report.size = size;
    report.page_size = probe.page_size();
    ResidencyPicture picture(report.page_size);
    auto method = storage::ResidencyMethod::kNone;
    std::vector<ResidencyRun> runs(4096);  // a window with more runs takes more questions
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

}  // namespace

Result<ResidencyReport> residency(const std::string& path, const ResidencyOptions& options) {
    auto storage = storage::make_storage({.kind = storage::Kind::kPosix});
    if (!storage.ok()) return storage.status();
    auto file = storage.value()->open(path, O_RDONLY);
    if (!file.ok()) return file.status();
    storage::ResidencyProbe probe(*file.value());
    return look(probe, file.value()->size(), options);
}

Result<ResidencyReport> file::OpenFile::residency(const ResidencyOptions& options) {
    const Result<uint64_t> now = size();
    if (!now.ok()) return now.status();
    return look(source_->probe, now.value(), options);
}

}  // namespace penstock
