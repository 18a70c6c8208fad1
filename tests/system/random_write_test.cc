// Goal: whatever blocks write, append, truncate, read, map, sync, unlink, close and reopen, at once
// or in two halves with other calls between them, through whatever cache: every read has the bytes
// of a flat array, and so has every file at the end.
//
// Blocks share files in stripes: a byte belongs to one block, which alone writes it, so that pages
// and granules are shared and results are not in doubt; and each has a file of its own, which it
// may also write once, each byte of it, and take the name of away. 10,000
// calls (3,000 under ThreadSanitizer), a million with PENSTOCK_NIGHTLY=1; PENSTOCK_SEED replays one
// life. Long, since the model of a file, the blocks' programs and the host's are one thing: what a
// byte is depends on all three.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "penstock/file.h"
#include "system/machine.h"
#include "system/random_program.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

constexpr uint64_t kStepsPerBlock = 60;
constexpr std::chrono::seconds kPatience{60};
constexpr uint64_t kSizeMax = 300'000;

// A file as it should be when all have closed it; bytes beyond its end are zeros.
struct Model {
    std::string path;
    Bytes bytes;          // with room for all that is written
    uint64_t size = 0;    // before the launch
    uint64_t stripe = 0;  // bytes of a stripe; 0: one block's own
    bool gone = false;    // has no name: who opens it must make it

    Model(std::string at, Bytes initial) : path(std::move(at)), bytes(std::move(initial)) {
        size = bytes.size();
        bytes.resize(2 * kSizeMax);
    }

    void clear() { std::fill(bytes.begin(), bytes.end(), std::byte{0}); }
};

// What one block knows of a file in the launch at hand.
struct Known {
    Model* model = nullptr;
    uint64_t end = 0;  // the file is at least so long
    bool open = false, reads = true, appends = false;
    bool once = false;      // each byte of it
    uint64_t behind = 0;    // of such a file: what may be written
    uint64_t cursor = 0;    // where a walk through it is
    bool unlinked = false;  // while it is open: what is in it goes with its last close
};

struct Check {
    size_t step;
    int64_t result;  // INT64_MIN: any that is not negative
    Bytes bytes;     // that a read or a view has given
    size_t begun;    // of a wait: the step that it waits for
};

// A read or write that was begun. A write is in the model when it was waited for; of a read whose
// bytes were written meanwhile nobody knows which it has.
struct Begun {
    bool pending = false;
    uint32_t file = 0;
    uint64_t begin = 0, end = 0;
    bool writes = false, in_doubt = false;
    Bytes bytes;      // to write, or that were there
    size_t step = 0;  // that began it
};

class BlockProgram {
public:
    BlockProgram(Machine& machine, std::vector<Model>& shared, Model& own, uint64_t index,
                 uint64_t blocks, base::Prng& prng)
        : machine_(machine), index_(index), blocks_(blocks), prng_(prng) {
        for (Model& model : shared) files_.push_back({&model, model.size});
        files_.push_back({&own, own.size});
    }

    void generate(uint64_t count) {
        while (steps.size() < count) add_step();
        for (uint32_t call = 0; call < kCallsPerBlock; ++call) wait(call);
        const bool tidy = prng_.below(4) != 0;  // else the host has to
        for (uint32_t i = 0; i < files_.size(); ++i) {
            if (files_[i].open && tidy) close(i);
            if (files_[i].unlinked) files_[i].model->clear();
        }
    }

    std::string wrong(const std::vector<Step>& done) const {
        for (const Check& check : checks_) {
            const Step& step = done[check.step];
            const bool good = check.result == INT64_MIN ? step.result >= 0
                                                        : step.result == check.result;
            const std::string where = "step " + std::to_string(check.step) + ", act " +
                                      std::to_string(static_cast<int>(step.act)) + " at " +
                                      std::to_string(step.offset) + ", size " +
                                      std::to_string(step.size) + ", result " +
                                      std::to_string(step.result);
            if (!good || step.disagreements != 0)
                return where + ", should be " + std::to_string(check.result);
            const std::byte* out = step.act == Act::kWait ? done[check.begun].out : step.out;
            for (size_t i = 0; i < check.bytes.size(); ++i)
                if (out[i] != check.bytes[i]) return where + ": byte " + std::to_string(i);
        }
        return {};
    }

