// Takes pages out of windows: whole runs that have arrived, or one page that is late.
//
// Any team of the block that has the place may call.
#pragma once

#include "penstock/device/readahead.cuh"
#include "penstock/device/wait.cuh"

namespace penstock::device {

// A run of pages that has arrived, in adjacent frames that this team owns until end_run().
struct WindowRun {
    Window* window = nullptr;
    uint64_t place = 0;            // place of the first page
    uint32_t count = 0;            // pages
    PageEntry* entries = nullptr;  // of the pages; the first is pinned and keeps the leaf of all
};

// Returns the window of the call's stream that has a page, and sets `p` to the page's place in it.
// Null: no window has it.
PENSTOCK_DEVICE inline Window* find_window(ReadaheadPlace& place, PageIndex page, uint64_t& p) {
    ReadStream& stream = place.streams[place.current];
    for (uint64_t i = 0; i < stream.window_count; ++i) {
        Window& window = window_of(stream, i);
        p = place_of(window, page);
        if (p < window.count) return &window;
    }
    return nullptr;
}

// Returns how many pages from place `p`, which is page `page`, are adjacent in the window and in
// one leaf; at most `most`.
PENSTOCK_DEVICE inline uint64_t count_adjacent(const Window& window, uint64_t p, PageIndex page,
                                               uint64_t most) {
    const bool adjacent = window.step == static_cast<int64_t>(window.run);
    uint64_t count = adjacent ? window.count - p : window.run - p % window.run;
    const uint64_t in_leaf = limits::kLeafEntries - page % limits::kLeafEntries;
    if (count > in_leaf) count = in_leaf;
    return count < most ? count : most;
}

// Takes from `places` those that are left in a window of the call's place, and returns them.
template <class Team>
PENSTOCK_DEVICE uint64_t take_places(Window& window, uint64_t places) {
    if constexpr (Team::kAlone) {
        const uint64_t left = DeviceWords::load(window.left, site::kRelaxed);
        DeviceWords::store(window.left, left & ~places, site::kRelaxed);
        return left & places;
    } else {
        return DeviceWords::fetch_and(window.left, ~places, site::kTakeFrame) & places;
    }
}

// Waits for up to `most` pages from `page` on that are in flight in a window of the call's stream,
// so that begin_run() takes them together. Holds nothing else meanwhile. Returns 1 after a wait, 0
// if nothing was in flight, or -errno.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE int wait_for_run(const Team& team, FileSystemState& system,
                                                   ReadaheadPlace& place, uint32_t file_slot,
                                                   PageIndex page, uint64_t most) {
    uint64_t p = 0;
    Window* const window = find_window(place, page, p);
    if (window == nullptr) return 0;
    int result = 0;
    const FileState& file = system.files[file_slot];
    // If the page is in the cache by now, in whatever way, there is nothing to wait for.
    if (team.lane() == 0 && is_current(system, file, *window) && is_absent(system, file, page)) {
        // A window is one read: when its last page has arrived, the others have too, or soon will.
        const uint64_t last = p + count_adjacent(*window, p, page, most) - 1;
        const uint64_t& word = system.completions[window->frame + last];
        Wait wait(system);
        uint64_t began = 0;
        for (;;) {
            const uint64_t seen = SystemWords::load(word, site::kRelaxed);
            const uint64_t left = DeviceWords::load(window->left, site::kRelaxed);
            // The team that took the page may have given its frame to another page by now.
            if (completion_generation(seen) == window->generation || (left >> last & 1) == 0) break;
            if (result == 0) began = now_ns();
            result = wait.step(&word, seen);
            if (result != 0) break;
            result = 1;
        }
        if (result != 0) {
            FileCounts& counts = counts_of(system, &place, file_slot);
            add_count(counts.stalled_ns, now_ns() - began);
        }
    }
    return team.broadcast(result, 0);
}

// Finds up to `most` pages from `page` on that are adjacent in a window of the call's stream, have
// arrived, and are not in the cache otherwise. Pins only one entry, because the window owns the
// frames. Returns false if there are none.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE bool begin_run(const Team& team, FileSystemState& system,
                                                 ReadaheadPlace& place, const FileState& file,
                                                 PageIndex page, uint64_t most, WindowRun& run) {
    uint64_t first = 0;
    Window* const found = find_window(place, page, first);
    if (found == nullptr) return false;
    const Window& window = *found;
    // Where blocks help, a window is late for its first reader, so nothing is pinned for that
    // reader. In a warp the lanes may see different values here.
    if (Team::kAlone &&
        !has_arrived(system, static_cast<FrameIndex>(window.frame + first), window.generation))
        return false;
    const uint64_t count = count_adjacent(window, first, page, most);
    PageEntry* entries = nullptr;
    if (team.lane() == 0) {
        entries = pin_page(system, file, page).entry;
        // Checked after the pin. A thread that drops a file's pages first counts its epoch up and
        // then fails at this pin. Before the pin, the pages might have been dropped already for a
        // new open of the file.
        if (entries != nullptr && !is_current(system, file, window)) {
            unpin<DeviceWords>(*entries);
            entries = nullptr;
        }
    }
    entries = team.broadcast(entries, 0);
    if (entries == nullptr) return false;
    uint64_t mine = 0;
    for (uint32_t i = team.lane(); i < count; i += team.lanes()) {
        const Completion completion = SystemWords::load(
            system.completions[window.frame + first + i], site::kCompletion);
        const bool free = completion_generation(completion) == window.generation &&
                          completion_error(completion) == 0 &&
                          state_of(DeviceWords::load(entries[i], site::kRelaxed)) ==
                              PageState::kEmpty;
        if (free) mine |= 1ull << i;
    }
    const uint64_t all = team.unite(mine);
    uint32_t taken = 0;
    if (team.lane() == 0 && (all & 1) != 0) {
        const uint32_t length = first_stretch(all).count;
        const uint64_t wanted = (length == 64 ? ~0ull : (1ull << length) - 1) << first;
        const uint64_t had = take_places<Team>(*found, wanted);
        const Stretch got = first_stretch(had);
        if (had != 0 && got.first == first) taken = got.count;
        const uint64_t kept = taken == 0 ? 0 : taken == 64 ? ~0ull : ((1ull << taken) - 1) << first;
        if ((had & ~kept) != 0) DeviceWords::fetch_or(found->left, had & ~kept, site::kRelaxed);
    }
    if (team.lane() == 0 && taken == 0) unpin<DeviceWords>(*entries);
    taken = team.broadcast(taken, 0);
    if (taken == 0) return false;
    run.window = found;
    run.place = first;
    run.count = taken;
    run.entries = entries;
    team.sync();  // after this all lanes have acquired what each has
    return true;
}

