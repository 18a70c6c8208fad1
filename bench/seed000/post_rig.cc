#include "bench/seed000/post_rig.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "base/units.h"
#include "penstock/device/atomic.cuh"
#include "penstock/kernel.h"
#include "penstock/language/runtime.h"

namespace penstock::bench {

using device::SystemWords;

PostRig::PostRig(const std::string& device, const DeviceOptions& device_options,
                 const TestFile& file, unsigned host_threads, const PostOptions& options)
    : device_(need(Device::open(device, device_options), "device")),
      file_(file),
      host_threads_(host_threads),
      options_(options),
      servers_(host_threads),
      crew_(host_threads) {
    FileSystemOptions fs_options;
    fs_options.page_size = 4096;
    fs_options.cache_size = std::max<size_t>(16 * base::kMiB, size_t{device_.permits()} * 4096);
    fs_options.helping = false;
    fs_options.workers = 1;  // only its host words are used
    fs_ = need(FileSystem::create(device_, fs_options), "file system");
    stream_ = need(Stream::create(device_), "stream");
    slots_ = static_cast<uint64_t*>(
        need(device_.allocate_pinned(kSlots * kSlotWords * sizeof(uint64_t)), "slots"));
    buffers_ = static_cast<unsigned char*>(
        need(device_.allocate(options.blocks * options.piece), "buffers"));
    result_ = static_cast<unsigned long long*>(need(device_.allocate(4096), "result"));
    for (Server& server : servers_) {
        const uint64_t pieces = options.sends ? kSlots / host_threads : 1;
        server.stream = need(Stream::create(device_), "stream");
        server.staging = static_cast<unsigned char*>(
            need(device_.allocate_pinned(pieces * options.piece), "staging"));
        server.taken.reserve(kSlots);
    }
}

PostRig::~PostRig() {
    for (Server& server : servers_) device_.free(server.staging);
    for (void* memory :
         {static_cast<void*>(slots_), static_cast<void*>(buffers_), static_cast<void*>(result_)}) {
        device_.free(memory);
    }
}

// The new requests in the slots that a thread polls.
void PostRig::collect(unsigned thread) {
    Server& server = servers_[thread];
    server.taken.clear();
    const uint64_t first = options_.own_slots ? kSlots * thread / host_threads_ : 0;
    const uint64_t end = options_.own_slots ? kSlots * (thread + 1) / host_threads_ : kSlots;
    for (uint64_t i = 0; i < end - first; ++i) {
        const uint64_t slot = first + (server.next + i) % (end - first);
        const uint64_t word = SystemWords::load(slots_[slot * kSlotWords], site::kDrain);
        uint64_t last = last_taken_[slot].load(std::memory_order_relaxed);
        if (word == 0 || word == last) continue;
        if (!last_taken_[slot].compare_exchange_strong(last, word, std::memory_order_relaxed))
            continue;
        server.taken.push_back({slot, word - 1});
        // Threads that share slots take one request at a time; otherwise one would take them all.
        if (!options_.own_slots) {
            server.next = slot + 1;
            break;
        }
    }
}

void PostRig::answer(const Taken& taken) {
    uint64_t& word = slots_[taken.slot * kSlotWords];
    SystemWords::store(word, 0, site::kComplete);
    language::notify(&word);
    left_.fetch_sub(1, std::memory_order_relaxed);
}

void PostRig::serve(unsigned thread, Clock::time_point start, PostRun* run) {
    Server& server = servers_[thread];
    const uint64_t piece = options_.piece;
    while (left_.load(std::memory_order_relaxed) > 0) {
        collect(thread);
        if (server.taken.empty()) {
            sched_yield();
            continue;
        }
        std::vector<uint64_t>& order = run->orders[thread];
        if (order.empty()) {
            run->first_seconds[thread] = std::chrono::duration<double>(Clock::now() - start)
                                             .count();
        }
        unsigned char* place = server.staging;
        for (const Taken& taken : server.taken) {
            const uint64_t offset = taken.number * piece;
            order.push_back(taken.number);
            if (pread(descriptor_, place, piece, static_cast<off_t>(offset)) !=
                static_cast<ssize_t>(piece)) {
                ++server.wrong;
            } else if (!options_.sends) {
                server.wrong += count_wrong(place, offset, piece);
            }
            if (options_.sends) {
                unsigned char* buffer = buffers_ + taken.slot * piece;
                need(server.stream.copy(buffer, place, piece), "copy");
                place += piece;
            } else {
                answer(taken);
            }
        }
        if (!options_.sends) continue;
        need(server.stream.synchronize(), "copy");
        for (const Taken& taken : server.taken) answer(taken);
    }
}

PostRun PostRig::run() {
    const uint64_t pieces = file_.size() / options_.piece;
    PostRun run;
    run.orders.resize(host_threads_);
    run.first_seconds.assign(host_threads_, 0);
    for (std::vector<uint64_t>& order : run.orders) order.reserve(pieces);
    for (Server& server : servers_) server.wrong = 0;
    for (auto& last : last_taken_) last = 0;
    need(stream_.fill(slots_, 0, kSlots * kSlotWords * sizeof(uint64_t)), "fill");
    need(stream_.fill(result_, 0, 16), "fill");
    need(stream_.synchronize(), "fill");
    // Opened for each run, since the OS keeps its readahead state with the descriptor.
    descriptor_ = open(file_.path().c_str(), O_RDONLY | O_CLOEXEC);
    left_ = pieces;
    const PostJob job{fs_.device_handle(),
                      slots_,
                      kSlots,
                      pieces / options_.blocks,
                      buffers_,
                      options_.sends ? options_.piece : 0,
                      result_};
    run.seconds = timed([&] {
        const Clock::time_point start = Clock::now();
        need(launch(stream_, {{options_.blocks}, {1}}, post_requests, job), "launch");
        crew_.run(host_threads_, [&](unsigned thread) { serve(thread, start, &run); });
        need(stream_.synchronize(std::chrono::minutes(10)), "kernel");
    });
    close(descriptor_);
    unsigned long long result[2];
    need(stream_.copy(result, result_, sizeof result), "copy");
    need(stream_.synchronize(), "copy");
    run.right = result[0] == 0 && result[1] == pieces;
    for (const Server& server : servers_) run.right = run.right && server.wrong == 0;
    return run;
}

double PostRig::send_at_once() {
    const uint64_t most = options_.blocks * options_.piece;
    Server& server = servers_[0];
    const uint64_t at_once = std::min(most, kSlots / host_threads_ * options_.piece);
    return timed([&] {
        for (uint64_t offset = 0; offset < file_.size(); offset += at_once) {
            need(server.stream.copy(buffers_, server.staging,
                                    std::min(at_once, file_.size() - offset)),
                 "copy");
        }
        need(server.stream.synchronize(), "copy");
    });
}

}  // namespace penstock::bench
