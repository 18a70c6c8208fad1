// Threads that wait for work, so that a part of a read starts within microseconds of its being
// handed out.
//
// One thread hands out work and does a share of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace penstock::bench {

class Crew {
public:
    // `count` from 1 to 255, the caller among them.
    explicit Crew(unsigned count);
    ~Crew();
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;

    [[nodiscard]] unsigned count() const { return count_; }
    // work(0) on the caller, work(1) to work(parts - 1) on others at the same time; `parts` from 1
    // to count(). Returns when all are done.
    void run(unsigned parts, const std::function<void(unsigned)>& work);

private:
    void wait_for_work(unsigned index);

    const unsigned count_;
    const std::function<void(unsigned)>* work_ = nullptr;
    // Rounds so far times 256, plus the parts of this one: in one word, so that a late thread never
    // takes the round of one for the parts of another. kEnd: no more rounds.
    std::atomic<uint64_t> round_{0};
    std::atomic<unsigned> left_{0};  // parts of others that are not done
    std::vector<std::thread> threads_;
};

}  // namespace penstock::bench
