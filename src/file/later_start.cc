#include "file/later_start.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "file/file_service.h"

namespace penstock::file {
namespace {

// The pause between two polls is 1/16 of the time that the work has taken so far, within these
// limits.
constexpr uint64_t kLookPart = 16, kLookNsMin = 10'000, kLookNsMax = 1'000'000;

uint64_t pause_ns(uint64_t waited_ns) {
    return std::clamp(waited_ns / kLookPart, kLookNsMin, kLookNsMax);
}

}  // namespace

Result<LaterStart*> LaterStart::of_process() {
    static std::mutex mutex;
    static LaterStart* made = nullptr;  // never destroyed, because its thread never ends
    static uint64_t process = 0;
    const std::lock_guard lock(mutex);
    if (made != nullptr && process == process_number()) return made;
    auto fresh = std::make_unique<LaterStart>();
    try {
        std::thread([starter = fresh.get()] { starter->work(); }).detach();
    } catch (const std::system_error&) {
        return Status{EAGAIN, "threads", "no more threads are to be had"};
    }
    process = process_number();
    return made = fresh.release();
}

void LaterStart::add(std::shared_ptr<backend::QueuedWork> before, std::function<void()> start) {
    const std::lock_guard lock(mutex_);
    added_.push_back({std::move(before), std::move(start), base::monotonic_ns()});
    changed_.notify_one();
}

void LaterStart::wait(backend::QueuedWork& before) {
    const uint64_t began = base::monotonic_ns();
    while (!before.over()) {
        const uint64_t now = base::monotonic_ns();
        base::sleep_until_ns(now + pause_ns(now - began));
    }
}

void LaterStart::work() {
    std::vector<Waiting> waiting;
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            if (waiting.empty()) changed_.wait(lock, [this] { return !added_.empty(); });
            std::move(added_.begin(), added_.end(), std::back_inserter(waiting));
            added_.clear();
        }
        std::erase_if(waiting, [](Waiting& one) {
            if (!one.before->over()) return false;
            one.before.reset();  // first: `start` may hold the last device handle
            one.start();
            return true;
        });
        if (waiting.empty()) continue;
        const uint64_t now = base::monotonic_ns();
        uint64_t pause = kLookNsMax;
        for (const Waiting& one : waiting) pause = std::min(pause, pause_ns(now - one.since_ns));
        base::sleep_until_ns(now + pause);
    }
}

}  // namespace penstock::file
