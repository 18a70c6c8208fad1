#include "bench/harness/huge_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "base/units.h"
#include "bench/harness/report.h"

namespace penstock::bench {
namespace {

constexpr uint64_t kHugePage = 2 * base::kMiB;

}  // namespace

HugeBuffer::HugeBuffer(uint64_t size) : size_(base::align_up(size, kHugePage)) {
    const auto no_access = static_cast<unsigned char*>(
        mmap(nullptr, size_ + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (no_access == MAP_FAILED) fail("a buffer: no address space");
    const auto start = reinterpret_cast<uintptr_t>(no_access);
    const uint64_t head = base::align_up(start, kHugePage) - start;
    data_ = no_access + head;
    if (head > 0) munmap(no_access, head);
    if (head < kHugePage) munmap(data_ + size_, kHugePage - head);
    if (mprotect(data_, size_, PROT_READ | PROT_WRITE) != 0) fail("a buffer: no memory");
    madvise(data_, size_, MADV_HUGEPAGE);
    std::memset(data_, 0, size_);
}

HugeBuffer::~HugeBuffer() { munmap(data_, size_); }

double HugeBuffer::huge_share() const {
    std::ifstream maps("/proc/self/smaps");
    const auto address = reinterpret_cast<uintptr_t>(data_);
    bool here = false;
    double mapped = 0;
    for (std::string line; std::getline(maps, line);) {
        unsigned long from = 0, to = 0;
        double kib = 0;
        if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2) {
            here = from <= address && address < to;
        } else if (here && std::sscanf(line.c_str(), "Size: %lf", &kib) == 1) {
            mapped = kib;
        } else if (here && std::sscanf(line.c_str(), "AnonHugePages: %lf", &kib) == 1) {
            return mapped > 0 ? std::min(1.0, kib / mapped) : 0;
        }
    }
    return 0;
}

}  // namespace penstock::bench
