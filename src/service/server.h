// Serves requests: takes a run of them from a ring, reads, and completes them.
//
// Each worker thread has its own server; blocks that help borrow one. One thread at a time. The
// constructor takes all memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "penstock/abi/file_system.h"
#include "penstock/abi/limits.h"
#include "service/answer_board.h"
#include "service/file_table.h"
#include "service/launch_learner.h"
#include "service/log.h"
#include "service/page_sender.h"
#include "service/page_writer.h"
#include "storage/storage.h"
#include "transfer/executor.h"

namespace penstock::service {

// A counter. One thread at a time adds to it, and any thread may read it. Relaxed.
class Count {
public:
    void add(uint64_t more) { value_.store(load() + more, std::memory_order_relaxed); }
    [[nodiscard]] uint64_t load() const { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<uint64_t> value_{0};
};

// Each server has its own counters. On a cache line that all servers write, they would cost some
// cache misses per window.
struct alignas(64) Counters {
    Count requests, demanded, reads, bytes, calls, failed_pages;
    Count storage_ns, serving_ns;
    Count writes, bytes_written, failed_writes;

    void add(const Counters& other) {
        for (const auto count : {&Counters::requests, &Counters::demanded, &Counters::reads,
                                 &Counters::bytes, &Counters::calls, &Counters::failed_pages,
                                 &Counters::storage_ns, &Counters::serving_ns, &Counters::writes,
                                 &Counters::bytes_written, &Counters::failed_writes})
            (this->*count).add((other.*count).load());
    }
};

// What a server is doing, for the monitor.
enum class Activity : uint32_t {
    kIdle,     // holds no requests
    kServing,  // holds requests; must make progress
    kStorage,  // inside a storage or driver call: counts as alive throughout
    kCall,     // answers a control call, which may be inside open(2)
};

// State shared by all servers of one file system. Only the heads, `oldest` and `port_taken` change.
struct Shared {
    backend::Device* device = nullptr;
    FileSystemState* state = nullptr;  // as the host sees it
    FileTable* files = nullptr;
    LaunchLearner* learner = nullptr;             // null: no learning
    Log* log = nullptr;                           // null: no log
    AnswerBoard* boards[limits::kRingsMax] = {};  // by ring; null: teams pull no pages
    // Used if teams pull. tickets_behind_max: how far behind the head of its ring a request may lie
    // whose team has not yet pulled, as its slot says. oldest: each server's oldest such request.
    uint64_t tickets_behind_max = 0;
    struct alignas(64) Oldest {
        std::atomic<uint64_t> ticket{~uint64_t{0}};
        std::atomic<uint32_t> ring{0};  // the only ring that the server serves
    };
    std::deque<Oldest> oldest;
    unsigned workers = 1;  // servers that divide ready requests
    unsigned hands = 1;    // the same for windows: with blocks that help, as a window is long
    // Ends all waits of all kernels, because completions can no longer be trusted.
    std::function<void(int error_number, const char* text)> abort;
    bool merges = true;  // reads neighbours in one read
    // How long pages that were read wait for more, if no copy to the device is in flight. Each send
    // takes some calls of the driver, which makes the calls of all servers one after another.
    uint64_t send_period_ns = 100'000;
    // The host ends of the rings: the next ticket to take. The last one is the background ring's.
    struct alignas(64) Head {
        uint64_t ticket = 0;
    } heads[limits::kRingsMax + 1];
    [[nodiscard]] RingState& ring(uint32_t index) const {
        return index == kBackground ? state->background : state->rings[index];
    }
    static constexpr uint32_t kBackground = limits::kRingsMax;
    std::atomic_flag port_taken[limits::kPortsMax];
};

class Server {
public:
    // The most windows left to storage from one call to the next. Each has a place behind those of
    // the drain in requests_, pieces_ and runs_; windows of one run are adjacent. The limit is what
    // three sequential streams have; further windows are read at once.
    static constexpr size_t kWindowsMax = 64;
    static_assert(kWindowsMax <= 64, "they are bits of a word");
    static_assert(kWindowsMax >= 3 * limits::kWindowsMax);

    static Result<std::unique_ptr<Server>> create(Shared& shared, storage::Storage& storage);
    // Takes the memory that pages pass through. Call it before anything else. Several servers may
    // call it at the same time.
    Status take_staging();
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Serves the ready requests of ring `ring`. Returns false if there were none. It may block for
    // as long as the storage does, but leaves windows that wait for the storage in flight. Without
    // `waits`, it leaves all windows.
    bool serve_requests(uint32_t ring, bool waits = true);
    // Waits for the windows that were left to storage, and completes those that have arrived.
    // Returns false if there were none. Any thread that has the server may call it. If another
    // thread began them, it may learn of their end a tick of the kernel's clock later.
    bool finish_windows();
    // Returns whether windows were left to storage. Any thread.
    [[nodiscard]] bool has_windows() const { return windows_.load(std::memory_order_relaxed) != 0; }
    // Answers control calls. Returns false if there were none.
    bool serve_calls();

    [[nodiscard]] Activity activity() const { return activity_.load(std::memory_order_acquire); }
    // Increases each time the server makes progress.
    [[nodiscard]] uint64_t beats() const { return beats_.load(); }
    void beat() { beats_.add(1); }  // called by the server's user
    // Any thread may call it.
    [[nodiscard]] const Counters& counters() const { return counters_; }

