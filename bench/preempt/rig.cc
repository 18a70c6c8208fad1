#include "bench/preempt/rig.h"

#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "bench/harness/report.h"
#include "bench/harness/test_file.h"
#include "bench/harness/walks.h"
#include "bench/preempt/announce.h"

namespace penstock::bench {
namespace {

using workloads::Part;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kPageSize = 8 << 10;          // the smallest read of the workloads
constexpr size_t kCacheSize = size_t{96} << 20;  // all files at once
constexpr unsigned kAnnouncers = 16;             // blocks that announce the reads of one file
constexpr auto kRunMax = std::chrono::minutes(2);
// How often the host looks which streams have ended, and how exact the times in the system are.
constexpr auto kLookEvery = std::chrono::microseconds(500);

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
}

}  // namespace

std::string Disk::describe() const {
    if (latency_us == 0 && bandwidth_mbs == 0) return "storage in memory";
    return "throttle (" + number(latency_us) + " us, " + number(bandwidth_mbs) + " MB/s)";
}

MixRig::MixRig(const std::string& device, unsigned places, const Disk& disk) {
    DeviceOptions device_options;
    device_options.permits = places;
    device_options.memory_size = size_t{512} << 20;
    device_ = need(Device::open(device, device_options), "device");
    FileSystemOptions options;
    options.page_size = kPageSize;
    options.cache_size = kCacheSize;
    options.helping = false;
    options.readahead = Readahead::kOff;
    options.study.throttle_latency_us = disk.latency_us;
    options.study.throttle_bandwidth_mbs = disk.bandwidth_mbs;
    files_ = need(FileSystem::create(device_, options), "file system");
    std::string folder = temporary_folder() + "/penstock-preempt-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) fail(folder + ": the folder for files cannot be made");
    site_ = {&device_, &files_, folder};
}

MixRig::~MixRig() {
    entries_.clear();  // which removes the files
    (void)rmdir(site_.folder.c_str());
}

void MixRig::add(Result<std::unique_ptr<workloads::Workload>> made, const char* what) {
    auto entry = std::make_unique<Entry>();
    entry->workload = need(std::move(made), what);
    entry->stream = need(Stream::create(device_), "stream");
    entries_.push_back(std::move(entry));
}

std::vector<MixRig::Entry*> MixRig::chosen(const Mix& mix, Part part) const {
    std::vector<Entry*> entries;
    size_t reading = 0;
    for (const std::unique_ptr<Entry>& entry : entries_) {
        const bool takes_part = entry->reads() ? reading++ < mix.io_count
                                               : mix.computes && part != Part::kReads;
        if (takes_part) entries.push_back(entry.get());
    }
    return entries;
}

void MixRig::forget(Entry& entry) {
    need(launch(entry.stream, {{1}, {32}}, forget_file, files_.device_handle(),
                entry.workload->file()),
         "launch");
}

// The kernel that stays is in the stream of the first workload that reads, and takes one place.
void MixRig::launch_persistent(const std::vector<Entry*>& entries) {
    std::vector<workloads::Workload*> products;
    for (Entry* entry : entries)
        if (entry->reads()) products.push_back(entry->workload.get());
    for (Entry* entry : entries) {
        if (entry->reads()) {
            if (entry->workload.get() != products.front()) continue;
            need(persistent_.launch(entry->stream, 1, products), "launch");
        } else {
            need(entry->workload->launch(entry->stream, Part::kAll), "launch");
        }
    }
}

// In split kernels the reads of all files are announced first, and the kernels that read go behind
// those that compute.
void MixRig::launch_all(const std::vector<Entry*>& entries, Part part, WaitMode mode) {
    const auto launch_where = [&](auto wanted) {
        for (Entry* entry : entries)
            if (wanted(*entry)) need(entry->workload->launch(entry->stream, part), "launch");
    };
    if (part == Part::kAll && mode == WaitMode::kPersistent) {
        launch_persistent(entries);
        return;
    }
    if (part == Part::kAll && mode == WaitMode::kBackoff) {
        for (Entry* entry : entries)
            need(entry->reads() ? workloads::launch_with_backoff(entry->stream, *entry->workload)
                                : entry->workload->launch(entry->stream, part),
                 "launch");
        return;
    }
    if (mode != WaitMode::kSplitKernels || part == Part::kCompute) {
        launch_where([](const Entry&) { return true; });
        return;
    }
    for (Entry* entry : entries) {
        if (!entry->reads()) continue;
        need(launch(entry->stream, {{kAnnouncers}, {32}}, announce_reads, files_.device_handle(),
                    entry->workload->file(), entry->workload->read_size()),
             "launch");
    }
    launch_where([](const Entry& entry) { return !entry.reads(); });
    launch_where([](const Entry& entry) { return entry.reads(); });
}

