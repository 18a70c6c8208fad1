#include "service/page_writer.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>

#include "base/check.h"
#include "base/torn_reads.h"
#include "penstock/device/atomic.cuh"

namespace penstock::service {
namespace {

using device::DeviceWords;
using device::SystemWords;

// Largest write in bytes, unless a page is larger. It suffices for full speed.
constexpr uint64_t kWriteSizeMax = 1 << 20;
static_assert(kWriteSizeMax + limits::kPageSizeMax <= transfer::kRequestSizeMax);
// Pinned memory for pages of a device that the host cannot address.
constexpr size_t kStagingSize = limits::kPageSizeMax;
// The copy engine pauses for some 3 us after each copy, in which it could move kGapSizeMax bytes.
// So one copy takes snapshots with gaps up to that size, and up to kGapsSize of gaps.
constexpr size_t kGapSizeMax = 64 << 10, kGapsSize = 512 << 10;
static_assert(limits::kDrainMax * sizeof(uint64_t) <= backend::Device::kWholeSizeMax,
              "completions of neighbouring frames go in one copy");
// Limit of copies from the device, which wait for no kernel.
constexpr std::chrono::seconds kCopyLimit{60};

}  // namespace

PageWriter::PageWriter(backend::Device& device, FileSystemState& state, FileTable& files,
                       transfer::Executor& executor)
    : device_(device),
      state_(state),
      files_(files),
      executor_(executor),
      page_size_(uint64_t{1} << state.page_shift),
      direct_(device.properties().host_addressable),
      outcomes_(kExtentsMax) {
    sources_.reserve(limits::kDrainMax);
}

Result<std::unique_ptr<PageWriter>> PageWriter::create(backend::Device& device,
                                                       FileSystemState& state, FileTable& files,
                                                       transfer::Executor& executor) {
    std::unique_ptr<PageWriter> writer(new PageWriter(device, state, files, executor));
    if (writer->direct_) return writer;
    const size_t pages = std::min<size_t>(kStagingSize / writer->page_size_, limits::kDrainMax);
    const size_t words = pages * state.mark_words + pages;
    void* memory = nullptr;
    Status status = device.allocate(
        pages * writer->page_size_ + words * sizeof(uint64_t) + kGapsSize, backend::Memory::kPinned,
        &memory);
    if (!status.ok()) return status;
    writer->staging_ = static_cast<std::byte*>(memory);
    writer->snapshots_ = reinterpret_cast<uint64_t*>(writer->staging_ + pages * writer->page_size_);
    writer->words_ = writer->snapshots_ + pages * state.mark_words + kGapsSize / sizeof(uint64_t);
    writer->staged_max_ = pages;
    writer->parts_.reserve(2 * pages);
    status = device.create_copy_stream(&writer->stream_);
    if (!status.ok()) return status;
    return writer;
}

PageWriter::~PageWriter() {
    if (stream_ != 0) (void)device_.destroy_stream(stream_);
    if (staging_ != nullptr) device_.free(staging_);
}

Status PageWriter::write(std::span<const Request> requests, const OtherOutcome& other, Done* done) {
    PENSTOCK_CHECK(requests.size() <= limits::kDrainMax, "a drain has room for so many");
    requests_ = requests;
    done_ = done;
    Status status;
    for (size_t first = 0; first < requests.size() && status.ok(); first += staged_max_) {
        const size_t count = std::min(staged_max_, requests.size() - first);
        status = write_some(first, count, other);
    }
    sources_.clear();
    return status;
}

int PageWriter::write_bytes(transfer::Source& source, uint64_t offset, std::span<std::byte> bytes,
                            const OtherOutcome& other, Done* done) {
    Request whole{};  // an error of any of the bytes counts for the page
    whole.page = (offset + bytes.size() - 1) / page_size_;
    requests_ = {&whole, 1};
    done_ = done;
    errors_[0] = 0;
    add(0, &source, offset, {bytes.data(), bytes.size()}, other);
    execute(other);
    requests_ = {};
    return errors_[0];
}

Status PageWriter::write_some(size_t first, size_t count, const OtherOutcome& other) {
    std::fill_n(errors_ + first, count, 0);
    const Status fetched = direct_ ? Status() : fetch(first, count);
    for (size_t i = first; i < first + count; ++i) {
        const Request& request = requests_[i];
        if (!fetched.ok()) {
            errors_[i] = EIO;
            continue;
        }
        const bool known = i > 0 && !sources_.empty() &&
                           request.file_slot == requests_[i - 1].file_slot;
        if (!known) sources_.push_back(files_.find(request));
        transfer::Source* source = sources_.back().get();
        if (source == nullptr) {
            // The file was closed with a dirty page, because a view was released too late. The page
            // can no longer be written, and it is not clean, so it would keep its frame forever.
            files_.invalidate(request.file_slot);
            continue;
        }
        const size_t marks = size_t{request.frame} * state_.mark_words;
        const uint64_t* snapshot = direct_ ? state_.snapshots + marks : snapshot_of_[i - first];
        const std::byte* frame = direct_ ? state_.frames + request.frame * page_size_
                                         : staging_ + (i - first) * page_size_;
        gather(i, snapshot, frame, source, other);
    }
    execute(other);
    return complete(first, count);
}

// Copies snapshots and frames to pinned memory. Bytes of a frame that are written meanwhile are
// marked dirty again.
Status PageWriter::fetch(size_t first, size_t count) {
    parts_.clear();
    add_snapshots(first, count);
    for (size_t i = 0; i < count; ++i) {
        const size_t frame = requests_[first + i].frame;
        add_part(staging_ + i * page_size_, state_.frames + frame * page_size_, page_size_);
    }
    const base::TornReads torn;
    if (Status status = device_.copy_all(stream_, parts_); !status.ok()) return status;
    return device_.synchronize(stream_, std::chrono::steady_clock::now() + kCopyLimit);
}

// Copies the snapshots of nearby frames together, with the gaps between them.
void PageWriter::add_snapshots(size_t first, size_t count) {
    size_t order[limits::kDrainMax];
    for (size_t i = 0; i < count; ++i) order[i] = i;
    const auto frame_of = [&](size_t i) -> size_t { return requests_[first + i].frame; };
    std::sort(order, order + count, [&](size_t a, size_t b) { return frame_of(a) < frame_of(b); });
    const size_t words = state_.mark_words, size = words * sizeof(uint64_t);
    size_t gaps_left = kGapsSize;
    uint64_t* to = snapshots_;
    for (size_t i = 0; i < count; ++i) {
        const size_t frame = frame_of(order[i]);
        const size_t gap = i == 0 ? 0 : (frame - frame_of(order[i - 1]) - 1) * size;
        if (gap > 0 && gap <= std::min(kGapSizeMax, gaps_left)) {
            add_part(to, state_.snapshots + frame * words - gap / sizeof(uint64_t), gap);
            to += gap / sizeof(uint64_t);
            gaps_left -= gap;
        }
        add_part(to, state_.snapshots + frame * words, size);
        snapshot_of_[order[i]] = to;
        to += words;
    }
}

// Adds a copy, or extends the last one.
void PageWriter::add_part(void* to, const void* from, size_t size) {
    if (!parts_.empty()) {
        backend::CopyPart& last = parts_.back();
        if (static_cast<std::byte*>(last.to) + last.size == to &&
            static_cast<const std::byte*>(last.from) + last.size == from) {
            last.size += size;
            return;
        }
    }
    parts_.push_back({to, from, size});
}

// Adds the runs of a page's dirty granules that lie before the end of its file.
void PageWriter::gather(size_t request, const uint64_t* snapshot, const std::byte* frame,
                        transfer::Source* source, const OtherOutcome& other) {
    const Request& page = requests_[request];
    const uint64_t granules = (page.size + limits::kGranuleSize - 1) / limits::kGranuleSize;
    const auto dirty = [&](uint64_t i) {
        return (DeviceWords::load(snapshot[i / 64], site::kRelaxed) >> i % 64 & 1) != 0;
    };
    uint64_t at = 0;
    while (at < granules) {
        const uint64_t word = DeviceWords::load(snapshot[at / 64], site::kRelaxed) >> at % 64;
        if (word == 0) {
            at = (at / 64 + 1) * 64;
            continue;
        }
        at += static_cast<uint64_t>(std::countr_zero(word));
        if (at >= granules) break;
        uint64_t stop = at;
        while (stop < granules && dirty(stop)) ++stop;
        const uint64_t begin = at * limits::kGranuleSize;
        const uint64_t end = std::min<uint64_t>(stop * limits::kGranuleSize, page.size);
        // The executor only reads the sources of a write, so casting away const is safe.
        add(request, source, page.page * page_size_ + begin,
            {const_cast<std::byte*>(frame + begin), end - begin}, other);
        at = stop;
    }
}

void PageWriter::add(size_t request, transfer::Source* source, uint64_t offset, iovec bytes,
                     const OtherOutcome& other) {
    Extent* last = extent_count_ == 0 ? nullptr : &extents_[extent_count_ - 1];
    const bool continues = last != nullptr && last->source == source &&
                           last->offset + last->size == offset && last->size < kWriteSizeMax;
    if (piece_count_ == kPiecesMax || (!continues && extent_count_ == kExtentsMax)) {
        execute(other);
        return add(request, source, offset, bytes, other);
    }
    if (!continues) {
        last = &extents_[extent_count_++];
        *last = {source, offset, 0, piece_count_, 0, request, request};
    }
    last->last = request;
    last->size += bytes.iov_len;
    iovec* before = last->pieces == 0 ? nullptr : &pieces_[piece_count_ - 1];
    if (before != nullptr &&
        static_cast<std::byte*>(before->iov_base) + before->iov_len == bytes.iov_base) {
        before->iov_len += bytes.iov_len;
        return;
    }
    pieces_[piece_count_++] = bytes;
    ++last->pieces;
}

// Writes all extents.
void PageWriter::execute(const OtherOutcome& other) {
    const base::TornReads torn;
    size_t submitted = 0, pending = 0;
    while (submitted < extent_count_ || pending > 0) {
        if (submitted < extent_count_ && executor_.has_room()) {
            const Extent& extent = extents_[submitted];
            transfer::Request request;
            request.source = extent.source;
            request.offset = extent.offset;
            request.size = extent.size;
            request.pieces = {pieces_ + extent.piece, extent.pieces};
            request.write = true;
            // The cookies of reads are addresses, which are larger.
            request.cookie = submitted++;
            PENSTOCK_CHECK(executor_.submit(request), "an executor that has room takes a request");
            ++pending;
            continue;
        }
        const size_t count = executor_.reap(outcomes_, true);
        for (const transfer::Outcome& outcome : std::span(outcomes_).first(count)) {
            if (outcome.cookie >= kExtentsMax) {
                other(outcome);
            } else {
                settle(outcome);
                --pending;
            }
        }
    }
    extent_count_ = piece_count_ = 0;
}

// Reports an outcome. An error counts for each page whose bytes may be missing.
void PageWriter::settle(const transfer::Outcome& outcome) {
    const Extent& extent = extents_[outcome.cookie];
    done_->operations += outcome.operations;
    done_->bytes += outcome.bytes;
    if (outcome.bytes == extent.size && outcome.error == 0) return;
    const int error = outcome.error != 0 ? outcome.error : EIO;
    const uint64_t good = extent.offset + outcome.bytes;
    for (size_t i = extent.first; i <= extent.last; ++i) {
        if ((requests_[i].page + 1) * page_size_ > good) errors_[i] = error;
    }
}

Status PageWriter::complete(size_t first, size_t count) {
    parts_.clear();
    for (size_t i = first; i < first + count; ++i) {
        const Request& request = requests_[i];
        const Completion word = make_completion(request.generation,
                                                static_cast<uint32_t>(errors_[i]), request.size);
        if (errors_[i] != 0) ++done_->failed_pages;
        uint64_t& completion = state_.write_completions[request.frame];
        if (direct_) {
            SystemWords::store(completion, word, site::kComplete);
            device_.notify(&completion);
        } else {
            words_[i - first] = word;
            add_part(&completion, words_ + (i - first), sizeof word);
        }
    }
    if (direct_) return {};
    // Waits for the copy, because its memory is used again.
    const base::TornReads torn;
    if (Status status = device_.copy_all(stream_, parts_); !status.ok()) return status;
    return device_.synchronize(stream_, std::chrono::steady_clock::now() + kCopyLimit);
}

}  // namespace penstock::service
