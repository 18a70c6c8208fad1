// fio, the program that people measure disks with, as a baseline: reads of a whole file. One
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::bench {

struct FioJob {
    const char* engine = "psync";
    unsigned depth = 1;  // of asynchronous engines
    uint64_t block_size = 1 << 20;
    unsigned jobs = 1;  // threads, each with its part of the file
    bool direct = true;
    bool huge_pages = false;  // its buffers, by glibc's malloc; else as fio takes them
};

// "io_uring, depth 16, 1024 KiB, direct".
[[nodiscard]] std::string describe(const FioJob& job);
// Direct reads of one thread: every engine with every depth and block size.
[[nodiscard]] std::vector<FioJob> fio_sweep(bool huge_pages, bool smoke);
// What that leaves out: buffered, and several threads that wait; with fio's own buffers.
[[nodiscard]] std::vector<FioJob> fio_other_jobs(bool smoke);
// Empty: it runs here; else why not.
[[nodiscard]] std::string why_no_fio();
// Bytes a second of reading `size` bytes of `path` once, in order, as fio says, without its start
// and end. Nothing: this fio cannot do the job here.
[[nodiscard]] std::optional<double> run_fio(const FioJob& job, const std::string& path,
                                            uint64_t size);

}  // namespace penstock::bench