    std::vector<Step> steps;

private:
    // [begin, end) that this block may write, of at most `most` bytes; empty where none was found.
    std::pair<uint64_t, uint64_t> pick(const Known& file, uint64_t limit, uint64_t most) {
        const Model& model = *file.model;
        if (limit == 0) return {0, 0};
        uint64_t begin = prng_.below(limit);
        uint64_t end = std::min(limit, begin + 1 + prng_.below(most));
        if (model.stripe == 0) return {begin, end};
        const uint64_t stripe = begin / model.stripe / blocks_ * blocks_ + index_;
        begin = stripe * model.stripe + begin % model.stripe;
        return {std::min(begin, limit), std::min({limit, end, (stripe + 1) * model.stripe})};
    }

    void expect(Step step, int64_t result, Bytes bytes = {}, size_t begun = 0) {
        checks_.push_back({steps.size(), result, std::move(bytes), begun});
        steps.push_back(step);
    }
    Bytes part(const Model& model, uint64_t begin, uint64_t end) const {
        return {model.bytes.begin() + static_cast<int64_t>(begin),
                model.bytes.begin() + static_cast<int64_t>(end)};
    }

    // What is in the file from here on.
    void put(Model& model, uint64_t begin, const Bytes& bytes) {
        std::copy(bytes.begin(), bytes.end(), model.bytes.begin() + static_cast<int64_t>(begin));
        for (Begun& call : calls_) {
            const bool meets = files_[call.file].model == &model &&
                               call.begin < begin + bytes.size() && begin < call.end;
            call.in_doubt = call.in_doubt || meets;
        }
    }

    void close(uint32_t i) {
        for (uint32_t call = 0; call < kCallsPerBlock; ++call)
            if (calls_[call].file == i) wait(call);
        expect(close_step(i), 0);
        Known& file = files_[i];
        file.open = false;
        if (!file.unlinked) return;
        file.unlinked = false;
        file.model->clear();
        file.end = 0;
    }
    void unlink(uint32_t i) {
        Known& file = files_[i];
        if (file.model->stripe != 0 || file.model->gone) return;
        expect(unlink_step(machine_.scratch().text(file.model->path)), 0);
        file.model->gone = true;
        file.unlinked = true;
    }

    void open(uint32_t i) {
        Known& file = files_[i];
        const bool own = file.model->stripe == 0;
        int flags = own || prng_.below(4) != 0 ? kOpenReadWrite : kOpenWriteOnly;
        if (own && prng_.below(3) == 0) {
            flags |= kOpenTruncate | kOpenCreate;
            file.model->clear();
            file.end = 0;
        }
        if (file.model->gone) flags |= kOpenCreate;
        file.model->gone = false;
        file.once = own && prng_.below(4) == 0;
        file.behind = prng_.below(kSizeMax / 2);
        if (file.once) flags = (flags & ~kOpenAccess) | kOpenWriteOnly | kOpenWriteOnce;
        file.appends = own && !file.once && prng_.below(3) == 0;
        if (file.appends) flags |= kOpenAppend;
        expect(open_step(i, machine_.scratch().text(file.model->path), flags), INT64_MIN);
        file.open = true;
        file.reads = (flags & kOpenAccess) != kOpenWriteOnly;
    }

    void wait(uint32_t index) {
        Begun& call = calls_[index];
        if (!call.pending) return;
        call.pending = false;
        const auto size = static_cast<int64_t>(call.end - call.begin);
        if (call.writes) {
            Known& file = files_[call.file];
            put(*file.model, call.begin, call.bytes);
            file.end = std::max(file.end, call.end);
            expect(wait_step(index), size);
        } else if (call.in_doubt) {
            expect(wait_step(index), INT64_MIN);
        } else {
            expect(wait_step(index), size, call.bytes, call.step);
        }
    }

    // In two halves if there is a call left: its index; else kCallsPerBlock.
    uint32_t free_call() {
        if (prng_.below(2) == 0) return kCallsPerBlock;
        uint32_t call = 0;
        while (call < kCallsPerBlock && calls_[call].pending) ++call;
        return call;
    }

