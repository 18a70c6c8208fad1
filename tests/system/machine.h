// What the system tests share: a device, a file system over a storage of the test's choice, files
// with known bytes, and launches of the interpreter (steps.h).
//
// The device of a shape is the CPU backend with as many permits as it names; or the same behind a
// RemoteDevice, which makes the host serve it as it serves a GPU; or, where PENSTOCK_DEVICE names
// one, a GPU for every shape. A GPU has thousands of permits: what a scenario is to use up must be
// counted by frame_count() and leaf_count(), not by the shape.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "file/system.h"
#include "penstock/file_system.h"
#include "storage/ram.h"
#include "storage/storage_fixture.h"
#include "system/steps.h"
#include "testing/fault_storage.h"
#include "testing/reference_files.h"

namespace penstock::system_test {

using storage::Bytes;

struct Shape {
    unsigned permits = 2;
    uint32_t page_size = 4096;
    uint64_t frames = 64;
    bool helping = true;
    unsigned workers = 2;  // without helping, or where blocks cannot help
    bool static_map = false;
    bool warps = false;
    Readahead readahead = Readahead::kAuto;
    unsigned prefetch_pages = 15;  // of Readahead::kStatic; fewer where they do not fit
    Replacement replacement = Replacement::kRings;
    bool short_rings = false;  // streams outrun rings of any size
    unsigned lanes = 32;
    storage::Kind storage = storage::Kind::kPosix;  // kRam, kUring, kThrottle
    bool faults = false;                            // the storage is wrapped in a FaultStorage
    bool remote = false;      // the host cannot address the device's memory; always so on a GPU
    bool own_device = false;  // on a GPU, which tests share: the test makes its device unusable
    double watchdog_seconds = 60;
};

std::string describe(const Shape& shape);
// All of a file as the operating system has it; nothing, if it cannot be read.
Bytes bytes_of_file(const std::string& path);

// Whether PENSTOCK_DEVICE names a GPU, which then stands in for the device of every shape.
bool on_gpu();

// Memory for steps, paths and outputs: one piece, handed out from the start.
class Scratch {
public:
    Scratch(const Device& device, size_t size);
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    // Null when it is used up.
    void* take(size_t size, size_t alignment);
    template <class T>
    T* array(size_t count) {
        T* first = static_cast<T*>(take(count * sizeof(T), alignof(T)));
        PENSTOCK_CHECK(first != nullptr, "the test needs more scratch memory");
        for (size_t i = 0; i < count; ++i) new (first + i) T();
        return first;
    }
    char* text(const std::string& value);
    void clear() { used_ = 0; }
    [[nodiscard]] size_t free_size() const { return size_ - used_; }

private:
    Device device_;
    std::byte* memory_ = nullptr;
    size_t size_, used_ = 0;
};

class Machine {
public:
    // A failure is a failed assertion of the test, and ok() is false.
    // `scratch_caches`: scratch memory for so many times what the cache holds here, beyond that.
    explicit Machine(const Shape& shape, size_t scratch_size = 16 << 20,
                     unsigned scratch_caches = 0);

    [[nodiscard]] bool ok() const { return scratch_ != nullptr; }
    [[nodiscard]] const Shape& shape() const { return shape_; }
    // As many frames more than permits as the shape has: what views may hold is the same anywhere.
    [[nodiscard]] uint64_t frame_count() const {
        return shape_.frames - shape_.permits + device_.permits();
    }
    // Views of a page that find room whatever asynchronous calls hold.
    [[nodiscard]] uint64_t views_at_once() {
        const FileSystemState* state = service().host_state();
        return std::min(state->views_max, state->held_max - state->async_pages_max);
    }
    [[nodiscard]] uint64_t leaf_count() { return service().host_state()->leaf_count; }
    // Whether the file system can drop pages of a closed file, and so use its slot for another,
    // while a kernel runs.
    [[nodiscard]] bool drops_under_kernels() const { return device_.host_addressable(); }
    Device& device() { return device_; }
    FileSystem& fs() { return fs_; }
    service::Service& service() { return fs_.system()->service(); }
    testing::FaultPlan& faults() { return faults_->plan(); }
    testing::ReferenceFiles& files() { return *files_; }
    storage::RamStorage& ram() { return *ram_; }  // of Kind::kRam
    Scratch& scratch() { return *scratch_; }
    Stream& stream() { return stream_; }
    // Another file system on the same device, with the same files. Waits for nothing.
    void renew() { open_file_system(); }
    // Likewise, one of the test's own.
    void use(FileSystem fs) { fs_ = std::move(fs); }
    [[nodiscard]] std::string scratch_path(const std::string& name) const {
        return folder_.path(name);
    }

    // A file of `size` random bytes.
    void create_file(const std::string& name, uint64_t size, uint64_t seed);

