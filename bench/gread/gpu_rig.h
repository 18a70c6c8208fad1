// Runs of bench gread on a device whose memory the host cannot address: kernels that read a file
// into one buffer as large as it, and copies that a program could make instead.
//
// After every run, of a case or a baseline, a kernel compares all bytes. One thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bench/gread_kernels.h"
#include "bench/harness/crew.h"
#include "bench/harness/report.h"
#include "bench/harness/test_file.h"
#include "penstock/device.h"
#include "penstock/file.h"
#include "penstock/file_system.h"

namespace penstock::bench {

// How a kernel reads.
struct GpuCase {
    const char* name;
    uint32_t page_size;
    uint64_t request_size;
    unsigned blocks, threads;
    bool sweep = false;  // only with --full
};
// "264 blocks of 256 GPU threads, 4 KiB pages, 64 KiB requests".
std::string describe(const GpuCase& chosen);

// Says how a run went, so that a slow device is seen at once; returns `seconds`.
double tell(const char* name, uint64_t bytes, double seconds);

// Host threads that read pages of a file at random and send them to the device in batches.
struct PoolShape {
    unsigned threads = 1;
    uint64_t batch = 256;  // pages
};

// Host threads that read the file, section by section, into one place of pinned memory for each,
// out of which one copy brings it to the device.
struct SectionShape {
    unsigned threads = 1;
    uint64_t size = 8 << 20;  // of a section; the first and last ones are shorter
    static constexpr unsigned kPlaces = 4;
};

class GpuRig {
public:
    // `pool_threads`: at most so many in a PoolShape, a SectionShape, or of readers.
    GpuRig(const Device& device, const TestFile& file, unsigned pool_threads = 1);
    ~GpuRig();
    GpuRig(const GpuRig&) = delete;
    GpuRig& operator=(const GpuRig&) = delete;

    // A file system whose cache is empty; a cache size of 0: it has room for the file.
    void open(FileSystemOptions options);
    // The same with windows off and workers().
    void open_plain(uint32_t page_size);
    [[nodiscard]] static unsigned workers();
    [[nodiscard]] FileSystemStatistics statistics() const { return fs_.statistics(); }
    [[nodiscard]] bool bytes_right() const { return wrong_ == 0; }
    void count_wrong_state(bool right) { wrong_ += !right; }
    void advise(Advice advice);
    // Every run from now on begins behind a rest of so long, in which nothing is done.
    void rest_before_runs(std::chrono::milliseconds rest) { rest_ = rest; }

    using ReadKernel = void (*)(ReadJob);
    // Seconds of the kernel. It is waited for by sleeping, since who asks the driver again and
    // again keeps the workers from it; the last sleep, half a millisecond, is part of the time.
    // `hits`: there is nobody to keep.
    double read(const GpuCase& chosen, ReadKernel kernel, unsigned rounds, bool hits);
    // `count` pages of 4 KiB at random.
    double read_random(const GpuCase& chosen, uint64_t count, uint64_t seed);

    // The file's frames, in the order in which read() by one warp has filled them, to the buffer.
    double copy_frames(unsigned rounds);
    double copy_pinned();
    double read_then_copy();
    // What read_random() reads.
    double pool(const PoolShape& shape, uint64_t count, uint64_t seed);
    // The file by one call of the host's API, library defaults.
    double read_by_host();
    // What plain programs can do at best with a file that the OS has cached (gpu_limits.cc).
    double send_sections(const SectionShape& shape);
    // GPU threads copy the file out of pinned memory, while `readers` host threads read as much out
    // of the OS's cache into a little memory each: nobody waits for anybody until both are over.
    double pull_beside_reads(const GpuCase& chosen, unsigned readers);

private:
    unsigned char* staging(uint64_t size);
    void read_file();
    void send_pinned();
    void spin();
    void prepare();
    void check(uint64_t expected);
    void check_pages(uint64_t count, uint64_t seed, uint64_t expected);
    const std::byte* frames_of_device();

    const Device device_;
    const TestFile& file_;
    Stream stream_;
    FileSystem fs_;
    Descriptor descriptor_ = -1;
    std::optional<File> host_file_;
    unsigned char *buffer_ = nullptr, *pinned_ = nullptr;
    unsigned char* staging_ = nullptr;  // pinned
    uint64_t staging_size_ = 0;
    unsigned long long* result_ = nullptr;
    uint64_t wrong_ = 0;
    std::chrono::milliseconds rest_{0};
    Crew crew_;
    std::vector<Stream> streams_;  // of the crew
};

}  // namespace penstock::bench
