// Memory that transfers pass through on their way: where storage cannot reach the other end itself,
// because it is not aligned alike, or because the host cannot address it.
//
// One thread at a time; each Executor has its own, and all Sections of a device have one, where one
// thread at a time may take and give back slots while another has to do with copies. Pinned memory
// is taken when it is first needed: it costs milliseconds.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "penstock/status.h"

namespace penstock::transfer {

class Staging {
public:
    static constexpr size_t kSlotSize = 1 << 20;
    // Room before and behind a slot's bytes for the ends of aligned transfers.
    static constexpr size_t kMarginSize = 4096;

    // `device` is null where everything is host memory. ENOMEM, and what the device says.
    // It must outlive the object.
    static Result<std::unique_ptr<Staging>> create(backend::Device* device, uint32_t slots);
    ~Staging();
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    // Takes the pinned memory, if it has not been taken. ENOMEM, and what the device says.
    Status prepare();
    // The first of as many neighbouring slots as hold `size` bytes, which lie in one piece with
    // kMarginSize more before and behind them; -1: no so many are free. The first free ones are
    // taken, which are the likeliest to be in the CPU's caches still. Where there is no pinned
    // memory it is any: copies out of that take longer.
    int32_t take(size_t size);
    // Aligned to 4 KiB.
    [[nodiscard]] std::byte* memory(int32_t slot) const { return base_ + slot * stride(); }
    // All that were taken with it.
    void give_back(int32_t slot);

    // Copies, behind the others. The slots are theirs in any case, until finished() or abandon()
    // returns them: after an error some of them may have begun.
    //
    // Out of slots to device memory, with as few pauses of the device between them as it can; out
    // of slots of this lot again with none of `slots`.
    Status copy_out(std::span<const backend::CopyPart> parts, std::span<const int32_t> slots);
    // From device memory, one behind the other in the slot from its byte `to` on.
    Status copy_in(int32_t slot, size_t to, std::span<const iovec> from);
    // Tells that everything given to the two above since the last time is one lot. Copies are
    // announced lot by lot.
    Status close_lot();
    // The slots of copies that are over. With `wait` and no copy over it sleeps for some
    // microseconds. An error: nothing more will be told of those under way; abandon() them.
    Status finished(std::vector<int32_t>* slots, bool wait);
    // After an error of close_lot() or finished(): waits, within limits, until the device uses
    // staging no more. The slots of all copies under way; the next copy begins afresh.
    void abandon(std::vector<int32_t>* slots);
    [[nodiscard]] bool copying() const { return !lots_.empty() || !open_.empty(); }
    // The number of the first lot under way; 0: none is.
    [[nodiscard]] uint64_t oldest_lot() const { return lots_.empty() ? 0 : lots_.front().number; }
    // Bytes of the copies to the device that wait behind that lot.
    [[nodiscard]] uint64_t waiting_size() const;
    // Whether finished() would tell of that lot. Any thread.
    [[nodiscard]] bool is_over(uint64_t lot) const;

private:
    struct Lot {
        uint64_t number = 0;
        uint64_t limit_ns = 0;
        uint64_t size = 0;  // to the device
        std::vector<int32_t> slots;
    };

    static constexpr size_t stride() { return kSlotSize + 2 * kMarginSize; }
    Staging(backend::Device* device, uint32_t slots);
    Status make_stream();

    backend::Device* const device_;  // null: the host can address all memory
    const uint32_t slot_count_;
    std::byte* base_ = nullptr;
    void* mapped_ = nullptr;  // memory that no device gave; of a device, if it gives none
    size_t mapped_size_ = 0;
    std::vector<uint32_t> runs_;  // by slot: how many were taken from it on; 0: none
    backend::StreamId stream_ = 0;
    uint64_t* done_ = nullptr;  // pinned, with its own page: the last lot that is over
    uint64_t sent_ = 0;
    uint64_t looked_ns_ = 0;                // when the device was asked last
    std::vector<int32_t> open_;             // of the lot that is being made
    uint64_t open_size_ = 0;                // its bytes to the device
    std::vector<Lot> lots_;                 // under way, oldest first
    std::vector<backend::CopyPart> parts_;  // of one copy_in()
};

}  // namespace penstock::transfer
