// Pages on their way to a device whose memory the host cannot address: pinned memory that they are
// read into, and the copies that bring them to their frames and announce them there; or teams that
// wait copy them from there themselves (answer_board.h).
//
// Each server has one; one thread at a time. A call of the driver costs a microsecond or more, and
// the copy engine pauses for three behind every call: what is ready while copies are under way goes
// together. Words that lay in host memory would be polled over the link
// (docs/design/0006-announcing-pages.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "penstock/abi/file_system.h"
#include "penstock/status.h"
#include "service/copy_stream.h"

namespace penstock::service {

class PageSender {
public:
    // `state` as the device sees it is where frames and completion words lie. ENOMEM.
    static Result<std::unique_ptr<PageSender>> create(backend::Device& device,
                                                      const FileSystemState& state);
    ~PageSender();
    PageSender(const PageSender&) = delete;
    PageSender& operator=(const PageSender&) = delete;

    // Chooses room that nobody reads any more, for a drain of what is asked for ahead or of what
    // teams wait for; how many pages that is. 0: there is none now.
    size_t begin(bool ahead);
    // Where the page of a place is to be read into, and what will be said of it: a Completion.
    [[nodiscard]] std::byte* page(size_t place) {
        return staging_ + (segment_->first + place) * page_size_;
    }
    [[nodiscard]] uint64_t& word(size_t place) { return words_[segment_->first + place]; }

    // `count` pages from `place` on are read and have their words; they go to adjacent frames.
    void add(FrameIndex frame, size_t place, size_t count);
    // The pages from a place on are read, and who asked for them has an answer that says so:
    // `ring` and `ticket` are its request's.
    void lend(const RingState& ring, uint64_t ticket);
    // The oldest ticket whose pages are lent, as of the last begin() or end(); kNone: there are
    // none.
    [[nodiscard]] uint64_t oldest_lent() const { return oldest_lent_; }
    static constexpr uint64_t kNone = ~uint64_t{0};
    // Whether to send what was added now: there is much, or it is `late` and nothing is under way.
    [[nodiscard]] bool is_due(bool late) const;
    // Sends what was added. Pages that cannot be copied are announced with EIO. An error: what was
    // sent is never announced.
    Status send();
    // Of what was chosen the first `pages` are in use until all that was sent is over.
    void end(size_t pages);

    // As CopyStream::look_after.
    Status look_after(uint64_t now_ns) { return stream_->look_after(now_ns); }

private:
    static constexpr size_t kSegmentsMax = 64;

    // A request whose team copies its pages: until its slot has another lap.
    struct Pull {
        uint64_t* slot;
        uint64_t lap;
    };
    // Pages of staging, adjacent ones, that a drain was read into.
    struct Segment {
        size_t first = 0, count = 0;  // count 0: not in use
        size_t parts = 0;             // of its copies, as they were sent
        uint64_t last = 0;        // number of the stream from which on no copy of it is under way
        std::vector<Pull> pulls;  // that are not over, for all that is known
        uint64_t oldest = kNone;  // ticket of them
    };
    struct Stretch {
        FrameIndex frame;
        size_t place, count;
    };

    PageSender(backend::Device& device, const FileSystemState& state);
    static bool is_over(Segment& segment, uint64_t done);
    size_t find_gap(size_t count, bool from_above) const;
    Status copy_pages();
    Status copy_words();

    backend::Device& device_;
    const FileSystemState& state_;
    const size_t page_size_;
    // A drain of what is asked for ahead takes so many, of which two have room beside one of what
    // is waited for; which takes some windows, or only some pages where there is no more room.
    const size_t windows_max_, demand_max_, single_max_, pages_;
    std::byte* staging_ = nullptr;  // pinned
    uint64_t* words_ = nullptr;     // pinned; of the pages with the same index
    // One for all segments: more streams than the driver has queues would wait for each other, and
    // for the kernels of others.
    std::unique_ptr<CopyStream> stream_;
    Segment segments_[kSegmentsMax];
    Segment* segments_end_ = segments_;  // those from here on are not in use
    Segment* segment_ = segments_;       // of the drain in hand
    uint64_t oldest_lent_ = kNone;

    std::vector<Stretch> added_;
    size_t added_pages_ = 0;
    std::vector<backend::CopyPart> parts_;
};

}  // namespace penstock::service
