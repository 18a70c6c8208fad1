// Read leases on files: the kernel lets nobody open a leased file for writing, or cut it off, until
// the holder has given the lease up. So what was read of the file is what the file has.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace penstock::cache_service {

enum class Lease {
    kHeld,
    kRefused,  // somebody has the file open for writing
    kNone,     // not on this file system, or not for this user
};

class Leases {
public:
    // Blocks the signal that tells of breaks. Call it before any thread is started.
    static void block_signal();
    // `broken` is called on a thread of its own, with the descriptor whose lease somebody waits
    // for. It must call give_up() soon.
    explicit Leases(std::function<void(int descriptor)> broken);
    ~Leases();
    Leases(const Leases&) = delete;
    Leases& operator=(const Leases&) = delete;

    // Takes a lease on a file that is open for reading alone. Closing the descriptor ends it.
    static Lease take(int descriptor);
    static bool holds(int descriptor);
    static void give_up(int descriptor);

private:
    void work();

    std::function<void(int descriptor)> broken_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

}  // namespace penstock::cache_service
