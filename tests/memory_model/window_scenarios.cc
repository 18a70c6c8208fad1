// Programs for windows of readahead (device/readahead.cuh): pages are taken while they are on their
// way, windows are given up, and a file's pages are dropped while a run of a window is taken.
//
// As in cache_scenarios.cc, a page's bytes are one cell of its frame. The window's request has been
// submitted before the program begins; the worker answers it first.
#include <memory>
#include <string>

#include "memory_model/production_cache.h"
#include "memory_model/scenarios.h"
#include "memory_model/windowed_file.h"
#include "request_queue/ring.h"

namespace penstock::memory_model {

namespace {

using Team = device_explored::LoneTeam<1>;

constexpr int kRingShift = 1;

constexpr uint64_t bytes_of(PageIndex page) { return 0x1000 + page; }

struct System : WindowedFile<2> {
    std::array<uint64_t, 4 << kRingShift> slots{};
    uint64_t head = 0;
};

struct WindowForm {
    std::string name;
    uint64_t count = 1;     // pages of the window, in frames 0, 1, ...
    FrameIndex frames = 1;  // of the cache
    bool arrived = false;   // before the program begins
    bool takes = false;     // the window's team reads its page, on its way or not
    bool gives_up = false;  // it gives the window up
    bool runs = false;      // it takes the window's pages as a run
    bool drops = false;     // the host drops the file's pages for who opens it anew
    int others = 0;         // teams that read page 1 without windows
    // Canaries: what must be found.
    bool frees_too_soon = false;   // the window's frame is freed, arrived or not
    bool counts_too_late = false;  // the host counts the epoch up behind the drop
};

void lay_out(System& system, const WindowForm& form) {
    system.lay_out(form.frames, form.count, form.arrived);
    FileSystemState& state = system.state;
    state.ring_count = 1;
    state.rings[0].slots = system.slots.data();
    state.rings[0].shift = kRingShift;
    state.policy = ReplacementPolicy::kGlobalLra;
}

void name_words(Program& program, System& system, const WindowForm& form) {
    const auto add = [&](const std::string& name, uint64_t& at, bool updated) {
        system.map.add(at, program.word(name, at, updated));
    };
    for (uint64_t i = 0; i < limits::kLeafEntries; ++i)
        add("entry" + std::to_string(i), system.leaves[i], true);
    for (FrameIndex i = 0; i < form.frames; ++i) {
        add("owner" + std::to_string(i), system.owners[i], true);
        add("completion" + std::to_string(i), system.completions[i], false);
        system.frames[i] = program.cell("frame" + std::to_string(i));
        if (form.arrived && i < form.count) program.cell_values[i] = bytes_of(i);
    }
    add("left", system.window().left, true);
    if (form.drops) {
        add("epoch", system.file.epoch, false);
        add("directory0", system.directory[0], true);
        add("leaf_owner", system.leaf_owners[0], false);
        add("leaf_lock", system.leaf_locks[0], true);
    }
    system.map.counter(system.state.leaf_hand, 1);
    system.map.counter(system.state.clock_hand, 2);
    if (form.others == 0 && !form.takes) return;
    add("tail", system.state.rings[0].tail, true);
    add("head", system.head, true);
    for (size_t i = 0; i < system.slots.size(); ++i)
        add("slot" + std::to_string(i / 4) + "." + std::to_string(i % 4), system.slots[i], false);
}

// A page by itself, with the window's place or none. Register 0: tries so far.
Next read_page(System& system, Registers& r, PageIndex page, ReadaheadPlace* place) {
    constexpr uint64_t kTries = 2;  // of a team that found no frame
    const Team team;
    device_explored::Batch<Team> batch;
    batch.first = page;
    batch.count = 1;
    if (!device_explored::pin_pages(team, system.state, system.file, place, batch))
        device_explored::fetch_pages(team, system.state, 0, place, batch, true);
    if (batch.count == 0) return ++r[0] < kTries ? Next::kAgain : Next::kDone;
    device_explored::PinnedEntry& pinned = batch.pages[0];
    if (state_of(pinned.seen) != PageState::kValid)
        (void)device_explored::wait_for_page(system.state, *pinned.entry, pinned.seen);
    check(read(system.frames[frame_of(pinned.seen)]) == bytes_of(page), "another page's bytes");
    device_explored::unpin_pages(team, batch, 0);
    return Next::kDone;
}

Next take_run(System& system) {
    const Team team;
    device_explored::WindowRun run;
    if (!device_explored::begin_run(team, system.state, system.place, system.file, 0,
                                    system.window().count, run))
        return Next::kDone;
    for (uint32_t i = 0; i < run.count; ++i)
        check(read(system.frames[run.place + i]) == bytes_of(i), "another page's bytes");
    device_explored::end_run(team, system.state, system.place, 0, 0, run);
    return Next::kDone;
}

// The file has changed: its pages go, and who opens it then must find none of them. Register 0: the
// pages are gone.
Next drop_file(System& system, Registers& r, bool too_late) {
    using device_explored::DeviceWords;
    if (r[0] == 0) {
        if (!too_late) DeviceWords::store(system.file.epoch, 1, site::kPublish);
        const bool dropped = device_explored::drop_leaf(system.state, 0);
        if (too_late) DeviceWords::store(system.file.epoch, 1, site::kPublish);
        if (!dropped) return Next::kDone;  // a page is held: another slot serves who opens the file
        r[0] = 1;
        return Next::kAgain;
    }
    const device_explored::PinnedEntry pinned = device_explored::pin_page(system.state, system.file,
                                                                          0);
    if (pinned.entry == nullptr) return Next::kDone;
    check(state_of(pinned.seen) != PageState::kValid, "who opens the file anew finds old bytes");
    device_explored::unpin<DeviceWords>(*pinned.entry);
    return Next::kDone;
}

// Register 0: the window was answered.
Next serve(System& system, Registers& r, const WindowForm& form) {
    if (r[0] == 0) {
        r[0] = 1;
        for (uint64_t i = 0; !form.arrived && i < form.count; ++i) {
            write(system.frames[i], bytes_of(i));
            AddressWords::store(system.completions[i], make_completion(kWindowGeneration, 0, 4096),
                                site::kComplete);
        }
        if (!form.arrived) return Next::kAgain;
    }
    Request request;
    if (request_queue::drain<AddressWords, UpdatedAddressWords>(system.head, system.slots.data(),
                                                                kRingShift, &request, 1) == 0) {
        return Next::kRetry;
    }
    write(system.frames[request.frame], bytes_of(request.page));
    AddressWords::store(system.completions[request.frame],
                        make_completion(request.generation, 0, 4096), site::kComplete);
    return Next::kAgain;
}

Program window_program(const WindowForm& form) {
    Program program;
    program.name = form.name;
    program.deferrals = form.others == 0 && !form.takes;
    const auto system = std::make_shared<System>();
    lay_out(*system, form);
    name_words(program, *system, form);
    const auto thread = [&](const char* name, auto body) {
        program.thread(name, [=](Registers& r) {
            use(system->map);
            return body(*system, r);
        });
    };
    if (form.takes)
        thread("takes", [](System& s, Registers& r) { return read_page(s, r, 0, &s.place); });
    if (form.runs) thread("takes a run", [](System& s, Registers&) { return take_run(s); });
    if (form.gives_up) {
        thread("gives up", [](System& s, Registers&) {
            (void)device_explored::give_up_window(s.state, s.place, 0, s.window());
            return Next::kDone;
        });
    }
    if (form.frees_too_soon) {
        thread("frees", [](System& s, Registers&) {
            device_explored::give_frame_back(s.state, 0);
            return Next::kDone;
        });
    }
    for (int i = 0; i < form.others; ++i)
        thread("reads", [](System& s, Registers& r) { return read_page(s, r, 1, nullptr); });
    if (form.drops) {
        const bool too_late = form.counts_too_late;
        thread("drops", [=](System& s, Registers& r) { return drop_file(s, r, too_late); });
    }
    if (!form.arrived || form.others > 0) {
        program.server("worker", [=](Registers& r) {
            use(system->map);
            return serve(*system, r, form);
        });
    }
    return program;
}

}  // namespace

std::vector<Program> window_programs(bool) {
    std::vector<Program> programs;
    const auto add = [&](const WindowForm& form) { programs.push_back(window_program(form)); };
    WindowForm form{.name = "a page of a window is taken and its frame used again"};
    form.takes = true;
    form.others = 1;
    add(form);
    form = {.name = "a window is given up and its frame used again"};
    form.gives_up = true;
    form.others = 1;
    add(form);
    form = {.name = "a window is given up while its page is taken"};
    form.gives_up = form.takes = true;
    form.count = form.frames = 2;
    add(form);
    form = {.name = "a run is taken while the file's pages are dropped"};
    form.runs = form.drops = form.arrived = true;
    add(form);
    form = {.name = "a run of two is taken while the file's pages are dropped"};
    form.runs = form.drops = form.arrived = true;
    form.count = form.frames = 2;
    add(form);
    form = {.name = "a run is taken and its frame used again"};
    form.runs = form.arrived = true;
    form.others = 1;
    add(form);
    return programs;
}

std::vector<Program> window_canaries() {
    std::vector<Program> programs;
    WindowForm form{.name = "canary: a window's frame is freed before its bytes have come"};
    form.frees_too_soon = true;
    form.others = 1;
    programs.push_back(window_program(form));
    form = {.name = "canary: the epoch is counted up behind the drop"};
    form.runs = form.drops = form.arrived = form.counts_too_late = true;
    programs.push_back(window_program(form));
    return programs;
}

}  // namespace penstock::memory_model
