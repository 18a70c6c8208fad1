// The host's side of the scan kernel: device memory, and batches of strides that are filled,
// launched and awaited.
//
// Each slot has its own stream and buffers, so that the blocks of one batch begin where those of
// the one before end. Knows descriptors and strides, nothing of paths or lines. One thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "penstock/device.h"
#include "penstock/file_system.h"
#include "penstock/status.h"
#include "scan/scan_batch.h"
#include "scan/scan_kernel.h"

namespace penstock::scan {

// Two batches are in flight; the others are for the rest of a text that grew, and for one stride
// once more.
enum class Slot : uint8_t { kEven, kOdd, kGrown, kAgain };
constexpr size_t kSlotCount = 4;
// Strides a batch: 256 MiB of strides of 256 KiB, and no fewer than one pattern of the longest size
// reaches over.
constexpr size_t kStridesMax = 1024;
// Entries a batch; more come in further launches. One stride of kStrideSizeMax always fits.
constexpr size_t kEntriesMax = 1 << 20;
constexpr uint32_t kStrideSizeMax = 1 << 20;
static_assert(kStrideSizeMax <= kEntriesMax, "every byte of a stride may be a line of its own");

struct BatchOptions {
    uint32_t stride_size = 0;  // bytes, at most kStrideSizeMax
    unsigned threads = 0;      // GPU threads a block
    unsigned blocks = 0;       // at most so many
    Search search = Search::kByLanes;
    Wanted wanted = Wanted::kCount;
    bool map_cached = false;  // jobs may name mapped memory
};

// Bytes of device memory that a queue takes for each block: its buffers in all slots.
uint64_t block_memory(uint32_t stride_size, uint32_t longest);

class BatchQueue {
public:
    // Takes all memory. ENOMEM. The file system and the device outlive the queue.
    [[nodiscard]] static Result<BatchQueue> create(const Device& device, const FileSystem& files,
                                                   const std::vector<uint64_t>& table,
                                                   const BatchOptions& options);

    // The jobs of the slot's next launch; the caller appends, at most kStridesMax. Empty after
    // start().
    [[nodiscard]] std::vector<StrideJob>& jobs(Slot slot) { return slots_[index(slot)].next; }
    // Launches them. None: nothing happens.
    Status start(Slot slot);
    // Waits until the slot's launch is over. `tick` is called ten times a second and says whether
    // to go on; once it does not, blocks leave before their next stride.
    Status wait(Slot slot, const std::function<bool()>& tick);

    // After wait(): what start() was given, and the answers. A stride that a stop left out has
    // read_size -ECANCELED.
    [[nodiscard]] const StrideJob& job(Slot slot, size_t stride) const {
        return slots_[index(slot)].jobs[stride];
    }
    [[nodiscard]] const StrideRecord& record(Slot slot, size_t stride) const {
        return slots_[index(slot)].records[stride];
    }
    [[nodiscard]] const LineEntry* entries(Slot slot) const { return slots_[index(slot)].entries; }

    // Sums over all blocks since the queue was made; while a launch runs, as of just now.
    [[nodiscard]] BlockWords totals() const;
    [[nodiscard]] const BatchOptions& options() const { return options_; }

private:
    // Memory of the device, given back with the queue.
    struct Free {
        Device device;
        void operator()(void* pointer) const { device.free(pointer); }
    };
    using Memory = std::unique_ptr<void, Free>;
    struct SlotState {
        Stream stream;
        StrideJob* jobs = nullptr;
        StrideRecord* records = nullptr;
        LineEntry* entries = nullptr;
        BlockWords* blocks = nullptr;
        BatchCounters* counters = nullptr;
        uint8_t* buffers = nullptr;
        std::vector<StrideJob> next;
    };

    static size_t index(Slot slot) { return static_cast<size_t>(slot); }
    template <class T>
    Status take(size_t count, bool pinned, T** out);
    Status take_slot(SlotState* slot);
    Status upload_table(const std::vector<uint64_t>& table);

    Device device_;
    DeviceFileSystem handle_{};
    BatchOptions options_;
    uint64_t buffer_size_ = 0;
    PatternTable* table_ = nullptr;
    uint64_t* stop_ = nullptr;
    std::vector<Memory> memory_;  // freed after the streams have ended
    SlotState slots_[kSlotCount];
};

}  // namespace penstock::scan
