// Programs for the page cache: teams that read pages through the whole device half, and a worker.
//
// A page's bytes are one cell of the frame that holds it, so a page read before it arrived, filled under a
// reader, or found in the wrong frame is a race or a wrong value.
#include "memory_model/production_cache.h"

#include <memory>
#include <string>

#include "memory_model/scenarios.h"
#include "request_queue/ring.h"

namespace penstock::memory_model {

namespace {

using Team = device::LoneTeam<1>;

constexpr int kFramesMax = 2;
constexpr int kLeavesMax = 1;
constexpr int kDirectoryMax = 2;
constexpr int kRingShift = 1;
constexpr uint32_t kFailure = 5;  // EIO

constexpr uint64_t bytes_of(PageIndex page) { return 0x1000 + page; }

// A file system of one file, and which of its words the program has.
struct System {
    FileSystemState state{};
    FileState file{};
    std::array<uint64_t, kFramesMax> completions{}, owners{};
    std::array<uint64_t, kLeavesMax * limits::kLeafEntries> leaves{};
    std::array<uint64_t, kLeavesMax> leaf_owners{}, leaf_locks{};
    std::array<uint64_t, kDirectoryMax> directory{};
    std::array<uint64_t, 4 << kRingShift> slots{};
    std::array<Cell, kFramesMax> frames{};
    uint64_t head = 0;
    AddressMap map;
};

struct CacheForm {
    std::string name;
    int frames = 1;
    int directory_words = 1;
    std::vector<PageIndex> resident{};  // page i lies in frame i at the start; its leaf is in use
    std::vector<PageIndex> readers{};   // a team for each: the page that it reads
    int failures = 0;                 // fills that the worker answers with an errno, the first ones
    int tries = 2;                    // of a team that found no frame or leaf
    bool deferrals = false;
};

// Reads one page as read_part of device/file.cuh does. Register 0: tries so far.
Next read_page(System& system, Registers& r, PageIndex page, const CacheForm& form) {
    const Team team;
    device::Batch<Team> batch;
    batch.first = page;
    batch.count = 1;
    if (!device::pin_pages(team, system.state, system.file, batch)) {
        device::fetch_pages(team, system.state, 0, batch);
    }
    if (batch.count == 0) return ++r[0] < static_cast<uint64_t>(form.tries) ? Next::kAgain : Next::kDone;
    device::PinnedEntry& pinned = batch.pages[0];
    int error = 0;
    if (state_of(pinned.seen) != PageState::kValid) {
        error = device::wait_for_page(system.state, *pinned.entry, pinned.seen);
    }
    if (error == 0) {
        check(read(system.frames[frame_of(pinned.seen)]) == bytes_of(page), "another page's bytes");
    } else {
        check(form.failures != 0 && error == -static_cast<int>(kFailure), "an error that nobody gave");
    }
    device::unpin_pages(team, batch, 0);
    return Next::kDone;
}

// Register 0: fills so far.
Next serve(System& system, Registers& r, const CacheForm& form) {
    Request request;
    if (request_queue::drain<AddressWords, UpdatedAddressWords>(system.head, system.slots.data(), kRingShift,
                                                                &request, 1) == 0) {
        return Next::kRetry;
    }
    check(completion_generation(AddressWords::load(system.completions[request.frame], site::kRelaxed)) + 1 ==
              request.generation,
          "a fill with a generation that is not the next");
    const bool fails = ++r[0] <= static_cast<uint64_t>(form.failures);
    write(system.frames[request.frame], fails ? 0 : bytes_of(request.page));
    AddressWords::store(system.completions[request.frame],
                        make_completion(request.generation, fails ? kFailure : 0, 4096), site::kComplete);
    return Next::kAgain;
}

// What is where before the program runs; all of it ordered before every thread.
void lay_out(System& system, const CacheForm& form) {
    FileSystemState& state = system.state;
    state.frame_count = static_cast<uint32_t>(form.frames);
    state.leaf_count = kLeavesMax;
    state.ring_count = 1;
    state.directory_size = static_cast<uint64_t>(form.directory_words);
    state.completions = system.completions.data();
    state.owners = system.owners.data();
    state.leaves = system.leaves.data();
    state.leaf_owners = system.leaf_owners.data();
    state.leaf_locks = system.leaf_locks.data();
    state.directory = system.directory.data();
    state.files = &system.file;
    state.rings[0].slots = system.slots.data();
    state.rings[0].shift = kRingShift;
    system.owners.fill(kFrameFree);
    system.directory[0] = 1;
    system.leaf_owners[0] = 1;
    for (size_t frame = 0; frame < form.resident.size(); ++frame) {
        system.completions[frame] = make_completion(1, 0, 4096);
        system.owners[frame] = make_owner(0, form.resident[frame]);
        system.leaves[form.resident[frame]] =
            make_entry(PageState::kValid, static_cast<FrameIndex>(frame), 1, 0) | kTouchedBit;
    }
}

void name_words(Program& program, System& system, const CacheForm& form) {
    const auto add = [&](const std::string& name, uint64_t& at, bool updated) {
        system.map.add(at, program.word(name, at, updated));
    };
    for (size_t i = 0; i < system.leaves.size(); ++i) add("entry" + std::to_string(i), system.leaves[i], true);
    for (int i = 0; i < form.frames; ++i) {
        add("owner" + std::to_string(i), system.owners[i], true);
        add("completion" + std::to_string(i), system.completions[i], false);
        system.frames[i] = program.cell("frame" + std::to_string(i));
        if (static_cast<size_t>(i) < form.resident.size()) {
            program.cell_values[i] = bytes_of(form.resident[i]);
        }
    }
    if (form.directory_words > 1) {
        for (int i = 0; i < form.directory_words; ++i) {
            add("directory" + std::to_string(i), system.directory[i], true);
        }
        add("leaf_owner", system.leaf_owners[0], false);
        add("leaf_lock", system.leaf_locks[0], true);
    }
    if (form.frames > 1) add("clock_hand", system.state.clock_hand, true);
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
    for (const PageIndex page : form.readers) {
        program.thread("reads page " + std::to_string(page), [=](Registers& r) {
            address_map = &system->map;
            return read_page(*system, r, page, form);
        });
    }
    program.server("worker", [=](Registers& r) {
        address_map = &system->map;
        return serve(*system, r, form);
    });
    return program;
}

}  // namespace

std::vector<Program> cache_programs(bool nightly) {
    std::vector<Program> programs;
    const auto add = [&](const CacheForm& form) { programs.push_back(cache_program(form)); };
    add({.name = "two teams read one absent page", .readers = {0, 0}});
    add({.name = "a page is evicted for another under its readers", .resident = {0}, .readers = {0, 1}});
    if (!nightly) return programs;
    return programs;
}

}  // namespace penstock::memory_model
