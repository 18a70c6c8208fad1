// Write-backs: finds dirty pages, requests that the host writes them, and ends each write-back when
// it is done.
//
// Any thread may begin a write-back and any thread may end one (dirty_page.cuh); none is obliged
// to. A thread that waits for one holds nothing. One lane calls, except where a team is an
// argument.
#pragma once

#include "penstock/abi/file_system.h"
#include "penstock/device/dirty_page.cuh"
#include "penstock/device/page_table.cuh"
#include "penstock/device/request_queue.cuh"
#include "penstock/device/wait.cuh"

namespace penstock::device {

// A page that was seen in a frame, but is not held; `owner` is as from make_owner(). A frame's
// owner word names a page from before the page is VALID there until after it is not.
struct SeenPage {
    PageEntry* entry = nullptr;
    uint64_t owner = 0;
    FrameIndex frame = 0;

    PENSTOCK_DEVICE bool is_there(const FileSystemState& system, uint64_t seen) const {
        return frame_of(seen) == frame &&
               DeviceWords::load(system.owners[frame], site::kRelaxed) == owner;
    }
};

PENSTOCK_BOTH inline uint64_t* marks_of_frame(const FileSystemState& system, FrameIndex frame) {
    return system.marks + uint64_t{frame} * system.mark_words;
}
PENSTOCK_BOTH inline uint64_t* snapshot_of_frame(const FileSystemState& system, FrameIndex frame) {
    return system.snapshots + uint64_t{frame} * system.mark_words;
}

// Raises a word to `value` if it is smaller.
PENSTOCK_BOTH inline void raise_to(uint64_t& word, uint64_t value) {
    uint64_t seen = DeviceWords::load(word, site::kRelaxed);
    while (seen < value && !DeviceWords::compare_exchange(word, seen, value, site::kRelaxed)) {
    }
}

PENSTOCK_DEVICE inline void submit_write(FileSystemState& system, const SeenPage& page,
                                         uint32_t number) {
    FileState& file = system.files[page.owner >> 48];
    Request request;
    request.kind = RequestKind::kWritePage;
    request.file_slot = static_cast<uint32_t>(page.owner >> 48);
    request.page = page.owner & ((1ull << 48) - 1);
    request.frame = page.frame;
    request.generation = number;
    // Read after the marks: the thread that made them has raised the size before.
    const uint64_t begin = request.page << system.page_shift, page_size = 1ull << system.page_shift;
    const uint64_t size = DeviceWords::load(file.size, site::kRelaxed);
    const uint64_t left = size > begin ? size - begin : 0;
    request.size = static_cast<uint32_t>(left < page_size ? left : page_size);
    raise_to(file.stored, begin + request.size);
    const uint64_t n = DeviceWords::fetch_add(system.write_order_tail, 1, site::kRelaxed);
    DeviceWords::store(system.write_order[n % system.write_backs_max],
                       make_write_order(n, number, page.frame), site::kRelaxed);
    RingState& ring = system.background;
    submit<SystemWords>(ring.slots, ring.shift, take_tickets<DeviceWords>(ring.tail, 1), request);
}

// Records a failed write-back in its file. The errno of the first one stays until it is taken.
PENSTOCK_DEVICE inline void note_error(FileState& file, uint64_t error) {
    uint64_t seen = DeviceWords::load(file.error, site::kRelaxed), noted = 0;
    do {
        const uint64_t first = seen & kFileErrnoMask;
        noted = (seen / kFileFailure + 1) * kFileFailure + error * kFileLastErrno +
                (first != 0 ? first : error);
    } while (!DeviceWords::compare_exchange(file.error, seen, noted, site::kRelaxed));
}

// Stands for the errno of a withdrawn write-back: its page is as dirty as before.
constexpr uint64_t kErrorWithdrawn = 0x7fff;

PENSTOCK_DEVICE inline Written end_write(FileSystemState& system, const SeenPage& page,
                                         Completion completion);

// Requests that a dirty page is written, if it is still there and no write-back of it is in flight.
// Returns the number of the write-back, or -1 if none began: the limit is reached, or the file is
// held. A caller that waits for it, or has begun many, rings the doorbell.
PENSTOCK_DEVICE inline int64_t begin_write(FileSystemState& system, const SeenPage& page) {
    FileState& file = system.files[page.owner >> 48];
    // Every try at the limit would change a word that all teams use.
    if (static_cast<int64_t>(DeviceWords::load(system.write_backs_begun, site::kRelaxed)) >=
        static_cast<int64_t>(system.write_backs_max))
        return -1;
    const uint64_t begun = DeviceWords::fetch_add(system.write_backs_begun, 1, site::kRelaxed);
    const auto holds = [&](uint64_t seen) { return page.is_there(system, seen); };
    uint32_t number = 0;
    const BeginResult answer = begun >= system.write_backs_max
                                   ? BeginResult::kNot
                                   : begin_unless_held<DeviceWords>(
                                         *page.entry, holds, system.write_backs[page.frame],
                                         marks_of_frame(system, page.frame),
                                         snapshot_of_frame(system, page.frame), system.mark_words,
                                         file.held, number);
    if (answer == BeginResult::kNot) {
        DeviceWords::fetch_sub(system.write_backs_begun, 1, site::kRelaxed);
        return -1;
    }
    if (answer == BeginResult::kHeld) {
        (void)end_write(system, page, make_completion(number, kErrorWithdrawn, 0));
        return -1;
    }
    submit_write(system, page, number);
    return number;
}

// Ends the write-back of a page with `completion`: the host's word, or a substitute for it.
PENSTOCK_DEVICE inline Written end_write(FileSystemState& system, const SeenPage& page,
                                         Completion completion) {
    const auto ended = [&](Written result) {
        DeviceWords::fetch_sub(system.write_backs_begun, 1, site::kRelaxed);
        if (result == Written::kClean)
            DeviceWords::fetch_sub(system.dirty_pages, 1, site::kRelaxed);
        if (result != Written::kFailed) {
            DeviceWords::fetch_add(system.writes_done, 1, site::kRelaxed);
            return;
        }
        const uint64_t error = completion_error(completion);
        if (error == kErrorWithdrawn) return;
        note_error(system.files[page.owner >> 48], error);
        DeviceWords::store(system.write_error, error, site::kRelaxed);
        DeviceWords::fetch_add(system.writes_failed, 1, site::kRelaxed);
    };
    const auto holds = [&](uint64_t seen) { return page.is_there(system, seen); };
    return finish_write_back<DeviceWords>(
        *page.entry, holds, system.write_backs[page.frame], marks_of_frame(system, page.frame),
        snapshot_of_frame(system, page.frame), system.mark_words, completion, ended);
}

// Ends the write-back of a page if the host has finished it.
PENSTOCK_DEVICE inline Written end_if_written(FileSystemState& system, const SeenPage& page) {
    const WriteBackWord word = DeviceWords::load(system.write_backs[page.frame], site::kRelaxed);
    if (phase_of(word) != WritePhase::kUnderWay) return Written::kNot;
    const Completion completion = SystemWords::load(system.write_completions[page.frame],
                                                    site::kCompletion);
    if (completion_generation(completion) != number_of(word)) return Written::kNot;
    return end_write(system, page, completion);
}

// Dirty pages of one group are written together: they are neighbours in the file, and their entries
// lie in one leaf. Neighbours whose frames lie apart would otherwise be one storage call each.
constexpr uint64_t kWriteGroupPages = limits::kLeafEntries < 16 ? limits::kLeafEntries : 16;
static_assert(limits::kLeafEntries % kWriteGroupPages == 0, "a group lies in one leaf");

// Begins write-backs of the dirty pages in the group of `page`, whose frames may be anywhere.
// Returns how many began.
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline uint64_t begin_group(FileSystemState& system,
                                                              const SeenPage& page) {
    const uint64_t before = page.owner % kWriteGroupPages;
    uint64_t begun = 0;
    for (uint64_t i = 0; i < kWriteGroupPages; ++i) {
        SeenPage other;
        other.entry = page.entry - before + i;
        other.owner = page.owner - before + i;
        const uint64_t seen = DeviceWords::load(*other.entry, site::kLook);
        if ((seen & kDirtyBit) == 0) continue;
        other.frame = frame_of(seen);
        const WriteBackWord word = DeviceWords::load(system.write_backs[other.frame],
                                                     site::kRelaxed);
        if (phase_of(word) != WritePhase::kIdle || !other.is_there(system, seen)) continue;
        if (begin_write(system, other) >= 0) ++begun;
    }
    return begun;
}

// Ends the write-back of a page that was seen to be dirty if it is done; otherwise begins one.
PENSTOCK_NOINLINE PENSTOCK_DEVICE inline void tend_page(FileSystemState& system,
                                                        const SeenPage& page) {
    if (end_if_written(system, page) == Written::kNot) (void)begin_write(system, page);
}

// Returns the page that was last read into a frame; a null entry means none.
PENSTOCK_DEVICE inline SeenPage page_in_frame(FileSystemState& system, FrameIndex frame) {
    SeenPage page;
    page.frame = frame;
    page.owner = DeviceWords::load(system.owners[frame], site::kRelaxed);
    if (page.owner != kFrameFree && page.owner != kFrameTaken)
        page.entry = entry_of_owner(system, page.owner);
    return page;
}

// Ends up to `most` write-backs that the host has finished, in the order in which they began; stops
// at the first unfinished one. write_some() would end them one lap of the cache later, and no other
// write-back begins while write_backs_max of them have not ended. Returns whether a page became
// clean.
PENSTOCK_DEVICE inline bool end_writes(FileSystemState& system, uint64_t most) {
    constexpr uint64_t kLooksOfOne = 8;  // entries for each one to end: a sync has ended others
    const uint64_t max = system.write_backs_max;
    uint64_t ended = 0;
    bool any_clean = false;
    for (uint64_t i = 0; i < kLooksOfOne * most && ended < most; ++i) {
        uint64_t head = DeviceWords::load(system.write_order_head, site::kRelaxed);
        const uint64_t tail = DeviceWords::load(system.write_order_tail, site::kRelaxed);
        if (head >= tail) break;
        if (tail - head > max) {  // overwritten by later entries: write_some() or a sync ends them
            (void)DeviceWords::compare_exchange(system.write_order_head, head, tail - max,
                                                site::kRelaxed);
            continue;
        }
        const uint64_t word = DeviceWords::load(system.write_order[head % max], site::kRelaxed);
        if (!is_write_order(word, head)) break;  // the entry is not stored yet
        const FrameIndex frame = frame_of_write_order(word);
        const WriteBackWord phase = DeviceWords::load(system.write_backs[frame], site::kRelaxed);
        const bool over = phase_of(phase) != WritePhase::kUnderWay ||
                          number_of(phase) != number_of_write_order(word);
        const Completion completion = SystemWords::load(system.write_completions[frame],
                                                        site::kRelaxed);
        if (!over && completion_generation(completion) != number_of(phase)) break;
        if (!DeviceWords::compare_exchange(system.write_order_head, head, head + 1,
                                           site::kRelaxed) ||
            over)
            continue;
        ++ended;
        const SeenPage page = page_in_frame(system, frame);
        if (page.entry != nullptr)
            any_clean = end_if_written(system, page) == Written::kClean || any_clean;
    }
    return any_clean;
}

// Visits the next `looks` frames of the cache. Ends finished write-backs, and begins others until
// `most` have begun or 4 * `most` dirty pages were found. Returns whether a page became clean.
PENSTOCK_DEVICE inline bool write_some(FileSystemState& system, uint64_t looks, uint64_t most) {
    constexpr uint64_t kFoundForOne = 4;
    uint64_t found = 0, begun = 0;
    bool any_clean = false;
    for (uint64_t i = 0; i < looks && begun < most && found < kFoundForOne * most; ++i) {
        const uint64_t hand = DeviceWords::fetch_add(system.write_hand, 1, site::kRelaxed);
        const SeenPage page = page_in_frame(system,
                                            static_cast<FrameIndex>(hand % system.frame_count));
        if (page.entry == nullptr) continue;
        const uint64_t seen = DeviceWords::load(*page.entry, site::kLook);
        if ((seen & kDirtyBit) == 0 || frame_of(seen) != page.frame) continue;
        ++found;
        const WriteBackWord word = DeviceWords::load(system.write_backs[page.frame],
                                                     site::kRelaxed);
        if (phase_of(word) == WritePhase::kIdle) {
            begun += begin_group(system, page);
        } else {
            any_clean = end_if_written(system, page) == Written::kClean || any_clean;
        }
    }
    return any_clean;
}

// The wait of a team that finds no free frame or leaf. The team holds nothing. It has dirty pages
// written back, and waits for one of them or for what other teams release.
class RoomWait {
public:
    PENSTOCK_DEVICE explicit RoomWait(FileSystemState& system) : system_(system), wait_(system) {}

