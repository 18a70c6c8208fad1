// Executes a plan the way that the overlapped model has it: one thread submits the direct transfers
// to io_uring and copies cached runs while they are under way.
//
// One thread an object.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bench/harness/huge_buffer.h"
#include "planner/plan.h"

namespace penstock::bench {

inline constexpr unsigned kDepth = 32;  // direct transfers in flight

class MixedReads {
public:
    explicit MixedReads(const std::string& path);
    ~MixedReads();
    MixedReads(const MixedReads&) = delete;
    MixedReads& operator=(const MixedReads&) = delete;

    // Whether this process may use io_uring and this file direct I/O.
    static bool offered(const std::string& path);

    struct Times {
        double copy_ns = 0;    // until the last cached run was there
        double direct_ns = 0;  // until the last direct transfer was there
        double total_ns = 0;
    };
    // Byte `offset` of the file comes to `to`. Transfers are aligned and deliver all they move.
    Times execute(const planner::Plan& plan, unsigned char* to, uint64_t offset);
    // One cached read; pages that are not there are brought in, and only they.
    void copy(unsigned char* to, uint64_t size, uint64_t offset) const;

private:
    // Submits direct transfers from `next_` on as far as there is room.
    void submit_direct();
    // Takes what has completed; with `wait` at least one.
    void reap(bool wait);

    std::string path_;
    int cached_, direct_;
    io_uring ring_{};
    std::vector<planner::Transfer> direct_transfers_;
    size_t next_ = 0;
    unsigned in_flight_ = 0;
    unsigned char* to_ = nullptr;
    uint64_t offset_ = 0;
};

}  // namespace penstock::bench
