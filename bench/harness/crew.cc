#include "bench/harness/crew.h"

namespace penstock::bench {
namespace {

constexpr uint64_t kEnd = ~uint64_t{0};
constexpr uint64_t kPartsMask = 255;

}  // namespace

Crew::Crew(unsigned count) : count_(count) {
    for (unsigned i = 1; i < count; ++i) threads_.emplace_back([this, i] { wait_for_work(i); });
}

Crew::~Crew() {
    round_.store(kEnd);
    round_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Crew::run(unsigned parts, const std::function<void(unsigned)>& work) {
    if (parts > 1) {
        work_ = &work;
        left_.store(parts - 1);
        // Pairs with the load in wait_for_work: a thread that sees the round sees the work.
        round_.store(((round_.load() | kPartsMask) + 1) | parts);
        round_.notify_all();
    }
    work(0);
    if (parts == 1) return;
    for (unsigned left = left_.load(); left != 0; left = left_.load()) left_.wait(left);
}

void Crew::wait_for_work(unsigned index) {
    uint64_t seen = 0;
    while (true) {
        round_.wait(seen);
        const uint64_t round = round_.load();
        if (round == kEnd) return;
        if (round == seen) continue;
        seen = round;
        if (index >= (round & kPartsMask)) continue;
        (*work_)(index);
        if (left_.fetch_sub(1) == 1) left_.notify_one();
    }
}

}  // namespace penstock::bench
