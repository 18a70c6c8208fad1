#include "system/machine.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <utility>

#include "backend/backend.h"
#include "base/torn_reads.h"
#include "page_cache/invalidation.h"
#include "penstock/device/atomic.cuh"
#include "testing/remote_device.h"

namespace penstock::system_test {

std::string describe(const Shape& shape) {
    std::string text = (shape.remote ? "remote cpu:" : "cpu:") + std::to_string(shape.permits) +
                       ", " + std::to_string(shape.frames) + " frames of " +
                       std::to_string(shape.page_size) + ", " + storage::name(shape.storage) +
                       (shape.warps ? ", warps of " : ", blocks of ") + std::to_string(shape.lanes);
    constexpr const char* kReadahead[] = {"", ", no readahead", ", static readahead",
                                          ", page after page"};
    constexpr const char* kReplacement[] = {"", ", global LRA", ", CLOCK"};
    text += kReadahead[static_cast<int>(shape.readahead)];
    if (shape.readahead == Readahead::kStatic)
        text += " of " + std::to_string(shape.prefetch_pages) + " pages";
    text += kReplacement[static_cast<int>(shape.replacement)];
    if (shape.short_rings) text += ", short rings";
    if (shape.helping) return text + ", helping";
    return text + ", " + std::to_string(shape.workers) + " workers" +
           (shape.static_map ? ", static map" : "");
}

Scratch::Scratch(const Device& device, size_t size) : device_(device), size_(size) {
    auto memory = device.allocate_pinned(size);
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    if (memory.ok()) memory_ = static_cast<std::byte*>(memory.value());
}

Scratch::~Scratch() {
    if (memory_ != nullptr) device_.free(memory_);
}

void* Scratch::take(size_t size, size_t alignment) {
    const size_t first = (used_ + alignment - 1) / alignment * alignment;
    if (first > size_ || size > size_ - first) return nullptr;
    used_ = first + size;
    return memory_ + first;
}

char* Scratch::text(const std::string& value) {
    char* copy = static_cast<char*>(take(value.size() + 1, 1));
    std::memcpy(copy, value.c_str(), value.size() + 1);
    return copy;
}

bool on_gpu() {
    const char* wish = std::getenv("PENSTOCK_DEVICE");
    return wish != nullptr && std::string_view(wish).starts_with("cuda");
}

namespace {

Result<Device> open_device(const Shape& shape, size_t memory_size) {
    if (on_gpu()) {
        // One for all: to make a context and load its kernels takes longer than most tests.
        static const Result<Device> shared = Device::open();
        return shape.own_device ? Device::open() : shared;
    }
    backend::CpuOptions options;
    options.permits = shape.permits;
    options.memory_size = memory_size;
    options.watchdog_seconds = shape.watchdog_seconds;
    auto port = backend::open_cpu(options);
    if (!port.ok()) return port.status();
    if (shape.remote) return Device(std::make_shared<testing::RemoteDevice>(port.value()));
    return Device(port.value());
}

}  // namespace

Bytes bytes_of_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    Bytes bytes(text.size());
    std::transform(text.begin(), text.end(), bytes.begin(),
                   [](char c) { return static_cast<std::byte>(c); });
    return bytes;
}

Machine::Machine(const Shape& shape, size_t scratch_size, unsigned scratch_caches) : shape_(shape) {
    open(scratch_size, scratch_caches);
}

std::shared_ptr<storage::Storage> Machine::make_storage() {
    std::shared_ptr<storage::Storage> storage = ram_;
    if (storage == nullptr) {
        auto made = storage::make_storage({.kind = shape_.storage, .throttle = {50, 0}});
        if (!made.ok() && shape_.storage == storage::Kind::kUring) {
            made = storage::make_storage({.kind = storage::Kind::kPosix});  // refused here
        }
        EXPECT_TRUE(made.ok()) << made.status().message();
        storage = made.value();
    }
    if (shape_.faults) storage = faults_ = std::make_shared<testing::FaultStorage>(storage);
    return storage;
}

