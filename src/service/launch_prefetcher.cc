#include "service/launch_prefetcher.h"

#include <algorithm>
#include <cerrno>
#include <string>

namespace penstock::service {

Result<std::unique_ptr<LaunchPrefetcher>> LaunchPrefetcher::create(backend::Device* device,
                                                                   FileTable* files,
                                                                   FileSystemState* state,
                                                                   uint64_t pages_max) {
    if (find_kernel_by_key(kPrefetchPagesKey) == nullptr)
        return Status{ENOSYS, "file system", "the library's kernel that reads ahead is missing"};
    std::unique_ptr<LaunchPrefetcher> prefetcher(
        new LaunchPrefetcher(device, files, state, pages_max));
    void* memory = nullptr;
    const Status status = device->allocate(kRangesMax * sizeof(PrefetchRange),
                                           backend::Memory::kPinned, &memory);
    if (!status.ok()) return status;
    prefetcher->ranges_ = static_cast<PrefetchRange*>(memory);
    return prefetcher;
}

LaunchPrefetcher::~LaunchPrefetcher() {
    if (ranges_ != nullptr) device_->free(ranges_);
}

void LaunchPrefetcher::before_launch(backend::StreamId stream, const LaunchRequest& request) {
    const KernelEntry* entry = find_kernel(request.function);
    if (entry == nullptr) return;
    const std::lock_guard lock(mutex_);
    // Checked with mutex_ held: of two concurrent launches only the first finds the device idle.
    if (device_->kernels_in_flight()) {
        memory_.spoil();
        tell_memory();
        records_.store(false, std::memory_order_relaxed);
        return;
    }
    tell_memory();
    // No kernel runs, so `ranges_` is no longer read.
    const auto runs = memory_.begin(entry->key, request.shape.grid.count(), pages_max_);
    if (const size_t ranges = write_ranges(runs); ranges > 0) put_ahead(stream, ranges);
    records_.store(memory_.records(), std::memory_order_relaxed);
}

LaunchPrefetcher::MissLog& LaunchPrefetcher::add_miss_log() {
    return *logs_.emplace_back(new MissLog);
}

// Takes no lock and writes nothing that another worker writes, because kernels that read at random
// miss each time.
void LaunchPrefetcher::record(MissLog& log, std::span<const Request> requests) {
    const uint64_t round = round_.load(std::memory_order_acquire);  // partner: tell_memory()
    if (log.told_.load(std::memory_order_relaxed) >> 32 != round) log.misses_.clear();
    for (const Request& request : requests) {
        if (is_window(request.kind)) continue;
        if (log.misses_.size() == MissLog::kRoom) break;
        log.misses_.push_back(
            {request.ticket,
             request.block,
             {files_->number_of(request.file_slot), request.page, request.page_count}});
    }
    log.told_.store(round << 32 | log.misses_.size(), std::memory_order_release);  // likewise
}

// Tells memory_ the misses of the launch before, if they are still of interest.
void LaunchPrefetcher::tell_memory() {
    const uint32_t round = round_.load(std::memory_order_relaxed);
    std::vector<MissLog::Miss> misses;
    for (const auto& log : logs_) {
        const uint64_t told = log->told_.load(std::memory_order_acquire);  // partner: record()
        if (told >> 32 != round) continue;
        const MissLog::Miss* first = log->misses_.data();
        const auto before = static_cast<ptrdiff_t>(misses.size());
        misses.insert(misses.end(), first, first + (told & 0xffffffff));
        // A worker takes tickets in order, and a block's tickets are in the order of its misses.
        std::ranges::inplace_merge(misses, misses.begin() + before, {}, &MissLog::Miss::ticket);
    }
    for (const MissLog::Miss& miss : misses) memory_.missed(miss.block, miss.pages);
    round_.store(round + 1, std::memory_order_release);  // partner: record(), which may overwrite
}

// Fills ranges_ for the files that are open now.
size_t LaunchPrefetcher::write_ranges(const std::vector<readahead::PageRun>& runs) {
    size_t count = 0;
    for (const readahead::PageRun& run : runs) {
        const Descriptor file = files_->descriptor_of(run.file);
        if (file < 0) continue;
        for (uint64_t done = 0; done < run.count && count < kRangesMax; done += kRangePagesMax) {
            ranges_[count++] = {file, run.first + done, std::min(run.count - done, kRangePagesMax)};
        }
    }
    return count;
}

// If the launch fails, nothing is read ahead.
void LaunchPrefetcher::put_ahead(backend::StreamId stream, size_t ranges) {
    const KernelEntry* entry = find_kernel_by_key(kPrefetchPagesKey);
    const auto kernel = reinterpret_cast<decltype(&prefetch_pages)>(
        const_cast<void*>(entry->function));
    const auto blocks = static_cast<unsigned>(
        std::min<size_t>(ranges, device_->properties().permit_count));
    (void)device_->launch(stream, make_launch({{blocks}, {kPrefetchThreads}, 0}, kernel, state_,
                                              static_cast<const PrefetchRange*>(ranges_),
                                              static_cast<uint64_t>(ranges)));
}

}  // namespace penstock::service
