// What must be over before this process writes a file for the first time: direct writes that a
// process which was killed has left behind.
//
// Those of io_uring go on when their process is dead and waited for. One that ends behind a cached
// write of the same page finds the page dirty: the kernel cannot drop it, says so ("Page cache
// invalidation failure on direct I/O"), and the next fsync returns EIO; or it goes over bytes on
// the disk that are newer, and nobody is told. docs/design/0010 has the measurements. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

namespace penstock::storage {

// Of one inode, shared by all that have it open for writing in this process: only the first waits,
// while none of them has direct writes of its own under way. A wait beside those could be one for
// the thread that makes it, which has to look after their ends.
class FirstWrite {
public:
    [[nodiscard]] static std::shared_ptr<FirstWrite> of(uint64_t device, uint64_t inode);

    // Before each write. The first waits for direct writes of others, some 10 us where there are
    // none; others wait for the first.
    void begin(int descriptor) {
        std::call_once(once_, [descriptor] { wait_for_direct_writes(descriptor); });
    }

private:
    static void wait_for_direct_writes(int descriptor);

    std::once_flag once_;
};

}  // namespace penstock::storage
