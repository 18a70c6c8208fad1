#include "file/route_timing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>

#include "backend/backend.h"
#include "base/clock.h"
#include "storage/system_calls.h"

namespace penstock::file {
namespace {

constexpr const char* kOrigin = "calibrate";

// Returns the CPU time that the calling thread has used.
uint64_t thread_cpu_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Returns how long the calling thread has waited for a CPU since it was started, or 0.
uint64_t thread_waited_ns() {
    namespace system = storage::system;
    const system::ScopedDescriptor file(
        system::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
    char text[128] = {};
    if (file.get() < 0 || system::read(file.get(), text, sizeof text - 1) <= 0) return 0;
    unsigned long long on_cpu = 0, waited = 0;
    return std::sscanf(text, "%llu %llu", &on_cpu, &waited) == 2 ? waited : 0;
}

}  // namespace

// One thread's executor, its read buffer, and the result of its last run.
struct RouteTiming::Hand {
    std::unique_ptr<transfer::Executor> executor;
    std::byte* memory = nullptr;  // depth() places of kSizeMax bytes
    uint64_t begin_ns = 0, end_ns = 0, cpu_ns = 0, waited_ns = 0;
    Report report;
    int error = 0;
};

RouteTiming::RouteTiming(const Device& device, bool device_memory)
    : device_(device), device_memory_(device_memory) {}

Result<std::unique_ptr<RouteTiming>> RouteTiming::create(storage::Storage& storage,
                                                         const Device& device, unsigned threads) {
    const bool remote = device.port() != nullptr && !device.host_addressable();
    std::unique_ptr<RouteTiming> timing(new RouteTiming(device, remote));
    for (unsigned i = 0; i < threads; ++i) {
        if (Status status = timing->add_hand(storage); !status.ok()) return status;
    }
    return timing;
}

Status RouteTiming::add_hand(storage::Storage& storage) {
    const uint32_t places = depth();
    auto executor = transfer::Executor::create(storage, device_.port().get(), {places, places});
    if (!executor.ok()) return executor.status();
    Hand& hand = *hands_.emplace_back(std::make_unique<Hand>());
    hand.executor = std::move(executor.value());
    if (Status status = hand.executor->prepare(); !status.ok()) return status;
    const size_t size = places * kSizeMax;
    if (device_memory_) {
        auto memory = device_.allocate(size);
        if (!memory.ok()) return memory.status();
        hand.memory = static_cast<std::byte*>(memory.value());
        return {};
    }
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return {ENOMEM, kOrigin, "no memory to read into"};
    hand.memory = static_cast<std::byte*>(memory);
    (void)madvise(memory, size, MADV_HUGEPAGE);
    std::memset(memory, 1, size);  // no page faults during the timing
    return {};
}

RouteTiming::~RouteTiming() {
    for (const auto& hand : hands_) {
        if (hand->memory == nullptr) continue;
        if (device_memory_) {
            device_.free(hand->memory);
        } else {
            munmap(hand->memory, depth() * kSizeMax);
        }
    }
}

Result<RouteTiming::Timing> RouteTiming::run(transfer::Source& source, const Wish& wish) {
    // The number of direct reads in flight is held at its start value, so that the timing does not
    // include the search for a better one.
    source.costs->traffic().hold_at(planner::Concurrency::kStart);
    std::barrier start(static_cast<std::ptrdiff_t>(hands_.size()));
    const auto one = [&](size_t index) {
        start.arrive_and_wait();
        work(hands_[index].get(), index, &source, wish);
    };
    std::vector<std::thread> others;
    try {
        for (size_t i = 1; i < hands_.size(); ++i) others.emplace_back(one, i);
    } catch (const std::system_error&) {
        // The threads that were started wait at the barrier for hands_.size() arrivals. This thread
        // arrives for the missing ones.
        for (size_t i = others.size() + 1; i < hands_.size(); ++i) start.arrive_and_drop();
        start.arrive_and_drop();
        for (std::thread& other : others) other.join();
        return Status{EAGAIN, "threads", "no more threads are to be had"};
    }
    one(0);
    for (std::thread& other : others) other.join();

    uint64_t begin = UINT64_MAX, end = 0;
    double planning = 0, cpu = 0, waited = 0;
    for (const auto& hand : hands_) {
        if (hand->error != 0)
            return Status{hand->error, kOrigin, "the scratch file could not be read"};
        if (hand->report.bytes_by(wish.route) != wish.count * wish.size)
            return Status{ENODATA, kOrigin, "the scratch file is not what was written"};
        begin = std::min(begin, hand->begin_ns);
        end = std::max(end, hand->end_ns);
        planning = std::max(planning, static_cast<double>(hand->report.plan_ns));
        waited += static_cast<double>(hand->waited_ns);
        cpu += static_cast<double>(hand->cpu_ns - std::min(hand->cpu_ns, hand->report.plan_ns));
    }
    const auto count = static_cast<double>(wish.count);
    // Planning is not part of a transfer. With several transfers in flight it overlaps them and
    // takes no extra time.
    const double all = static_cast<double>(end - begin) - (wish.in_flight == 1 ? planning : 0);
    const auto hands = static_cast<double>(hands_.size());
    return Timing{std::max(all, 1.0) / count, cpu / count / hands,
                  waited / hands / std::max(static_cast<double>(end - begin), 1.0)};
}

void RouteTiming::work(Hand* hand, size_t index, transfer::Source* source, const Wish& wish) const {
    hand->report = {};
    hand->error = 0;
    const uint64_t waited = thread_waited_ns();
    const uint64_t cpu = thread_cpu_ns();
    hand->begin_ns = base::monotonic_ns();
    transfer::Executor& executor = *hand->executor;
    std::vector<transfer::Outcome> outcomes(depth());
    std::vector<iovec> pieces(depth());
    std::vector<uint32_t> free(wish.in_flight);
    for (uint32_t i = 0; i < wish.in_flight; ++i) {
        free[i] = i;
        pieces[i] = {hand->memory + i * kSizeMax, wish.size};
    }
    for (uint64_t begun = 0, done = 0; done < begun || (begun < wish.count && hand->error == 0);) {
        while (!free.empty() && begun < wish.count && hand->error == 0) {
            const uint32_t place = free.back();
            transfer::Request request;
            request.source = source;
            request.offset = wish.offsets[(index + begun * hands_.size()) % wish.offsets.size()];
            request.size = wish.size;
            request.pieces = {&pieces[place], 1};
            request.device_memory = device_memory_;
            request.options.route = wish.route;
            request.options.strict = true;
            request.report = &hand->report;
            request.cookie = place;
            if (!executor.submit(request)) break;
            free.pop_back();
            ++begun;
        }
        const size_t count = executor.reap(outcomes, true);
        for (size_t i = 0; i < count; ++i) {
            if (outcomes[i].error != 0) hand->error = outcomes[i].error;
            free.push_back(static_cast<uint32_t>(outcomes[i].cookie));
        }
        done += count;
    }
    hand->end_ns = base::monotonic_ns();
    hand->cpu_ns = thread_cpu_ns() - cpu;
    hand->waited_ns = thread_waited_ns() - waited;
}

}  // namespace penstock::file
