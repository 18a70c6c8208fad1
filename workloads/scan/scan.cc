// Chooses what the options leave open and holds what outlives one scan; see scan.h.
#include "scan/scan.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "scan/batch_queue.h"
#include "scan/patterns.h"
#include "scan/scan_run.h"

namespace penstock::scan {
namespace {

constexpr uint32_t kHostStrideSize = 256 << 10;  // with its pages it stays in the L2 cache
constexpr uint32_t kGpuStrideSize = 128 << 10;
constexpr unsigned kGpuBlocksMax = 512;
constexpr size_t kCacheSizeMin = 8 << 20;
constexpr size_t kCacheStrides = 4;  // strides a block that the page cache holds
constexpr uint64_t kOverlapStridesMax = kStridesMax - 2;

BatchOptions choose_batches(const Device& device, const ScanOptions& options, uint32_t longest) {
    const bool host = device.host_addressable();
    BatchOptions batches;
    batches.stride_size = host ? kHostStrideSize : kGpuStrideSize;
    if (options.stride_size != 0) batches.stride_size = options.stride_size;
    batches.search = host && !options.by_lanes ? Search::kByLeader : Search::kByLanes;
    batches.threads = batches.search == Search::kByLeader ? 1 : host ? 32 : kScanThreadsMax;
    if (options.threads != 0) batches.threads = options.threads;
    unsigned blocks = host ? device.permits() : std::min(device.permits(), kGpuBlocksMax);
    if (options.blocks != 0) blocks = std::min(options.blocks, device.permits());
    // Long patterns make large buffers: then fewer blocks take turns, in a quarter of the memory.
    const uint64_t fit = device.free_memory() / 4 / block_memory(batches.stride_size, longest);
    batches.blocks = static_cast<unsigned>(std::clamp<uint64_t>(fit, 1, blocks));
    batches.wanted = options.lines ? Wanted::kNumbers : Wanted::kCount;
    batches.map_cached = options.map_cached && batches.search == Search::kByLeader;
    return batches;
}

FileSystemOptions choose_files(const Device& device, const ScanOptions& options,
                               const BatchOptions& batches, uint64_t overlap) {
    FileSystemOptions files = options.file_system;
    if (files.cache_size != 0) return files;
    const uint64_t reach = batches.stride_size + overlap + 2 * uint64_t{files.page_size};
    const uint64_t wanted = std::max<uint64_t>(kCacheSizeMin,
                                               batches.blocks * kCacheStrides * reach);
    const uint64_t frames = std::min<uint64_t>(wanted, device.free_memory() / 2) / files.page_size;
    files.cache_size = std::max<uint64_t>(frames, device.permits() + 1) * files.page_size;
    return files;
}

}  // namespace

struct Scanner::State {
    Device device;
    ScanOptions options;
    uint64_t overlap = 0;
    FileSystem files;
    BatchQueue queue;
    ScanReport report;

    Status scan(ScanInput input, ScanListener& listener) {
        ScanRun run(&files, &queue, &listener, options, overlap, std::move(input));
        const Status status = run.run();
        run.add_to(&report);
        report.files = files.statistics();
        return status;
    }
};

Scanner::Scanner() = default;
Scanner::Scanner(Scanner&&) noexcept = default;
Scanner& Scanner::operator=(Scanner&&) noexcept = default;
Scanner::~Scanner() = default;

Result<Scanner> Scanner::create(const Device& device, std::vector<std::string> patterns,
                                const ScanOptions& options) {
    const auto began = std::chrono::steady_clock::now();
    const Result<std::vector<uint64_t>> table = compile_patterns(std::move(patterns));
    if (!table.ok()) return table.status();
    Scanner scanner;
    scanner.state_ = std::make_unique<State>();
    State& state = *scanner.state_;
    state.device = device;
    state.options = options;
    const uint32_t longest = table_of(table.value()).longest;
    state.overlap = longest > 0 ? longest - 1 : 0;
    const BatchOptions batches = choose_batches(device, options, longest);
    if (batches.stride_size > kStrideSizeMax || batches.threads > kScanThreadsMax)
        return Status(EINVAL, "scan",
                      "a stride of more than 1 MiB or a block of more than 256 threads");
    if (state.overlap / batches.stride_size > kOverlapStridesMax)
        return Status(EINVAL, "scan", "the longest pattern exceeds 1022 strides");
    Result<FileSystem> files = FileSystem::create(
        device, choose_files(device, options, batches, state.overlap));
    if (!files.ok()) return files.status();
    state.files = std::move(files.value());
    Result<BatchQueue> queue = BatchQueue::create(device, state.files, table.value(), batches);
    if (!queue.ok()) return queue.status();
    state.queue = std::move(queue.value());
    state.report.blocks = batches.blocks;
    state.report.threads = batches.threads;
    state.report.stride_size = batches.stride_size;
    state.report.table_size = table_of(table.value()).size;
    const std::chrono::duration<double> setup = std::chrono::steady_clock::now() - began;
    state.report.setup_seconds = setup.count();
    return scanner;
}

Status Scanner::scan(std::vector<std::string> paths, ScanListener& listener) {
    return state_->scan({std::move(paths), {}}, listener);
}

Status Scanner::scan(std::vector<TextRange> ranges, ScanListener& listener) {
    return state_->scan({{}, std::move(ranges)}, listener);
}

const ScanReport& Scanner::report() const { return state_->report; }

ServiceLog Scanner::take_log() { return state_->files.take_log(); }

}  // namespace penstock::scan
