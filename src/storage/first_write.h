// Waits, before this process writes a file for the first time, for direct writes that a killed
// process has left in flight.
//
// Direct writes of io_uring go on after their process is dead and has been waited for. Such a write
// may end after a cached write of the same page. Then the kernel cannot drop the dirty page, logs
// "Page cache invalidation failure on direct I/O", and the next fsync returns EIO. Or the write
// overwrites newer bytes on the disk, and nothing reports it. docs/design/0010 has the
// measurements. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

namespace penstock::storage {

// One object per inode, shared by all files of this process that are open on it for writing. Only
// the first write waits, while none of these files has direct writes of its own in flight. A later
// wait could wait for the calling thread's own writes, whose completions only that thread can reap.
class FirstWrite {
public:
    [[nodiscard]] static std::shared_ptr<FirstWrite> of(uint64_t device, uint64_t inode);

    // Prepares for a write. The first call waits for direct writes of other processes; this takes
    // some 10 us if there are none. Concurrent calls wait for the first.
    void begin(int descriptor) {
        std::call_once(once_, [descriptor] { wait_for_direct_writes(descriptor); });
    }

private:
    static void wait_for_direct_writes(int descriptor);

    std::once_flag once_;
};

}  // namespace penstock::storage
