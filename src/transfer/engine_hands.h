// An executor and the windows of jobs that it works on, and a pool of those that callers borrow.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "storage/storage.h"
#include "transfer/executor.h"
#include "transfer/job.h"
#include "transfer/section.h"

namespace penstock::transfer {

// One thread at a time.
class Hands {
public:
    enum class Taken : uint8_t {
        kNothing,  // nothing of the job is left
        kHeld,     // a window: work() and finish() tell when it is over
        kOver,     // small windows, and they are over
        kPutBack,  // the same; they took long, and the job got the rest of them back
        kCrowded,  // nothing, before a section that is copied is over
    };

    // `device`: null, or with its `sections`. All must outlive it. `index`: as whose hand it reads
    // sections; several may have the same.
    static Result<std::unique_ptr<Hands>> make(storage::Storage& storage, backend::Device* device,
                                               Sections* sections, unsigned index,
                                               const Executor::Limits& limits);

    [[nodiscard]] bool idle() const { return executor_->outstanding() == 0; }
    // To be asked before take().
    [[nodiscard]] bool hungry() const {
        return executor_->has_room() && !executor_->has_unstarted();
    }
    [[nodiscard]] bool has_copies() const { return executor_->has_copies(); }
    Executor& executor() { return *executor_; }

    Taken take(const std::shared_ptr<Job>& job);
    // Works on what is held until some of it is over; without `wait` only as long as there is
    // something to do. Unless it is null `over` gets the sources of windows that are over.
    void work(bool wait, std::vector<const Source*>* over);
    // Behind every work(): tells the jobs what is over. Whoever waits for one may go on at once.
    // `owed` as for Job::finish().
    void finish(Callbacks* owed = nullptr);

private:
    struct Held {
        std::shared_ptr<Job> job;
        Window window;
        iovec piece{};
        Report report;
        Landing landing;  // of a window of a section
    };

    Hands(std::unique_ptr<Executor> executor, Sections* sections, unsigned index,
          uint32_t requests);
    Taken take_small(Job& job);

    const std::unique_ptr<Executor> executor_;
    Sections* const sections_;
    const unsigned index_;
    std::vector<Held> held_;
    std::vector<uint32_t> free_;
    std::vector<Outcome> outcomes_;
    size_t over_ = 0;  // outcomes that their jobs have not been told
};

// Hands for callers' own threads, made when so many are first needed at once. Any thread.
class HandsPool {
public:
    struct Place {
        std::unique_ptr<Hands> hands;  // of whoever has borrowed it
        std::atomic_flag borrowed;
    };

    // As Hands::make; their indices are those of the engine's first threads.
    HandsPool(storage::Storage& storage, backend::Device* device, Sections* sections,
              const Executor::Limits& limits, unsigned count)
        : storage_(storage),
          device_(device),
          sections_(sections),
          limits_(limits),
          places_(count) {}

    // Null: all are borrowed, or no more are to be had.
    Place* borrow();
    static void give_back(Place* place) { place->borrowed.clear(std::memory_order_release); }

private:
    storage::Storage& storage_;
    backend::Device* const device_;
    Sections* const sections_;
    const Executor::Limits limits_;
    std::vector<Place> places_;
};

}  // namespace penstock::transfer