    void write(uint32_t i) {
        Known& file = files_[i];
        const uint64_t most = prng_.below(3) == 0 ? 40'000 : 300;
        auto [begin, end] = pick(file, kSizeMax, most);
        if (end <= begin) return;
        const bool behind = file.appends;
        if (behind) {
            const uint64_t size = end - begin;
            begin = file.end, end = begin + size;
            if (end > file.model->bytes.size()) return;
        } else if (file.once) {
            const uint64_t size = end - begin;
            begin = file.behind + prng_.below(3) * prng_.below(200), end = begin + size;
            if (end > kSizeMax) return;
            file.behind = end;
        }
        auto* from = machine_.scratch().array<std::byte>(end - begin);
        if (from == nullptr) return;
        const Bytes bytes = storage::random_bytes(prng_.next(), end - begin);
        std::copy(bytes.begin(), bytes.end(), from);
        const auto offset = static_cast<int64_t>(behind ? 7 : begin);
        if (const uint32_t call = free_call(); call < kCallsPerBlock) {
            calls_[call] = {true, i, begin, end, true, false, bytes, steps.size()};
            expect(begin_write_step(i, call, offset, end - begin, from), INT64_MIN);
            if (!behind) return;
            // Its room is taken, and zeros until it was waited for.
        } else {
            put(*file.model, begin, bytes);
            expect(write_step(i, offset, end - begin, from), static_cast<int64_t>(end - begin));
        }
        file.end = std::max(file.end, end);
    }

    void read(uint32_t i, bool map) {
        Known& file = files_[i];
        auto [begin, end] = pick(file, file.end, prng_.below(3) == 0 ? 40'000 : 300);
        const uint64_t page = machine_.shape().page_size;
        if (!map && file.model->stripe == 0 && file.end > 0 && prng_.below(3) != 0) {
            begin = file.cursor < file.end ? file.cursor : 0;
            end = std::min(file.end, begin + page);
            file.cursor = end;
        }
        if (map) end = std::min(end, (begin / page + 1) * page);
        if (end <= begin) return;
        auto* out = machine_.scratch().array<std::byte>(end - begin);
        if (out == nullptr) return;
        const auto offset = static_cast<int64_t>(begin);
        const auto size = static_cast<int64_t>(end - begin);
        if (!file.reads) {
            expect(read_step(i, offset, end - begin, out), -EBADF);
        } else if (map) {
            expect(map_step(i, 0, offset, end - begin, out), size, part(*file.model, begin, end));
            if (prng_.below(2) == 0) change(*file.model, begin, end);
            expect(unmap_step(0), 0);
        } else if (const uint32_t call = free_call(); call < kCallsPerBlock) {
            calls_[call] = {true,        i, begin, end, false, false, part(*file.model, begin, end),
                            steps.size()};
            expect(begin_read_step(i, call, offset, end - begin, out), INT64_MIN);
        } else {
            expect(read_step(i, offset, end - begin, out), size, part(*file.model, begin, end));
        }
    }

    // Of the view that was mapped last.
    void change(Model& model, uint64_t begin, uint64_t end) {
        auto* from = machine_.scratch().array<std::byte>(end - begin);
        if (from == nullptr) return;
        const Bytes bytes = storage::random_bytes(prng_.next(), end - begin);
        std::copy(bytes.begin(), bytes.end(), from);
        put(model, begin, bytes);
        expect(change_step(0, from), 0);
    }

    void cut(uint32_t i) {
        Known& file = files_[i];
        if (file.model->stripe != 0 || file.once) return;
        const uint64_t size = prng_.below(2) == 0 ? prng_.below(file.end + 1)
                                                  : prng_.below(kSizeMax);
        if (size < file.end)
            put(*file.model, size, Bytes(file.model->bytes.size() - size, std::byte{0}));
        expect(cut_step(i, size), 0);
        file.end = size;
        expect(stat_step(i), static_cast<int64_t>(size));
    }

    void add_step() {
        const auto i = static_cast<uint32_t>(prng_.below(files_.size()));
        if (!files_[i].open) return open(i);
        switch (prng_.below(15)) {
            case 0:
                return close(i);
            case 1:
                return prng_.below(2) == 0 ? cut(i) : expect(sync_step(i), 0);
            case 2:
                return expect(
                    advise_step(i, prng_.below(2) == 0 ? Advice::kDontNeed : Advice::kSequential),
                    0);
            case 3:
                return read(i, machine_.views_at_once() >=
                                   std::min<uint64_t>(blocks_, machine_.device().permits()));
            case 4:
            case 5:
            case 6:
                return read(i, false);
            case 7:
            case 8:
                return wait(static_cast<uint32_t>(prng_.below(kCallsPerBlock)));
            case 9:
                return unlink(i);
            default:
                return write(i);
        }
    }

    Machine& machine_;
    const uint64_t index_, blocks_;  // of stripes: the host has one too; at most one view each
    base::Prng& prng_;
    std::vector<Known> files_;
    std::vector<Check> checks_;
    Begun calls_[kCallsPerBlock];
};

// What a thread of the host does to the shared files while a launch runs.
class HostProgram {
public:
    // `index`: of its stripes, of `stripes`.
    HostProgram(Machine& machine, std::vector<Model>& shared, uint64_t index, uint64_t stripes,
                base::Prng& prng)
        : machine_(machine), index_(index), stripes_(stripes), prng_(prng) {
        for (Model& model : shared) models_.push_back(&model);
    }

