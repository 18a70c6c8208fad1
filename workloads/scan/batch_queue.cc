// Memory, launches and waits of the scan; see batch_queue.h.
#include "scan/batch_queue.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "penstock/device/atomic.cuh"
#include "scan/patterns.h"

namespace penstock::scan {
namespace {

constexpr std::chrono::milliseconds kTick(100);
constexpr uint64_t kBufferAlignment = 4096;  // the page cache copies fastest into aligned memory

}  // namespace

uint64_t block_memory(uint32_t stride_size, uint32_t longest) {
    const uint64_t size = uint64_t{stride_size} + longest + kTextPadding;
    return (size + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment * kSlotCount;
}

Result<BatchQueue> BatchQueue::create(const Device& device, const FileSystem& files,
                                      const std::vector<uint64_t>& table,
                                      const BatchOptions& options) {
    BatchQueue queue;
    queue.device_ = device;
    queue.handle_ = files.device_handle();
    queue.options_ = options;
    queue.buffer_size_ = block_memory(options.stride_size, table_of(table).longest) / kSlotCount;
    if (const Status taken = queue.take(1, true, &queue.stop_); !taken.ok()) return taken;
    for (SlotState& slot : queue.slots_)
        if (const Status taken = queue.take_slot(&slot); !taken.ok()) return taken;
    if (const Status uploaded = queue.upload_table(table); !uploaded.ok()) return uploaded;
    return queue;
}

template <class T>
Status BatchQueue::take(size_t count, bool pinned, T** out) {
    const size_t size = count * sizeof(T);
    Result<void*> memory = pinned ? device_.allocate_pinned(size) : device_.allocate(size);
    if (!memory.ok()) return memory.status();
    memory_.emplace_back(memory.value(), Free{device_});
    *out = static_cast<T*>(memory.value());
    return {};
}

Status BatchQueue::take_slot(SlotState* slot) {
    Result<Stream> stream = Stream::create(device_);
    if (!stream.ok()) return stream.status();
    slot->stream = std::move(stream.value());
    Status status = take(kStridesMax, true, &slot->jobs);
    if (status.ok()) status = take(kStridesMax, true, &slot->records);
    if (status.ok())
        status = take(options_.wanted == Wanted::kCount ? 1 : kEntriesMax, true, &slot->entries);
    if (status.ok()) status = take(options_.blocks, true, &slot->blocks);
    if (status.ok()) status = take(1, false, &slot->counters);
    if (status.ok()) status = take(buffer_size_ * options_.blocks, false, &slot->buffers);
    return status;
}

Status BatchQueue::upload_table(const std::vector<uint64_t>& table) {
    const size_t size = table.size() * sizeof(uint64_t);
    uint8_t* memory = nullptr;
    if (const Status taken = take(size, false, &memory); !taken.ok()) return taken;
    table_ = reinterpret_cast<PatternTable*>(memory);
    Stream& stream = slots_[0].stream;
    if (const Status copied = stream.copy(table_, table.data(), size); !copied.ok()) return copied;
    return stream.synchronize();
}

Status BatchQueue::start(Slot slot) {
    SlotState& state = slots_[index(slot)];
    if (state.next.empty()) return {};
    const size_t count = state.next.size();
    std::copy(state.next.begin(), state.next.end(), state.jobs);
    state.next.clear();
    std::memset(static_cast<void*>(state.records), 0, count * sizeof(StrideRecord));
    for (size_t i = 0; i < count; ++i) state.records[i].read_size = -ECANCELED;
    if (const Status zeroed = state.stream.fill(state.counters, 0, sizeof *state.counters);
        !zeroed.ok())
        return zeroed;
    ScanBatch batch{};
    batch.table = table_;
    batch.jobs = state.jobs;
    batch.records = state.records;
    batch.entries = state.entries;
    batch.blocks = state.blocks;
    batch.stop = stop_;
    batch.counters = state.counters;
    batch.buffers = state.buffers;
    batch.buffer_size = buffer_size_;
    batch.stride_count = count;
    batch.entry_capacity = kEntriesMax;
    batch.wanted = options_.wanted;
    const auto blocks = static_cast<unsigned>(std::min<size_t>(options_.blocks, count));
    return launch_scan(state.stream, blocks, options_.threads, options_.search, handle_, batch);
}

Status BatchQueue::wait(Slot slot, const std::function<bool()>& tick) {
    const std::string said_before = device_.diagnosis();
    for (;;) {
        const Status status = slots_[index(slot)].stream.synchronize(kTick);
        const bool waiting = status.error_number() == ETIMEDOUT &&
                             device_.diagnosis() == said_before;
        if (!tick()) device::SystemWords::store(*stop_, 1, site::kRelaxed);
        if (!waiting) return status;
    }
}

BlockWords BatchQueue::totals() const {
    BlockWords sum{};
    for (const SlotState& slot : slots_) {
        for (unsigned i = 0; i < options_.blocks; ++i) {
            const BlockWords& words = slot.blocks[i];
            sum.done_size += device::SystemWords::load(words.done_size, site::kRelaxed);
            sum.read_ns += device::SystemWords::load(words.read_ns, site::kRelaxed);
            sum.search_ns += device::SystemWords::load(words.search_ns, site::kRelaxed);
        }
    }
    return sum;
}

}  // namespace penstock::scan
