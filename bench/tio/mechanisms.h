// The mechanisms of the tio benchmark (seed 003, table 2): ways of reading files into device
// memory, one blocking read after another in each of several threads.
//
// Thread `thread` of a mechanism reads file `thread`. One thread at a time may use each of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/device.h"

namespace penstock::bench {

class Mechanism {
public:
    virtual ~Mechanism() = default;
    // Reads all of [offset, offset + size) of file `thread`, which the file has, to device memory;
    // else the program ends. A copy to the device may still be in flight on return.
    virtual void read(unsigned thread, void* to, uint64_t size, uint64_t offset) = 0;
    // Waits for the thread's copies.
    virtual void finish(unsigned /*thread*/) {}

    // From here on a read by the library takes a report, until routes() is called.
    virtual void watch_routes() {}
    // Returns which bytes of the watched reads took which route and why, in words; sets `right` to
    // false when a report does not add up. Empty: not the library's.
    virtual std::string routes(bool* /*right*/) { return ""; }
};

struct NamedMechanism {
    const char* name;
    // Its reads do not gain from the page cache, so a part of them is enough to time all.
    bool past_cache;
    std::unique_ptr<Mechanism> reads;
};

// Returns the mechanisms that `auto` is compared with, `clwrite` first, and `auto` as the last.
//   paths     a file for each thread
//   size_max  bytes of the largest read
[[nodiscard]] std::vector<NamedMechanism> tio_mechanisms(const Device& device,
                                                         const std::vector<std::string>& paths,
                                                         uint64_t size_max);

}  // namespace penstock::bench
