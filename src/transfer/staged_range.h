// Staged ranges: long parts of a read into device memory that the host cannot address. Several
// threads read a staged range, window by window, into one place in staging, and one copy brings it
// to the device.
//
// A copy costs the link some microseconds at any length, and no single thread fills a long buffer
// as fast as the link empties it. Bytes that do not go through the OS page cache use the staging of
// their executor.
//
// Any thread. A staged range gets its staging before its first window is given out, so a window in
// progress never waits for another one.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "penstock/report.h"
#include "transfer/request.h"
#include "transfer/staging.h"
#include "transfer/window_cutter.h"

namespace penstock::transfer {

using Callbacks = std::vector<std::function<void()>>;

// A window of a staged range that the storage has finished.
struct FinishedWindow {
    Window window;
    Outcome outcome;
    Report report;  // without the bytes in staging
    StagedPart staged_part;
};

struct StagedRange {
    // Called for each window that is on the device or has failed.
    using OnDone = std::function<void(const FinishedWindow&, Callbacks* deferred)>;

    OnDone on_done;
    std::byte* to = nullptr;  // device memory
    uint64_t offset = 0;      // in the file
    std::byte* memory = nullptr;
    uint64_t size = 0;  // bytes of all its windows
    uint64_t left = 0;  // bytes of windows that are not finished
    std::vector<FinishedWindow> finished;
    bool failed = false;
    bool unwanted = false;     // its read was stopped; its bytes are not copied, without an error
    uint64_t complete_ns = 0;  // when its last window was finished
};

class StagedRanges {
public:
    // Count of staging slots: pinned memory, taken with the first staged range. It suffices for the
    // first staged ranges, which grow, and for six of the longest: two are copied, two wait, and
    // two are read (docs/design/0007-host-reads.md, 18).
    static constexpr uint32_t kSlots = 56;
    static_assert(kSlots * Staging::kSlotSize >= 7 * kRangeSizeMax);

    // `device` must outlive this object. It is null if all memory is host memory; then no staged
    // range is opened.
    explicit StagedRanges(backend::Device* device) : device_(device), staged_ranges_(kSlots) {}

    // prepared() returns whether staging has been requested. prepare() requests it, which takes
    // milliseconds, unless another thread is doing so. Call it without a lock.
    [[nodiscard]] bool prepared() const { return prepared_.load(std::memory_order_acquire); }
    void prepare();
    // Opens a staged range of [offset, offset + size) of some file, which goes to device memory at
    // `to`. Requires prepared(). Returns null if there is no staging until others are done, or none
    // at all: refused().
    StagedRange* open(StagedRange::OnDone on_done, std::byte* to, uint64_t offset, uint64_t size);
    [[nodiscard]] bool refused() const { return refused_.load(std::memory_order_relaxed); }
    // Returns the place in staging of the byte at `offset` of the file. Requires that the staged
    // range is not done.
    [[nodiscard]] static std::byte* memory(const StagedRange& range, uint64_t offset) {
        return range.memory + (offset - range.offset);
    }

    // Takes a window whose bytes are in staging, or whose outcome says why they are not. After the
    // last window of its staged range the copy begins, or begins later together with others if
    // enough bytes wait for the device. Returns the staged range's size if this was its last
    // window, else 0. Passes `deferred` to OnDone; collect() passes null.
    uint64_t finish_window(FinishedWindow finished, Callbacks* deferred = nullptr);
    // Reports that `size` bytes of its windows will never be given out. If nothing else is missing,
    // the staged range ends without a copy, because it is no longer wanted.
    void shorten(StagedRange* range, uint64_t size);

    // Returns whether copies are in flight, which some thread must collect(). It may be false for a
    // moment between the copies of two jobs. So a thread that begins a copy must make sure that
    // some thread collects it.
    [[nodiscard]] bool copying() const { return oldest_.load(std::memory_order_relaxed) != 0; }
    // Returns whether some copies have ended.
    [[nodiscard]] bool ready() const;
    // Reports the copies that have ended to their jobs, and begins copies that waited for them.
    // Jobs may be destroyed, and this object with them, unless the caller keeps the object that
    // owns it.
    void collect();
    // Sleeps for some microseconds unless a copy has ended, then collects.
    void wait();

private:
    using Ended = std::vector<StagedRange>;  // reported after the mutexes are released

    void send_complete(Ended* ended);
    void send(std::span<StagedRange* const> ranges, Ended* ended);
    void add_parts(const StagedRange& range);
    void copy_one_by_one(std::span<const size_t> begins);
    void publish_copies();
    void collect_slots(Status status, Ended* ended);
    void end(StagedRange* range, Ended* ended);
    static void report_windows(Ended* ended, Callbacks* deferred = nullptr);

    backend::Device* const device_;
    std::mutex preparing_;  // held while staging is requested; no thread waits for it
    std::atomic<bool> prepared_{false};
    // Guards the staged ranges that have windows in progress, the slots of staging, and complete_.
    // No call of the device's driver is made with it held, because threads wait for it, with a
    // job's mutex held, to get windows.
    std::mutex mutex_;
    std::unique_ptr<Staging> staging_;
    std::vector<StagedRange> staged_ranges_;  // by slot of staging
    std::vector<StagedRange*> complete_;      // complete staged ranges that wait for their copy
    // Guards the copies of staging, and a staged range from its first copy on. It is locked before
    // mutex_. No thread waits for it: the thread that holds it handles what other threads add
    // meanwhile.
    std::mutex copies_mutex_;
    std::vector<int32_t> slots_;
    std::vector<backend::CopyPart> parts_;
    std::atomic<bool> refused_{false};
    // oldest_: the batch of copies that ends next; 0: none is in flight. waiting_: the bytes that
    // wait behind it. A thread that finds many waiting leaves its complete staged ranges to the
    // thread that collects that batch. That thread finds them, because both read complete_ under
    // mutex_: the first after it appends to complete_, the second after it changes these.
    std::atomic<uint64_t> oldest_{0}, waiting_{0};
};

}  // namespace penstock::transfer