    void generate(uint64_t count) {
        for (uint64_t i = 0; i < count; ++i) {
            Model& model = *models_[prng_.below(models_.size())];
            const auto act = static_cast<Call>(prng_.below(4));
            if (act == Call::kWrite && model.stripe % limits::kGranuleSize != 0) continue;
            Doing doing{act, &model, 0, {}};
            if (act == Call::kWrite) {
                const uint64_t stripe = prng_.below(kSizeMax) / model.stripe / stripes_ * stripes_ +
                                        index_;
                const uint64_t from = prng_.below(model.stripe);
                doing.offset = stripe * model.stripe + from;
                doing.bytes = storage::random_bytes(prng_.next(),
                                                    1 + prng_.below(model.stripe - from));
                std::copy(doing.bytes.begin(), doing.bytes.end(),
                          model.bytes.begin() + static_cast<int64_t>(doing.offset));
            }
            doings_.push_back(std::move(doing));
        }
    }
    void start() {
        thread_ = std::thread([this] { run(); });
    }
    // What went wrong, or nothing.
    std::string end() {
        thread_.join();
        return wrong_;
    }

private:
    enum class Call : uint32_t { kWrite, kOpen, kSync, kClose };
    struct Doing {
        Call call;
        Model* model;
        uint64_t offset;
        Bytes bytes;
    };

    void run() {
        for (const Doing& doing : doings_) {
            if (doing.call == Call::kWrite) {
                write(doing);
            } else if (doing.call == Call::kOpen) {
                const auto opened = machine_.fs().open(doing.model->path, kOpenReadWrite);
                expect(opened.status());
                if (opened.ok()) open_.push_back(opened.value());
            } else if (!open_.empty()) {
                if (doing.call == Call::kSync) expect(machine_.fs().sync(open_.back()));
                if (doing.call == Call::kClose) close();
            }
        }
        while (!open_.empty()) close();
    }
    void write(const Doing& doing) {
        FileOptions options;
        options.open_flags = O_RDWR;
        options.threads = 1;
        const auto file = File::open(doing.model->path, {}, options);
        expect(file.status());
        if (!file.ok()) return;
        expect(file.value().write(doing.bytes.data(), doing.bytes.size(), doing.offset).status());
    }
    void close() {
        expect(machine_.fs().close(open_.back()));
        open_.pop_back();
    }
    void expect(const Status& status) {
        if (!status.ok() && wrong_.empty()) wrong_ = status.message();
    }

