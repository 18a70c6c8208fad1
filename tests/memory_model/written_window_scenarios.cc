// Programs for windows on files that are written (device/write_sequence.cuh): a page of a window is
// written, goes to the file and leaves the cache, or is cut off the file, while the window is asked
// for, arrives and is taken.
//
// A page's bytes are the number of the write that they are of: one cell of its frame, and one word
// of the file, which the host reads and writes by read-modify-writes, as an operating system shows
// what was written last. The last page of the window is written.
#include <memory>
#include <string>

#include "memory_model/production_cache.h"
#include "memory_model/scenarios.h"
#include "memory_model/windowed_file.h"

namespace penstock::memory_model {

namespace {

using Team = device_explored::LoneTeam<1>;
using device_explored::DeviceWords;
using device_explored::SystemWords;

struct WrittenForm {
    std::string name;
    uint64_t count = 1;  // pages of the window, in frames 0, 1, ...; the writer's frame is behind
    bool posts = false;  // the window is asked for by the program, else has arrived before it
    bool tells = false;  // the reader reads behind the write, else beside it
    bool cuts = false;   // the page is cut off, not written
    bool reopened = false;  // the file is opened for the write, and for reading again behind it
    bool deferrals = true;
    // Canaries: what must be found.
    bool keeps_entries = false;    // a truncation does not renew the entry of an absent page
    bool counts_too_late = false;  // the write is counted behind the page's leaving
    bool stamps_too_late = false;  // the stamp is taken behind the look
    bool keeps_epoch = false;      // who opens the file for the first time trusts its windows
};

// The file is open for writing.
struct WrittenSystem : WindowedFile<3> {
    std::array<uint64_t, 1> sequences{};
    uint64_t bytes = 0;    // of the written page in the file
    uint64_t request = 0;  // 1: the window was asked for
    uint64_t brought = 0;  // what of them is in the window
    uint64_t told = 0;     // 1: the write is over
};

void lay_out(WrittenSystem& system, const WrittenForm& form) {
    system.lay_out(3, form.count, !form.posts);
    system.state.sequences = system.sequences.data();
    system.state.sequence_count = 1;
    system.owners.fill(kFrameTaken);
    system.file.writing = form.reopened ? 0 : kWriting;
    system.window().stamp = 1;  // nothing was counted
}

void name_words(Program& program, WrittenSystem& system, const WrittenForm& form) {
    const auto add = [&](const std::string& name, uint64_t& at, bool updated) {
        system.map.add(at, program.word(name, at, updated));
    };
    for (uint64_t i = 0; i < form.count; ++i) {
        add("entry" + std::to_string(i), system.leaves[i], true);
        if (form.posts) add("completion" + std::to_string(i), system.completions[i], false);
    }
    for (FrameIndex i = 0; i <= form.count; ++i)
        system.frames[i] = program.cell("frame" + std::to_string(i));
    add("left", system.window().left, true);
    add("sequence", system.sequences[0], true);
    add("bytes", system.bytes, true);
    add("told", system.told, false);
    if (form.cuts) add("cuts", system.file.cuts, true);
    if (form.reopened) add("writing", system.file.writing, false);
    if (form.reopened) add("epoch", system.file.epoch, true);
    if (!form.posts) return;
    add("request", system.request, false);
    add("brought", system.brought, false);
}

// Register 0: steps so far.
Next write_page(WrittenSystem& system, Registers& r, const WrittenForm& form) {
    const PageIndex page = form.count - 1;
    const auto frame = static_cast<FrameIndex>(form.count);
    PageEntry& entry = system.leaves[page];
    if (r[0] == 0) {
        uint64_t seen = device_explored::pin<DeviceWords>(entry);
        if (!device_explored::claim<DeviceWords>(entry, seen, frame, 1)) {
            device_explored::unpin<DeviceWords>(entry);
            return Next::kDone;  // it was read: nothing to see
        }
        if (!form.counts_too_late) device_explored::count_write(system.state, system.file, page, 1);
        write(system.frames[frame], 1);
        (void)device_explored::publish<DeviceWords>(entry, seen, make_completion(1, 0, 4096));
        device_explored::unpin<DeviceWords>(entry);
        r[0] = 1;
        return Next::kAgain;
    }
    if (r[0] == 1) {  // the host has its bytes, and it leaves
        DeviceWords::fetch_add(system.bytes, 1, site::kRelaxed);
        const uint64_t seen = DeviceWords::load(entry, site::kLook);
        if (!device_explored::evict<DeviceWords>(entry, seen, frame)) return Next::kDone;
        r[0] = 2;
        return Next::kAgain;
    }
    if (form.counts_too_late) device_explored::count_write(system.state, system.file, page, 1);
    if (form.tells) SystemWords::store(system.told, 1, site::kRespond);
    r[0] = 3;
    return Next::kDone;
}

// Opened as FileTable::begin_use() does, all its users having closed it. Register 2: openings.
Next write_reopened(WrittenSystem& system, Registers& r, const WrittenForm& form) {
    const bool over = r[0] == 3;
    if (r[2] == 0 || over) {
        DeviceWords::store(system.file.writing, over ? 0 : kWriting, site::kRelaxed);
        if (!form.keeps_epoch) DeviceWords::fetch_add(system.file.epoch, 1, site::kPublish);
        ++r[2];
        return over ? Next::kDone : Next::kAgain;
    }
    const Next next = write_page(system, r, form);
    return r[0] == 3 ? Next::kAgain : next;
}

// Truncation of the page, as device/truncate.cuh has it: what the file has of it from then on is as
// a write of it. Register 0: steps so far; 1: the page was in the cache, and is cleared.
Next cut_page(WrittenSystem& system, Registers& r, const WrittenForm& form) {
    PageEntry& entry = system.leaves[form.count - 1];
    if (r[0] == 0) {
        DeviceWords::fetch_add(system.bytes, 1, site::kRelaxed);  // by the host
        if (!form.counts_too_late) DeviceWords::fetch_add(system.file.cuts, 1, site::kPublish);
        r[0] = 1;
        return Next::kAgain;
    }
    if (r[0] == 1) {
        uint64_t seen = device_explored::pin<DeviceWords>(entry);
        if (!form.keeps_entries) seen = device_explored::renew<DeviceWords>(entry, 1);
        seen = device_explored::publish_if_complete(system.state, entry, seen);
        if (state_of(seen) == PageState::kFetching) {
            device_explored::unpin<DeviceWords>(entry);
            return Next::kRetry;
        }
        if (state_of(seen) == PageState::kValid) {
            write(system.frames[frame_of(seen)], 1);
            r[1] = 1;
        }
        device_explored::unpin<DeviceWords>(entry);
        r[0] = 2;
        return Next::kAgain;
    }
    if (form.counts_too_late) DeviceWords::fetch_add(system.file.cuts, 1, site::kPublish);
    r[0] = 3;
    return Next::kDone;
}

// Register 0: steps so far; 1: the window's stamp.
Next read_window(WrittenSystem& system, Registers& r, const WrittenForm& form) {
    const PageIndex page = form.count - 1;
    Window& window = system.window();
    const Team team;
    if (r[0] == 0 && form.posts) {
        const auto take_stamp = [&] {
            r[1] = device_explored::window_stamp<site::kTakeCounts>(system.state, system.file,
                                                                    window);
        };
        if (!form.stamps_too_late) take_stamp();
        if (!device_explored::is_absent(system.state, system.file, page)) return Next::kDone;
        if (form.stamps_too_late) take_stamp();
        SystemWords::store(system.request, 1, site::kSubmit);
        r[0] = 1;
        return Next::kAgain;
    }
    if (form.tells && SystemWords::load(system.told, site::kResponse) == 0) return Next::kRetry;
    window.stamp = form.posts ? r[1] : 1;
    device_explored::WindowRun run;
    if (!device_explored::begin_run(team, system.state, system.place, system.file, 0, window.count,
                                    run))
        return Next::kDone;
    for (uint32_t i = 0; i < run.count; ++i) {
        const uint64_t bytes = read(system.frames[run.place + i]);
        check(!form.tells || i != page || bytes != 0, "a read behind a write has old bytes");
    }
    device_explored::end_run(team, system.state, system.place, 0, 0, run);
    return Next::kDone;
}

Next serve(WrittenSystem& system, const WrittenForm& form) {
    if (SystemWords::load(system.request, site::kDrain) == 0) return Next::kRetry;
    const uint64_t bytes = DeviceWords::fetch_add(system.bytes, 0, site::kRelaxed);
    SystemWords::store(system.brought, bytes, site::kRelaxed);
    for (uint64_t i = 0; i < form.count; ++i) {
        write(system.frames[i], i + 1 == form.count ? bytes : 0);
        SystemWords::store(system.completions[i], make_completion(kWindowGeneration, 0, 4096),
                           site::kComplete);
    }
    return Next::kDone;
}

Program written_program(const WrittenForm& form) {
    Program program;
    program.name = form.name;
    program.deferrals = form.deferrals;
    const auto system = std::make_shared<WrittenSystem>();
    lay_out(*system, form);
    name_words(program, *system, form);
    program.thread(form.cuts ? "cuts" : "writes", [=](Registers& r) {
        use(system->map);
        if (form.reopened) return write_reopened(*system, r, form);
        return form.cuts ? cut_page(*system, r, form) : write_page(*system, r, form);
    });
    program.thread("reads", [=](Registers& r) {
        use(system->map);
        return read_window(*system, r, form);
    });
    if (form.posts) {
        program.server("host", [=](Registers&) {
            use(system->map);
            return serve(*system, form);
        });
    }
    const auto window_frame = static_cast<FrameIndex>(form.count - 1);
    program.at_end = [=](const penstock::memory_model::Outcome& outcome) -> const char* {
        const bool written = outcome.register_of(0, 0) != 0 && outcome.register_of(0, 1) == 0;
        const uint64_t entry = outcome.value(*system->map.find(system->leaves[form.count - 1]));
        const bool taken = state_of(entry) == PageState::kValid && frame_of(entry) == window_frame;
        if (!written || !taken) return nullptr;
        const bool new_bytes = form.posts && outcome.value(*system->map.find(system->brought)) != 0;
        return new_bytes ? nullptr : "a page is taken that was read before it was written";
    };
    return program;
}

}  // namespace

std::vector<Program> written_window_programs(bool nightly) {
    std::vector<Program> programs;
    const auto add = [&](const WrittenForm& form) { programs.push_back(written_program(form)); };
    add({.name = "a page of a window is written and leaves while the window is taken"});
    add({.name = "the second page of a window is written and leaves while both are taken",
         .count = 2,
         .deferrals = nightly});
    add({.name = "a window is read behind a write", .tells = true});
    add({.name = "a page is written and leaves while a window of it is read and taken",
         .posts = true,
         .deferrals = nightly});
    add({.name = "a page is cut off while a window of it is read and taken",
         .posts = true,
         .cuts = true,
         .deferrals = nightly});
    add({.name = "a file is opened, written, and opened again while a window of it is taken",
         .posts = true,
         .reopened = true,
         .deferrals = nightly});
    return programs;
}

std::vector<Program> written_window_canaries() {
    return {written_program({.name = "canary: a write is counted when its page has left",
                             .posts = true,
                             .deferrals = false,
                             .counts_too_late = true}),
            written_program({.name = "canary: the stamp is taken behind the look",
                             .posts = true,
                             .deferrals = false,
                             .stamps_too_late = true}),
            written_program({.name = "canary: a truncation leaves the entries of absent pages",
                             .posts = true,
                             .cuts = true,
                             .deferrals = false,
                             .keeps_entries = true}),
            written_program({.name = "canary: a truncation is counted behind the renewal",
                             .posts = true,
                             .cuts = true,
                             .deferrals = false,
                             .counts_too_late = true}),
            written_program({.name = "canary: windows of a file's last opening are trusted",
                             .posts = true,
                             .reopened = true,
                             .deferrals = false,
                             .keeps_epoch = true})};
}

}  // namespace penstock::memory_model
