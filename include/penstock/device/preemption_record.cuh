// What a block saves before it leaves, and restores when it is back.
//
// The offsets come from `penstock preempt`. A struct of arrays, as in seed 001, section 5.1. All
// threads of the block call; nothing here waits.
#pragma once

#include <type_traits>

#include "penstock/abi/preemption.h"
#include "penstock/device/group.cuh"

namespace penstock::preemption {

// Saves and restores variables of one block. Slots are 4-byte words of each GPU thread, in planes,
// so that a warp's accesses coalesce; or of the block.
class Record {
public:
    // Stores what was saved in `to`, which may be an array.
    template <class T>
    PENSTOCK_DEVICE void load_into(T& to, unsigned word) const {
        load_bytes<sizeof(T)>(plain(&to), thread_slot(word), threads_);
        static_assert(std::is_trivially_copyable_v<T>, "a saved variable is copied bytewise");
    }
    template <class T>
    PENSTOCK_DEVICE T load(unsigned word) const {
        T value;
        load_into(value, word);
        return value;
    }
    template <class T>
    PENSTOCK_DEVICE void save(unsigned word, const T& value) {
        static_assert(std::is_trivially_copyable_v<T>, "a saved variable is copied bytewise");
        save_bytes<sizeof(T)>(plain(&value), thread_slot(word), threads_);
    }

    // The same for values that are equal in all threads of the block.
    template <class T>
    PENSTOCK_DEVICE void load_block_into(T& to, unsigned word) const {
        static_assert(std::is_trivially_copyable_v<T>, "a saved variable is copied bytewise");
        load_bytes<sizeof(T)>(plain(&to), block_slot(word), 1);
    }
    template <class T>
    PENSTOCK_DEVICE T load_block(unsigned word) const {
        T value;
        load_block_into(value, word);
        return value;
    }
    template <class T>
    PENSTOCK_DEVICE void save_block(unsigned word, const T& value) {
        static_assert(std::is_trivially_copyable_v<T>, "a saved variable is copied bytewise");
        if (rank_ == 0) save_bytes<sizeof(T)>(plain(&value), block_slot(word), 1);
    }

    // A variable may be volatile.
    PENSTOCK_DEVICE static void* plain(volatile void* at) { return const_cast<void*>(at); }
    PENSTOCK_DEVICE static const void* plain(const volatile void* at) {
        return const_cast<const void*>(at);
    }

    // Copies shared memory; all threads of the block call. A barrier must follow a load.
    PENSTOCK_DEVICE void load_shared(volatile void* to, size_t size, size_t offset) const {
        copy(static_cast<std::byte*>(plain(to)), shared_slot(offset), size);
    }
    PENSTOCK_DEVICE void save_shared(const volatile void* from, size_t size, size_t offset) {
        copy(shared_slot(offset), static_cast<const std::byte*>(plain(from)), size);
    }
    PENSTOCK_DEVICE size_t dynamic_shared_size() const { return state_->dynamic_shared_size; }
    PENSTOCK_DEVICE void load_dynamic_shared(size_t offset) const {
        PENSTOCK_DYNAMIC_SHARED(std::byte, memory);
        load_shared(memory, state_->dynamic_shared_size, offset);
    }
    PENSTOCK_DEVICE void save_dynamic_shared(size_t offset) {
        PENSTOCK_DYNAMIC_SHARED(std::byte, memory);
        save_shared(memory, state_->dynamic_shared_size, offset);
    }

protected:
    PENSTOCK_DEVICE explicit Record(PreemptionState* state) : state_(state) {
        rank_ = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    }

    // Sets the block whose record it is, before the first save or load; null: of none.
    PENSTOCK_DEVICE void set_saved(SavedBlock* saved) {
        saved_ = saved;
        if (saved == nullptr) return;
        const auto index = static_cast<uint64_t>(saved - state_->saved);
        threads_ = state_->threads;
        thread_words_ = reinterpret_cast<uint32_t*>(state_->thread_words) +
                        index * state_->frame.thread_words * threads_ + rank_;
        block_words_ = state_->block_words + index * state_->block_size;
    }

    PreemptionState* state_;
    SavedBlock* saved_ = nullptr;
    unsigned rank_;  // of the thread in its block

private:
    PENSTOCK_DEVICE uint32_t* thread_slot(unsigned word) const {
        return thread_words_ + size_t{word} * threads_;
    }
    PENSTOCK_DEVICE uint32_t* block_slot(unsigned word) const {
        return reinterpret_cast<uint32_t*>(block_words_) + word;
    }
    PENSTOCK_DEVICE std::byte* shared_slot(size_t offset) const {
        return block_words_ + shared_offset(state_->frame) + offset;
    }

    template <size_t kSize>
    PENSTOCK_DEVICE static void load_bytes(void* to, const uint32_t* slot, size_t step) {
        uint32_t words[(kSize + 3) / 4];
        PENSTOCK_UNROLL
        for (size_t i = 0; i < sizeof words / 4; ++i) words[i] = slot[i * step];
        __builtin_memcpy(to, words, kSize);
    }
    template <size_t kSize>
    PENSTOCK_DEVICE static void save_bytes(const void* from, uint32_t* slot, size_t step) {
        uint32_t words[(kSize + 3) / 4] = {};
        __builtin_memcpy(words, from, kSize);
        PENSTOCK_UNROLL
        for (size_t i = 0; i < sizeof words / 4; ++i) slot[i * step] = words[i];
    }
    PENSTOCK_DEVICE void copy(std::byte* to, const std::byte* from, size_t size) const {
#ifdef __NVCC__
        device::copy_by_lanes(rank_, state_->threads, to, from, size);
#else
        if (rank_ == 0) __builtin_memcpy(to, from, size);
#endif
    }

    // Of the saved block: its first word of this thread, and what it has once.
    uint32_t* thread_words_ = nullptr;
    std::byte* block_words_ = nullptr;
    unsigned threads_ = 0;
};

}  // namespace penstock::preemption
