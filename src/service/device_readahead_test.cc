// Goal: streams of reads get the windows that they should have, each page of a window is in one
// pair of hands at any time, and what is on its way when it is given up does no harm
// (device/readahead.cuh and what it includes). One thread; the host answers when the test says so.
#include "penstock/device/window_runs.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include "base/prng.h"
#include "page_cache/page_cache_fixture.h"
#include "penstock/device/file.cuh"
#include "request_queue/ring.h"
#include "testing/effort.h"

namespace penstock::service {
namespace {

using device::DeviceWords;
using device::SystemWords;

constexpr uint64_t kPage = 4096;
constexpr uint32_t kErrorIo = 5;
constexpr uint32_t kLeaves = 64;  // few, so that all entries are soon looked through

uint64_t mark_of(uint32_t slot, PageIndex page) { return uint64_t{slot + 1} << 40 | page; }

// A file system with a host that does nothing by itself.
class Host {
public:
    explicit Host(page_cache::Sizes sizes) : memory_((sizes.leaves = kLeaves, sizes)) {
        language::current_block = &block_;  // whose number is in every request
    }
    ~Host() { language::current_block = nullptr; }
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    FileSystemState& state() { return memory_.state(); }
    ReadaheadPlace& place(uint64_t index) { return state().places[index]; }
    Descriptor open(uint32_t slot, uint64_t pages) {
        FileState& file = memory_.file(slot);
        file.generation += 1 + file.generation % 2;
        file.size = pages * kPage;
        memory_.place_file(slot, uint64_t{slot} * 64, 64);
        return make_descriptor(state().system, slot, file.generation);
    }
    // Copies out what was asked for; nothing is answered yet.
    void collect() {
        FileSystemState& system = state();
        Request request;
        while (drain(background_, system.background, request)) {
            windows.push_back(request);
            pending.push_back(request);
        }
        while (drain(demand_, system.rings[0], request)) {
            ++demanded;
            pending.push_back(request);
        }
    }
    // Answers a request.
    void answer(const Request& request) {
        for (uint32_t i = 0; i < request.page_count; ++i) {
            const FrameIndex frame = request.frame + i;
            const bool bad = bad_page == request.page + i;
            mark_at(frame) = bad ? 0 : mark_of(request.file_slot, request.page + i);
            SystemWords::store(state().completions[frame],
                               make_completion(request.generation, bad ? kErrorIo : 0, 4096),
                               site::kComplete);
        }
    }
    void answer_all() {
        collect();
        for (const Request& request : pending) answer(request);
        pending.clear();
    }
    uint64_t& mark_at(FrameIndex frame) {
        return *reinterpret_cast<uint64_t*>(state().frames + frame * kPage);
    }
    // A read of whole pages by a block at `place`: 0, or what a page of it failed with. With
    // `late`, nothing is answered between what is asked for ahead and the pages being taken.
    int read(uint64_t place, Descriptor file, PageIndex first, uint64_t count, bool late = false) {
        const device::Solo team;
        const uint32_t slot = descriptor_slot(file);
        ReadaheadPlace* mine = device::begin_read(team, state(), static_cast<unsigned>(place), file,
                                                  static_cast<int64_t>(first * kPage),
                                                  count * kPage);
        if (late) {
            collect();
        } else {
            answer_all();
        }
        int error = 0;
        for (PageIndex page = first; page < first + count;) {
            const uint64_t run = mine == nullptr || mine->current == device::kNoStream
                                     ? 0
                                     : take_run(*mine, slot, page, first + count - page);
            if (run == 0) error = take_page(mine, file, page);
            page += run == 0 ? 1 : run;
        }
        device::end_read(mine);
        return error;
    }
    [[nodiscard]] int broken() { return page_cache::check_invariants(state()); }
    FileCounts counts(uint32_t slot) {
        FileCounts sum = state().totals[slot].counts;
        for (uint32_t i = 0; i < state().place_count; ++i) {
            const FileCounts& row = place(i).counts[slot % limits::kCountedMax];
            if (row.whose == slot + 1) for_each_count([&](auto word) { sum.*word += row.*word; });
        }
        return sum;
    }

