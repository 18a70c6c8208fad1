#include "system/random_program.h"
#include "testing/effort.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace penstock::system_test {
namespace {

constexpr uint64_t kFourGiB = uint64_t{4} << 30;
constexpr uint64_t kReadSizeMax = 1 << 20;
constexpr size_t kGuardSize = 24;
constexpr uint32_t kViewsUsed = 4;  // by each block
constexpr std::byte kUntouched{0xa5};

Bytes fill(base::Prng& prng, size_t size) {
    Bytes bytes(size);
    for (size_t i = 0; i < size; i += 8) {
        const uint64_t word = prng.next();
        std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, size - i));
    }
    return bytes;
}

template <class T>
T one_of(base::Prng& prng, std::initializer_list<T> values) {
    return values.begin()[prng.below(values.size())];
}

// What gadvise takes of what is drawn: of kStrided the offset is a distance, of all others a place.
bool is_valid_advice(const Step& step) {
    const auto advice = static_cast<Advice>(step.flags);
    if (advice > Advice::kStrided) return false;
    if (advice != Advice::kStrided) return step.offset >= 0;
    return step.offset != 0 && step.offset <= kAdviceStrideMax && step.offset >= -kAdviceStrideMax;
}

}  // namespace

Shape random_shape(base::Prng& prng) {
    using storage::Kind;
    Shape shape;
    shape.permits = static_cast<unsigned>(one_of(prng, {1, 2, 2, 3, 4, 8}));
    shape.page_size = one_of<uint32_t>(prng, {4096, 4096, 8192, 16384, 65536, 65536, 1 << 20});
    const uint64_t everything = std::max<uint64_t>((uint64_t{24} << 20) / shape.page_size, 24);
    // A quarter of the frames may be in windows: with few there are none.
    shape.frames = one_of<uint64_t>(prng, {8, 8, shape.permits, 12, 33, 80, 200, 200, everything});
    shape.frames = std::clamp<uint64_t>(shape.frames, shape.permits, everything);
    shape.lanes = static_cast<unsigned>(one_of(prng, {1, 2, 7, 32, 32, 33, 64, 96, 512}));
    // ThreadSanitizer takes a megabyte or so for each lane and permit.
    if (testing::kThreadSanitizer) shape.lanes = std::min(shape.lanes, 64u);
    shape.warps = prng.below(3) == 0;
    shape.helping = prng.below(2) == 0;
    shape.workers = static_cast<unsigned>(1 + prng.below(4));
    shape.static_map = !shape.helping && prng.below(3) == 0;
    shape.readahead = one_of(prng, {Readahead::kAuto, Readahead::kAuto, Readahead::kAuto,
                                    Readahead::kStatic, Readahead::kOff, Readahead::kSeed});
    if (shape.readahead == Readahead::kStatic && shape.frames < 8)
        shape.readahead = Readahead::kAuto;  // no window fits
    shape.prefetch_pages = static_cast<unsigned>(1 + prng.below(15));
    shape.replacement = one_of(prng, {Replacement::kRings, Replacement::kRings, Replacement::kClock,
                                      Replacement::kGlobalLra});
    shape.short_rings = prng.below(2) == 0;
    shape.storage = one_of(
        prng, {Kind::kPosix, Kind::kPosix, Kind::kRam, Kind::kRam, Kind::kUring, Kind::kThrottle});
    shape.remote = prng.below(4) == 0;
    if (shape.remote) shape.helping = false;
    // On a GPU larger pages than these make a cache that nothing here fills.
    if (on_gpu() && shape.page_size > 8192 && prng.below(4) != 0) shape.page_size = 4096;
    return shape;
}

std::vector<std::string> make_files(Machine& machine, base::Prng& prng) {
    const uint64_t page = machine.shape().page_size;
    testing::ReferenceFiles& files = machine.files();
    std::vector<std::string> names;
    const auto create = [&](uint64_t size) {
        names.push_back("f" + std::to_string(names.size()));
        EXPECT_TRUE(files.create(names.back()) && files.resize(names.back(), size));
    };
    const auto put = [&](uint64_t offset, uint64_t size) {
        EXPECT_TRUE(files.write(names.back(), offset, fill(prng, size)));
    };
    create(0);
    create(0), put(0, 1 + prng.below(3 * page));
    create(0), put(0, page * (1 + prng.below(3)));
    create(0), put(0, 64 * page < (1 << 20) ? 64 * page + prng.below(page) : 1 << 20);
    create(1 << 20);  // holes between three pieces
    for (int i = 0; i < 3; ++i) put(prng.below((1 << 20) - 5000), 1 + prng.below(5000));
    create(kFourGiB + prng.below(kFourGiB));
    put(0, 1000), put(kFourGiB - 3000, 6000);
    put(files.file(names.back()).size() - 500, 500 + prng.below(2 * page));
    create(page * 600 + prng.below(page));  // more than one leaf of the page table
    put(page * 512 - 700, 1500);
    return names;
}