void Machine::open(size_t scratch_size, unsigned scratch_caches) {
    // The tables are at most 96 MiB for the sizes of these tests; room for a second file system.
    const uint64_t cache_size = shape_.frames * shape_.page_size;
    auto device = open_device(
        shape_, 2 * (cache_size + (96 << 20)) + scratch_size + scratch_caches * cache_size);
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = device.value();
    scratch_size += scratch_caches * frame_count() * shape_.page_size;
    if (shape_.storage == storage::Kind::kRam) ram_ = std::make_shared<storage::RamStorage>();
    files_ = std::make_unique<testing::ReferenceFiles>(
        ram_ != nullptr ? std::string() : folder_.path("."), ram_);
    open_file_system();
    auto stream = Stream::create(device_);
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    stream_ = std::move(stream.value());
    scratch_ = std::make_unique<Scratch>(device_, scratch_size);
}

void Machine::open_file_system() {
    FileSystemOptions options;
    options.page_size = shape_.page_size;
    options.cache_size = frame_count() * shape_.page_size;
    options.helping = shape_.helping;
    options.workers = shape_.workers;
    options.study.map = shape_.static_map ? RequestMap::kStatic : RequestMap::kShared;
    options.readahead = shape_.readahead;
    // Beside the page that is missed, in a quarter of the cache, and in 1 MiB.
    const uint64_t room = std::max<uint64_t>(frame_count() / 4, 2) - 1;
    const uint64_t most = std::max<uint64_t>(limits::kWindowSizeMax / shape_.page_size, 1);
    options.prefetch_size = std::min({uint64_t{shape_.prefetch_pages}, room, most}) *
                            shape_.page_size;
    options.replacement = shape_.replacement;
    auto fs = file::System::create(device_, make_storage(), options);
    ASSERT_TRUE(fs.ok()) << fs.status().message();
    fs_ = std::move(fs.value());
    if (shape_.short_rings) shorten_rings();
}

void Machine::shorten_rings() {
    uint64_t& told = service().host_state()->readahead.outrun_slabs;
    told = 1;
    uint64_t& used = service().device_state()->readahead.outrun_slabs;
    if (&used == &told) return;
    auto stream = Stream::create(device_);
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    ASSERT_TRUE(stream.value().copy(&used, &told, sizeof told).ok());
    ASSERT_TRUE(stream.value().synchronize().ok());
}

void Machine::create_file(const std::string& name, uint64_t size, uint64_t seed) {
    ASSERT_TRUE(files_->create(name)) << name;
    ASSERT_TRUE(files_->write(name, 0, storage::random_bytes(seed, size))) << name;
}

BlockSteps* Machine::write_down(const std::vector<std::vector<Step>>& blocks) {
    auto* written = scratch_->array<BlockSteps>(blocks.size());
    for (size_t b = 0; b < blocks.size(); ++b) {
        written[b].steps = scratch_->array<Step>(blocks[b].size());
        written[b].count = blocks[b].size();
        std::copy(blocks[b].begin(), blocks[b].end(), written[b].steps);
    }
    return written;
}

Status Machine::start(Stream& stream, BlockSteps* blocks, size_t count) {
    const LaunchShape shape{{static_cast<unsigned>(count)}, {shape_.lanes}};
    return shape_.warps
               ? launch(stream, shape, run_steps<device::Warps>, fs_.device_handle(), blocks)
               : launch(stream, shape, run_steps<device::Block>, fs_.device_handle(), blocks);
}

Status Machine::wait(std::chrono::seconds limit) {
    const Status status = stream_.synchronize(limit);
    if (status.error_number() == ETIMEDOUT) end(status);
    return status;
}

Status Machine::run(std::vector<std::vector<Step>>* blocks, std::chrono::seconds limit) {
    BlockSteps* written = write_down(*blocks);
    if (Status status = start(stream_, written, blocks->size()); !status.ok()) return status;
    const Status status = wait(limit);
    // A block that was given up may still run, and with it what it was given.
    if (status.error_number() == ETIMEDOUT) return status;
    for (size_t b = 0; b < blocks->size(); ++b) {
        std::copy_n(written[b].steps, written[b].count, (*blocks)[b].begin());
    }
    return status;
}

std::vector<Step> Machine::run_block(const std::vector<Step>& steps, std::chrono::seconds limit) {
    std::vector<std::vector<Step>> blocks{steps};
    const Status status = run(&blocks, limit);
    EXPECT_TRUE(status.ok()) << status.message();
    for (const Step& step : blocks[0]) EXPECT_EQ(step.disagreements, 0u);
    EXPECT_EQ(broken_invariant(), 0);
    return blocks[0];
}

