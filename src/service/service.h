// Serves the requests of kernels. It has the workers, those lent to blocks that help, and the
// monitor that watches over them.
//
// Owns the page cache's memory, the file table and the threads of one file system. It knows pages
// and files, but not what kernels do with them. Any thread may call it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "page_cache/layout.h"
#include "penstock/abi/file_system.h"
#include "penstock/queue_load.h"
#include "penstock/status.h"
#include "service/control_calls.h"
#include "service/file_table.h"
#include "service/kernel_call.h"
#include "service/log.h"
#include "service/request_worker.h"
#include "service/write_back_file.h"
#include "storage/storage.h"

namespace penstock::service {

struct Options {
    uint64_t page_size = 64 << 10;
    uint64_t cache_size = 0;  // bytes of frames
    unsigned workers = 4;     // threads; none are started if blocks help
    bool helping = false;     // blocks that wait serve requests themselves
    bool static_map = false;  // one ring per worker, by block id (seed 000, section 3.3)
    ReplacementPolicy policy = ReplacementPolicy::kRings;
    bool readahead = true;
    bool learning = true;        // reads what a kernel missed ahead of its next launch
    bool one_by_one = false;     // the original: page after page, nothing merged (seed 000)
    uint32_t log_events = 0;     // kept for take_log(); 0: no log
    uint64_t prefetch_size = 0;  // bytes read after each miss; 0: windows grow and shrink
    // The costs of reads of a file. Empty: all files share costs that start with the defaults.
    transfer::CostsOf costs_of;
};

class Service {
public:
    static Result<std::unique_ptr<Service>> create(std::shared_ptr<backend::Device> device,
                                                   std::shared_ptr<storage::Storage> storage,
                                                   const Options& options);
    ~Service();
    Service(const Service&) = delete;
    Service& operator=(const Service&) = delete;

    [[nodiscard]] FileTable& files() { return *files_; }
    // Handles a launch: a kernel is about to be put into a stream of the device. Any thread.
    void before_launch(backend::StreamId stream, const LaunchRequest& request) {
        if (prefetcher_ != nullptr) prefetcher_->before_launch(stream, request);
    }
    [[nodiscard]] storage::Storage& storage() { return *storage_; }
    [[nodiscard]] backend::Device& device() { return *device_; }
    // As kernels address it, and as the host does.
    [[nodiscard]] FileSystemState* device_state() const { return device_state_; }
    [[nodiscard]] FileSystemState* host_state() const { return state_; }
    // Bytes of the tables, which lie in one piece. The state is the first of them.
    [[nodiscard]] size_t tables_size() const { return layout_.tables_size; }
    [[nodiscard]] const page_cache::Layout& layout() const { return layout_; }
    // Returns the count of frames that windows hold now. Waits as observe() does.
    [[nodiscard]] uint64_t window_frames() const;
    void add_counters(Counters& sum) const;
    [[nodiscard]] unsigned worker_count() const { return static_cast<unsigned>(threads_.size()); }
    // Returns the load of the queues. If the host cannot address the device, waits for a copy of a
    // few bytes, but never for a kernel. If the copy takes more than a second, the backlog is the
    // last one seen.
    [[nodiscard]] QueueLoad observe() const;
    // Return the counts of all files since the beginning, or of one slot's file since it has the
    // slot. They wait as observe() does, and may then return the counts last seen.
    [[nodiscard]] FileTotals counts() const;
    [[nodiscard]] FileTotals counts_of(uint32_t file_slot) const;

    // Returns what was served since the last call, and a sample of now. Returns nothing if there is
    // no log. Waits as counts() does.
    [[nodiscard]] Log::Contents take_log();

    // Serves all requests of kernels, or waits until the workers have. Requires that no kernel is
    // running and that there was no abort. EBUSY: it took longer than `limit`.
    Status serve_all(std::chrono::nanoseconds limit);

    // Writes an open file back, by a kernel of this library. The kernel waits for the host like any
    // other, so the call does not work while kernels fill the device and wait for the caller.
    // Returns the error of a write-back that was not yet reported. ETIMEDOUT; ENOSYS: that kernel
    // is not in this program. Any thread.
    Status write_back(Descriptor file);
    // Closes a file that the host has opened, as gclose does. The last one that may write it writes
    // it back first, and gives up what cannot be written. Any thread.
    Status close_file(Descriptor file);
    // Writes back all files that kernels or the host have open for writing. Gives up what cannot be
    // written of files that only kernels have open. Returns the first error.
    Status write_back_all();