    // One block for each list of steps. They are in scratch(), where the results will be.
    BlockSteps* write_down(const std::vector<std::vector<Step>>& blocks);
    Status start(Stream& stream, BlockSteps* blocks, size_t count);
    // Waits for what is in stream(), a test's own launches too; ends what takes longer.
    Status wait(std::chrono::seconds limit = std::chrono::seconds(120));
    // Starts them in stream() and waits; the steps with their results.
    Status run(std::vector<std::vector<Step>>* blocks,
               std::chrono::seconds limit = std::chrono::seconds(120));
    // The same for one block, which must end with nothing broken and its threads agreed.
    std::vector<Step> run_block(const std::vector<Step>& steps,
                                std::chrono::seconds limit = std::chrono::seconds(120));
    // A copy in the scratch memory.
    std::byte* put(const Bytes& bytes);

    // Waits until `done()`, at most ten seconds: whether it came true.
    template <class Done>
    static bool wait_until(Done done) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (!done()) {
            if (std::chrono::steady_clock::now() > end) return false;
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
        return true;
    }

    // Every page in the cache, every call and request under way: for launches that do not end.
    std::string picture();
    // Number of the first invariant of the page cache that is broken; 0: none.
    int broken_invariant();
    // As the page table has them; ~0: it could not be looked at.
    uint64_t held_pins() { return word(&FileSystemState::held_pins); }
    uint64_t dirty_pages() { return word(&FileSystemState::dirty_pages); }

private:
    void open(size_t scratch_size, unsigned scratch_caches);
    void open_file_system();
    void shorten_rings();  // as the shape's short_rings says
    std::shared_ptr<storage::Storage> make_storage();
    FileSystemState* look();
    uint64_t word(uint64_t FileSystemState::*which);
    void end(const Status& status);

    const Shape shape_;
    storage::ScratchFolder folder_;
    Device device_;
    std::shared_ptr<testing::FaultStorage> faults_;
    std::shared_ptr<storage::RamStorage> ram_;
    std::unique_ptr<testing::ReferenceFiles> files_;
    std::unique_ptr<Scratch> scratch_;
    FileSystem fs_;
    std::unique_ptr<std::byte[]> tables_;  // look()'s copy
    Stream looks_;
    Stream stream_;  // goes first: it waits for what runs
};

inline std::vector<int64_t> results_of(const std::vector<Step>& steps) {
    std::vector<int64_t> results;
    for (const Step& step : steps) results.push_back(step.result);
    return results;
}

// Steps in few words.
inline Step open_step(uint32_t file, const char* path, int flags = 0) {
    return {.act = Act::kOpen, .file = file, .flags = flags, .path = path};
}
inline Step close_step(uint32_t file) { return {.act = Act::kClose, .file = file}; }
inline Step set_step(uint32_t file, Descriptor descriptor) {
    return {.act = Act::kSet, .file = file, .offset = descriptor};
}
inline Step stat_step(uint32_t file) { return {.act = Act::kStat, .file = file}; }
inline Step read_step(uint32_t file, int64_t offset, uint64_t size, std::byte* out) {
    return {.act = Act::kRead, .file = file, .offset = offset, .size = size, .out = out};
}
inline Step write_step(uint32_t file, int64_t offset, uint64_t size, std::byte* from) {
    return {.act = Act::kWrite, .file = file, .offset = offset, .size = size, .out = from};
}
inline Step begin_read_step(uint32_t file, uint32_t call, int64_t offset, uint64_t size,
                            std::byte* out) {
    return {.act = Act::kBeginRead,
            .file = file,
            .view = call,
            .offset = offset,
            .size = size,
            .out = out};
}
inline Step begin_write_step(uint32_t file, uint32_t call, int64_t offset, uint64_t size,
                             std::byte* from) {
    return {.act = Act::kBeginWrite,
            .file = file,
            .view = call,
            .offset = offset,
            .size = size,
            .out = from};
}
inline Step wait_step(uint32_t call) { return {.act = Act::kWait, .view = call}; }
inline Step sync_step(uint32_t file) { return {.act = Act::kSync, .file = file}; }
inline Step cut_step(uint32_t file, uint64_t size) {
    return {.act = Act::kCut, .file = file, .size = size};
}
inline Step advise_step(uint32_t file, Advice advice) {
    return {.act = Act::kAdvise, .file = file, .flags = static_cast<int32_t>(advice)};
}
inline Step unlink_step(const char* path) { return {.act = Act::kUnlink, .path = path}; }
inline Step change_step(uint32_t view, std::byte* from) {
    return {.act = Act::kChange, .view = view, .out = from};
}
inline Step map_step(uint32_t file, uint32_t view, int64_t offset, uint64_t size, std::byte* out) {
    return {
        .act = Act::kMap, .file = file, .view = view, .offset = offset, .size = size, .out = out};
}
inline Step unmap_step(uint32_t view) { return {.act = Act::kUnmap, .view = view}; }

}  // namespace penstock::system_test