std::byte* Machine::put(const Bytes& bytes) {
    auto* copy = static_cast<std::byte*>(scratch_->take(bytes.size(), alignof(std::max_align_t)));
    PENSTOCK_CHECK(copy != nullptr, "the test needs more scratch memory");
    std::copy(bytes.begin(), bytes.end(), copy);
    return copy;
}

// Shows and ends a launch that has not come to its end.
void Machine::end(const Status& status) {
    std::fputs(picture().c_str(), stderr);
    if (!on_gpu()) return;
    fs_.abort(status);
    if (stream_.synchronize(std::chrono::seconds(10)).error_number() != ETIMEDOUT) return;
    std::fputs("a kernel does not end, and nothing ends it on a GPU: no further tests\n", stderr);
    std::_Exit(1);
}

// The page cache's words for the host: the tables themselves; or a copy of them, made now, whose
// pointers into the tables point into the copy. Null: it could not be made.
FileSystemState* Machine::look() {
    FileSystemState* state = service().host_state();
    if (device_.host_addressable()) return state;
    const auto* there = reinterpret_cast<const std::byte*>(service().device_state());
    const size_t size = service().tables_size();
    if (tables_ == nullptr) {
        tables_ = std::make_unique_for_overwrite<std::byte[]>(size);
        auto stream = Stream::create(device_);
        if (!stream.ok()) return nullptr;
        looks_ = std::move(stream.value());
    }
    const base::TornReads torn;  // kernels may go on meanwhile
    if (!looks_.copy(tables_.get(), there, size).ok() ||
        !looks_.synchronize(std::chrono::seconds(10)).ok()) {
        return nullptr;
    }
    // Whatever table is added: no other word of the state looks like an address in them.
    auto* copy = reinterpret_cast<FileSystemState*>(tables_.get());
    static_assert(sizeof *copy % sizeof(uint64_t) == 0);
    const auto begin = reinterpret_cast<uint64_t>(there);
    const auto here = reinterpret_cast<uint64_t>(tables_.get());
    for (size_t at = 0; at < sizeof *copy; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        std::memcpy(&word, tables_.get() + at, sizeof word);
        if (word < begin || word >= begin + size) continue;
        word += here - begin;
        std::memcpy(tables_.get() + at, &word, sizeof word);
    }
    return copy;
}

uint64_t Machine::word(uint64_t FileSystemState::*which) {
    FileSystemState* state = look();
    EXPECT_NE(state, nullptr) << "the page table could not be copied from the device";
    return state == nullptr ? ~uint64_t{0} : state->*which;
}

std::string Machine::picture() {
    FileSystemState* seen = look();
    if (seen == nullptr) return "the page table could not be copied from the device\n";
    using device::DeviceWords;
    const auto load = [](uint64_t& word) { return DeviceWords::load(word, site::kLook); };
    FileSystemState& state = *seen;
    std::ostringstream text;
    text << "backlog " << service().observe().backlog << ", held pins " << load(state.held_pins)
         << ", clock hand " << load(state.clock_hand) << ", leaf hand " << load(state.leaf_hand)
         << "\n";
    for (uint32_t port = 0; port < limits::kPortsMax; ++port) {
        if (load(state.port_locks[port]) == 0) continue;
        text << "port " << port << ": asked " << load(state.port_requests[port]) << ", answered "
             << load(state.port_responses[port]) << "\n";
    }
    for (uint64_t i = 0; i < uint64_t{state.leaf_count} * limits::kLeafEntries; ++i) {
        const uint64_t entry = load(state.leaves[i]);
        if (entry == 0) continue;
        const FrameIndex frame = frame_of(entry);
        text << "directory word " << load(state.leaf_owners[i / limits::kLeafEntries]) << ", page "
             << i % limits::kLeafEntries << ": state " << static_cast<int>(state_of(entry))
             << ", pins " << pins_of(entry) << ", generation " << generation_of(entry) << ", frame "
             << frame << " of " << std::hex << load(state.owners[frame]) << std::dec
             << ", completion of " << completion_generation(load(state.completions[frame]))
             << ", errno " << completion_error(load(state.completions[frame])) << "\n";
    }
    return text.str();
}

int Machine::broken_invariant() {
    FileSystemState* state = look();
    EXPECT_NE(state, nullptr) << "the page table could not be copied from the device";
    return state == nullptr ? 0 : page_cache::check_invariants(*state);
}

}  // namespace penstock::system_test
