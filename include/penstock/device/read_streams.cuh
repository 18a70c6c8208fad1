// Finds the stream to which a read belongs, and what that stream should request next.
//
// A place follows kStreamsMax streams, of several files: reads in sequence, or at equal distances
// forwards or backwards. The caller holds `busy` of the place. One lane calls; nothing here waits.
#pragma once

#include "penstock/device/windows.cuh"

namespace penstock::device {

// Returns whether a read continues where the last one ended, within a page: calls that overlap, or
// skip a header, are sequential too.
PENSTOCK_DEVICE inline bool continues(const FileSystemState& system, const ReadStream& stream,
                                      const StreamRead& read) {
    const uint64_t page_size = 1ull << system.page_shift;
    const uint64_t end = stream.offset + stream.size;
    return read.offset > stream.offset && read.offset < end + page_size &&
           read.offset + page_size > end;
}

// Returns by how many pages a stream of equal distances advances. Returns 0 if its reads are in
// sequence, or if the distance is no whole number of pages.
PENSTOCK_DEVICE inline int64_t stride_of(const FileSystemState& system, const ReadStream& stream) {
    const int64_t page_size = int64_t{1} << system.page_shift;
    return stream.delta % page_size == 0 ? stream.delta / page_size : 0;
}

// Returns whether the stream's reads leave gaps, or go backwards.
PENSTOCK_DEVICE inline bool is_apart(const ReadStream& stream) {
    return stream.delta < 0 || stream.delta >= static_cast<int64_t>(stream.size);
}

// Returns whether another stream of the file is about to read what this stream has recently read.
PENSTOCK_DEVICE inline bool is_followed(const FileSystemState& system, const ReadaheadPlace& place,
                                        const ReadStream& stream, const StreamRead& read) {
    const uint64_t pages = DeviceWords::load(place.slab_count, site::kRelaxed) * system.slab_frames;
    for (const ReadStream& other : place.streams) {
        if (&other == &stream || other.file != stream.file ||
            place.calls - other.used_at > kIdleReads)
            continue;
        const PageIndex page = other.offset >> system.page_shift;
        if (page < read.first && read.first - page < pages) return true;
    }
    return false;
}

// Returns whether the pages of a read count as read once (frame_ring.cuh), because their stream
// reads more than the ring holds: by now, or as the earlier stream of that file did. Otherwise,
// when the file is read again from its start, each of its pages would be evicted just before its
// turn.
PENSTOCK_DEVICE inline bool judge_outrun(const FileSystemState& system, const ReadaheadPlace& place,
                                         ReadStream& stream, const StreamRead& read) {
    constexpr uint64_t kStreak = 4;     // random reads belong to no stream
    constexpr uint64_t kReadShare = 8;  // share of the frames in turn that one read may want
    if (stream.delta != 0 || read.first <= stream.began) return false;
    const uint64_t pages = read.first - stream.began;
    const bool again = stream.outrun == Outrun::kBefore && stream.streak >= kStreak;
    const bool now = outruns_ring(system, place, pages);
    if (!now && !(again && outruns_ring(system, place, UINT64_MAX))) return false;
    const uint64_t turning = system.readahead.once_slabs * system.slab_frames;
    if (kReadShare * (read.last - read.first + 1) > turning ||
        is_followed(system, place, stream, read))
        return false;
    if (now) stream.outrun = Outrun::kDoes;
    return true;
}

// The last advice for a file, while it was open by this descriptor.
struct GivenAdvice {
    Advice advice = Advice::kNormal;
    int64_t stride = 0;  // bytes; for kStrided
};
PENSTOCK_BOTH inline GivenAdvice given_advice(const FileState& file) {
    const uint64_t word = DeviceWords::load(file.advice, site::kRelaxed);
    if (word == 0) return {};
    return {advice_of(word, DeviceWords::load(file.generation, site::kRelaxed)),
            stride_of_advice(word)};
}

// Returns the first window size, as Linux does (get_init_ra_size): twice the read, but at least the
// minimum.
PENSTOCK_DEVICE inline uint64_t first_window_pages(const ReadaheadSettings& settings,
                                                   const StreamRead& read) {
    const uint64_t pages = 2 * (read.last - read.first + 1);
    return pages < settings.window_pages_min   ? settings.window_pages_min
           : pages > settings.window_pages_max ? settings.window_pages_max
                                               : pages;
}

PENSTOCK_DEVICE inline void start_stream(const FileSystemState& system, const ReadaheadPlace& place,
                                         ReadStream& stream, const StreamRead& read,
                                         const GivenAdvice& given, Outrun outrun) {
    const ReadaheadSettings& settings = system.readahead;
    const bool strided = given.advice == Advice::kStrided;
    const bool trusted = strided || given.advice == Advice::kSequential ||
                         settings.prefetch_pages != 0;
    // Waste of the file's last stream here counts for the next stream too.
    const bool known = stream.file == read.file && stream.needed > 0;
    stream.file = read.file;
    stream.offset = read.offset;
    stream.size = read.size;
    stream.delta = strided ? given.stride : 0;
    stream.streak = strided ? 1 : 0;
    stream.needed = trusted ? 0 : known ? stream.needed : 1;
    stream.window_pages = settings.prefetch_pages != 0 ? settings.prefetch_pages
                          : trusted                    ? settings.window_pages_max
                                                       : first_window_pages(settings, read);
    stream.ahead_pages = stream.window_pages;
    stream.frontier = stream.began = read.first;
    stream.used_at = place.calls;
    stream.oldest = stream.window_count = 0;
    DeviceWords::store(stream.given_up, 0, site::kRelaxed);
    stream.ahead_left = 0;
    stream.windows_max = static_cast<uint16_t>(settings.windows_max);
    stream.outrun = outrun;
    stream.windows = windows_of(system, static_cast<uint64_t>(&place - system.places),
                                static_cast<uint64_t>(&stream - place.streams));
}

// Returns whether a read is followed at all. If reads come at random, only a few in a row are
// followed from time to time: each takes as many cache lines as there are streams.
PENSTOCK_DEVICE inline bool is_watched(const ReadaheadPlace& place) {
    return place.vain < kVainReads || place.calls % kWatchPeriod < kWatchedReads;
}

// Returns the stream to which a read belongs, after recording the read in it. Returns kNoStream if
// all streams have windows in flight.
PENSTOCK_DEVICE inline uint64_t follow(FileSystemState& system, ReadaheadPlace& place,
                                       const StreamRead& read, const GivenAdvice& given) {
    uint64_t oldest = kNoStream, loose = kNoStream;
    ReadStream* before = nullptr;  // outran the ring; this information is used once
    for (uint64_t i = 0; i < limits::kStreamsMax; ++i) {
        ReadStream& stream = place.streams[i];
        if (stream.file == read.file) {
            const auto delta = static_cast<int64_t>(read.offset - stream.offset);
            const bool sequential = continues(system, stream, read);
            if (sequential || (delta != 0 && delta == stream.delta)) {
                ++stream.streak;
                // What was requested at a distance lies elsewhere.
                if (sequential && is_apart(stream)) stream.frontier = stream.began = read.first;
                // Reads of one size in a row have equal distances too.
                stream.delta = sequential ? 0 : delta;
                stream.offset = read.offset;
                stream.size = read.size;
                stream.used_at = place.calls;
                return i;
            }
            if (stream.streak == 0 && stream.window_count == 0) loose = i;
            if (stream.outrun == Outrun::kDoes) before = &stream;
        }
        const bool older = oldest == kNoStream || stream.file == 0 ||
                           (place.streams[oldest].file != 0 &&
                            stream.used_at < place.streams[oldest].used_at);
        if (older) oldest = i;
    }
    const Outrun outrun = before != nullptr ? Outrun::kBefore : Outrun::kNo;
    if (loose != kNoStream) {  // one read so far, or none that came as expected
        if (before != nullptr) before->outrun = Outrun::kNo;
        ReadStream& stream = place.streams[loose];
        const auto delta = static_cast<int64_t>(read.offset - stream.offset);
        start_stream(system, place, stream, read, given, outrun);
        if (stream.needed != 0) stream.delta = delta;
        return loose;
    }
    ReadStream& stream = place.streams[oldest];
    if (!drop_windows(system, place, stream, [](const Window&) { return true; })) return kNoStream;
    if (before != nullptr) before->outrun = Outrun::kNo;
    start_stream(system, place, stream, read, given, outrun);
    return oldest;
}

// The window to request.
struct WindowRequest {
    PageIndex first = 0;
    int64_t step = 1;
    uint32_t run = 1;
    uint32_t count = 0;  // pages; 0: nothing
};

// Returns whether to request a window behind the `ahead` pages that lie ahead of a stream. `asked`:
// this read has already requested one.
//
// If storage is not waited for: a window when less than half of the pages that should lie ahead do.
// Where blocks help, never: the requesting block fills the window itself when it waits, and another
// block that waits meanwhile would fill it on its CPU. If storage is waited for: as many windows at
// once as make one request to storage, because a disk takes longer for four of 256 KiB than for one
// of 1 MiB.
PENSTOCK_DEVICE inline bool wants_more(const FileSystemState& system, const ReadStream& stream,
                                       uint64_t ahead, bool asked) {
    const FileState& file = system.files[descriptor_slot(static_cast<Descriptor>(stream.file))];
    const uint64_t wanted = stream.ahead_pages;
    if (DeviceWords::load(file.missing, site::kRelaxed) == 0)
        return system.readahead.ahead_pages_max != 0 && 2 * ahead < wanted;
    uint64_t room = limits::kWindowSizeMax >> system.page_shift;
    if (room > wanted / 2) room = wanted / 2;
    if (room == 0) room = 1;
    return ahead + (asked ? stream.window_pages : room) <= wanted;
}

// Returns the next window of a stream of equal distances.
PENSTOCK_DEVICE inline WindowRequest next_strided(const FileSystemState& system,
                                                  const ReadStream& stream, const StreamRead& read,
                                                  int64_t step) {
    uint64_t run = read.last - read.first + 1;
    // Backwards, the pages of the last read are already in the cache.
    if (step < 0 && run > static_cast<uint64_t>(-step)) run = static_cast<uint64_t>(-step);
    if (run > limits::kWindowPagesMax) return {};
    // The first read that is not covered, counted from this one.
    int64_t next = (static_cast<int64_t>(stream.frontier - read.first)) / step;
    if (next < 1) next = 1;
    // Each run is a request, so far fewer pages than such a stream skips keep storage busy.
    const uint64_t most = limits::kWindowSizeMax >> system.page_shift;
    uint64_t ahead = (stream.ahead_pages < most ? stream.ahead_pages : most) / run;
    if (ahead == 0) ahead = 1;
    if (2 * static_cast<uint64_t>(next - 1) > ahead) return {};
    uint64_t runs = stream.window_pages / run;
    if (runs == 0) runs = 1;
    const auto first = static_cast<int64_t>(read.first) + next * step;
    WindowRequest request{static_cast<PageIndex>(first), step, static_cast<uint32_t>(run), 0};
    for (uint64_t i = 0; i < runs; ++i) {
        const int64_t page = first + static_cast<int64_t>(i) * step;
        if (page < 0 || static_cast<uint64_t>(page) + run > read.page_count) break;
        request.count += static_cast<uint32_t>(run);
    }
    return request;
}

// Returns the window to request next, for the read that is about to be served. One lane calls.
// `asked`: that read has already requested a window.
PENSTOCK_DEVICE inline WindowRequest next_window(const FileSystemState& system, ReadStream& stream,
                                                 const StreamRead& read, bool asked) {
    if (stream.window_count == stream.windows_max || stream.streak < stream.needed) return {};
    if (stream.delta != 0) {
        const int64_t step = stride_of(system, stream);
        // Two equal distances take three reads.
        if (step == 0 || stream.streak < 1) return {};
        // Forwards, reads that overlap are treated as sequential.
        const uint64_t run = read.last - read.first + 1;
        if (step < 0 || static_cast<uint64_t>(step) >= run)
            return next_strided(system, stream, read, step);
    }
    if (stream.frontier < read.first) stream.frontier = read.first;
    const PageIndex end = read.last + 1;
    const uint64_t ahead = stream.frontier > end ? stream.frontier - end : 0;
    uint64_t count = stream.window_pages;
    if (stream.frontier < end) {
        count += end - stream.frontier;
    } else if (system.readahead.prefetch_pages != 0 || !wants_more(system, stream, ahead, asked)) {
        return {};
    }
    if (count > limits::kWindowPagesMax) count = limits::kWindowPagesMax;
    if (count > system.readahead.frames_max) count = system.readahead.frames_max;
    if (stream.frontier >= read.page_count) return {};
    if (count > read.page_count - stream.frontier) count = read.page_count - stream.frontier;
    return {stream.frontier, 1, 1, static_cast<uint32_t>(count)};
}

}  // namespace penstock::device