    // For blocks that borrow a server:
    bool try_borrow() { return !borrowed_.test_and_set(std::memory_order_acquire); }
    void give_back() { borrowed_.clear(std::memory_order_release); }

    // A fault for tests: the server stops for good the next time it holds requests.
    void stop_with_requests() { stop_.store(true, std::memory_order_relaxed); }
    [[nodiscard]] bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

private:
    // Adjacent pages of one file, read by one request to the executor. They belong to several
    // requests, or are one page that is read again.
    struct Run {
        size_t first = 0, count = 0;         // in requests_
        size_t from = 0, pages = 0;          // from page `from` of the first request on
        transfer::Source* source = nullptr;  // held by sources_ or held_; null: closed
        bool again = false;                  // for pages that are read again
        bool background = false;             // from the background ring
        uint64_t taken_ns = 0;               // when its requests were taken
    };
    static constexpr size_t kRequestsMax = limits::kDrainMax + kWindowsMax;
    // Page `page` of requests_[request].
    struct PageOf {
        size_t request, page;
    };

    Server(Shared& shared, std::unique_ptr<transfer::Executor> executor);
    bool look_after_copies();
    size_t divide_into_runs(size_t count);
    transfer::Source* find_source(size_t request);
    void read_pages(size_t count);
    static bool is_before(const Request& a, const Request& b);  // in their files
    size_t set_writes_aside(size_t count);
    using Writing = std::function<void(const PageWriter::OtherOutcome&, PageWriter::Done*)>;
    void use_writer(const Writing& writing);
    void write_pages(size_t count);
    int write_bytes(ControlPort& port);
    void read_runs(size_t runs);
    void read_failed();
    [[nodiscard]] bool may_be_left(const Run& run) const;
    bool begin_windows(const Run& run);
    void end_windows(const Run& run);
    void reap_windows();
    void count_time(uint64_t started);
    void submit(const Run& run, std::span<const iovec> pieces, uint64_t cookie);
    bool announce_to_storage(size_t runs);
    void execute_runs(size_t runs, bool again);
    void note_missing(const Run& run);
    [[nodiscard]] bool is_missing(const Request& request) const;
    void write_down(const Run& run, int error);
    size_t reap_runs(uint64_t since, bool waits);
    void finish(const Run& run, const transfer::Outcome& outcome);
    void read_again(size_t first, size_t count);
    bool complete_whole(const Run& run);
    void complete(const PageOf& which, uint64_t bytes, int error);
    void announce(const PageOf& first, size_t pages);
    [[nodiscard]] bool may_claim(uint32_t ring_index);
    void tell_oldest(uint64_t ticket);
    size_t count_requests(size_t count);
    void answer(const Request& request, const std::byte* bytes, bool waited);
    void answer_nothing(const Run& run);
    void send_answers();
    void send_pages();
    void stop_sending();
    void answer_call(uint32_t index, ControlCall call);
    [[nodiscard]] std::byte* destination(const PageOf& which);
    [[nodiscard]] PageOf next(PageOf which) const;

    Shared& shared_;
    const std::unique_ptr<transfer::Executor> executor_;
    const uint64_t page_size_;
    const bool direct_;                   // the host can address the device's memory
    std::unique_ptr<PageSender> sender_;  // null if direct_
    std::unique_ptr<PageWriter> writer_;
    LaunchLearner::Notes* const notes_;  // null: no learning

    Request requests_[kRequestsMax];
    Request writes_[limits::kDrainMax];  // of the current drain
    size_t places_[limits::kDrainMax];   // by request: its first page among those of the drain
    iovec pieces_[kRequestsMax];
    Run runs_[kRequestsMax];
    transfer::Outcome outcomes_[kRequestsMax];
    std::vector<PageOf> retries_;  // with room for the pages of a drain
    // Sources of the current drain, each file once: its use count lies on one cache line for all
    // servers.
    std::vector<std::shared_ptr<transfer::Source>> sources_;
    std::shared_ptr<transfer::Source> held_[kWindowsMax];  // of windows left to storage
    // Of the current requests:
    uint64_t storage_ns_ = 0;  // time in planning and in storage calls
    uint64_t taken_ns_ = 0;    // when they were taken
    uint64_t due_ns_ = 0;      // when to send what has been read
    const RingState* ring_ = nullptr;
    AnswerBoard* board_ = nullptr;  // of that ring
    Shared::Oldest* oldest_ = nullptr;
    uint64_t stretch_ = 0;  // range of tickets in which claims were last found safe
    uint64_t answered_begin_ = 0, answered_end_ = 0;  // slots answered, but not published
    bool background_ = false;                         // from the background ring
    // Some of what was last looked at for windows was not in the OS page cache.
    bool missing_ = false;
    std::atomic<uint64_t> windows_{0};  // bit i: place kDrainMax + i is used; written by one thread
    uint64_t hot_ = 0;                  // those of them that the OS page cache had
    uint64_t ended_ = 0;                // those of them that have arrived

    std::atomic<Activity> activity_{Activity::kIdle};
    Counters counters_;
    Count beats_;
    std::atomic<bool> stop_{false}, stopped_{false};
    std::atomic_flag borrowed_;
};

}  // namespace penstock::service