void change_file(Machine& machine, const std::string& name, base::Prng& prng) {
    testing::ReferenceFiles& files = machine.files();
    const uint64_t size = files.file(name).size();
    bool ok = true;
    switch (prng.below(6)) {
        case 0:  // in place, of the same size
            if (size > 0) {
                const uint64_t offset = prng.below(size);
                ok = files.write(
                    name, offset,
                    fill(prng, 1 + prng.below(std::min<uint64_t>(size - offset, 50'000))));
            }
            break;
        case 1:
            ok = files.resize(name, prng.below(size + 1));
            break;
        case 2:
            ok = files.write(name, size, fill(prng, 1 + prng.below(20'000)));
            break;
        case 3:
            ok = files.resize(name, size + prng.below(1 << 20));
            break;
        case 4:  // cut off and written again: the same size, other bytes
            ok = files.resize(name, 0) &&
                 files.write(name, 0, fill(prng, std::min<uint64_t>(size, 100'000))) &&
                 files.resize(name, size);
            break;
        default: {
            const bool renames = machine.shape().storage != storage::Kind::kRam;
            const std::string made = renames ? "new" : name;
            if (!renames) ok = files.remove(name);
            ok = ok && files.create(made) &&
                 files.write(made, 0, fill(prng, std::min<uint64_t>(size, 60'000)));
            if (renames) ok = ok && files.rename(made, name);
        }
    }
    EXPECT_TRUE(ok) << "the file could not be changed";
}

RandomProgram::RandomProgram(Machine& machine, const std::vector<std::string>& names,
                             const std::vector<Descriptor>& given,
                             const std::vector<std::string>& given_names, base::Prng& prng)
    : machine_(machine), prng_(prng), names_(names), given_(given), given_names_(given_names) {}

uint64_t RandomProgram::views_max() const { return blocks_.size() * kViewsUsed; }

uint64_t RandomProgram::step_count() const {
    uint64_t count = 0;
    for (const Block& block : blocks_) count += block.steps.size();
    return count;
}

void RandomProgram::add(Block& block, Step step, std::string name) {
    block.steps.push_back(step);
    block.names.push_back(std::move(name));
}

void RandomProgram::generate(uint64_t step_count) {
    blocks_.resize(1 + prng_.below(2 * machine_.shape().permits + 2));
    for (Block& block : blocks_) {
        block.tidy = prng_.below(5) != 0;
        for (uint32_t i = 0; i < given_.size() && i < kFilesPerBlock / 2; ++i) {
            block.files[i] = {Hold::kOpen, true, given_names_[i]};
            add(block, set_step(i, given_[i]), given_names_[i]);
        }
        for (uint64_t i = 0; i < step_count / blocks_.size() && add_step(block); ++i) {
        }
        if (block.tidy) tidy_up(block);
    }
}

// False: the outputs have no more room.
bool RandomProgram::add_step(Block& block) {
    const auto index = static_cast<uint32_t>(prng_.below(kFilesPerBlock));
    const auto view = static_cast<uint32_t>(prng_.below(kViewsUsed));
    if (prng_.below(10) == 0 && block.views[view].mapped) {
        if (prng_.below(2) == 0) {
            block.views[view].mapped = false;
            add(block, unmap_step(view));
            return true;
        }
        std::byte* out = take_output(
            std::min<uint64_t>(block.views[view].size, machine_.shape().page_size));
        if (out == nullptr) return false;
        add(block, {.act = Act::kLook, .view = view, .out = out});
        return true;
    }
    if (block.files[index].hold == Hold::kNothing || prng_.below(12) == 0) {
        add_file_step(block, index);
        return true;
    }
    if (prng_.below(6) == 0 && !block.views[view].mapped) return add_map(block, index, view);
    if (prng_.below(12) == 0) {
        add(block, stat_step(index));
        return true;
    }
    if (prng_.below(20) == 0) {
        add_advice(block, index);
        return true;
    }
    return prng_.below(4) == 0 ? add_walk(block, index) : add_read(block, index);
}

void RandomProgram::add_file_step(Block& block, uint32_t index) {
    File& file = block.files[index];
    if (file.given) return add(block, stat_step(index));
    if (file.hold == Hold::kOpen) {
        file.hold = Hold::kClosed;
        return add(block, close_step(index));
    }
    if (prng_.below(12) != 0) return add_open(block, index);
    // No descriptor that was ever given out: another file system's, one far ahead, any number.
    const Descriptor known = given_.empty() ? make_descriptor(1, 0, 1) : given_[0];
    const Descriptor garbage = one_of<Descriptor>(
        prng_, {-1, INT64_MIN, known ^ (int64_t{1} << 59), known + (int64_t{1} << 40),
                known | 0xffff, static_cast<Descriptor>(prng_.next() | 0x7fff)});
    file = {Hold::kGarbage, false, ""};
    add(block, set_step(index, garbage));
}

void RandomProgram::add_open(Block& block, uint32_t index) {
    File& file = block.files[index];
    const std::string& name = names_[prng_.below(names_.size())];
    if (prng_.below(25) == 0) {  // fails: the descriptor is then an errno
        file = {Hold::kGarbage, false, ""};
        const bool flags = prng_.below(2) == 0;
        const std::string path = machine_.files().path(flags ? name : "not there");
        return add(block, open_step(index, machine_.scratch().text(path), flags ? 3 : 0));
    }
    file = {Hold::kOpen, false, name};
    add(block, open_step(index, machine_.scratch().text(machine_.files().path(name))), name);
}

bool RandomProgram::add_read(Block& block, uint32_t index) {
    const File& file = block.files[index];
    Step step = read_step(index, pick_offset(file.name, block), 0, nullptr);
    if (prng_.below(25) == 0) {  // no buffer: no bytes, or an error
        step.size = prng_.below(2);
        return add(block, step), true;
    }
    step.size = pick_size(file.name, step.offset);
    const testing::ReferenceFile* bytes = reference(file);
    const uint64_t count = bytes == nullptr || step.offset < 0
                               ? 0
                               : bytes->count(static_cast<uint64_t>(step.offset), step.size);
    if (count > 0) block.cursor = step.offset + static_cast<int64_t>(count);
    step.out = take_output(count);
    if (step.out == nullptr) return false;
    return add(block, step), true;
}

// Reads one behind the other, or at equal distances, forwards or backwards: what readahead follows.
bool RandomProgram::add_walk(Block& block, uint32_t index) {
    const File& file = block.files[index];
    const testing::ReferenceFile* bytes = reference(file);
    if (bytes == nullptr || bytes->size() == 0) return true;
    const uint64_t page = machine_.shape().page_size;
    const auto size = one_of<uint64_t>(prng_, {1 + prng_.below(page), page, page, 2 * page});
    const auto pages = static_cast<int64_t>(page * (1 + prng_.below(4)));
    const auto whole = static_cast<int64_t>(size);
    const auto step = one_of<int64_t>(prng_, {whole, whole, whole, pages, -pages, -whole});
    auto offset = static_cast<int64_t>(prng_.below(bytes->size()));
    if (prng_.below(2) == 0) offset -= offset % static_cast<int64_t>(page);
    for (uint64_t i = 2 + prng_.below(10); i > 0 && offset >= 0; --i, offset += step) {
        Step read = read_step(index, offset, size, nullptr);
        read.out = take_output(bytes->count(static_cast<uint64_t>(offset), size));
        if (read.out == nullptr) return false;
        add(block, read);
    }
    return true;
}

// Of all kinds, sensible or not: strides among them, ranges beyond the end, one against the other.
void RandomProgram::add_advice(Block& block, uint32_t index) {
    const auto page = static_cast<int64_t>(machine_.shape().page_size);
    const auto offset = prng_.below(3) == 0
                            ? pick_offset(block.files[index].name, block)
                            : one_of<int64_t>(prng_, {0, 0, -1, page, 3 * page, -2 * page});
    add(block, {.act = Act::kAdvise,
                .file = index,
                .flags = static_cast<int32_t>(prng_.below(8)),
                .offset = offset,
                .size = one_of<uint64_t>(prng_, {0, 1, 5 * static_cast<uint64_t>(page)})});
}

bool RandomProgram::add_map(Block& block, uint32_t index, uint32_t view) {
    const File& file = block.files[index];
    Step step = map_step(index, view, pick_offset(file.name, block),
                         prng_.below(2 * machine_.shape().page_size), nullptr);
    step.out = take_output(std::min<uint64_t>(step.size, machine_.shape().page_size));
    if (step.out == nullptr) return false;
    block.views[view] = {true, file.name, step.offset, step.size, 0};
    return add(block, step), true;
}

void RandomProgram::tidy_up(Block& block) {
    for (uint32_t i = 0; i < kViewsUsed; ++i) {
        if (block.views[i].mapped) add(block, unmap_step(i));
    }
    for (uint32_t i = 0; i < kFilesPerBlock; ++i) {
        if (block.files[i].hold == Hold::kOpen && !block.files[i].given) add(block, close_step(i));
    }
}

int64_t RandomProgram::pick_offset(const std::string& name, Block& block) {
    if (prng_.below(30) == 0) return one_of<int64_t>(prng_, {-1, INT64_MIN, INT64_MAX});
    const uint64_t page = machine_.shape().page_size;
    const uint64_t size = name.empty() ? 1000 : machine_.files().file(name).size();
    const auto near = [&](uint64_t place) {
        const auto distance = static_cast<int64_t>(prng_.below(200)) - 100;
        return std::max<int64_t>(0, static_cast<int64_t>(place) + distance);
    };
    switch (prng_.below(7)) {
        case 0:
            return near(size);
        case 1:
            return near(prng_.below(size / page + 2) * page);
        case 2:
            return static_cast<int64_t>(prng_.below(size / page + 1) * page);
        case 3:
            return near(size > kFourGiB ? kFourGiB - 2000 : 512 * page);
        case 4:
            return block.cursor;
        default:
            return static_cast<int64_t>(prng_.below(size + 2));
    }
}

uint64_t RandomProgram::pick_size(const std::string& name, int64_t offset) {
    const uint64_t page = machine_.shape().page_size;
    if (!name.empty() && offset >= 0 && prng_.below(8) == 0 &&
        machine_.files().file(name).count(static_cast<uint64_t>(offset), UINT64_MAX) <
            kReadSizeMax) {
        return UINT64_MAX - prng_.below(3);
    }
    const uint64_t limit = one_of<uint64_t>(
        prng_, {1, 100, 100, page, page, 3 * page, 16 * page, 80 * page});
    return prng_.below(std::min(limit, kReadSizeMax) + 1);
}

// Room for `size` bytes and a guard behind them, at any alignment.
std::byte* RandomProgram::take_output(uint64_t size) {
    auto* first = static_cast<std::byte*>(machine_.scratch().take(size + kGuardSize + 32, 32));
    // The steps themselves want room too.
    if (first == nullptr || machine_.scratch().free_size() < (1 << 20)) return nullptr;
    std::memset(first, static_cast<int>(kUntouched), size + kGuardSize + 32);
    return first + prng_.below(33);
}

Status RandomProgram::start(Stream& stream) {
    std::vector<std::vector<Step>> steps;
    for (const Block& block : blocks_) steps.push_back(block.steps);
    written_ = machine_.write_down(steps);
    return machine_.start(stream, written_, blocks_.size());
}

// What the walk over a block's steps has found so far.
struct RandomProgram::Checked {
    File files[kFilesPerBlock];
    View views[kViewsPerBlock];
    const std::string* name = nullptr;  // of this step
    Expected left;
};

std::string RandomProgram::check(Expected* left) const {
    for (size_t b = 0; b < blocks_.size(); ++b) {
        Checked state;
        if (written_[b].done != written_[b].count)
            return "block " + std::to_string(b) + " has not come to its end";
        for (size_t i = 0; i < written_[b].count; ++i) {
            const Step& step = written_[b].steps[i];
            state.name = &blocks_[b].names[i];
            std::string wrong = check_step(step, state);
            if (step.disagreements > 0) wrong = "threads got different results";
            if (wrong.empty()) continue;
            const std::string& file = state.files[step.file].name;
            return "block " + std::to_string(b) + ", step " + std::to_string(i) + ", act " +
                   std::to_string(static_cast<int>(step.act)) + " on '" + file + "' at " +
                   std::to_string(step.offset) + ", size " + std::to_string(step.size) +
                   ", result " + std::to_string(step.result) + ": " + wrong;
        }
        left->descriptors += state.left.descriptors;
        left->views += state.left.views;
    }
    return {};
}

const testing::ReferenceFile* RandomProgram::reference(const File& file) const {
    return file.name.empty() ? nullptr : &machine_.files().file(file.name);
}

namespace {

std::string equal(int64_t result, int64_t wanted) {
    return result == wanted ? std::string() : "should be " + std::to_string(wanted);
}

}  // namespace

std::string RandomProgram::check_step(const Step& step, Checked& state) const {
    File& file = state.files[step.file];
    View& view = state.views[step.view];
    // Any block may have the same file open, and then a closed descriptor is as good as theirs.
    const bool bad = step.result == -EBADF && file.hold != Hold::kOpen;
    switch (step.act) {
        case Act::kOpen: {
            const bool known = !state.name->empty();
            file = {known ? Hold::kOpen : Hold::kGarbage, false, *state.name};
            state.left.descriptors += known;
            if (known) return step.result >= 0 ? "" : "should be a descriptor";
            return equal(step.result, step.flags != 0 ? -EINVAL : -ENOENT);
        }
        case Act::kClose:
            file.hold = Hold::kClosed;
            --state.left.descriptors;
            return equal(step.result, 0);
        case Act::kSet:
            file = {state.name->empty() ? Hold::kGarbage : Hold::kOpen, true, *state.name};
            return {};
        case Act::kRead:
            return bad ? "" : check_read(step, file);
        case Act::kMap: {
            view = {true, file.name, step.offset, step.size, step.result};
            std::string wrong = bad ? "" : check_map(step, file, view);
            state.left.views += step.result > 0;
            return wrong;
        }
        case Act::kLook:
            if (step.result != view.result) return "should be " + std::to_string(view.result);
            return view.result <= 0 ? ""
                                    : check_bytes(view.name, view.offset,
                                                  static_cast<uint64_t>(view.result), step.out);
        case Act::kUnmap:
            state.left.views -= view.result > 0;
            return equal(step.result, std::exchange(view.result, 0) > 0 ? 0 : -EINVAL);
        case Act::kStat: {
            const testing::ReferenceFile* bytes = reference(file);
            return bad ? ""
                       : equal(step.result,
                               bytes == nullptr ? -EBADF : static_cast<int64_t>(bytes->size()));
        }
        case Act::kAdvise:
            if (bad) return {};
            if (reference(file) == nullptr) return equal(step.result, -EBADF);
            return equal(step.result, is_valid_advice(step) ? 0 : -EINVAL);
        default:
            return "no such act";
    }
}

std::string RandomProgram::check_read(const Step& step, const File& file) const {
    const testing::ReferenceFile* bytes = reference(file);
    if (bytes == nullptr) return equal(step.result, -EBADF);
    if (step.offset < 0) return equal(step.result, -EINVAL);
    if (step.out == nullptr) return equal(step.result, step.size == 0 ? 0 : -EFAULT);
    const uint64_t count = bytes->count(static_cast<uint64_t>(step.offset), step.size);
    if (std::string wrong = equal(step.result, static_cast<int64_t>(count)); !wrong.empty())
        return wrong;
    return check_bytes(file.name, step.offset, count, step.out);
}

std::string RandomProgram::check_map(const Step& step, const File& file, View& view) const {
    const testing::ReferenceFile* bytes = reference(file);
    if (bytes == nullptr) return equal(step.result, -EBADF);
    if (step.offset < 0) return equal(step.result, -EINVAL);
    const auto offset = static_cast<uint64_t>(step.offset);
    const uint64_t page = machine_.shape().page_size;
    const uint64_t count = std::min(bytes->count(offset, step.size), page - offset % page);
    const uint64_t views = views_max() + views_of_others_;
    const bool crowded = machine_.shape().frames - machine_.shape().permits < views;
    if (count > 0 && crowded && step.result == -ENOMEM) return {};
    if (std::string wrong = equal(step.result, static_cast<int64_t>(count)); !wrong.empty())
        return wrong;
    return check_bytes(view.name, step.offset, count, step.out);
}

std::string RandomProgram::check_bytes(const std::string& name, int64_t offset, uint64_t count,
                                       const std::byte* out) const {
    const size_t first = count == 0 ? 0
                                    : machine_.files().file(name).mismatch(
                                          static_cast<uint64_t>(offset), {out, count});
    if (first != count) return "byte " + std::to_string(first) + " is wrong";
    const bool guarded = std::all_of(out + count, out + count + kGuardSize,
                                     [](std::byte byte) { return byte == kUntouched; });
    return guarded ? "" : "bytes behind the result were written";
}

}  // namespace penstock::system_test
