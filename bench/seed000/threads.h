// Host threads that read a file by pread through the OS cache: what the paper calls CPU I/O.
#pragma once

#include <functional>
#include <vector>

#include "bench/harness/crew.h"
#include "bench/harness/huge_buffer.h"
#include "bench/harness/test_file.h"

namespace penstock::bench {

class ReadingThreads {
public:
    // `count` threads, each with a buffer for pieces of up to `piece_max` bytes.
    ReadingThreads(const TestFile& file, unsigned count, uint64_t piece_max);

    // Seconds in which each thread reads its part of the file in order, by a descriptor of its own.
    double in_order(uint64_t piece, bool* right);
    // The same for pieces of given numbers, a list for each thread, all by one descriptor, as a
    // file system's host threads have it.
    double in_this_order(const std::vector<std::vector<uint64_t>>& orders, uint64_t piece,
                         bool* right);

private:
    double read(const std::function<void(unsigned thread, uint64_t* wrong)>& work, bool* right);
    // Reads a piece; how many words are wrong.
    uint64_t take(int descriptor, unsigned thread, uint64_t offset, uint64_t piece);

    const TestFile& file_;
    const uint64_t piece_max_;
    HugeBuffer buffers_;
    Crew crew_;
};

}  // namespace penstock::bench