    std::vector<Request> windows;  // all that were asked for
    std::deque<Request> pending;   // not answered yet
    uint64_t demanded = 0;
    PageIndex bad_page = ~0ull;

private:
    static bool drain(uint64_t& head, RingState& ring, Request& request) {
        return request_queue::drain<SystemWords, DeviceWords>(head, ring.slots, ring.shift,
                                                              &request, 1) == 1;
    }
    uint64_t take_run(ReadaheadPlace& mine, uint32_t slot, PageIndex page, uint64_t most) {
        const device::Solo team;
        device::WindowRun run;
        if (!device::begin_run(team, state(), mine, state().files[slot], page, most, run)) return 0;
        for (uint64_t i = 0; i < run.count; ++i) {
            const auto frame = static_cast<FrameIndex>(run.window->frame + run.place + i);
            EXPECT_EQ(mark_at(frame), mark_of(slot, page + i));
        }
        device::end_run(team, state(), mine, slot, page, run);
        return run.count;
    }
    int take_page(ReadaheadPlace* mine, Descriptor file, PageIndex page) {
        const device::Solo team;
        device::Batch<device::Solo> batch;
        for (int tries = 0; tries < 100; ++tries) {
            batch.first = page;
            batch.count = 1;
            EXPECT_EQ(device::hold_pages(team, state(), file, mine, batch, true), 0);
            if (batch.count == 1) break;
            device::give_up_windows(state(), mine);
            answer_all();
        }
        if (batch.count != 1) {
            ADD_FAILURE() << "no room";
            return 0;
        }
        PageEntry& entry = *batch.pages[0].entry;
        for (;;) {
            const uint64_t seen = device::publish_if_complete(
                state(), entry, DeviceWords::load(entry, site::kLook));
            if (state_of(seen) == PageState::kValid) {
                EXPECT_EQ(mark_at(frame_of(seen)), mark_of(descriptor_slot(file), page));
            }
            if (state_of(seen) != PageState::kFetching) {
                device::unpin_pages(team, batch, 0);
                return state_of(seen) == PageState::kValid ? 0 : -static_cast<int>(kErrorIo);
            }
            answer_all();
        }
    }

