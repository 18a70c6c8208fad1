// One read or write of the host: pieces of a file that several threads work on window by window,
// and how its caller learns that it is done. Any thread.
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

#include "penstock/options.h"
#include "penstock/report.h"
#include "penstock/status.h"
#include "transfer/executor.h"
#include "transfer/source.h"

namespace penstock::transfer {

// A long part of a read into device memory, and what all of a device share for them (section.h).
struct Section;
class Sections;
// Of a read of at least kSectionSizeMin. The first ones are short, so that the link has something
// to do soon, and so are the last ones.
inline constexpr uint64_t kSectionSizeMin = 1 << 20, kSectionSizeMax = 8 << 20;

// Bytes [offset, offset + size) of the file go to `to`; or come from there, which is then only
// read.
struct Piece {
    void* to = nullptr;
    uint64_t size = 0;
    uint64_t offset = 0;
};

// A part of a piece, small enough for one request of an executor.
struct Window {
    size_t piece = 0;
    uint64_t begin = 0;  // from the start of the piece
    uint64_t size = 0;
    Section* section = nullptr;  // that it is part of; null: it is alone
};

// Adds what became of bytes, without times and errors.
void add_bytes(Report* to, const Report& from);

using Callbacks = std::vector<std::function<void()>>;

class Job : public std::enable_shared_from_this<Job> {
public:
    // `window_size`: at most kRequestSizeMax. `keep` lives until the job is done: what owns the
    // file and the threads.
    Job(std::shared_ptr<Source> source, std::vector<Piece> pieces, bool write, bool device_memory,
        const ReadOptions& options, uint64_t window_size, std::shared_ptr<void> keep);

    [[nodiscard]] Source& source() const { return *source_; }
    [[nodiscard]] const Piece& piece(size_t index) const { return pieces_[index]; }
    [[nodiscard]] bool write() const { return write_; }
    [[nodiscard]] bool device_memory() const { return device_memory_; }
    [[nodiscard]] const ReadOptions& options() const { return options_; }
    [[nodiscard]] uint64_t window_count() const { return window_count_; }
    [[nodiscard]] uint64_t window_size_max() const { return window_size_max_; }

    // Most pieces do not begin where the one before ends, so that the kernel reads ahead in vain.
    [[nodiscard]] bool scattered() const { return scattered_; }

    // For those who work on it. Takes the next windows, at most out.size() of them; 0: none left.
    // With `sections` long parts that go through the page cache become sections; 0 may then mean
    // that there is no staging for the next one before others are over. `hand`: who takes them; of
    // a hot section he gets those in his part of staging, and others when none of them is left.
    size_t take(std::span<Window> out, Sections* sections = nullptr, unsigned hand = 0);
    [[nodiscard]] bool has_windows() const;
    // Windows that were taken and that nobody has begun: others may take them.
    void put_back(std::span<const Window> windows);
    // `count` windows are over: their outcomes, and what happened on the way. Unless it is null
    // `owed` gets the callbacks of a job that is done, for whoever calls this to call.
    void finish(std::span<const Window> windows, std::span<const Outcome> outcomes,
                const Report& part, Callbacks* owed = nullptr);
    // `size` more bytes, of a section, lack nothing but their copy to the device. When all that is
    // not over is so, who waits is woken up, to be awake when the last copy ends.
    void arriving(uint64_t size);

    // For its caller.
    [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
    // In the first 1.5 ms in which nothing is missing but copies to a device it stays awake,
    // and takes a CPU, unless too many others do (a quarter of the CPUs; of one CPU nobody).
    [[nodiscard]] bool wait(std::chrono::nanoseconds limit) const;
    // True: nothing had begun, and nothing ever will.
    bool cancel();
    // What has not begun never will; the job is done when the rest is over.
    void stop();
    void on_done(std::function<void()> callback);
    // Only when done. ECANCELED, or the error that the report names.
    [[nodiscard]] Result<uint64_t> result() const;
    [[nodiscard]] const Report& report() const { return report_; }

private:
    // Where the bytes of a piece stop.
    struct Gap {
        size_t piece = 0;
        uint64_t at = 0;  // from the start of the piece
    };

    size_t take_some(std::span<Window> out, Sections* sections, unsigned hand, bool* unprepared);
    [[nodiscard]] Window take_of_section(unsigned hand);
    void advance(uint64_t size);
    [[nodiscard]] uint64_t next_window(const Piece& piece) const;
    [[nodiscard]] bool may_open(const Piece& piece) const;
    [[nodiscard]] bool goes_through_cache() const;
    bool open_section(const Piece& piece, Sections* sections);
    void add(const Report& part);
    void end(std::unique_lock<std::mutex> lock, Callbacks* owed = nullptr);

    const std::shared_ptr<Source> source_;
    const std::vector<Piece> pieces_;
    const bool write_;
    const bool device_memory_;
    const ReadOptions options_;
    const uint64_t window_size_;
    const uint64_t created_ns_;
    uint64_t window_count_ = 0;     // at most, since pieces need not start where windows do
    uint64_t window_size_max_ = 0;  // of them all
    bool scattered_ = false;

    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::shared_ptr<void> keep_;
    size_t next_piece_ = 0;         // the first byte that was neither taken nor cut for a section
    uint64_t next_begin_ = 0;       // within it
    std::vector<Window> put_back_;  // the first of them last
    std::vector<Window> section_windows_;  // of the section opened last, that nobody has taken
    Sections* sections_ = nullptr;         // whose it is
    uint64_t next_section_size_ = kSectionSizeMin;  // they grow
    bool missed_ = false;    // part of it was none, since the file was not hot
    uint64_t taken_ns_ = 0;  // when the first was; 0: none yet
    uint64_t left_ = 0;      // bytes that are not over
    // But for those that lack only their copy; of a job that is cancelled or stopped it may stay
    // too large, and then nobody is awake.
    uint64_t to_read_ = 0;
    uint64_t awake_until_ns_ = 0;  // 0: something else is missing
    std::vector<Gap> gaps_;
    bool cancelled_ = false;
    Callbacks callbacks_;
    Report report_;
    std::atomic<bool> done_{false};
};

}  // namespace penstock::transfer
