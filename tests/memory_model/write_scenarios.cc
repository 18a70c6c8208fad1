// Programs for dirty pages (device/dirty_page.cuh): teams that write a page, teams that have it
// written back, end that and evict it, and the host.
//
// A granule's bytes are one word, as the host may read them while they change: what it reads then
// is of no account, since the granule is marked again. A page that is evicted before the file has
// its bytes, or is clean while the file has not, is an error.
#include <string>

#include "memory_model/scenarios.h"
#include "penstock/device/dirty_page.cuh"

namespace penstock::memory_model {

namespace {

constexpr FrameIndex kFrame = 0;
constexpr uint64_t kOtherPage = 99;  // bytes of the page that has the frame next
constexpr uint32_t kNoSpace = 28;    // ENOSPC
// Of who writes and syncs.
constexpr uint64_t kOwnBytes = 5, kOwnMark = 2;

struct WriteForm {
    std::string name;
    int writers = 1;     // each writes the granule once
    int tenders = 1;     // each begins write-backs, ends them, and evicts the page once it is clean
    int failures = 0;    // write-backs that the host cannot do, the first ones
    bool evicts = true;  // else the page stays, and is clean at the end
    bool deferrals = true;
    bool counts = false;  // dirty pages, as FileSystemState::dirty_pages
    bool syncs = false;   // another writes a granule of its own and looks until the page is clean
    // Canaries: what must be found.
    bool cleans_blindly = false;  // who ends a write-back does not look at the marks again
    bool marks_too_soon = false;  // before the bytes
    bool asks_the_bit = false;    // who looks whether the page is clean asks for its dirty bit only
};

struct DirtyPage {
    Word entry, write_back, marks, snapshot, request, completion, bytes, file, count;
    Word own, own_file;  // of who writes and syncs
};

Next write_page(DirtyPage page, const WriteForm& form, uint64_t value) {
    const uint64_t seen = device::pin<Words>(page.entry);
    if (state_of(seen) == PageState::kValid) {
        if (form.marks_too_soon) device::mark<Words>(page.marks, 1);
        Words::store(page.bytes, value, site::kRelaxed);
        if (!form.marks_too_soon) device::mark<Words>(page.marks, 1);
        const bool was_clean = device::set_dirty<Words>(page.entry);
        if (form.counts && was_clean) Words::fetch_add(page.count, 1, site::kRelaxed);
    }
    device::unpin<Words>(page.entry);
    return Next::kDone;
}

// A granule of its own is written, and then synced, as gfsync does. Register 0: whether it has been
// written.
Next write_and_look(DirtyPage page, Registers& r, const WriteForm& form) {
    if (r[0] == 0) {
        r[0] = 1;
        (void)device::pin<Words>(page.entry);
        Words::store(page.own, kOwnBytes, site::kRelaxed);
        device::mark<Words>(page.marks, kOwnMark);
        (void)device::set_dirty<Words>(page.entry);
        device::unpin<Words>(page.entry);
        return Next::kAgain;
    }
    const auto word_of = [&](FrameIndex) -> const Word& { return page.write_back; };
    uint64_t seen = 0;
    const bool dirty = form.asks_the_bit ? (Words::load(page.entry, site::kLook) & kDirtyBit) != 0
                                         : device::is_dirty<Words>(page.entry, word_of, seen);
    if (dirty) return Next::kRetry;
    check(Words::load(page.own_file, site::kRelaxed) == kOwnBytes,
          "a page is said to be clean before the file has its bytes");
    return Next::kDone;
}

// Ends a write-back as it must not be done.
Next clean_blindly(DirtyPage page, Completion completion) {
    uint64_t seen = make_write_back(completion_generation(completion), WritePhase::kUnderWay);
    const uint64_t idle = make_write_back(completion_generation(completion), WritePhase::kIdle);
    Words::fetch_and(page.entry, ~kDirtyBit, site::kClean);
    (void)Words::compare_exchange(page.write_back, seen, idle, site::kEndWrite);
    return Next::kAgain;
}

Next tend(DirtyPage page, const WriteForm& form) {
    const uint64_t seen = Words::load(page.entry, site::kLook);
    if (state_of(seen) != PageState::kValid) return Next::kDone;
    if ((seen & kDirtyBit) == 0) {
        if (!form.evicts || pins_of(seen) != 0) return Next::kRetry;
        if (!device::evict<Words>(page.entry, seen, kFrame)) return Next::kAgain;
        check(Words::load(page.file, site::kRelaxed) == Words::load(page.bytes, site::kRelaxed),
              "a page was evicted before the file had its bytes");
        check(Words::load(page.marks, site::kRelaxed) == 0, "an evicted page leaves marks");
        Words::store(page.bytes, kOtherPage, site::kRelaxed);
        return Next::kDone;
    }
    const auto holds = [](uint64_t now) { return frame_of(now) == kFrame; };
    const WriteBackWord word = Words::load(page.write_back, site::kRelaxed);
    if (phase_of(word) == WritePhase::kEnding) return Next::kRetry;
    if (phase_of(word) == WritePhase::kIdle) {
        uint32_t number = 0;
        if (device::begin_write_back<Words>(page.entry, holds, page.write_back, &page.marks,
                                            &page.snapshot, 1, number))
            Words::store(page.request, number, site::kSubmit);
        return Next::kAgain;
    }
    const Completion completion = Words::load(page.completion, site::kCompletion);
    if (completion_generation(completion) != number_of(word)) return Next::kRetry;
    if (form.cleans_blindly) return clean_blindly(page, completion);
    (void)device::finish_write_back<Words>(page.entry, holds, page.write_back, &page.marks,
                                           &page.snapshot, 1, completion,
                                           [&](device::Written result) {
                                               if (form.counts && result == device::Written::kClean)
                                                   Words::fetch_sub(page.count, 1, site::kRelaxed);
                                           });
    return Next::kAgain;
}

// Register 0: the last request that was served; 1: how many have failed.
Next serve(DirtyPage page, Registers& r, const WriteForm& form) {
    const uint64_t number = Words::load(page.request, site::kDrain);
    if (number == r[0]) return Next::kRetry;
    r[0] = number;
    const bool fails = r[1] < static_cast<uint64_t>(form.failures);
    if (fails) ++r[1];
    const uint64_t taken = fails ? 0 : Words::load(page.snapshot, site::kRelaxed);
    if ((taken & 1) != 0)
        Words::store(page.file, Words::load(page.bytes, site::kRelaxed), site::kRelaxed);
    if ((taken & kOwnMark) != 0)
        Words::store(page.own_file, Words::load(page.own, site::kRelaxed), site::kRelaxed);
    Words::store(page.completion,
                 make_completion(static_cast<uint32_t>(number), fails ? kNoSpace : 0, 0),
                 site::kComplete);
    return Next::kAgain;
}

// All but the words of bytes.
DirtyPage dirty_page(Program& program) {
    DirtyPage page;
    page.entry = program.word("entry", make_entry(PageState::kValid, kFrame, 1, 0));
    page.write_back = program.word("write_back");
    page.marks = program.word("marks");
    page.snapshot = program.word("snapshot", 0, false);
    page.request = program.word("request", 0, false);
    page.completion = program.word("completion", 0, false);
    return page;
}

Program write_program(const WriteForm& form) {
    Program program;
    program.name = form.name;
    program.deferrals = form.deferrals;
    DirtyPage page = dirty_page(program);
    page.bytes = program.word("bytes", 0, false);
    page.file = program.word("file", 0, false);
    if (form.counts) page.count = program.word("count");
    for (int i = 0; i < form.writers; ++i) {
        program.thread("writes " + std::to_string(i + 1), [=](Registers&) {
            return write_page(page, form, static_cast<uint64_t>(i) + 1);
        });
    }
    if (form.syncs) {
        page.own = program.word("own", 0, false);
        page.own_file = program.word("own file", 0, false);
        program.thread("syncs", [=](Registers& r) { return write_and_look(page, r, form); });
    }
    for (int i = 0; i < form.tenders; ++i)
        program.server("tends", [=](Registers&) { return tend(page, form); });
    program.server("host", [=](Registers& r) { return serve(page, r, form); });
    program.at_end = [=](const Outcome& outcome) -> const char* {
        const uint64_t entry = outcome.value(page.entry), file = outcome.value(page.file);
        if (file == kOtherPage) return "another page's bytes are in the file";
        if (state_of(entry) != PageState::kValid) return nullptr;
        const bool dirty = (entry & kDirtyBit) != 0;
        if (form.counts && outcome.value(page.count) != (dirty ? 1 : 0))
            return "dirty pages are counted wrongly";
        if (form.evicts) return "a page that nobody writes to is never evicted";
        if (dirty) return "a page stays dirty";
        return file == outcome.value(page.bytes) ? nullptr : "a write is lost";
    };
    return program;
}

// A file is cut off, its page being written and written back: then the host has nothing of it, or
// nothing is lost where the host could not.
struct CutForm {
    std::string name;
    bool fails = false;
    // Canaries.
    bool looks_before = false;  // who begins a write-back does not look behind that
    bool cuts_at_once = false;  // and nobody waits for one that is under way
};

constexpr uint64_t kWritten = 7;
constexpr uint64_t kSized = 1 << 20;  // bit of a request: the file's size counts the page

struct CutPage {
    DirtyPage page;
    Word held, size;
};

Next finish(CutPage at, Completion completion) {
    DirtyPage page = at.page;
    const auto holds = [](uint64_t now) { return frame_of(now) == kFrame; };
    (void)device::finish_write_back<Words>(page.entry, holds, page.write_back, &page.marks,
                                           &page.snapshot, 1, completion, [](device::Written) {});
    return Next::kAgain;
}

bool begin(CutPage at, uint32_t& number) {
    DirtyPage page = at.page;
    const auto holds = [](uint64_t now) { return frame_of(now) == kFrame; };
    return device::begin_write_back<Words>(page.entry, holds, page.write_back, &page.marks,
                                           &page.snapshot, 1, number);
}

device::BeginResult begin_unless_held(CutPage at, uint32_t& number) {
    DirtyPage page = at.page;
    const auto holds = [](uint64_t now) { return frame_of(now) == kFrame; };
    return device::begin_unless_held<Words>(page.entry, holds, page.write_back, &page.marks,
                                            &page.snapshot, 1, at.held, number);
}

// As begin_write() and end_if_written() of device/write_back.cuh.
Next tend_cut(CutPage at, const CutForm& form) {
    DirtyPage page = at.page;
    const WriteBackWord word = Words::load(page.write_back, site::kRelaxed);
    if (phase_of(word) == WritePhase::kUnderWay) {
        const Completion completion = Words::load(page.completion, site::kCompletion);
        if (completion_generation(completion) != number_of(word)) return Next::kRetry;
        return finish(at, completion);
    }
    if (phase_of(word) != WritePhase::kIdle) return Next::kRetry;
    if ((Words::load(page.entry, site::kLook) & kDirtyBit) == 0) return Next::kRetry;
    if (Words::load(at.held, site::kRelaxed) != 0) return Next::kRetry;
    uint32_t number = 0;
    if (form.looks_before) {
        if (!begin(at, number)) return Next::kAgain;
    } else {
        const device::BeginResult begun = begin_unless_held(at, number);
        if (begun == device::BeginResult::kNot) return Next::kAgain;
        if (begun == device::BeginResult::kHeld)
            return finish(at, make_completion(number, kNoSpace, 0));
    }
    const bool sized = Words::load(at.size, site::kRelaxed) != 0;
    Words::store(page.request, number | (sized ? kSized : 0), site::kSubmit);
    return Next::kAgain;
}

// As truncate() of device/truncate.cuh. Register 0: how far; 1: the number that is held, 0: none.
Next cut(CutPage at, Registers& r, const CutForm& form) {
    DirtyPage page = at.page;
    if (r[0] == 0) {
        uint64_t unlocked = 0;
        if (!Words::compare_exchange(at.held, unlocked, 1, site::kLockPort)) return Next::kRetry;
        r[0] = 1;
        return Next::kAgain;
    }
    if (r[0] == 1) {
        const bool dirty = (Words::load(page.entry, site::kLook) & kDirtyBit) != 0;
        uint32_t number = 0;
        if (dirty && begin(at, number)) {
            Words::store(page.write_back, make_write_back(number, WritePhase::kHeld),
                         site::kRelaxed);
            r[1] = number;
        } else if (dirty && !form.cuts_at_once) {
            const WriteBackWord word = Words::load(page.write_back, site::kRelaxed);
            if (phase_of(word) == WritePhase::kIdle) return Next::kAgain;
            const Completion completion = Words::load(page.completion, site::kCompletion);
            const bool over = phase_of(word) == WritePhase::kUnderWay &&
                              completion_generation(completion) == number_of(word);
            return over ? finish(at, completion) : Next::kRetry;
        }
        r[0] = 2;
        return Next::kAgain;
    }
    if (!form.fails) {
        Words::fetch_and(page.file, 0, site::kRelaxed);
        Words::store(at.size, 0, site::kRelaxed);
    }
    if (r[1] != 0) {
        const auto number = static_cast<uint32_t>(r[1]);
        Words::store(page.write_back, make_write_back(number, WritePhase::kUnderWay),
                     site::kRelaxed);
        (void)finish(at, make_completion(number, form.fails ? kNoSpace : 0, 0));
    }
    Words::store(at.held, 0, site::kUnlockPort);
    return Next::kDone;
}

// Register 0: the last request that was served.
Next serve_cut(CutPage at, Registers& r) {
    DirtyPage page = at.page;
    const uint64_t request = Words::load(page.request, site::kDrain);
    if (request == r[0]) return Next::kRetry;
    r[0] = request;
    if ((request & kSized) != 0 && Words::load(page.snapshot, site::kRelaxed) != 0)
        Words::fetch_or(page.file, kWritten, site::kRelaxed);
    const auto number = static_cast<uint32_t>(request & (kSized - 1));
    Words::store(page.completion, make_completion(number, 0, 0), site::kComplete);
    return Next::kAgain;
}

Program cut_program(const CutForm& form) {
    Program program;
    program.name = form.name;
    program.deferrals = false;
    CutPage at;
    at.page = dirty_page(program);
    at.page.file = program.word("file");  // in time: writes and cuts of the system are
    at.held = program.word("held");
    at.size = program.word("size", 1, false);
    program.thread("writes", [=](Registers&) {
        DirtyPage written = at.page;
        (void)device::pin<Words>(written.entry);
        device::mark<Words>(written.marks, 1);
        (void)device::set_dirty<Words>(written.entry);
        device::unpin<Words>(written.entry);
        return Next::kDone;
    });
    program.thread("cuts", [=](Registers& r) { return cut(at, r, form); });
    program.server("tends", [=](Registers&) { return tend_cut(at, form); });
    program.server("host", [=](Registers& r) { return serve_cut(at, r); });
    program.at_end = [=](const Outcome& outcome) -> const char* {
        if ((outcome.value(at.page.entry) & kDirtyBit) != 0) return "a page stays dirty";
        const uint64_t file = outcome.value(at.page.file);
        if (form.fails) return file == kWritten ? nullptr : "a truncation that failed lost a write";
        return file == 0 ? nullptr : "the file has what was cut off";
    };
    return program;
}

// A file is cut off that has no leaf for a page of it, as has_leaf() and clear_beyond() have it,
// while the page comes out of a window that was read before, as install_leaf() and begin_run() do.
Program leaf_program() {
    Program program;
    program.name = "a leaf is installed in a file that is cut off";
    Word directory = program.word("directory"), cuts = program.word("cuts");
    Word entry = program.word("entry"), passed = program.word("passed over");
    program.thread("cuts", [=](Registers& r) mutable {
        if (r[0]++ == 0) {
            Words::fetch_add(cuts, 1, site::kPublish);
            return Next::kAgain;
        }
        if (Words::fetch_or(directory, 0, site::kLeafWord) == 0) return Next::kDone;
        (void)device::pin<Words>(entry);
        const uint64_t seen = device::renew<Words>(entry, 1);
        if (state_of(seen) != PageState::kEmpty)  // its bytes are cleared
            Words::fetch_and(passed, 0, site::kRelaxed);
        device::unpin<Words>(entry);
        return Next::kDone;
    });
    program.thread("reads out of a window", [=](Registers& r) mutable {
        if (r[0]++ == 0) {
            uint64_t none = 0;
            (void)Words::compare_exchange(directory, none, 1, site::kLeafWord);
            return Next::kAgain;
        }
        uint64_t seen = device::pin<Words>(entry);
        if (Words::load(cuts, site::kRelaxed) == 0) {
            Words::fetch_or(passed, 1, site::kRelaxed);
            if (!device::adopt<Words>(entry, seen, kFrame, 1, make_completion(1, 0, 0)))
                Words::fetch_and(passed, 0, site::kRelaxed);
        }
        device::unpin<Words>(entry);
        return Next::kDone;
    });
    program.at_end = [=](const Outcome& outcome) -> const char* {
        return outcome.value(passed) == 0 ? nullptr : "bytes that were cut off came back";
    };
    return program;
}

}  // namespace

std::vector<Program> write_programs(bool nightly) {
    std::vector<Program> programs;
    const auto add = [&](const WriteForm& form) { programs.push_back(write_program(form)); };
    add({.name = "a page is written and evicted"});
    add({.name = "a page is written twice and stays",
         .writers = 2,
         .evicts = false,
         .deferrals = false});
    add({.name = "a page is written twice and evicted", .writers = 2, .deferrals = false});
    add({.name = "a page is written twice and counted",
         .writers = 2,
         .evicts = false,
         .deferrals = false,
         .counts = true});
    add({.name = "two teams tend a page", .tenders = 2, .evicts = false, .deferrals = false});
    add({.name = "two teams tend a page, and one evicts it", .tenders = 2, .deferrals = false});
    add({.name = "a write-back fails and is tried again", .failures = 1});
    add({.name = "who wrote a page looks until it is clean",
         .evicts = false,
         .deferrals = false,
         .syncs = true});
    programs.push_back(cut_program({.name = "a file is cut off while a page of it is written"}));
    programs.push_back(
        cut_program({.name = "a truncation fails while a page is written", .fails = true}));
    programs.push_back(leaf_program());
    if (!nightly) return programs;
    add({.name = "a page is written twice and stays, with load buffering",
         .writers = 2,
         .evicts = false});
    add({.name = "two teams tend a page that is written twice",
         .writers = 2,
         .tenders = 2,
         .deferrals = false});
    add({.name = "a write-back fails while the page is written again",
         .writers = 2,
         .failures = 1,
         .deferrals = false});
    return programs;
}

std::vector<Program> write_canaries() {
    return {write_program({.name = "canary: who ends a write-back forgets later marks",
                           .writers = 2,
                           .evicts = false,
                           .cleans_blindly = true}),
            write_program({.name = "canary: marks come before the bytes",
                           .writers = 2,
                           .evicts = false,
                           .marks_too_soon = true}),
            write_program({.name = "canary: a page without its dirty bit is taken for clean",
                           .evicts = false,
                           .syncs = true,
                           .asks_the_bit = true}),
            cut_program({.name = "canary: a write-back begins in a file that is held",
                         .looks_before = true}),
            cut_program(
                {.name = "canary: a truncation waits for no write-back", .cuts_at_once = true})};
}

}  // namespace penstock::memory_model
