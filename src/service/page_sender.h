// Brings pages to a device whose memory the host cannot address. The pages are read into pinned
// memory. Copies then bring them to their frames and announce them there, or the waiting teams copy
// them from there themselves (answer_sender.h).
//
// Each worker has one; one thread at a time. A call of the driver costs a microsecond or more, and
// the copy engine pauses for three after each call. So what becomes ready while copies are in
// flight is sent together. Completion words in host memory would be polled over the link
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
    // `state` as the device sees it has the frames and completion words. ENOMEM.
    static Result<std::unique_ptr<PageSender>> create(backend::Device& device,
                                                      const FileSystemState& state);
    ~PageSender();
    PageSender(const PageSender&) = delete;
    PageSender& operator=(const PageSender&) = delete;

    // Chooses staging that is no longer read, for one drain: of pages requested ahead, or of pages
    // that teams wait for. Returns its size in pages, or 0 if there is none now.
    size_t begin(bool ahead);
    // Returns where the page of a place must be read to. word() is the page's Completion, to be
    // announced.
    [[nodiscard]] std::byte* page(size_t place) {
        return staging_ + (segment_->first + place) * page_size_;
    }
    [[nodiscard]] uint64_t& word(size_t place) { return words_[segment_->first + place]; }

    // Adds `count` pages from `place` on, for adjacent frames. They must have been read and have
    // their words.
    void add(FrameIndex frame, size_t place, size_t count);
    // Records that the pages from a place on are read, and that the team that requested them has an
    // answer that says so. `ring` and `ticket` identify its request.
    void lend(const RingState& ring, uint64_t ticket);
    // Returns the oldest ticket with lent pages, as of the last begin() or end(). kNone: there are
    // none.
    [[nodiscard]] uint64_t oldest_lent() const { return oldest_lent_; }
    static constexpr uint64_t kNone = ~uint64_t{0};
    // Returns whether to send now: enough was added, or it is `late` and no copy is in flight.
    [[nodiscard]] bool is_due(bool late) const;
    // Sends what was added. Pages that cannot be copied are announced with EIO. After an error the
    // pages sent are never announced.
    Status send();
    // Ends the drain. The first `pages` pages of its staging stay in use until everything sent has
    // ended.
    void end(size_t pages);

    // See CopyStream::look_after.
    Status look_after(uint64_t now_ns) { return stream_->look_after(now_ns); }

private:
    static constexpr size_t kSegmentsMax = 64;

    // A request whose team copies its pages. The copy has ended when the request's slot has another
    // lap.
    struct Pull {
        uint64_t* slot;
        uint64_t lap;
    };
    // Adjacent pages of staging, into which one drain was read.
    struct Segment {
        size_t first = 0, count = 0;  // count 0: not in use
        size_t parts = 0;             // parts of its copies, as submitted
        uint64_t last = 0;            // the stream's number after its last copy
        std::vector<Pull> pulls;      // those that may not have ended
        uint64_t oldest = kNone;      // the oldest ticket of `pulls`
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
    // Sizes of segments, in pages. A drain of pages requested ahead takes windows_max_; two of
    // these fit beside one of demand_max_. A drain that teams wait for takes demand_max_ (some
    // windows), or single_max_ if there is no more room.
    const size_t windows_max_, demand_max_, single_max_, pages_;
    std::byte* staging_ = nullptr;  // pinned
    uint64_t* words_ = nullptr;     // pinned; the pages have the same indices
    // All segments share one stream. More streams than the driver has queues would wait for each
    // other, and for other streams' kernels.
    std::unique_ptr<CopyStream> stream_;
    Segment segments_[kSegmentsMax];
    Segment* segments_end_ = segments_;  // segments from here on are not in use
    Segment* segment_ = segments_;       // of the current drain
    uint64_t oldest_lent_ = kNone;

    std::vector<Stretch> added_;
    size_t added_pages_ = 0;
    std::vector<backend::CopyPart> parts_;
};

}  // namespace penstock::service
