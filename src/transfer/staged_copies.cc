#include "transfer/staged_copies.h"

#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace penstock::transfer {
namespace {

using extent::Extent;

// Limit of what cached reads for a device have in staging: one part is read, one is copied, and one
// waits. More would leave the CPU's caches before the device has read it.
constexpr uint64_t kStagedSizeMax = 3 * kStagedCallSizeMax;

// Calls visit(place, part) for each part of the request's memory that holds bytes of `range`.
template <class Visit>
void for_each_part(const Request& request, const Extent& range, const Visit& visit) {
    uint64_t at = request.offset;
    for (const iovec& piece : request.pieces) {
        if (at >= range.end()) return;
        const Extent part = intersect({at, piece.iov_len}, range);
        if (!part.empty())
            visit(static_cast<std::byte*>(piece.iov_base) + (part.offset - at), part);
        at += piece.iov_len;
    }
}

// Sets the pieces to the bytes' place in the request. Returns false if the storage cannot move them
// there.
bool place_in_request(ActiveOperation* operation) {
    const Request& request = operation->request();
    if (request.device_memory || operation->moved != operation->range) return false;
    const storage::DirectAlignment alignment = request.source->file->direct_alignment();
    const bool direct = operation->front().route != Route::kCached;
    bool aligned = true;
    for_each_part(request, operation->range, [&](std::byte* place, const Extent& part) {
        aligned = aligned &&
                  (!direct || (reinterpret_cast<uintptr_t>(place) % alignment.memory == 0 &&
                               part.size % alignment.offset == 0));
        operation->pieces.push_back({place, part.size});
    });
    return aligned;
}

}  // namespace

StagedCopies::StagedCopies(Staging& staging, uint32_t slots) : staging_(staging), copying_(slots) {
    ended_slots_.reserve(slots);
    ended_.reserve(slots);
}

bool StagedCopies::place(ActiveOperation* operation) {
    const Request& request = operation->request();
    operation->staging = -1;
    operation->staged_size = 0;
    operation->pieces.clear();
    if (operation->fills_staged_part()) {
        const uint64_t from = operation->range.offset - request.offset;
        operation->pieces.push_back({request.staged_part->memory + from, operation->range.size});
        return true;
    }
    if (place_in_request(operation)) return true;
    const bool staged_call = request.device_memory && operation->front().route == Route::kCached;
    if (staged_call) operation->staged_size = operation->range.size;
    const bool much = staged_size_ > 0 && staged_size_ + operation->staged_size > kStagedSizeMax;
    if (!staged_call || !much) operation->staging = staging_.take(operation->range.size);
    if (operation->staging < 0) return false;
    staged_size_ += operation->staged_size;
    // The bytes have the same offset modulo a page in the slot as in the file, so that copies are
    // aligned.
    std::byte* to = staging_.memory(operation->staging) + operation->moved.offset % kPageSize;
    operation->pieces.assign(1, {to, operation->moved.size});
    return true;
}

void StagedCopies::release(ActiveOperation* operation) {
    if (operation->staging >= 0) staging_.give_back(operation->staging);
    staged_size_ -= operation->staged_size;
}

void StagedCopies::gather(const ActiveOperation& operation) {
    auto* const to = static_cast<std::byte*>(operation.pieces.front().iov_base);
    for_each_part(operation.request(), operation.range, [&](std::byte* place, const Extent& part) {
        std::memcpy(to + (part.offset - operation.range.offset), place, part.size);
    });
}

void StagedCopies::scatter(const ActiveOperation& operation, uint64_t skipped) {
    const auto* const from = static_cast<std::byte*>(operation.pieces.front().iov_base) + skipped;
    for_each_part(operation.request(), {operation.range.offset, operation.good},
                  [&](std::byte* place, const Extent& part) {
                      std::memcpy(place, from + (part.offset - operation.range.offset), part.size);
                  });
}

void StagedCopies::fetch(ActiveOperation* operation) {
    parts_.clear();
    for_each_part(operation->request(), operation->range,
                  [&](std::byte* place, const Extent& part) {
                      parts_.push_back({place, part.size});
                  });
    const Status status = staging_.copy_in(operation->staging, operation->moved.offset % kPageSize,
                                           parts_);
    operation->good = 0;
    operation->error = status.ok() ? 0 : EIO;
    copying_[static_cast<size_t>(operation->staging)] = operation;
}

void StagedCopies::send(ActiveOperation* operation, uint64_t skipped) {
    const Request& request = operation->request();
    auto* to = static_cast<std::byte*>(request.pieces.front().iov_base) +
               (operation->range.offset - request.offset);
    auto* from = static_cast<std::byte*>(operation->pieces.front().iov_base) + skipped;
    if (request.report != nullptr) operation->active->sent_ns = base::monotonic_ns();
    const backend::CopyPart part{to, from, operation->good};
    if (!staging_.copy_out({&part, 1}, {&operation->staging, 1}).ok()) {
        operation->good = 0;
        operation->error = EIO;
    }
    copying_[static_cast<size_t>(operation->staging)] = operation;
}

std::span<ActiveOperation* const> StagedCopies::collect(bool wait) {
    ended_.clear();
    if (!copying()) return ended_;
    ended_slots_.clear();
    Status status = staging_.close_batch();
    if (status.ok()) status = staging_.finished(&ended_slots_, wait);
    if (!status.ok()) staging_.abandon(&ended_slots_);
    for (const int32_t slot : ended_slots_) {
        ActiveOperation* const operation = copying_[static_cast<size_t>(slot)];
        if (!status.ok()) {
            operation->good = 0;
            operation->error = EIO;
        }
        ended_.push_back(operation);
    }
    return ended_;
}

}  // namespace penstock::transfer
