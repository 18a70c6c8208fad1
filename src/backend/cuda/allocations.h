// The device memory and pinned host memory that a device has allocated. Any thread.
//
// Memory is allocated when files and file systems are opened, never for a running kernel: the
// driver might wait for that kernel first. No lock is held during a call of the driver.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/stream.h"
#include "backend/memory.h"

namespace penstock::backend::cuda {

class Allocations {
public:
    // The device's abilities.
    struct Abilities {
        bool can_register = false;  // GPU threads see memory pinned later at the host's address
        bool can_map = false;       // cuMemCreate and cuMemMap: memory for all contexts
    };
    Allocations(Context& context, Stream& stream, Abilities can)
        : context_(context), stream_(stream), can_(can) {}
    ~Allocations();

    // Allocates zeroed memory. It is aligned to 2 MiB if `size` is at least that, else to 4 KiB.
    // ENOMEM.
    Status allocate(size_t size, Memory memory, bool busy, void** out);
    // Frees memory; null is allowed. `busy`: a kernel runs, and the driver would wait for it
    // without limit. Then the next free or allocate without a running kernel does it.
    void free(void* pointer, bool busy);
    [[nodiscard]] size_t free_memory() const;
    // Pins host memory that the caller has mapped, and undoes it.
    Status pin(void* memory, size_t size);
    void unpin(void* memory);
    // Returns whether `address` lies in device memory that was allocated here. Asks no driver.
    [[nodiscard]] bool is_device_memory(const void* address) const;
    // Forgets all memory without freeing it: a kernel that cannot be stopped may still use it.
    void leave();

private:
    enum class Kind : uint8_t { kDevice, kMapped, kDriverPinned, kRegistered };
    struct Piece {
        void* base = nullptr;  // from the driver or the kernel
        size_t size = 0;       // bytes at `base`
        Kind kind = Kind::kDevice;
    };

    Status take_device(size_t size, size_t alignment, Piece* out);
    Status take_mapped(size_t size, Piece* out);
    Status take_pinned(size_t size, size_t alignment, Piece* out);
    bool take_registered(size_t size, Piece* out);
    bool take_kept(size_t asked, Piece* out);
    void release(const Piece& piece);
    bool keep(const Piece& piece);
    void unregister(const Piece& piece);
    void release_deferred(bool busy);
    Status zero(const Piece& piece);

    Context& context_;
    Stream& stream_;  // for zeroing
    const Abilities can_;
    mutable std::mutex mutex_;
    std::map<void*, Piece> pieces_;  // by the caller's pointer
    std::vector<Piece> deferred_;    // freed by the caller, but not yet here
    // Registered memory that was given back. To touch and pin memory takes longest of all that a
    // file system needs, so it is used again.
    std::vector<Piece> kept_;
    size_t kept_size_ = 0;
};

}  // namespace penstock::backend::cuda
