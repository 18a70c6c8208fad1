// Faults wrapped round a storage: the n-th call fails, is cut short, is late, or stands still until
// released.
//
// Counts calls over all threads; with one thread the n-th call is always the same one, so a
// scenario can be run for n = 1, 2, ... until it passes. Any thread; a Queue one at a time, as
// every storage's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "storage/storage.h"

namespace penstock::testing {

// What is counted, each on its own: an Operation that a queue takes is a kRead or a kWrite, the
// others are calls of that name, Storage::unlink among them.
enum class Call : uint8_t { kOpen, kStat, kRead, kWrite, kSync, kTruncate, kUnlink };
inline constexpr size_t kCalls = 7;

enum class Action : uint8_t {
    kFail,   // with `error`, after `delay_ns`, as kShort; without touching the storage
    kShort,  // kRead, kWrite: only the first `bytes` move, then `error`; 0: a file that is read
             // ends there
    kBad,    // kRead, kWrite: the byte of a file at `offset` cannot be moved; what lies before it
             // is, then `error`
    kDelay,  // the caller is held for `delay_ns`, then goes on
    kBlock,  // the caller is held until release(), then goes on
};

struct Fault {
    Call call = Call::kRead;
    Action action = Action::kFail;
    uint64_t first = 1;  // the call it meets first; calls count from 1
    uint64_t count = 1;  // how many calls from there on; UINT64_MAX: all
    int error = 0;       // errno
    uint64_t bytes = 0;
    uint64_t offset = 0;
    uint64_t delay_ns = 0;
};

// The plan and the counters, shared by the wrapped storage, its files and its queues. All methods:
// any thread.
class FaultPlan {
public:
    void inject(const Fault& fault);  // the first that fits a call counts; kShort and kBad on
                                      // what moves no bytes: never
    void clear();    // takes all faults away; what is blocked stays until release()
    void release();  // lets go what kBlock holds, and all it would hold from now on

    [[nodiscard]] uint64_t calls(Call call) const;
    // Whether `count` callers stand in kBlock, waiting up to `limit_ns` for it to come true.
    [[nodiscard]] bool wait_blocked(uint64_t count, uint64_t limit_ns);

    // Counts a call (of `size` bytes from `offset` on, if it moves bytes) and does what is due:
    // holds the caller; returns the fault if it is kFail or kShort (which kBad becomes), else one
    // with action kDelay that is already over.
    Fault meet(Call call, uint64_t offset = 0, uint64_t size = 0);

private:
    mutable std::mutex mutex_;  // guards all below
    std::condition_variable changed_;
    std::vector<Fault> faults_;
    uint64_t calls_[kCalls] = {};
    uint64_t blocked_ = 0;
    bool released_ = false;
};

class FaultStorage final : public storage::Storage {
public:
    explicit FaultStorage(std::shared_ptr<storage::Storage> under);

    [[nodiscard]] storage::Kind kind() const override { return under_->kind(); }
    [[nodiscard]] std::string description() const override;
    Result<std::shared_ptr<storage::File>> open(const std::string& path, int flags) override;
    Status unlink(const std::string& path) override;
    Result<std::unique_ptr<storage::Queue>> make_queue(uint32_t depth) override;

    [[nodiscard]] FaultPlan& plan() { return *plan_; }

private:
    const std::shared_ptr<storage::Storage> under_;
    const std::shared_ptr<FaultPlan> plan_;
};

}  // namespace penstock::testing