    // Drops what kernels have mapped or begun and left behind; the host does it, or a kernel of
    // this library. Requires that no kernel is running. ENOSYS: that kernel is not in this program.
    struct Held {
        uint64_t views = 0, calls = 0;
    };
    Result<Held> drop_held();

    // Completes the windows that blocks have left to storage. When their kernel has ended no thread
    // waits for them, and they keep their file open. Waits for the storage.
    void finish_windows();

    // Ends all waits of all kernels with -error_number; `text` says why. The first cause is kept.
    void abort(int error_number, const std::string& text);
    [[nodiscard]] std::string abort_cause() const;

    // A fault for tests: worker `index` stops for good the next time it holds requests.
    void kill_worker(unsigned index) { workers_[index]->stop_with_requests(); }

private:
    Service(std::shared_ptr<backend::Device> device, std::shared_ptr<storage::Storage> storage,
            const Options& options);
    Status allocate(const Options& options);
    Status make_files(const Options& options);
    Status start(const Options& options);
    Status make_workers(unsigned count, std::vector<std::unique_ptr<RequestWorker>>* out);
    void work(unsigned index);
    void wait_for_work(uint32_t ring, uint64_t seen, uint32_t idle_turns);
    void poll_device();
    void monitor();
    void look_for_held_copies(uint64_t now_ns);
    bool help(unsigned permit, bool waits);
    bool serve_waiting(RequestWorker& worker);
    static bool serve(RequestWorker& worker, uint32_t ring);
    uint64_t see_tail(const RingState& ring) const;
    using LookEnd = std::chrono::steady_clock::time_point;
    template <class T>
    const T* see(const T* first, size_t count, LookEnd end) const;
    template <class Visit>
    void visit_counts(uint32_t first_slot, uint32_t slot_count, const Visit& visit) const;
    FileTotals add_counts(uint32_t first_slot, uint32_t slot_count) const;
    void keep_counts(uint32_t slot, const std::string& path);
    void add_sample();

    const std::shared_ptr<backend::Device> device_;
    const std::shared_ptr<storage::Storage> storage_;
    page_cache::Layout layout_;
    void* frames_ = nullptr;
    void* tables_ = nullptr;
    void* tables_copy_ = nullptr;  // if the host cannot address the device's memory
    void* shared_memory_ = nullptr;
    FileSystemState* state_ = nullptr;
    FileSystemState* device_state_ = nullptr;
    HostWords* host_words_ = nullptr;
    backend::StreamId stream_ = 0;

    Shared shared_;
    std::unique_ptr<FileTable> files_;
    std::unique_ptr<LaunchPrefetcher> prefetcher_;
    std::unique_ptr<ControlCalls> calls_;
    Result<uint64_t> run(FileWork work, Descriptor file);
    void close_without_kernel(Descriptor file, Opener opener);
    std::mutex write_back_mutex_;             // guards the use of the two members below
    std::unique_ptr<KernelCall> write_back_;  // null: the kernel is not in this program
    std::unique_ptr<KernelCall> drop_held_;   // likewise, or null if the host does it itself
    std::unique_ptr<Log> log_;
    std::vector<std::unique_ptr<AnswerSender>> answer_senders_;  // by ring; used if teams pull
    std::vector<std::unique_ptr<RequestWorker>> workers_;        // one per thread
    std::vector<std::unique_ptr<RequestWorker>> helpers_;        // lent to blocks; one per permit
    std::vector<std::thread> threads_;
    std::thread monitor_;
    std::thread poller_;  // on devices whose kernels run on their own
    std::atomic<bool> stopping_{false};
    uint64_t failed_launches_ = 0;  // the device's count at the start

    // Guards the parts of `tables_copy_` that are read: the rings' tails, places and totals.
    mutable std::mutex look_mutex_;
    // For a slot that was reused: the number of its previous file, and the counts at that time.
    struct Base {
        uint64_t number = 0;
        FileTotals totals{};
    };
    std::mutex sample_mutex_;           // held while a sample is made; locked before all others
    mutable std::mutex base_mutex_;     // guards the members below; locked before `look_mutex_`
    std::map<uint32_t, Base> bases_;    // by slot
    std::vector<Log::FileCount> gone_;  // files that lost their slot since the last sample
    uint64_t gone_lost_ = 0;            // and those for which it had no room
    mutable std::mutex mutex_;          // guards the members below
    std::condition_variable stop_changed_;
    bool aborted_ = false;
    std::string abort_cause_;
};

}  // namespace penstock::service
