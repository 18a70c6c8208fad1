// Memory that transfers pass through if the storage cannot reach the other end itself: the
// alignments differ, or the host cannot address the memory.
//
// One thread at a time. Each Executor has its own. The staged ranges of a device share one; there,
// one thread at a time may take and give back slots while another handles copies. Pinned memory is
// taken when it is first needed, because it costs milliseconds.
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
    // Room before and behind a slot's bytes, for the ends of aligned transfers.
    static constexpr size_t kMarginSize = 4096;

    // Makes an object with `slots` slots. `device` is null if all memory is host memory; otherwise
    // it must outlive the object. ENOMEM, or an error of the device.
    static Result<std::unique_ptr<Staging>> create(backend::Device* device, uint32_t slots);
    ~Staging();
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    // Takes the pinned memory unless it is already taken. ENOMEM, or an error of the device.
    Status prepare();
    // Takes as many neighbouring slots as hold `size` bytes and returns the first. The bytes lie in
    // one piece, with kMarginSize more on either side. Returns -1 if not enough neighbours are
    // free. It takes the first free slots, which are most likely still in the CPU's caches. If
    // there is no pinned memory it uses other memory, from which copies take longer.
    int32_t take(size_t size);
    // Returns the slot's memory, aligned to 4 KiB.
    [[nodiscard]] std::byte* memory(int32_t slot) const { return base_ + slot * stride(); }
    // Returns all slots that were taken with `slot`.
    void give_back(int32_t slot);

    // The two functions below submit copies, in order. Even after an error they own the slots until
    // finished() or abandon() returns them, because part of the copies may have begun.
    //
    // Copies out of slots to device memory, with as few pauses of the device between the parts as
    // possible. With empty `slots`, copies out of slots of the current batch once more.
    Status copy_out(std::span<const backend::CopyPart> parts, std::span<const int32_t> slots);
    // Copies from device memory, one piece after another, to the slot from its byte `to` on.
    Status copy_in(int32_t slot, size_t to, std::span<const iovec> from);
    // Copies device memory, one piece after another, to host memory, and waits. Requires that no
    // slot is taken. Errors: as finished().
    Status copy_to_host(std::span<const iovec> from, std::byte* to);
    // Ends a batch: all copies submitted since the last call. Completion is announced batch by
    // batch.
    Status close_batch();
    // Appends the slots of copies that have ended. With `wait`, sleeps for some microseconds if
    // none has. After an error the copies in flight are never announced; the caller must abandon()
    // them.
    Status finished(std::vector<int32_t>* slots, bool wait);
    // Waits, within limits, until the device no longer uses staging; for use after an error of
    // close_batch() or finished(). Appends the slots of all copies in flight. Copies may be
    // submitted again afterwards.
    void abandon(std::vector<int32_t>* slots);
    [[nodiscard]] bool copying() const { return !batches_.empty() || !open_.empty(); }
    // Returns the number of the oldest batch in flight, or 0 if there is none.
    [[nodiscard]] uint64_t oldest_batch() const {
        return batches_.empty() ? 0 : batches_.front().number;
    }
    // Returns the bytes of the copies to the device that wait behind that batch.
    [[nodiscard]] uint64_t waiting_size() const;
    // Returns whether that batch has ended, so that finished() would report it. Any thread.
    [[nodiscard]] bool is_over(uint64_t batch) const;

private:
    struct Batch {
        uint64_t number = 0;
        uint64_t limit_ns = 0;
        uint64_t size = 0;  // bytes to the device
        std::vector<int32_t> slots;
    };

    static constexpr size_t stride() { return kSlotSize + 2 * kMarginSize; }
    Staging(backend::Device* device, uint32_t slots);
    Status make_stream();

    backend::Device* const device_;  // null: the host can address all memory
    const uint32_t slot_count_;
    std::byte* base_ = nullptr;
    void* mapped_ = nullptr;  // plain memory; used for a device if it gives no pinned memory
    size_t mapped_size_ = 0;
    std::vector<uint32_t> runs_;  // by slot: the count taken with it as the first; 0: none
    backend::StreamId stream_ = 0;
    uint64_t* done_ = nullptr;  // pinned, on its own page: the last batch that has ended
    uint64_t sent_ = 0;
    uint64_t queried_ns_ = 0;               // when the device was last queried
    std::vector<int32_t> open_;             // slots of the batch in preparation
    uint64_t open_size_ = 0;                // that batch's bytes to the device
    std::vector<Batch> batches_;            // in flight, oldest first
    std::vector<backend::CopyPart> parts_;  // of one copy_in()
};

}  // namespace penstock::transfer
