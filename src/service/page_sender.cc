#include "service/page_sender.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <span>

#include "penstock/device/atomic.cuh"

namespace penstock::service {
namespace {

using device::SystemWords;

// Staging of a drain of windows. It holds some merged reads, and is small enough to stay in the
// CPU's cache between the read and the copy.
constexpr size_t kWindowsSize = 4 << 20;
static_assert(kWindowsSize >= limits::kPageSizeMax);
static_assert(kWindowsSize >= limits::kWindowSizeMax, "a window has room");
constexpr size_t kDemandPagesMax = 4 * limits::kWindowPagesMax;  // windows that teams wait for
// Bytes that are sent even while other copies are in flight. With more, the pages would be late.
constexpr size_t kSendSize = 3 << 20;
// Parts of copies in flight at which a drain must wait: two drains of single pages. Deeper queues
// were not measured.
constexpr size_t kPartsMax = 128;
constexpr size_t kWordsMax = backend::Device::kWholeSizeMax / sizeof(uint64_t);

}  // namespace

PageSender::PageSender(backend::Device& device, const FileSystemState& state)
    : device_(device),
      state_(state),
      page_size_(size_t{1} << state.page_shift),
      windows_max_(kWindowsSize / page_size_),
      demand_max_(std::min(kDemandPagesMax, windows_max_)),
      single_max_(std::min<size_t>(limits::kDrainMax, windows_max_)),
      pages_(2 * windows_max_ + single_max_) {}

Result<std::unique_ptr<PageSender>> PageSender::create(backend::Device& device,
                                                       const FileSystemState& state) {
    std::unique_ptr<PageSender> sender(new PageSender(device, state));
    const size_t pages = sender->pages_;
    void* memory = nullptr;
    Status status = device.allocate(pages * sender->page_size_ + (pages + 1) * sizeof(uint64_t),
                                    backend::Memory::kPinned, &memory);
    if (!status.ok()) return status;
    sender->staging_ = static_cast<std::byte*>(memory);
    sender->words_ = reinterpret_cast<uint64_t*>(sender->staging_ + pages * sender->page_size_);
    for (Segment& segment : sender->segments_) segment.pulls.reserve(limits::kDrainMax);
    sender->added_.reserve(sender->windows_max_);
    sender->parts_.reserve(sender->windows_max_);
    auto stream = CopyStream::create(device, sender->words_ + pages);
    if (!stream.ok()) return stream.status();
    sender->stream_ = std::move(stream.value());
    return sender;
}

PageSender::~PageSender() {
    stream_.reset();  // first: it uses a word in the memory freed below
    if (staging_ != nullptr) device_.free(staging_);
}

// Pages requested ahead lie at the upper end of staging; pages that teams wait for lie at the lower
// end. So neither leaves small gaps for the other, and staging used last, which is in the CPU's
// cache, is used again.
size_t PageSender::begin(bool ahead) {
    const uint64_t done = stream_->done();
    size_t parts = 0;
    segment_ = nullptr;
    oldest_lent_ = kNone;
    Segment* last = segments_;
    for (Segment& segment : std::span(segments_, segments_end_)) {
        if (segment.count > 0 && is_over(segment, done)) segment.count = 0;
        if (segment.pulls.empty()) segment.oldest = kNone;
        oldest_lent_ = std::min(oldest_lent_, segment.oldest);
        if (segment.count > 0) last = &segment + 1;
        if (segment.count == 0 && segment_ == nullptr) segment_ = &segment;
        if (segment.count > 0 && done < segment.last) parts += segment.parts;
    }
    segments_end_ = last;
    if (segment_ == nullptr && last < std::end(segments_)) segment_ = last;
    if (segment_ == nullptr || parts >= kPartsMax) return 0;
    segment_->parts = 0;
    size_t count = ahead ? windows_max_ : demand_max_;
    segment_->first = find_gap(count, ahead);
    if (segment_->first == pages_ && !ahead) {
        count = single_max_;
        segment_->first = find_gap(count, false);
    }
    return segment_->first == pages_ ? 0 : count;
}

// Returns the first page of the lowest or highest gap of `count` pages. Returns `pages_` if there
// is none.
size_t PageSender::find_gap(size_t count, bool from_above) const {
    const std::span<const Segment> segments(segments_, segments_end_);
    const auto is_gap = [&](size_t first) {
        return first + count <= pages_ &&
               std::none_of(segments.begin(), segments.end(), [&](const Segment& segment) {
                   return segment.count > 0 && segment.first < first + count &&
                          first < segment.first + segment.count;
               });
    };
    const size_t end = from_above ? pages_ - count : 0;
    size_t best = is_gap(end) ? end : pages_;
    for (const Segment& segment : segments) {
        if (segment.count == 0 || best == end || (from_above && segment.first < count)) continue;
        const size_t first = from_above ? segment.first - count : segment.first + segment.count;
        const bool better = best == pages_ || (from_above ? first > best : first < best);
        if (better && is_gap(first)) best = first;
    }
    return best;
}

// Returns whether all copies and pulls of a segment have ended. The pulls do end: a team pulls in
// the order of its tickets, and a worker that has an earlier ticket has a segment of its own.
bool PageSender::is_over(Segment& segment, uint64_t done) {
    if (done < segment.last) return false;
    while (!segment.pulls.empty()) {
        const Pull& pull = segment.pulls.back();
        if ((SystemWords::load(*pull.slot, site::kRefill) & 0xff) == pull.lap) return false;
        segment.pulls.pop_back();
    }
    return true;
}

void PageSender::lend(const RingState& ring, uint64_t ticket) {
    const uint64_t index = ticket & ((uint64_t{1} << ring.shift) - 1);
    segment_->pulls.push_back({ring.slots + 4 * index, lap_of(ticket, ring.shift)});
    segment_->oldest = std::min(segment_->oldest, ticket);
}

void PageSender::end(size_t pages) {
    segment_->count = pages;
    if (pages > 0) segments_end_ = std::max(segments_end_, segment_ + 1);
    oldest_lent_ = std::min(oldest_lent_, segment_->oldest);
    segment_->last = stream_->sent();
}

void PageSender::add(FrameIndex frame, size_t place, size_t count) {
    if (count == 0) return;
    added_pages_ += count;
    if (!added_.empty()) {
        Stretch& last = added_.back();
        if (last.frame + last.count == frame && last.place + last.count == place) {
            last.count += count;
            return;
        }
    }
    added_.push_back({frame, place, count});
}

bool PageSender::is_due(bool late) const {
    return added_pages_ * page_size_ >= kSendSize || (late && stream_->done() == stream_->sent());
}

// copy_pages() puts a mark between the pages and their words, so that no word overtakes its bytes.
// The mark after both frees the segment.
Status PageSender::send() {
    if (added_.empty()) return {};
    Status status = copy_pages();
    if (status.ok()) status = copy_words();
    if (status.ok()) status = stream_->mark();
    added_.clear();
    added_pages_ = 0;
    return status;
}

Status PageSender::copy_pages() {
    parts_.clear();
    for (const Stretch& stretch : added_) {
        std::byte* frames = state_.frames + uint64_t{stretch.frame} * page_size_;
        parts_.push_back({frames, page(stretch.place), stretch.count * page_size_});
    }
    segment_->parts += parts_.size();
    if (!device_.copy_all(stream_->id(), parts_).ok()) {
        for (const Stretch& stretch : added_) {
            for (size_t i = stretch.place; i < stretch.place + stretch.count; ++i)
                word(i) = make_completion(completion_generation(word(i)), EIO, 0);
        }
    }
    return stream_->mark();
}

Status PageSender::copy_words() {
    parts_.clear();
    for (const Stretch& stretch : added_) {
        for (size_t done = 0; done < stretch.count; done += kWordsMax) {
            const size_t count = std::min(stretch.count - done, kWordsMax);
            parts_.push_back({state_.completions + stretch.frame + done,
                              &word(stretch.place) + done, count * sizeof(uint64_t)});
        }
    }
    segment_->parts += parts_.size();
    return device_.copy_all(stream_->id(), parts_);
}

}  // namespace penstock::service