    language::Block block_;
    page_cache::Memory memory_;
    uint64_t background_ = 0, demand_ = 0;
};

TEST(WindowTest, PlacesAndPagesAreEachOthersInverse) {
    for (const uint64_t run : {1, 2, 3, 7, 64}) {
        for (int64_t step = -70; step <= 70; ++step) {
            // Runs of one window do not overlap: overlapping reads are asked for by what is new.
            if (step == 0 || static_cast<uint64_t>(step < 0 ? -step : step) < run) continue;
            Window window{};
            window.first = 10'000;
            window.step = step;
            window.run = run;
            window.count = 64 / run * run;
            std::vector<bool> in(20'000);
            for (uint64_t p = 0; p < window.count; ++p) {
                const PageIndex page = device::page_of(window, p);
                ASSERT_EQ(device::place_of(window, page), p) << run << ", " << step;
                in[page] = true;
            }
            for (PageIndex page = 5000; page < 15'000; ++page)
                ASSERT_EQ(device::place_of(window, page) < window.count, in[page]);
        }
    }
}

TEST(StreamTest, WindowsGrowAndFollowEachOther) {
    Host host({.frames = 4096});
    const Descriptor file = host.open(0, 1000);
    for (PageIndex page = 0; page < 1000; ++page) {
        ASSERT_EQ(host.read(0, file, page, 1), 0);
        ASSERT_EQ(host.broken(), 0) << page;
    }
    ASSERT_GE(host.windows.size(), 5u);
    EXPECT_EQ(host.windows[0].page_count, 9u) << "32 KiB behind the page that is read";
    PageIndex next = 1;
    uint32_t before = 0;
    for (const Request& window : host.windows) {
        EXPECT_EQ(window.page, next);
        // Shorter than the one before only at the end of a slab.
        EXPECT_GE(2 * window.page_count, std::min(before, 1000 - static_cast<uint32_t>(next)));
        EXPECT_LE(window.page_count, limits::kWindowPagesMax);
        before = window.page_count;
        next += window.page_count;
    }
    EXPECT_EQ(next, 1000u) << "each page once, to the end of the file";
    EXPECT_EQ(host.demanded, 1u);
    EXPECT_EQ(host.counts(0).wasted, 0u);
    EXPECT_EQ(host.counts(0).used, 999u);
    const bool large = std::ranges::any_of(
        host.windows, [](const Request& window) { return window.page_count == 64; });
    EXPECT_TRUE(large);
}

// Where storage is waited for, windows are asked for as many at once as make a request of 1 MiB, up
// to 4 MiB ahead.
TEST(StreamTest, WindowsOfWhatIsMissingComeTogether) {
    constexpr PageIndex kTogether = (1 << 20) / kPage, kAhead = 4 * kTogether;
    constexpr PageIndex kPages = testing::usually(20'000, 6 * kAhead);
    Host host({.frames = 32 * kTogether});
    const Descriptor file = host.open(0, kPages);
    host.state().files[0].missing = 1;
    host.state().rings[0].bells = 1;  // workers serve
    PageIndex frontier = 0, most = 0;
    size_t seen = 0;
    for (PageIndex page = 0; page < kPages; ++page) {
        ASSERT_EQ(host.read(0, file, page, 1), 0);
        ASSERT_EQ(host.broken(), 0) << page;
        const PageIndex before = frontier;
        for (; seen < host.windows.size(); ++seen) {
            ASSERT_EQ(host.windows[seen].page, std::max<PageIndex>(frontier, 1));
            frontier = host.windows[seen].page + host.windows[seen].page_count;
        }
        if (frontier > page) most = std::max(most, frontier - page - 1);
        if (frontier == before || page < 4 * kAhead || frontier == kPages) continue;
        EXPECT_GE(frontier - before, kTogether - limits::kWindowPagesMax) << page;
        EXPECT_LE(frontier - before, kTogether) << page;
    }
    EXPECT_LE(most, kAhead);
    EXPECT_GE(most, kAhead - limits::kWindowPagesMax);
    EXPECT_EQ(host.demanded, 1u);
    EXPECT_EQ(host.counts(0).wasted, 0u);
}

// Less lies ahead where windows may hold little: no read looks for room in vain again and again.
TEST(StreamTest, WhatIsMissingKeepsToItsRoom) {
    Host host({.frames = 1024});
    const Descriptor file = host.open(0, 4000);
    host.state().files[0].missing = 1;
    host.state().rings[0].bells = 1;  // workers serve
    for (PageIndex page = 0; page < 4000; ++page) {
        ASSERT_EQ(host.read(0, file, page, 1), 0);
        ASSERT_EQ(host.broken(), 0) << page;
        ASSERT_LE(host.state().window_frames, host.state().readahead.frames_max);
    }
    EXPECT_EQ(host.demanded, 1u);
    EXPECT_EQ(host.counts(0).used, 3999u);
    EXPECT_EQ(host.counts(0).wasted, 0u);
}

TEST(StreamTest, WasteHalvesAndThenDistrusts) {
    Host host({.frames = 4096});
    const Descriptor file = host.open(0, 20'000);
    // Pairs of pages, far apart.
    for (PageIndex pair = 0; pair < 60; ++pair) {
        for (PageIndex i = 0; i < 2; ++i) ASSERT_EQ(host.read(0, file, pair * pair * 5 + i, 1), 0);
        ASSERT_EQ(host.broken(), 0);
    }
    EXPECT_LE(host.windows.size(), 2 * limits::kStreamsMax) << "it has learnt";
    // A long stream is trusted in the end.
    const size_t before = host.windows.size();
    for (PageIndex page = 0; page < 300; ++page) ASSERT_EQ(host.read(0, file, 19'000 + page, 1), 0);
    EXPECT_GT(host.windows.size(), before + 3);
    ReadStream* grown = std::ranges::max_element(
        host.place(0).streams, {}, [](const ReadStream& stream) { return stream.used_at; });
    const uint64_t pages = grown->window_pages;
    EXPECT_GE(pages, 32u);
    // Its end is a waste, once, whatever number of windows lies ahead.
    for (uint64_t i = 0; i < limits::kStreamsMax; ++i) host.read(0, file, 500 + 1000 * i * i, 3);
    EXPECT_EQ(host.broken(), 0);
}

// Who finds no room has the windows of its stream go: the next ones are no longer for that.
TEST(StreamTest, WindowsThatHadToGoForRoomAreAWaste) {
    Host host({.frames = 4096});
    const Descriptor file = host.open(0, 4000);
    for (PageIndex page = 0; page < 200; ++page) ASSERT_EQ(host.read(0, file, page, 1), 0);
    ReadStream& stream = host.place(0).streams[host.place(0).current];
    const uint64_t pages = stream.window_pages, ahead = stream.ahead_pages;
    ASSERT_GT(pages, host.state().readahead.window_pages_min);
    ASSERT_GT(stream.window_count, 1u);
    // What is on its way still stays, and is no waste.
    for (uint64_t p = 0; p < host.state().frame_count; ++p) host.state().completions[p] ^= 1;
    device::give_up_windows(host.state(), &host.place(0));
    EXPECT_EQ(stream.given_up, 0u);
    for (uint64_t p = 0; p < host.state().frame_count; ++p) host.state().completions[p] ^= 1;
    device::give_up_windows(host.state(), &host.place(0));
    EXPECT_GT(host.counts(0).wasted, 0u);
    ASSERT_EQ(host.read(0, file, 200, 1), 0);
    EXPECT_EQ(stream.window_pages, pages / 2) << "once, whatever number of windows it were";
    EXPECT_LT(stream.ahead_pages, ahead);
    EXPECT_EQ(stream.given_up, 0u);
    EXPECT_EQ(host.broken(), 0);
    for (PageIndex page = 201; page < 1000; ++page) ASSERT_EQ(host.read(0, file, page, 1), 0);
    EXPECT_GE(stream.window_pages, pages) << "it grows again";
    EXPECT_EQ(host.broken(), 0);
}

TEST(StreamTest, BackwardsAndAtADistance) {
    for (const uint64_t run : {1, 2, 3}) {
        for (const int64_t step : {-1, 2, -2, 3, -3, 7, -7, 40}) {
            Host host({.frames = 8192});
            const Descriptor file = host.open(0, 4000);
            std::vector<bool> wanted(4000);
            const int64_t first = step < 0 ? 3900 : 0;
            for (int64_t i = 0; i < 90; ++i) {
                const auto page = static_cast<PageIndex>(first + i * step);
                ASSERT_EQ(host.read(0, file, page, run), 0);
                for (uint64_t k = 0; k < run; ++k) wanted[page + k] = true;
                ASSERT_EQ(host.broken(), 0);
            }
            EXPECT_LE(host.demanded, 3 * run) << "run " << run << ", step " << step;
            uint64_t astray = 0;
            for (const Request& window : host.windows) {
                for (uint32_t i = 0; i < window.page_count; ++i) astray += !wanted[window.page + i];
            }
            const uint64_t gaps = host.counts(0).prefetched - host.counts(0).used;
            EXPECT_LE(astray, gaps) << "no page between those that are read";
        }
    }
}

TEST(StreamTest, SeveralFilesAndPlacesInAPlaceOfABlock) {
    Host host({.frames = 8192, .teams = 2});
    std::vector<Descriptor> files;
    for (uint32_t slot = 0; slot < limits::kStreamsMax; ++slot)
        files.push_back(host.open(slot, 500));
    for (PageIndex page = 0; page < 400; ++page) {
        for (const Descriptor file : files) {
            ASSERT_EQ(host.read(0, file, page, 1), 0);
            ASSERT_EQ(host.broken(), 0);
        }
    }
    EXPECT_EQ(host.demanded, limits::kStreamsMax) << "the first page of each";
    for (uint32_t slot = 0; slot < limits::kStreamsMax; ++slot)
        EXPECT_EQ(host.counts(slot).used, 399u);
    // One file more than streams are followed: no windows, and no harm.
    files.push_back(host.open(limits::kStreamsMax, 500));
    for (PageIndex page = 400; page < 450; ++page) {
        for (const Descriptor file : files) ASSERT_EQ(host.read(0, file, page, 1), 0);
        ASSERT_EQ(host.broken(), 0);
    }
}

TEST(StreamTest, WhatIsGivenUpOnItsWayIsFreedWhenItHasArrived) {
    Host host({.frames = 1024});
    const Descriptor file = host.open(0, 10'000);
    host.state().files[0].advice = make_advice(Advice::kSequential, 1, 0);
    // Windows of as many streams as there are, none of them answered.
    for (PageIndex i = 0; i < 2 * limits::kStreamsMax; ++i) {
        ReadaheadPlace* place = device::begin_read(device::Solo{}, host.state(), 0, file,
                                                   static_cast<int64_t>(i * 1000 * kPage), kPage);
        ASSERT_NE(place, nullptr);
        device::give_up_windows(host.state(), place);
        device::end_read(place);
        host.collect();
        ASSERT_EQ(host.broken(), 0) << "frames that bytes may yet come into are the windows'";
    }
    const uint64_t held = host.state().window_frames;
    EXPECT_GT(held, 0u);
    EXPECT_LE(held, host.state().readahead.frames_max);
    // They come, one by one; then others take them.
    while (!host.pending.empty()) {
        host.answer(host.pending.front());
        host.pending.pop_front();
        ASSERT_EQ(host.broken(), 0);
    }
    for (PageIndex page = 9000; page < 9900; ++page) {
        ASSERT_EQ(host.read(0, file, page, 1), 0);
        ASSERT_EQ(host.broken(), 0);
    }
    EXPECT_GE(host.counts(0).wasted, held);
}

TEST(StreamTest, AnotherPlaceMayTakeTheFramesOfIdleWindows) {
    Host host({.frames = 64, .teams = 2, .permits = 2});
    const Descriptor file = host.open(0, 10'000);
    host.state().files[0].advice = make_advice(Advice::kSequential, 1, 0);
    for (const PageIndex page : {0, 1000, 2000}) ASSERT_EQ(host.read(0, file, page, 1), 0);
    EXPECT_EQ(host.broken(), 0);
    EXPECT_GT(host.state().window_frames, 0u);
    // All other frames are held: a team that needs one takes it from the windows.
    std::vector<device::PinnedEntry> held;
    host.state().files[0].advice = make_advice(Advice::kRandom, 1, 0);
    for (PageIndex page = 5000; page < 5063; ++page) {
        ASSERT_EQ(host.read(1, file, page, 1), 0) << page;
        held.push_back(device::pin_page(host.state(), host.state().files[0], page));
    }
    for (const device::PinnedEntry& pinned : held) device::unpin<DeviceWords>(*pinned.entry);
    EXPECT_EQ(host.broken(), 0);
}

TEST(StreamTest, ABadPageIsAskedForAgainByWhoWantsIt) {
    Host host({.frames = 1024});
    const Descriptor file = host.open(0, 300);
    host.bad_page = 40;
    for (PageIndex page = 0; page < 100; ++page)
        ASSERT_EQ(host.read(0, file, page, 1), page == 40 ? -static_cast<int>(kErrorIo) : 0);
    EXPECT_EQ(host.demanded, 2u) << "the first page, and the bad one by itself";
    host.bad_page = ~0ull;
    EXPECT_EQ(host.read(0, file, 40, 1), 0);
    EXPECT_EQ(host.broken(), 0);
}

TEST(StreamTest, NothingIsTakenFromWindowsOfBefore) {
    Host host({.frames = 1024});
    const Descriptor file = host.open(0, 300);
    for (PageIndex page = 0; page < 4; ++page) ASSERT_EQ(host.read(0, file, page, 1), 0);
    const uint64_t demanded = host.demanded;
    ++host.state().files[0].epoch;
    for (PageIndex page = 4; page < 7; ++page) {
        ASSERT_EQ(host.read(0, file, page, 1), 0);
        EXPECT_EQ(host.demanded, demanded + page - 3);
        ASSERT_EQ(host.broken(), 0);
    }
}

// Blocks in turn, at their places, with files, sizes and steps of all kinds; the host answers when
// it likes, in any order.
TEST(StreamTest, EveryOrderKeepsTheInvariants) {
    constexpr uint64_t kSeeds = testing::usually(40, 4);
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        base::Prng prng(seed);
        const auto places = static_cast<uint32_t>(1 + prng.below(3));
        const uint64_t frames = places + prng.below(seed % 2 == 0 ? 40 : 900);
        const auto policy = static_cast<ReplacementPolicy>(prng.below(3));
        // All that fits beside the page that is missed.
        const uint64_t prefetch = prng.below(4) == 0 && frames >= 8 ? frames / 4 - 1 : 0;
        Host host({.frames = frames,
                   .teams = places,
                   .permits = places,
                   .policy = policy,
                   .prefetch_size = std::min<uint64_t>(prefetch, 63) * kPage});
        std::vector<Descriptor> files;
        for (uint32_t slot = 0; slot < 6; ++slot) files.push_back(host.open(slot, 600));
        struct Reader {
            uint32_t file;
            int64_t page, step;
            uint64_t size;
        };
        std::vector<Reader> readers(2 * places);
        for (int i = 0; i < 1500; ++i) {
            Reader& reader = readers[prng.below(readers.size())];
            if (prng.below(30) == 0 || reader.size == 0 || reader.page < 0 || reader.page > 590) {
                const auto size = static_cast<int64_t>(1 + prng.below(4));
                const std::array<int64_t, 6> steps = {size, size, 1, -1, -size, 5};
                reader = {static_cast<uint32_t>(prng.below(files.size())),
                          static_cast<int64_t>(prng.below(590)), steps[prng.below(6)],
                          static_cast<uint64_t>(size)};
            }
            if (prng.below(60) == 0) {
                const auto advice = static_cast<Advice>(prng.below(3));
                host.state().files[reader.file].advice = make_advice(advice, 1, 0);
            }
            if (prng.below(200) == 0) ++host.state().files[reader.file].epoch;
            const auto place = static_cast<uint64_t>(&reader - readers.data()) % places;
            ASSERT_EQ(host.read(place, files[reader.file], static_cast<PageIndex>(reader.page),
                                reader.size, prng.below(2) == 0),
                      0);
            reader.page += reader.step;
            ASSERT_EQ(host.broken(), 0) << "seed " << seed << ", step " << i;
            if (prng.below(3) == 0 && !host.pending.empty()) {
                const size_t which = prng.below(host.pending.size());
                host.answer(host.pending[which]);
                host.pending.erase(host.pending.begin() + static_cast<ptrdiff_t>(which));
                ASSERT_EQ(host.broken(), 0) << "seed " << seed << ", step " << i;
            }
        }
        host.answer_all();
        ASSERT_EQ(host.broken(), 0) << "seed " << seed;
    }
}

}  // namespace
}  // namespace penstock::service
