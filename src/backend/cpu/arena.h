// The device memory and the pinned memory of the CPU backend. Any thread may call anything.
//
// The arena is one mapping that takes memory when it is touched. It uses huge pages if the kernel
// gives them, because direct I/O into them is 2.5 times faster. Allocation is first fit over a list
// of free ranges. Free memory is zero.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "backend/memory.h"
#include "penstock/status.h"

namespace penstock::backend::cpu {

class Arena {
public:
    static Result<std::shared_ptr<Arena>> open(size_t size);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    // Allocates zeroed memory. It is aligned to 2 MiB if `size` is at least that, else to 4 KiB.
    Status allocate(size_t size, Memory memory, void** out);
    void free(void* pointer);  // null is allowed

    [[nodiscard]] size_t size() const { return size_; }
    [[nodiscard]] size_t free_size() const;
    [[nodiscard]] bool huge_pages() const { return huge_pages_; }

private:
    Arena(char* base, size_t size);
    Status allocate_pinned(size_t size, void** out);
    void free_device(size_t offset, size_t size);

    char* const base_;
    const size_t size_;
    bool huge_pages_ = false;
    mutable std::mutex mutex_;
    std::map<size_t, size_t> free_ranges_;  // offset -> size; no two are adjacent
    std::map<size_t, size_t> used_;         // offset -> size
    std::map<char*, size_t> pinned_;        // address -> size of the mapping
};

}  // namespace penstock::backend::cpu
