// One read or write of the host. Several threads work on its pieces, window by window, and its
// caller learns when it is done. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/torn_reads.h"
#include "penstock/options.h"
#include "penstock/report.h"
#include "penstock/status.h"
#include "transfer/request.h"
#include "transfer/source.h"
#include "transfer/staged_range.h"
#include "transfer/window_cutter.h"

namespace penstock::transfer {

class Job : public std::enable_shared_from_this<Job> {
public:
    // `window_size` is at most kRequestSizeMax. The job holds `keep`, which owns the file and the
    // threads, until it is done.
    Job(std::shared_ptr<Source> source, std::vector<Piece> pieces, bool write, bool device_memory,
        const ReadOptions& options, uint64_t window_size, std::shared_ptr<void> keep);

    [[nodiscard]] Source& source() const { return *source_; }
    [[nodiscard]] const Piece& piece(size_t index) const { return cutter_.pieces()[index]; }
    [[nodiscard]] const std::vector<Piece>& pieces() const { return cutter_.pieces(); }
    [[nodiscard]] bool write() const { return write_; }
    // Returns whether this is a write to the end of a file that appends. Its pieces' offsets count
    // from there, and one thread takes all its windows at once.
    [[nodiscard]] bool append() const { return write_ && source_->file->rights().append; }
    [[nodiscard]] bool device_memory() const { return device_memory_; }
    [[nodiscard]] const ReadOptions& options() const { return options_; }
    // Returns whether other threads may write the memory while the job reads it.
    [[nodiscard]] bool torn() const { return torn_; }
    [[nodiscard]] uint64_t window_count() const { return cutter_.window_count(); }
    [[nodiscard]] uint64_t window_size_max() const { return cutter_.window_size_max(); }

    // Returns whether most pieces do not begin where the one before ends, so that the kernel's
    // readahead is useless.
    [[nodiscard]] bool scattered() const { return cutter_.scattered(); }

    // Takes the next windows, at most out.size() of them, for a thread that works on the job.
    // Returns 0 if none are left. With `ranges`, long parts that go through the page cache
    // become staged ranges. Then 0 may also mean that the next one has no staging until others are
    // done.
    size_t take(std::span<Window> out, StagedRanges* ranges = nullptr);
    [[nodiscard]] bool has_windows() const;
    // Returns windows that were taken but not begun. Other threads may take them.
    void put_back(std::span<const Window> windows);
    // Reports `windows` as done, with their outcomes and the report `part`. If the job is done and
    // `deferred` is not null, the callbacks are appended to it and the caller must call them.
    void finish(std::span<const Window> windows, std::span<const Outcome> outcomes,
                const Report& part, Callbacks* deferred = nullptr);
    // Reports that `size` more bytes of a staged range need only their copy to the device. When
    // that holds for all bytes that are left, the waiting caller is woken, so that it runs when the
    // last copy ends.
    void all_staged(uint64_t size);

    // For the caller of the job:
    [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
    // Waits until the job is done, at most `limit`; returns whether it is. While only copies to a
    // device are missing, it spins for the first 1.5 ms and uses a CPU. It sleeps instead if too
    // many threads spin (a quarter of the CPUs; with one CPU none may).
    [[nodiscard]] bool wait(std::chrono::nanoseconds limit) const;
    // Returns true if no part of the job had begun. Then no part ever begins.
    bool cancel();
    // Prevents all parts that have not begun. The job is done when the others are.
    void stop();
    void on_done(std::function<void()> callback);
    // Requires done(). Returns the bytes moved, ECANCELED, or the error that the report names.
    [[nodiscard]] Result<uint64_t> result() const;
    [[nodiscard]] const Report& report() const { return report_; }

private:
    // The place in a piece after which bytes are missing.
    struct Gap {
        size_t piece = 0;
        uint64_t at = 0;  // in the file
    };

    size_t take_some(std::span<Window> out, StagedRanges* ranges, bool* unprepared);
    [[nodiscard]] bool is_likely_cached() const;
    bool begin_range(StagedRanges* ranges, bool* unprepared);
    void add(const Report& part);
    void end(std::unique_lock<std::mutex> lock, Callbacks* deferred = nullptr);

    const std::shared_ptr<Source> source_;
    const bool write_;
    const bool device_memory_;
    const ReadOptions options_;
    const bool torn_ = base::TornReads::any();
    const uint64_t created_ns_;

    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::shared_ptr<void> keep_;
    WindowCutter cutter_;
    std::vector<Window> put_back_;           // in reverse order
    StagedRanges* staged_ranges_ = nullptr;  // the owner of the job's staged ranges
    uint64_t taken_ns_ = 0;                  // when the first window was taken; 0: none yet
    uint64_t left_ = 0;                      // bytes that are not done
    // left_, without the bytes that need only their copy. After cancel() or stop() it may stay too
    // large; then wait() does not spin.
    uint64_t to_read_ = 0;
    uint64_t spin_until_ns_ = 0;  // 0: more than copies is missing
    std::vector<Gap> gaps_;
    bool cancelled_ = false;
    Callbacks callbacks_;
    Report report_;
    std::atomic<bool> done_{false};
};

}  // namespace penstock::transfer
