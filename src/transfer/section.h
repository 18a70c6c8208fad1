// Sections: stretches of a read into device memory that the host cannot address. Several threads
// read one, window by window, into one place in staging, and one copy brings it to the device.
//
// A copy costs the link some microseconds however long it is, and no thread alone fills a long
// buffer as fast as the link empties it. What does not go through the OS page cache has staging of
// its executor's own.
//
// Any thread. A section has staging before the first of its windows is given out, so a window that
// somebody works on never waits for another.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "penstock/report.h"
#include "transfer/executor.h"
#include "transfer/job.h"
#include "transfer/staging.h"

namespace penstock::transfer {

struct Section {
    // A window that storage has done with.
    struct Landed {
        Window window;
        Outcome outcome;
        Report report;  // but for what is in staging
        Landing landing;
    };

    std::shared_ptr<Job> job;
    std::byte* to = nullptr;  // in device memory
    uint64_t offset = 0;      // of the file
    std::byte* memory = nullptr;
    uint64_t left = 0;  // bytes of windows that have not landed
    std::vector<Landed> landed;
    // The last of a read: nothing that is read behind it pushes its bytes out of each CPU's own
    // cache, out of which the device reads at a third of the link's speed.
    bool last = false;
    bool failed = false;
    bool dropped = false;    // nobody wants it: what is in staging stays there, and is no error
    uint64_t landed_ns = 0;  // when the last of its windows did
};

class Sections {
public:
    // All that is in staging at a time: pinned memory, taken with the first section.
    // What grows towards the longest, and six of those: two are copied, two wait, two are read
    // (docs/design/0007-host-reads.md, 18).
    static constexpr uint32_t kSlots = 56;
    static_assert(kSlots * Staging::kSlotSize >= 7 * kSectionSizeMax);

    // `device` must outlive it; null where everything is host memory: no section is asked for.
    // `hand_count`: of those who read into it, mostly; not 0.
    explicit Sections(backend::Device* device, unsigned hand_count = 1)
        : device_(device), hand_count_(hand_count), sections_(kSlots) {}

    // Whether staging has been asked for; and asks, which takes milliseconds, unless another thread
    // is at it. With no lock held.
    [[nodiscard]] bool prepared() const { return prepared_.load(std::memory_order_acquire); }
    void prepare();
    // Of `job`, which calls with its lock held, from `offset` of its file on. Null: there is no
    // staging for it before others are over, or none at all: refused(). Only when prepared().
    Section* open(std::shared_ptr<Job> job, std::byte* to, uint64_t offset, uint64_t size);
    [[nodiscard]] bool refused() const { return refused_.load(std::memory_order_relaxed); }
    // Where the byte at `offset` of the file belongs; before the section is over.
    [[nodiscard]] static std::byte* memory(const Section& section, uint64_t offset) {
        return section.memory + (offset - section.offset);
    }

    // Staging is shared out to hands by parts of as much, a window of the longest sections each:
    // on virtual machines a CPU is slow where in staging it has not written lately, and threads
    // mostly stay on theirs (docs/design/0007-host-reads.md, 17). `hand`: from 0 on, modulo their
    // count. Called with the job's lock, while some of the section's windows are not taken.
    static constexpr uint64_t kPartSize = 512 << 10;
    [[nodiscard]] bool is_own(unsigned hand, const Section& section, uint64_t offset) const;

    // A window is in staging, or it is known why not. With the last one the copy begins, or does
    // with others' when less waits for the device. `owed` as for Job::finish().
    void land(Section* section, Section::Landed landed, Callbacks* owed = nullptr);
    // `size` bytes of its windows will never be given out. Where nothing else is missing, it is
    // over without a copy: nobody wants it.
    void shorten(Section* section, uint64_t size);

    // Copies are under way, and somebody has to collect() them. A moment of false may lie between
    // those of two jobs: whoever begins a copy sees to it that somebody comes, or comes himself.
    [[nodiscard]] bool copying() const { return oldest_.load(std::memory_order_relaxed) != 0; }
    // Some of them are over.
    [[nodiscard]] bool ready() const;
    // Tells jobs what is over, and begins what waited for that. Jobs may go, with this, when the
    // caller keeps nothing that owns it.
    void collect();
    // The same after some microseconds, or as soon as something is over.
    void wait();

private:
    using Ended = std::vector<Section>;  // out of the locks' reach

    void send_landed(Ended* ended);
    void send(std::span<Section* const> sections, Ended* ended);
    void add_parts(const Section& section);
    void copy_one_by_one(std::span<const size_t> begins);
    void look_at_copies();
    void collect_slots(Status status, Ended* ended);
    void end(Section* section, Ended* ended);
    static void tell(Ended* ended, Callbacks* owed = nullptr);

    backend::Device* const device_;
    const unsigned hand_count_;
    std::mutex preparing_;  // held by who asks for staging, waited for by nobody
    std::atomic<bool> prepared_{false};
    // Guards sections that have windows in somebody's hands, the slots of staging, and landed_.
    // Held for no call of the device's driver: with a job's lock too, threads wait here for
    // windows.
    std::mutex mutex_;
    std::unique_ptr<Staging> staging_;
    std::vector<Section> sections_;  // by slot of staging
    std::vector<Section*> landed_;   // whole, and to be copied
    // Guards the copies of staging, and sections from the first of theirs on. Taken before the
    // other, and waited for by nobody: who has it does what was added meanwhile.
    std::mutex copies_mutex_;
    std::vector<int32_t> slots_;
    std::vector<backend::CopyPart> parts_;
    std::atomic<bool> refused_{false};
    // The lot whose end is awaited; 0: none is under way. And the bytes that wait behind it. Who
    // finds many leaves what landed to who collects that lot. He finds it: both look at landed_
    // with mutex_, the one behind putting it there, the other behind changing this.
    std::atomic<uint64_t> oldest_{0}, waiting_{0};
};

}  // namespace penstock::transfer
