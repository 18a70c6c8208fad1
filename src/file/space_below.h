// What a file cache knows about the blocks that storage has for a file. Bytes are dirty in the
// cache only if storage has room for them already, or if the next close of the file writes them
// back. A SpaceBelow is protected by the lock of its cache; the functions may be called by any
// thread.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>

namespace penstock::file {

// What a file system promises.
struct SpaceRules {
    bool reserves = false;  // fallocate(2) gives blocks that a later write cannot lack
    bool keeps = false;     // a write to blocks of the file needs no others
    bool leases = false;    // they say that no other program has the file open
    uint32_t block = 512;   // bytes that it gives at once, or a part of that

    bool operator==(const SpaceRules&) const = default;
};

// Returns the rules of the file system that has a file. What is not known promises nothing.
SpaceRules space_rules(int descriptor);

// Asks storage for blocks of [begin, end), without a change of the file's size. Returns 0 or an
// errno. After an error some blocks may be there.
int reserve_space(int descriptor, uint64_t begin, uint64_t end);

// Returns where bytes end that have blocks, from `begin` on; `begin`: it has none there.
uint64_t end_of_space(int descriptor, uint64_t begin);

// Returns whether this process may change the times of a file, and take leases of it.
bool is_own_file(int descriptor);

// Returns how many bytes a program may still write to the file system; 0: that is not known.
uint64_t free_space(int descriptor);

// Gives back the blocks behind the end of a file that has this size, if no other program has it
// open. Leaves its time of change as it is. Returns 0 and what the file has now, or an errno:
// EAGAIN, another program has it open; ESTALE, its size or its blocks are not those expected, or it
// has no name. Requires that the calling thread has SIGIO blocked for good, because that is sent to
// it if another program opens the file meanwhile.
int give_back_space(int descriptor, uint64_t size, uint64_t reserved_end, struct stat* now);

// Whether an error says that there is no room, and not that something is broken.
bool is_lack_of_space(int error);

// Of one file.
struct SpaceBelow {
    uint64_t begin = 0, end = 0;      // bytes that have their blocks; others may have them too
    uint64_t in_order = 0;            // bytes that were written one after the other, up to now
    unsigned promising = 0;           // writers between a promise and the bytes that it is for
    uint64_t promising_end = 0;       // behind the last byte that these promised
    bool cutting = false;             // a thread takes blocks away
    bool refused = false;             // storage gives this file no blocks
    uint64_t unpromised = 0;          // times that bytes became dirty which may lack blocks
    uint64_t settled = 0;             // of these, those whose bytes storage has by now
    bool granted_unpromised = false;  // so may those that other programs write by grants
    // Blocks behind the end of the file are given back when nothing is dirty.
    uint64_t reserved_end = 0;  // none was asked for beyond
    uint32_t block = 512;       // as in SpaceRules
    enum class Owner : uint8_t { kUnknown, kOther, kOwn } owner = Owner::kUnknown;
    bool listed = false;    // a thread is to give them back
    bool used = false;      // since that thread looked
    uint64_t again_ns = 0;  // when it tries again
    unsigned tries = 0;     // that failed

    [[nodiscard]] bool has(uint64_t first, uint64_t last) const {
        return begin <= first && last <= end;
    }
    [[nodiscard]] bool reaches_beyond(uint64_t size) const {
        return reserved_end > (size + block - 1) / block * block;
    }
    // Joins a range to the known one, or takes its place.
    void add(uint64_t first, uint64_t last) {
        if (first > end || last < begin) begin = first, end = last;
        begin = std::min(begin, first);
        end = std::max(end, last);
    }
    void forget_from(uint64_t size) {
        end = std::min(end, size);
        begin = std::min(begin, end);
    }
};

}  // namespace penstock::file