    Machine& machine_;
    const uint64_t index_, stripes_;
    base::Prng& prng_;
    std::vector<Model*> models_;
    std::vector<Doing> doings_;
    std::vector<Descriptor> open_;
    std::string wrong_;
    std::thread thread_;
};

Shape shape_of(base::Prng& prng) {
    Shape shape = random_shape(prng);
    if (shape.storage == storage::Kind::kRam) shape.storage = storage::Kind::kPosix;
    shape.page_size = std::min<uint32_t>(shape.page_size, 65536);
    return shape;
}

// Returns how many calls were made.
uint64_t live(uint64_t seed) {
    base::Prng prng(seed);
    const Shape shape = shape_of(prng);
    SCOPED_TRACE(describe(shape));
    Machine machine(shape, 32 << 20);
    if (!machine.ok()) return 0;
    const uint64_t blocks = 1 + prng.below(6);
    std::vector<Model> shared, own;
    const auto make = [&](const std::string& name, uint64_t size) {
        Model model(machine.scratch_path(name), storage::random_bytes(prng.next(), size));
        std::ofstream(model.path, std::ios::binary)
            .write(reinterpret_cast<const char*>(model.bytes.data()),
                   static_cast<std::streamsize>(size));
        return model;
    };
    for (int i = 0; i < 2; ++i) {
        shared.push_back(make("s" + std::to_string(i), prng.below(kSizeMax)));
        const uint64_t stripes[] = {1 + prng.below(200), 64, 1000 + prng.below(9000)};
        shared.back().stripe = stripes[prng.below(3)];
    }
    for (uint64_t b = 0; b < blocks; ++b)
        own.push_back(make("o" + std::to_string(b), prng.below(2) * prng.below(kSizeMax)));
    uint64_t calls = 0;
    for (int launch = 0; launch < 3; ++launch) {
        machine.scratch().clear();
        std::vector<BlockProgram> programs;
        std::vector<std::vector<Step>> steps;
        programs.reserve(blocks);
        for (uint64_t b = 0; b < blocks; ++b) {
            programs.emplace_back(machine, shared, own[b], b, blocks + 1, prng);
            programs.back().generate(kStepsPerBlock);
            steps.push_back(programs.back().steps);
            calls += steps.back().size();
        }
        HostProgram host(machine, shared, blocks, blocks + 1, prng);
        host.generate(prng.below(12));
        host.start();
        const Status status = machine.run(&steps, kPatience);
        EXPECT_EQ(host.end(), "") << "the host, launch " << launch;
        EXPECT_TRUE(status.ok()) << status.message() << machine.device().diagnosis();
        if (!status.ok()) return 0;
        for (uint64_t b = 0; b < blocks; ++b)
            EXPECT_EQ(programs[b].wrong(steps[b]), "") << "block " << b << ", launch " << launch;
        const auto left = machine.fs().reclaim();
        EXPECT_TRUE(left.ok()) << left.status().message();
        EXPECT_EQ(left.value().write_error, 0);
        EXPECT_EQ(machine.broken_invariant(), 0);
        for (std::vector<Model>* models : {&shared, &own}) {
            for (Model& model : *models) {
                const Bytes found = bytes_of_file(model.path);
                model.size = found.size();
                EXPECT_TRUE(std::all_of(model.bytes.begin() + static_cast<int64_t>(found.size()),
                                        model.bytes.end(),
                                        [](std::byte b) { return b == std::byte{0}; }))
                    << model.path << " is too short: " << found.size();
                const auto wrong = std::mismatch(found.begin(), found.end(), model.bytes.begin());
                EXPECT_TRUE(wrong.first == found.end())
                    << model.path << ", launch " << launch << ": byte "
                    << wrong.first - found.begin() << " of " << found.size();
            }
        }
        if (::testing::Test::HasFailure()) return 0;
    }
    return calls;
}

TEST(RandomWrites, EqualFlatBytes) {
    const uint64_t wanted = testing::effort(10'000, 3000, 1'000'000);
    const char* text = std::getenv("PENSTOCK_SEED");
    const uint64_t only = text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
    uint64_t calls = 0;
    for (uint64_t seed = only != 0 ? only : 1; calls < wanted; ++seed) {
        const uint64_t made = live(seed);
        ASSERT_FALSE(HasFailure()) << "PENSTOCK_SEED=" << seed << " replays this program alone";
        calls += made;
        if (only != 0) break;
    }
    RecordProperty("calls", std::to_string(calls));
}

}  // namespace
}  // namespace penstock::system_test