    // Waits one step. Returns 0 when the caller must look again, or -errno: as Wait::step, or the
    // reason why no page can be written.
    PENSTOCK_NOINLINE PENSTOCK_DEVICE int step() {
        const uint64_t hand = DeviceWords::load(system_.clock_hand, site::kRelaxed);
        if (DeviceWords::load(system_.dirty_pages, site::kRelaxed) == 0)
            return wait_.step(&system_.clock_hand, hand);
        const uint64_t done = DeviceWords::load(system_.writes_done, site::kRelaxed);
        const uint64_t failed = DeviceWords::load(system_.writes_failed, site::kRelaxed);
        if (turns_ == 0 || done != done_) {
            done_ = done;
            failed_ = failed;
            began_ns_ = now_ns();
            turns_ = 0;
        }
        // Every candidate was tried for some rounds, and no page could be written. Frames that are
        // not dirty are in use and will be released, so the team waits for them. It does not wait
        // for ever, as views may hold them, or leaves may be short.
        if (++turns_ > kTurnsMax && failed - failed_ > kTurnsMax &&
            (DeviceWords::load(system_.dirty_pages, site::kRelaxed) >= system_.frame_count ||
             now_ns() - began_ns_ > kPatienceNs))
            return -static_cast<int>(DeviceWords::load(system_.write_error, site::kRelaxed));
        if (end_writes(system_, kBatch)) return 0;
        if (write_some(system_, system_.frame_count, kBatch)) return 0;
        ring(system_.rings[0]);
        // The newest write-back; before the first one this is frame 0, which is not under way.
        const uint64_t begun = DeviceWords::load(system_.write_order_tail, site::kRelaxed);
        const uint64_t& newest = system_.write_order[(begun - 1) % system_.write_backs_max];
        const FrameIndex frame = frame_of_write_order(DeviceWords::load(newest, site::kRelaxed));
        const uint64_t& completion = system_.write_completions[frame];
        const WriteBackWord word = DeviceWords::load(system_.write_backs[frame], site::kRelaxed);
        const uint64_t seen = SystemWords::load(completion, site::kRelaxed);
        const bool waits = phase_of(word) == WritePhase::kUnderWay &&
                           number_of(word) != completion_generation(seen);
        return waits ? wait_.step(&completion, seen, &system_.clock_hand, hand)
                     : wait_.step(&system_.clock_hand, hand);
    }

private:
    static constexpr uint64_t kBatch = 64;
    static constexpr uint64_t kTurnsMax = 64;
    static constexpr uint64_t kPatienceNs = 60'000'000'000;

    FileSystemState& system_;
    Wait wait_;
    uint64_t turns_ = 0, done_ = 0, failed_ = 0, began_ns_ = 0;
};

}  // namespace penstock::device