// Moves the pages of a run into the page table after they have been copied. A page that another
// team has moved there meanwhile stays with the window, even if it was evicted since, because it
// may have been written.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE void end_run(const Team& team, FileSystemState& system,
                                               ReadaheadPlace& place, uint32_t file_slot,
                                               PageIndex page, const WindowRun& run) {
    const auto generation = static_cast<uint32_t>(run.window->generation);
    const FileState& file = system.files[file_slot];
    team.sync();  // all lanes have copied
    // The owner is stored first, because the page may be evicted once it is adopted. `pins` are
    // dropped.
    const auto adopt_page = [&](uint32_t i, uint64_t pins) {
        const auto frame = static_cast<FrameIndex>(run.window->frame + run.place + i);
        DeviceWords::store(system.owners[frame], make_owner(file_slot, page + i), site::kRelaxed);
        uint64_t seen = DeviceWords::load(run.entries[i], site::kLook);
        if (is_current(system, file, *run.window) &&
            adopt<DeviceWords>(run.entries[i], seen, frame, generation,
                               make_completion(generation, 0, 0), pins))
            return;
        DeviceWords::store(system.owners[frame], kFrameTaken, site::kRelaxed);
        // After the owner: otherwise a thread that drops the window could free the frame before it.
        DeviceWords::fetch_or(run.window->left, 1ull << (run.place + i), site::kFreeFrame);
        add_count(counts_of(system, &place, file_slot).used, ~0ull);  // one less than counted below
        if (pins != 0) unpin<DeviceWords>(run.entries[i]);
    };
    for (uint32_t i = team.lane(); i < run.count; i += team.lanes())
        if (i != 0) adopt_page(i, 0);
    team.sync();
    if (team.lane() != 0) return;
    adopt_page(0, 1);  // last: its pin has kept the leaf of all pages
    count_pages<Team>(system, place, file_slot, &FileCounts::used, run.count);
}

// How a page was taken from a window.
enum class Taken : uint32_t { kNot, kArrived, kLate };

// Takes a page from the windows of the call's stream, if one has it. The page was seen EMPTY and is
// pinned. Its entry becomes VALID, or FETCHING if the page is late.
PENSTOCK_DEVICE inline Taken take_from_windows(FileSystemState& system, ReadaheadPlace& place,
                                               const FileState& file, uint64_t owner,
                                               PageIndex page, PinnedEntry& pinned) {
    uint64_t p = 0;
    Window* const window = find_window(place, page, p);
    if (window == nullptr) return Taken::kNot;
    const uint64_t bit = 1ull << p;
    if ((DeviceWords::fetch_and(window->left, ~bit, site::kTakeFrame) & bit) == 0)
        return Taken::kNot;
    const auto frame = static_cast<FrameIndex>(window->frame + p);
    const Completion completion = SystemWords::load(system.completions[frame], site::kCompletion);
    const auto generation = static_cast<uint32_t>(window->generation);
    const bool arrived = completion_generation(completion) == generation;
    // A page that could not be read ahead is requested again by the call that wants it.
    const bool good = (!arrived || completion_error(completion) == 0) &&
                      is_current(system, file, *window);
    // The owner is stored first: once adopted, the page may be written, and written back.
    if (good) DeviceWords::store(system.owners[frame], owner, site::kRelaxed);
    if (!good || !adopt<DeviceWords>(*pinned.entry, pinned.seen, frame, generation, completion)) {
        DeviceWords::store(system.owners[frame], kFrameTaken, site::kRelaxed);
        DeviceWords::fetch_or(window->left, bit, site::kFreeFrame);  // as in end_run()
        return Taken::kNot;
    }
    return arrived ? Taken::kArrived : Taken::kLate;
}

// Drops a team's own windows before it waits for room, and those of another place that is idle.
PENSTOCK_DEVICE inline void give_up_windows(FileSystemState& system, ReadaheadPlace* mine) {
    if (system.places == nullptr) return;
    const auto give_up = [&](ReadaheadPlace& place) {
        for (ReadStream& stream : place.streams) {
            for (uint64_t i = 0; i < stream.windows_max; ++i) {
                Window& window = stream.windows[i];
                if (window.count == 0) continue;
                if (give_up_window(system, place, stream.file, window).freed > 0)
                    DeviceWords::fetch_add(stream.given_up, 1, site::kRelaxed);
            }
        }
    };
    if (mine != nullptr) give_up(*mine);
    const uint64_t hand = DeviceWords::fetch_add(system.ring_hand, 1, site::kRelaxed);
    ReadaheadPlace& other = system.places[hand % system.place_count];
    if (&other == mine || !try_lock(other.busy)) return;
    give_up(other);
    unlock(other.busy);
}

}  // namespace penstock::device
