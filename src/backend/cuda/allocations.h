// What a device has been asked for: device memory and pinned host memory. Any thread.
//
// Taken when files and file systems are opened, never on behalf of a running kernel: the driver may
// wait for that kernel first. No lock is held over a call of the driver.
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
    // What the device can do.
    struct Abilities {
        bool can_register = false;  // GPU threads see memory that was pinned after its allocation
                                    // at the host's address
        bool can_map = false;       // cuMemCreate and cuMemMap: memory that every context reaches
    };
    Allocations(Context& context, Stream& stream, Abilities can)
        : context_(context), stream_(stream), can_(can) {}
    ~Allocations();

    // Zeroed; aligned to 2 MiB from 2 MiB on, else to 4 KiB. ENOMEM.
    Status allocate(size_t size, Memory memory, bool busy, void** out);
    // Null is allowed. `busy`: a kernel runs, and freeing would wait for it without end: done
    // later, by the next free or allocate that finds none.
    void free(void* pointer, bool busy);
    [[nodiscard]] size_t free_memory() const;
    // Forgets everything without freeing it: a kernel that cannot be stopped may still use it.
    void leave();

private:
    enum class Kind : uint8_t { kDevice, kMapped, kDriverPinned, kRegistered };
    struct Piece {
        void* base = nullptr;  // what the driver or the kernel gave
        size_t size = 0;       // of that
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
    std::mutex mutex_;
    std::map<void*, Piece> pieces_;  // by the pointer that the caller has
    std::vector<Piece> deferred_;    // freed by the caller, not yet by us
    // Registered memory that was given back: to touch and pin it again takes longest of all that a
    // file system needs.
    std::vector<Piece> kept_;
    size_t kept_size_ = 0;
};

}  // namespace penstock::backend::cuda
