// Programs for the request queue: producers that take tickets, submit and wait; consumers that
// drain, fill the frames and complete.
//
// Each request is told apart by its page, and every field of it follows from its team and block, so
// a torn one is seen. Frames are non-atomic data: that a frame is filled while somebody reads it,
// is filled twice, or is read before it is filled is a race.
#include <array>
#include <string>

#include "memory_model/scenarios.h"
#include "penstock/device/request_queue.cuh"
#include "request_queue/ring.h"

namespace penstock::memory_model {

namespace {

constexpr int kFramesMax = 4;

struct Ring {
    int shift = 0;
    int frame_count = 0;
    Word tail, head;
    std::array<Word, 16> slots;
    std::array<Word, kFramesMax> completions;
    std::array<Cell, kFramesMax> frames;
};

Request make_request(int team, int batch, int index, int frame) {
    Request request;
    request.file_slot = static_cast<uint32_t>(team + 1);
    request.generation = static_cast<uint32_t>(batch + 1);
    request.page = PageIndex{100} * static_cast<PageIndex>(team + 1) +
                   static_cast<PageIndex>(10 * batch) + static_cast<PageIndex>(index);
    request.frame = static_cast<FrameIndex>(frame);
    request.opened = static_cast<uint32_t>(team);
    request.block = static_cast<uint32_t>(batch << 16 | index << 8 | frame);
    return request;
}

bool whole(const Request& got) {
    const int batch = static_cast<int>(got.block >> 16),
              index = static_cast<int>(got.block >> 8 & 0xff);
    const Request made = make_request(static_cast<int>(got.opened), batch, index,
                                      static_cast<int>(got.block & 0xff));
    return got.kind == RequestKind::kReadPages && got.file_slot == made.file_slot &&
           got.generation == made.generation && got.page == made.page && got.frame == made.frame &&
           got.page_count == 1;
}

// Registers of a producer: batch, and how many of the batch's requests are complete + 1, or 0
// before they are submitted.
std::function<Next(Registers&)> producer(const Ring& made, int team, const std::vector<int>& sizes,
                                         int frame) {
    std::array<int, 8> batches{};
    std::copy(sizes.begin(), sizes.end(), batches.begin());
    const auto batch_count = static_cast<uint64_t>(sizes.size());
    return [ring = made, team, batches, batch_count, frame](Registers& r) mutable {
        const int batch = static_cast<int>(r[0]), count = batches[batch];
        if (r[1] == 0) {
            const uint64_t first = device::take_tickets<Words>(ring.tail, count);
            for (int i = 0; i < count; ++i) {
                device::submit<Words>(ring.slots.data(), ring.shift, first + i,
                                      make_request(team, batch, i, frame + i));
            }
            r[1] = 1;
            return Next::kAgain;
        }
        const int index = static_cast<int>(r[1]) - 1;
        const Completion completion = Words::load(ring.completions[frame + index],
                                                  site::kCompletion);
        const Request request = make_request(team, batch, index, frame + index);
        if (completion_generation(completion) != request.generation) return Next::kRetry;
        check(read(ring.frames[request.frame]) == request.page,
              "a frame holds another page's bytes");
        if (++r[1] <= static_cast<uint64_t>(count)) return Next::kAgain;
        r[1] = 0;
        return ++r[0] == batch_count ? Next::kDone : Next::kAgain;
    };
}

// The head, with a bound on the rounds of one drain: those that end without a claim only load, so
// that more of them are as one drain begun later.
struct HeadWords : Words {
    static constexpr int kRoundsMax = 2;
    inline static thread_local int rounds = 0;  // of the drain that runs
    static uint64_t load(const Word& word, Site site) {
        assume(++rounds <= kRoundsMax + 1);
        return Words::load(word, site);
    }
    static bool compare_exchange(Word& word, uint64_t& expected, uint64_t desired, Site site) {
        if (Words::compare_exchange(word, expected, desired, site)) return true;
        assume(++rounds <= kRoundsMax);
        return false;
    }
};

std::function<Next(Registers&)> consumer(const Ring& made, int drain_max, int share) {
    return [ring = made, drain_max, share](Registers&) mutable {
        Request out[4];
        HeadWords::rounds = 0;
        const size_t count = request_queue::drain<Words, HeadWords>(
            ring.head, ring.slots.data(), ring.shift, out, drain_max, share);
        if (count == 0) return Next::kRetry;
        for (size_t i = 0; i < count; ++i) {
            if (!whole(out[i])) {
                check(false, "a request is torn");
                return Next::kDone;
            }
            write(ring.frames[out[i].frame], out[i].page);
            Words::store(ring.completions[out[i].frame],
                         make_completion(out[i].generation, 0, 4096), site::kComplete);
        }
        return Next::kAgain;
    };
}

std::string name_of(const RingForm& form) {
    std::string name = "ring of " + std::to_string(1 << form.shift) + ":";
    for (const std::vector<int>& sizes : form.batches) {
        for (const int size : sizes) name += " " + std::to_string(size);
        name += " |";
    }
    name += " " + std::to_string(form.consumers) + " consumers take " +
            std::to_string(form.drain_max);
    if (form.share != 1) name += ", share " + std::to_string(form.share);
    return name + (form.deferrals ? ", load buffering" : "");
}

}  // namespace

Program ring_program(const RingForm& form) {
    Program program;
    program.name = name_of(form);
    program.deferrals = form.deferrals;
    Ring ring;
    ring.shift = form.shift;
    ring.tail = program.word("tail");
    ring.head = program.word("head");
    for (int i = 0; i < 4 << form.shift; ++i) {
        ring.slots[i] = program.word("slot" + std::to_string(i / 4) + "." + std::to_string(i % 4),
                                     0, false);
    }
    std::vector<int> first_frames;
    int total = 0;
    for (const std::vector<int>& sizes : form.batches) {
        first_frames.push_back(ring.frame_count);
        ring.frame_count += *std::max_element(sizes.begin(), sizes.end());
        for (const int size : sizes) total += size;
    }
    for (int i = 0; i < ring.frame_count; ++i) {
        ring.completions[i] = program.word("completion" + std::to_string(i), 0, false);
        ring.frames[i] = program.cell("frame" + std::to_string(i));
    }
    for (size_t i = 0; i < form.batches.size(); ++i) {
        program.thread("producer" + std::to_string(i),
                       producer(ring, static_cast<int>(i), form.batches[i], first_frames[i]));
    }
    for (int i = 0; i < form.consumers; ++i) {
        program.server("consumer" + std::to_string(i), consumer(ring, form.drain_max, form.share));
    }
    program.at_end = [head = ring.head, tail = ring.tail,
                      total](const Outcome& outcome) -> const char* {
        const auto expected = static_cast<uint64_t>(total);
        return outcome.value(head) == expected && outcome.value(tail) == expected
                   ? nullptr
                   : "requests are lost";
    };
    return program;
}

std::vector<Program> ring_programs(bool nightly) {
    std::vector<Program> programs;
    const auto add = [&](const RingForm& form) { programs.push_back(ring_program(form)); };
    add({1, {{1, 1}, {1}}, 2, 1, 1, true});
    add({1, {{1, 1, 1, 1, 1}}, 2, 1, 1, false});
    add({1, {{2, 2}}, 2, 2, 2, false});
    add({2, {{2}, {2, 1}}, 1, 4, 1, false});
    if (!nightly) return programs;
    add({1, {{1, 1}, {1, 1}}, 2, 1, 1, true});
    add({1, {{1, 1, 1, 1, 1}}, 2, 1, 1, true});
    add({1, {{2, 2}}, 2, 2, 2, true});
    add({2, {{2}, {2, 1}}, 2, 2, 1, false});
    add({2, {{2, 2}, {2, 1}}, 1, 4, 1, false});
    return programs;
}

}  // namespace penstock::memory_model
