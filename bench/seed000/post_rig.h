// A kernel that asks for pieces of a file, and host threads that take what it asks for from slots:
// GPUfs without its page cache, and without its transfers where the bytes are left on the host.
//
// The host threads may be as in GPUfs, each with its own slots in a row, or take what any slot
// holds. One thread.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "bench/harness/crew.h"
#include "bench/harness/report.h"
#include "bench/harness/test_file.h"
#include "bench/seed000/posting.h"
#include "penstock/device.h"
#include "penstock/file_system.h"

namespace penstock::bench {

struct PostOptions {
    unsigned blocks = 0;
    uint64_t piece = 0;     // bytes of a request
    bool own_slots = true;  // a host thread looks at its own slots only
    bool sends = false;     // pieces go to the device, where the kernel looks at them
};

// What the host threads did in a run.
struct PostRun {
    double seconds = 0;
    bool right = true;
    std::vector<std::vector<uint64_t>> orders;  // numbers of the pieces that each thread took
    std::vector<double> first_seconds;          // from the launch to its first request
};

class PostRig {
public:
    PostRig(const std::string& device, const DeviceOptions& device_options, const TestFile& file,
            unsigned host_threads, const PostOptions& options);
    ~PostRig();
    PostRig(const PostRig&) = delete;
    PostRig& operator=(const PostRig&) = delete;

    // All of the file, by one launch.
    PostRun run();
    // Seconds of as many bytes as the file has, sent by one thread in pieces as large as they may
    // be. Only where pieces are sent.
    double send_at_once();
    [[nodiscard]] bool simulated() const { return device_.simulated(); }

private:
    // A request that a host thread has taken.
    struct Taken {
        uint64_t slot, number;
    };
    // What a host thread has of its own.
    struct Server {
        Stream stream;
        unsigned char* staging = nullptr;  // a piece for each of its slots where it sends, else one
        std::vector<Taken> taken;
        uint64_t wrong = 0;
        uint64_t next = 0;  // where it begins to look
    };
    using Clock = std::chrono::steady_clock;

    void serve(unsigned thread, Clock::time_point start, PostRun* run);
    void collect(unsigned thread);
    void answer(const Taken& taken);

    static constexpr uint64_t kSlots = 128;  // in GPUfs's queue
    Device device_;
    const TestFile& file_;
    const unsigned host_threads_;
    const PostOptions options_;
    FileSystem fs_;
    Stream stream_;
    uint64_t* slots_ = nullptr;
    unsigned char* buffers_ = nullptr;
    unsigned long long* result_ = nullptr;
    std::vector<Server> servers_;
    std::atomic<uint64_t> last_taken_[kSlots];  // of each slot: the word that was taken from it
    std::atomic<uint64_t> left_{0};             // requests that nobody has answered
    int descriptor_ = -1;                       // of the run
    Crew crew_;
};

}  // namespace penstock::bench
