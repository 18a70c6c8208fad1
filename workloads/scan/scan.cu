// The scan kernel: blocks take strides of files in turn, gread them and search them for the
// patterns.
//
// The log scanner of SPIN (seed 003, section 6.2). Two forms of the search in a block: ByLanes, in
// which every GPU thread searches its slice of the stride, and, on the CPU backend, ByLeader, in
// which one searches all of it with the host's wide instructions. Both give the same record
// (slice_record.h).
#include "penstock/device/file.cuh"
#include "penstock/kernel.h"
#include "scan/scan_batch.h"
#include "scan/scan_kernel.h"

#ifndef __NVCC__
#include "scan/matcher_wide.h"
#endif

namespace penstock::scan {
namespace {

// Where the entries of one stride go: their place in the batch's pool, or null if they do not fit.
__device__ LineEntry* reserve_entries(const ScanBatch& batch, uint64_t count,
                                      StrideRecord* record) {
    record->entry_count = count;
    record->first_entry = kNoEntries;
    if (batch.wanted == Wanted::kCount || count == 0) return nullptr;
    const uint64_t first = atomicAdd(&batch.counters->entry_tail,
                                     static_cast<unsigned long long>(count));
    if (first + count > batch.entry_capacity) return nullptr;
    record->first_entry = first;
    return batch.entries + first;
}

// Each GPU thread searches a slice; all call together.
struct ByLanes {
    // What stands before a lane's slice in its stride.
    struct Before {
        uint64_t newline_count, tail_start, entry_count;
    };

    static __device__ void search(const ScanBatch& batch, const Text& text, size_t size,
                                  StrideRecord* record) {
        __shared__ SliceRecord slices[kScanThreadsMax];
        __shared__ Before before[kScanThreadsMax];
        __shared__ LineEntry* entries;
        const unsigned lane = threadIdx.x, lanes = blockDim.x;
        const size_t slice_size = (size + lanes - 1) / lanes;
        const size_t begin = slice_size * lane < size ? slice_size * lane : size;
        const size_t end = begin + slice_size < size ? begin + slice_size : size;
        slices[lane] = scan_slice(ScalarEngine(), *batch.table, text, begin, end, batch.wanted,
                                  nullptr);
        __syncthreads();
        if (lane == 0) {
            SliceRecord sum{};
            uint64_t count = 0;
            for (unsigned i = 0; i < lanes; ++i) {
                before[i] = {sum.newline_count, sum.tail_start, count};
                append_slice(&sum, slices[i], slice_size * i);
                count += entry_count(slices[i]);
            }
            record->lines = sum;
            entries = reserve_entries(batch, count, record);
        }
        __syncthreads();
        if (entries != nullptr && entry_count(slices[lane]) > 0) {
            LineEntry* first = entries + before[lane].entry_count;
            scan_slice(ScalarEngine(), *batch.table, text, begin, end, Wanted::kEntries, first);
            place_entries(first, entry_count(slices[lane]), before[lane], begin);
        }
        __syncthreads();  // the shared records are read before the next stride overwrites them
    }

    // From positions in the slice to positions in the stride.
    static __device__ void place_entries(LineEntry* entries, uint64_t count, const Before& before,
                                         size_t begin) {
        for (uint64_t i = 0; i < count; ++i) {
            const LineEntry entry = entries[i];
            const uint64_t start = entry.line == 0 ? before.tail_start : begin + entry.start;
            entries[i] = {static_cast<uint32_t>(before.newline_count + entry.line),
                          static_cast<uint32_t>(start)};
        }
    }
};

#ifndef __NVCC__
// The block's first thread searches the whole stride; the others pass by.
struct ByLeader {
    static void search(const ScanBatch& batch, const Text& text, size_t size,
                       StrideRecord* record) {
        if (threadIdx.x != 0) return;
        record->lines = scan_slice_wide(*batch.table, text, 0, size, batch.wanted, nullptr);
        LineEntry* entries = reserve_entries(batch, entry_count(record->lines), record);
        if (entries != nullptr)
            scan_slice_wide(*batch.table, text, 0, size, Wanted::kEntries, entries);
    }
};
#endif

// The next stride of the batch; stride_count or more when there is none, or the host has said stop.
__device__ uint64_t take_stride(const ScanBatch& batch) {
    if (device::SystemWords::load(*batch.stop, site::kRelaxed) != 0) return batch.stride_count;
    return atomicAdd(&batch.counters->next_stride, 1ull);
}

template <class Search>
__global__ void scan_strides(DeviceFileSystem fs, ScanBatch batch) {
    __shared__ uint64_t index;
    uint8_t* buffer = batch.buffers + batch.buffer_size * blockIdx.x;
    BlockWords& words = batch.blocks[blockIdx.x];
    for (;;) {
        if (threadIdx.x == 0) index = take_stride(batch);
        __syncthreads();
        const uint64_t mine = index;
        if (mine >= batch.stride_count) return;
        const StrideJob job = batch.jobs[mine];
        StrideRecord* record = batch.records + mine;
        const uint64_t began_ns = device::now_ns();
        const bool in_place = job.mapped != nullptr && batch.wanted == Wanted::kCount;
        int64_t read_size = job.reach;
        if (job.mapped == nullptr)
            read_size = gread(fs, job.file, static_cast<int64_t>(job.offset), job.reach, buffer);
        else if (!in_place && threadIdx.x == 0)
            memcpy(buffer, job.mapped, job.reach);  // searched twice: it must not change meanwhile
        const uint8_t* text = in_place ? job.mapped : buffer;
        const uint64_t read_ns = device::now_ns();
        if (threadIdx.x == 0) record->read_size = read_size;
        if (read_size > 0) {
            const auto limit = static_cast<size_t>(read_size);
            Search::search(batch, {text, limit}, limit < job.size ? limit : job.size, record);
        }
        if (threadIdx.x == 0) {
            const uint64_t end_ns = device::now_ns();
            device::SystemWords::store(words.done_size, words.done_size + job.size, site::kRelaxed);
            device::SystemWords::store(words.read_ns, words.read_ns + read_ns - began_ns,
                                       site::kRelaxed);
            device::SystemWords::store(words.search_ns, words.search_ns + end_ns - read_ns,
                                       site::kRelaxed);
        }
        __syncthreads();  // the buffer and `index` are read before the next turn overwrites them
    }
}

}  // namespace

PENSTOCK_KERNEL(scan_strides<ByLanes>)
#ifndef __NVCC__
PENSTOCK_KERNEL(scan_strides<ByLeader>)

Status launch_scan(Stream& stream, unsigned blocks, unsigned threads, Search search,
                   DeviceFileSystem fs, const ScanBatch& batch) {
    const LaunchShape shape{blocks, threads};
    if (search == Search::kByLanes) return launch(stream, shape, scan_strides<ByLanes>, fs, batch);
    return launch(stream, shape, scan_strides<ByLeader>, fs, batch);
}
#endif

}  // namespace penstock::scan
