// Programs for the page cache: teams that read pages through the whole device half, and a worker.
//
// A page's bytes are one cell of the frame that holds it, so a page read before it arrived, filled
// under a reader, or found in the wrong frame is a race or a wrong value.
#include "memory_model/production_cache.h"

#include <memory>
#include <string>

#include "memory_model/scenarios.h"
#include "request_queue/ring.h"

namespace penstock::memory_model {

namespace {

constexpr int kFramesMax = 2;
constexpr int kStagingMax = 2;
constexpr int kLeavesMax = 2;
constexpr int kDirectoryMax = 2;
constexpr int kRingShift = 1;
constexpr uint32_t kFailure = 5;  // EIO

constexpr uint64_t bytes_of(PageIndex page) { return 0x1000 + page; }

// A file system of one file, and which of its words the program has.
struct System {
    FileSystemState state{};
    FileState file{};
    FileTotals totals{};
    std::array<uint64_t, kFramesMax> completions{}, owners{};
    std::array<uint64_t, kLeavesMax * limits::kLeafEntries> leaves{};
    std::array<uint64_t, kLeavesMax> leaf_owners{}, leaf_locks{};
    std::array<uint64_t, kDirectoryMax> directory{};
    std::array<uint64_t, 4 << kRingShift> slots{};
    std::array<Cell, kFramesMax> frames{};
    uint64_t head = 0;
    // Where teams copy pages themselves: pages in the host's memory, and places that stand for them
    // and for frames, whose pages have one byte.
    std::array<uint64_t, 1 << kRingShift> answers{};
    std::array<Cell, kStagingMax> staging{};
    struct alignas(4096) Place {};  // as pages, which answers tell of
    std::array<Place, kStagingMax> staging_places{};
    std::array<std::byte, kFramesMax> frame_places{};
    AddressMap map;
};

using Team = device_explored::LoneTeam<1>;

// Copies a cell of the host's memory into a frame's. A team of one page pulls none.
struct PullingTeam : device_explored::LoneTeam<2> {
    explicit PullingTeam(System& files) : system(files) {}
    System& system;
    void copy(std::byte* to, const std::byte* from, size_t) const {
        const auto frame = static_cast<size_t>(to - system.frame_places.data());
        const auto* place = reinterpret_cast<const System::Place*>(from);
        const auto staged = static_cast<size_t>(place - system.staging_places.data());
        write(system.frames[frame], read(system.staging[staged]));
    }
};

struct CacheForm {
    std::string name;
    int frames = 1;
    bool leaf_reuse = false;  // one leaf for two directory words; else each word has its leaf for
                              // good
    std::vector<PageIndex> resident{};              // [i] lies in frame i at the start
    std::vector<std::vector<PageIndex>> readers{};  // a team for each: the pages that it reads in
                                                    // turn
    int failures = 0;  // fills that the worker answers with an errno, the first ones
    int tries = 1;     // of a team that found no frame or leaf
    int givers = 0;    // teams that take a frame and find that they do not need it
    int installs = 1;  // that a team begins in one try
    int staging = 0;   // pages of the host's memory; 0: teams do not copy from there
    bool deferrals = true;
};

// Reads pages as read_part of device/file.cuh does. Registers: tries so far, pages read.
template <class AnyTeam>
Next read_pages(const AnyTeam& team, System& system, Registers& r,
                const std::vector<PageIndex>& pages, const CacheForm& form) {
    const PageIndex page = pages[r[1]];
    device_explored::Batch<AnyTeam> batch;
    batch.first = page;
    batch.count = 1;
    if (!device_explored::pin_pages(team, system.state, system.file, nullptr, batch)) {
        device_explored::fetch_pages(team, system.state, 0, nullptr, batch, true);
    }
    if (batch.count == 0)
        return ++r[0] < static_cast<uint64_t>(form.tries) ? Next::kAgain : Next::kDone;
    device_explored::PinnedEntry& pinned = batch.pages[0];
    int error = 0;
    if (state_of(pinned.seen) != PageState::kValid) {
        error = device_explored::wait_for_page(system.state, *pinned.entry, pinned.seen);
    }
    if (error == 0) {
        check(read(system.frames[frame_of(pinned.seen)]) == bytes_of(page), "another page's bytes");
    } else {
        check(form.failures != 0 && error == -static_cast<int>(kFailure),
              "an error that nobody gave");
    }
    device_explored::unpin_pages(team, batch, 0);
    return ++r[1] == pages.size() ? Next::kDone : Next::kAgain;
}

// A page by an answer, not over one that a team may be copying still. Register 0: fills so far;
// 1 and on: of each page of staging, the ticket of its last fill + 1.
Next offer(System& system, Registers& r, const CacheForm& form) {
    size_t place = 0;
    const auto is_free = [&](size_t i) {
        if (r[1 + i] == 0) return true;
        const uint64_t ticket = r[1 + i] - 1;
        const uint64_t& slot = system.slots[4 * (ticket & ((1 << kRingShift) - 1))];
        return (AddressWords::load(slot, site::kRefill) & 0xff) != lap_of(ticket, kRingShift);
    };
    while (place < static_cast<size_t>(form.staging) && !is_free(place)) ++place;
    if (place == static_cast<size_t>(form.staging)) return Next::kRetry;
    Request request;
    if (request_queue::drain<AddressWords, UpdatedAddressWords>(system.head, system.slots.data(),
                                                                kRingShift, &request, 1) == 0) {
        return Next::kRetry;
    }
    check(request.kind == RequestKind::kPullPage, "a team that pulls has said so");
    write(system.staging[place], bytes_of(request.page));
    r[1 + place] = request.ticket + 1;
    AddressWords::store(
        system.answers[request.ticket & ((1 << kRingShift) - 1)],
        make_answer(&system.staging_places[place], lap_of(request.ticket, kRingShift), false),
        site::kComplete);
    return Next::kAgain;
}

// Register 0: fills so far.
Next serve(System& system, Registers& r, const CacheForm& form) {
    Request request;
    if (request_queue::drain<AddressWords, UpdatedAddressWords>(system.head, system.slots.data(),
                                                                kRingShift, &request, 1) == 0) {
        return Next::kRetry;
    }
    check(completion_generation(
              AddressWords::load(system.completions[request.frame], site::kRelaxed)) +
                  1 ==
              request.generation,
          "a fill with a generation that is not the next");
    const bool fails = ++r[0] <= static_cast<uint64_t>(form.failures);
    write(system.frames[request.frame], fails ? 0 : bytes_of(request.page));
    AddressWords::store(system.completions[request.frame],
                        make_completion(request.generation, fails ? kFailure : 0, 4096),
                        site::kComplete);
    return Next::kAgain;
}

// What is where before the program runs; all of it ordered before every thread.
void lay_out(System& system, const CacheForm& form) {
    FileSystemState& state = system.state;
    state.frame_count = static_cast<uint32_t>(form.frames);
    state.leaves_in_use = state.leaf_count = form.leaf_reuse ? 1 : 2;
    state.ring_count = 1;
    state.directory_size = kDirectoryMax;
    state.completions = system.completions.data();
    state.owners = system.owners.data();
    state.leaves = system.leaves.data();
    state.leaf_owners = system.leaf_owners.data();
    state.leaf_locks = system.leaf_locks.data();
    state.directory = system.directory.data();
    state.files = &system.file;
    state.totals = &system.totals;
    state.rings[0].slots = system.slots.data();
    state.rings[0].shift = kRingShift;
    state.frames = system.frame_places.data();
    if (form.staging > 0) state.rings[0].answers = system.answers.data();
    system.owners.fill(kFrameFree);
    for (uint64_t i = 0; i < state.leaf_count; ++i) {
        system.directory[i] = i + 1;
        system.leaf_owners[i] = i + 1;
    }
    for (size_t frame = 0; frame < form.resident.size(); ++frame) {
        system.completions[frame] = make_completion(1, 0, 4096);
        system.owners[frame] = make_owner(0, form.resident[frame]);
        system.leaves[form.resident[frame]] = make_entry(PageState::kValid,
                                                         static_cast<FrameIndex>(frame), 1, 0);
    }
}

void name_words(Program& program, System& system, const CacheForm& form) {
    const auto add = [&](const std::string& name, uint64_t& at, bool updated) {
        system.map.add(at, program.word(name, at, updated));
    };
    for (size_t i = 0; i < (form.leaf_reuse ? limits::kLeafEntries : system.leaves.size()); ++i) {
        add("entry" + std::to_string(i), system.leaves[i], true);
    }
    for (int i = 0; i < form.frames; ++i) {
        add("owner" + std::to_string(i), system.owners[i], true);
        add("completion" + std::to_string(i), system.completions[i], false);
        system.frames[i] = program.cell("frame" + std::to_string(i));
        if (static_cast<size_t>(i) < form.resident.size()) {
            program.cell_values[i] = bytes_of(form.resident[i]);
        }
    }
    if (form.leaf_reuse) {
        for (int i = 0; i < kDirectoryMax; ++i)
            add("directory" + std::to_string(i), system.directory[i], true);
        add("leaf_owner", system.leaf_owners[0], false);
        add("leaf_lock", system.leaf_locks[0], true);
        add("leaves_in_use", system.state.leaves_in_use, true);
    }
    for (int i = 0; i < form.staging; ++i)
        system.staging[i] = program.cell("staging" + std::to_string(i));
    for (size_t i = 0; form.staging > 0 && i < system.answers.size(); ++i)
        add("answer" + std::to_string(i), system.answers[i], false);
    system.map.counter(system.state.leaf_hand, form.installs);
    // CLOCK looks at one frame: a team that finds it in use is left out, as it could have looked
    // later.
    system.map.counter(system.state.clock_hand, 1);
    add("tail", system.state.rings[0].tail, true);
    add("head", system.head, true);
    for (size_t i = 0; i < system.slots.size(); ++i) {
        add("slot" + std::to_string(i / 4) + "." + std::to_string(i % 4), system.slots[i], false);
    }
}

Program cache_program(const CacheForm& form) {
    Program program;
    program.name = form.name;
    program.deferrals = form.deferrals;
    const auto system = std::make_shared<System>();
    lay_out(*system, form);
    name_words(program, *system, form);
    uint64_t hand = 0;
    for (const std::vector<PageIndex>& pages : form.readers) {
        program.thread("reads " + std::to_string(pages[0]), [=](Registers& r) {
            use(system->map, hand);
            if (form.staging > 0) return read_pages(PullingTeam(*system), *system, r, pages, form);
            return read_pages(Team(), *system, r, pages, form);
        });
        ++hand;
    }
    for (int i = 0; i < form.givers; ++i) {
        program.thread("gives back", [=](Registers&) {
            use(system->map);
            if (device_explored::take_frame_at(system->state, 0))
                device_explored::give_frame_back(system->state, 0);
            return Next::kDone;
        });
    }
    program.server("worker", [=](Registers& r) {
        use(system->map);
        return form.staging > 0 ? offer(*system, r, form) : serve(*system, r, form);
    });
    return program;
}

}  // namespace

std::vector<Program> cache_programs(bool nightly) {
    std::vector<Program> programs;
    const auto add = [&](const CacheForm& form) { programs.push_back(cache_program(form)); };
    add({.name = "two teams read one absent page", .readers = {{0}, {0}}});
    add({.name = "a page is evicted for another under its readers",
         .resident = {0},
         .readers = {{0}, {1}}});
    add({.name = "a leaf goes to other pages under a reader",
         .leaf_reuse = true,
         .readers = {{0}, {2}}});
    add({.name = "a fill fails and is asked for again", .readers = {{0}, {0}}, .failures = 1});
    add({.name = "a frame is given back", .resident = {0}, .readers = {{0}, {1}}, .givers = 1});
    add({.name = "a leaf is reused and its page's frame freed",
         .leaf_reuse = true,
         .resident = {0},
         .readers = {{0}, {2}}});
    add({.name = "two frames, one is given back",
         .frames = 2,
         .resident = {0},
         .readers = {{0}, {1}, {1}}});
    add({.name = "two teams want one page, and one copies it",
         .readers = {{0}, {0}},
         .staging = 1});
    add({.name = "the host's memory is used again",
         .frames = 2,
         .readers = {{0}, {1}},
         .staging = 1});
    if (!nightly) return programs;
    add({.name = "two frames, one is given back and taken",
         .frames = 2,
         .resident = {0},
         .readers = {{0}, {1}, {1, 2}}});
    add({.name = "a leaf is reused, another team takes its page's frame",
         .leaf_reuse = true,
         .resident = {0},
         .readers = {{0}, {2}, {3}},
         .deferrals = false});
    return programs;
}

}  // namespace penstock::memory_model
