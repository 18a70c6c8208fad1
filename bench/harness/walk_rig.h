// Runs of the kernels in walks.h: a device, a file system on it with files open, and one launch
// from an empty GPU page cache.
//
// The host must be able to address the device's memory where a baseline uses buffers(). One thread.
#pragma once

#include <functional>
#include <vector>

#include "bench/harness/report.h"
#include "bench/harness/test_file.h"
#include "bench/harness/walks.h"
#include "penstock/device.h"
#include "penstock/file_system.h"

namespace penstock::bench {

// The program's kernels: each program has its own.
struct WalkKernels {
    void (*one)(WalkJob);   // walk_file
    void (*both)(WalkJob);  // walk_files
    void (*forget)(DeviceFileSystem, Descriptor);
};

// A device, and room for what its kernels read to.
class WalkDevice {
public:
    // `blocks`: of a launch; 0: as many as are resident. `buffer_size`: bytes for each.
    WalkDevice(const std::string& name, const DeviceOptions& options, const WalkKernels& kernels,
               unsigned blocks, unsigned threads, uint64_t buffer_size);

    [[nodiscard]] const Device& device() const { return device_; }
    [[nodiscard]] Stream& stream() { return stream_; }
    [[nodiscard]] const WalkKernels& kernels() const { return kernels_; }
    [[nodiscard]] unsigned char* buffers() const { return buffers_; }
    [[nodiscard]] uint64_t buffer_size() const { return buffer_size_; }
    [[nodiscard]] unsigned long long* result() const { return result_; }
    [[nodiscard]] unsigned blocks() const { return blocks_; }
    [[nodiscard]] unsigned threads() const { return threads_; }  // GPU threads of a block

private:
    Device device_;
    const WalkKernels kernels_;
    const unsigned blocks_, threads_;
    const uint64_t buffer_size_;
    Stream stream_;
    unsigned char* buffers_ = nullptr;
    unsigned long long* result_ = nullptr;
};

// What a run did.
struct WalkRun {
    double seconds = 0;
    bool right = true;  // every word that was looked at, and as many bytes as were asked for
    FileSystemStatistics before, after;
    [[nodiscard]] uint64_t storage_bytes() const { return after.bytes_read - before.bytes_read; }
    // Whether every one of `bytes` came from storage, for the run or ahead of a reader before it.
    [[nodiscard]] bool read_all(uint64_t bytes, uint32_t page_size) const {
        const uint64_t ahead = before.pages.prefetched - before.pages.window_hits -
                               before.pages.window_late - before.pages.wasted;
        return storage_bytes() + ahead * page_size >= bytes;
    }
};

// A file system with files open.
class WalkSystem {
public:
    WalkSystem(WalkDevice& device, const FileSystemOptions& options,
               const std::vector<const TestFile*>& files);

    // One launch from an empty page cache; walk i is of file i. `threads`: GPU threads of a block;
    // 0: the device's. `meanwhile` is called again and again while the kernel runs, if it is there.
    WalkRun run(std::vector<Walk> walks, unsigned threads = 0,
                const std::function<void()>& meanwhile = nullptr);
    [[nodiscard]] const FileSystem& fs() const { return fs_; }

private:
    WalkDevice& device_;
    FileSystem fs_;
    std::vector<Descriptor> files_;
};

// Every block through its part of a file.
Walk sequential_walk(const WalkDevice& device, const TestFile& file, uint64_t read_size);

struct Case {
    std::string name, against, note;
    uint64_t bytes = 0;  // of one run
    bool simulated = false;
};
// Seconds of a run; clears `right` where it did or found something else than it should.
using WalkRunner = std::function<double(bool* right)>;
// Two kinds of runs in turn as a row. `state` brings about what is claimed, before each run;
// whether it could.
void compare(Report& report, const Arguments& arguments, const Case& named, const WalkRunner& one,
             const WalkRunner& other, const std::function<bool()>& state = nullptr);

}  // namespace penstock::bench
