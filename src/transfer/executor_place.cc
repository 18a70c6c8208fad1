// Turns transfers into storage operations: decides which memory each of them moves.
#include "transfer/executor_slot.h"

namespace penstock::transfer {

using extent::Extent;
using planner::Transfer;

// Makes one operation for `count` transfers from `first` on. Returns false if it must wait for
// staging.
bool Executor::enlist(Slot& slot, size_t first, size_t count) {
    const uint32_t index = free_operations_.back();
    Operation& operation = operations_[index];
    const Transfer& front = slot.transfers[first];
    const Transfer& back = slot.transfers[first + count - 1];
    operation.slot = &slot;
    operation.first = first;
    operation.count = count;
    operation.range = {front.range.offset, back.range.end() - front.range.offset};
    operation.moved = {front.moved.offset, back.moved.end() - front.moved.offset};
    if (!place(operation)) return false;
    free_operations_.pop_back();
    ++slot.running;
    ++slot.operations;
    if (slot.request.report != nullptr) ++slot.request.report->transfers;
    if (slot.fetches()) {
        fetch(operation);
    } else {
        if (slot.request.write && operation.staging >= 0) gather(operation);
        put_into_batch(operation);
    }
    return true;
}

// Decides which memory the storage moves: the bytes' place in the request if possible, otherwise
// staging. Returns false if there is no staging now.
bool Executor::place(Operation& operation) {
    const Slot& slot = *operation.slot;
    const Transfer& front = operation.front();
    const Request& request = slot.request;
    operation.staging = -1;
    operation.staged_size = 0;
    operation.pieces.clear();
    bool straight = !request.device_memory && operation.moved == operation.range;
    if (straight) {
        const storage::DirectAlignment alignment = request.source->file->direct_alignment();
        uint64_t at = request.offset;
        for (const iovec& piece : request.pieces) {
            const Extent part = intersect({at, piece.iov_len}, operation.range);
            at += piece.iov_len;
            if (part.empty()) {
                if (at >= operation.range.end()) break;
                continue;
            }
            auto* to = static_cast<std::byte*>(piece.iov_base) +
                       (part.offset - (at - piece.iov_len));
            if (front.route != Route::kCached) {
                straight = straight && reinterpret_cast<uintptr_t>(to) % alignment.memory == 0 &&
                           part.size % alignment.offset == 0;
            }
            operation.pieces.push_back({to, part.size});
        }
    }
    if (operation.fills_staged_part()) {
        const uint64_t from = operation.range.offset - request.offset;
        operation.pieces.assign(1, {request.staged_part->memory + from, operation.range.size});
        return true;
    }
    if (straight) return true;
    const bool staged_call = request.device_memory && front.route == Route::kCached;
    if (staged_call) operation.staged_size = operation.range.size;
    const bool much = staged_size_ > 0 && staged_size_ + operation.staged_size > kStagedSizeMax;
    if (!staged_call || !much) operation.staging = staging_->take(operation.range.size);
    if (operation.staging < 0) {
        lacks_staging_ = true;
        return false;
    }
    staged_size_ += operation.staged_size;
    // The bytes have the same offset modulo a page in the slot as in the file, so that copies are
    // aligned.
    std::byte* to = staging_->memory(operation.staging) + operation.moved.offset % kPageSize;
    operation.pieces.assign(1, {to, operation.moved.size});
    return true;
}

void Executor::put_into_batch(Operation& operation) {
    Slot& slot = *operation.slot;
    storage::Operation move{slot.request.source->file.get(), operation.moved.offset,
                            operation.pieces,
                            static_cast<uint64_t>(&operation - operations_.data())};
    move.route = operation.front().route;
    move.drop = slot.leaves_nothing(operation.front());
    move.must_drop = slot.drops(operation.front()) && slot.must_drop();
    move.write = slot.request.write;
    batch_.push_back(move);
    if (move.route == Route::kCached) {
        ++cached_calls_;
        caught_up_ = false;
    } else if (!move.write) {
        count_direct(slot);
    }
}

}  // namespace penstock::transfer