// Launches everything, and waits for each stream. Returns the seconds until the last has ended.
double MixRig::time_all(const std::vector<Entry*>& entries, Part part, WaitMode mode) {
    const auto began = Clock::now();
    const auto elapsed = [&] {
        return std::chrono::duration<double>(Clock::now() - began).count();
    };
    for (Entry* entry : entries) entry->ended = 0;
    launch_all(entries, part, mode);
    for (size_t left = entries.size(); left > 0;) {
        std::this_thread::sleep_for(kLookEvery);
        for (Entry* entry : entries) {
            if (entry->ended > 0 || !need(entry->stream.idle(), "stream")) continue;
            entry->ended = elapsed();
            --left;
        }
        if (Clock::now() - began > kRunMax) fail("a run does not end: " + device_.diagnosis());
    }
    if (mode == WaitMode::kPersistent) {  // one kernel does the work of all that read
        for (Entry* entry : entries)
            if (entry->reads()) entry->ended = entries.front()->ended;
    }
    return elapsed();
}

namespace {

// What happened between two looks at the counters.
PreemptionStatistics difference(const PreemptionStatistics& before, PreemptionStatistics after) {
    after.launches -= before.launches;
    after.blocks -= before.blocks;
    after.left -= before.left;
    after.spun -= before.spun;
    after.full -= before.full;
    after.restarts -= before.restarts;
    after.resume_ns -= before.resume_ns;
    return after;
}

}  // namespace

MixRun MixRig::run(const Mix& mix, Part part, WaitMode mode) {
    const std::vector<Entry*> entries = chosen(mix, part);
    const bool reads = part != Part::kCompute;
    uint64_t size = 0;
    for (Entry* entry : entries) {
        if (entry->reads() && reads) {
            forget(*entry);
            size += entry->workload->read_size();
        }
        need(entry->workload->prepare(entry->stream, part), "prepare");
        need(entry->stream.synchronize(), "prepare");
    }
    choose_mode(device_, mode, dispatch_delay_us_);
    MixRun run;
    const uint64_t bytes_read = files_.statistics().bytes_read;
    const PreemptionStatistics preemption = preemption_statistics(device_);
    const double cpu_before = cpu_time();
    run.seconds = time_all(entries, part, mode);
    run.cpu_seconds = cpu_time() - cpu_before;
    run.preemption = difference(preemption, preemption_statistics(device_));
    // So many pages were read from storage, so none was cached.
    run.right = files_.statistics().bytes_read - bytes_read >= size;
    size_t io = 0, compute = 0;
    for (Entry* entry : entries) {
        (entry->reads() ? run.io_seconds : run.compute_seconds) += entry->ended;
        ++(entry->reads() ? io : compute);
        const uint64_t wrong = need(entry->workload->count_wrong(entry->stream, part), "kernel");
        run.right = run.right && wrong == 0;
    }
    if (io > 0) run.io_seconds /= static_cast<double>(io);
    if (compute > 0) run.compute_seconds /= static_cast<double>(compute);
    return run;
}

bool MixRig::repeat(unsigned count, Part part, WaitMode mode, bool launches) {
    choose_mode(device_, mode);
    uint64_t wrong = 0;
    for (unsigned i = 0; i < count; ++i) {
        for (const std::unique_ptr<Entry>& entry : entries_) {
            need(entry->workload->prepare(entry->stream, part), "prepare");
            if (launches) need(entry->workload->launch(entry->stream, part), "launch");
            wrong += need(entry->workload->count_wrong(entry->stream, part), "kernel");
        }
    }
    return wrong == 0 || !launches;
}

uint64_t MixRig::read_size(const Mix& mix) const {
    uint64_t size = 0;
    for (const Entry* entry : chosen(mix, Part::kAll)) size += entry->workload->read_size();
    return size;
}

uint64_t MixRig::block_count(const Mix& mix) const {
    uint64_t count = 0;
    for (const Entry* entry : chosen(mix, Part::kAll)) count += entry->workload->block_count();
    return count;
}

}  // namespace penstock::bench
