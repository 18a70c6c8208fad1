// Reads a file from front to end again and again by read(2), and prints the seconds of all passes
// and a checksum of the file's bytes.
//
//   penstock-program-file_reader FILE STEP PASSES hot|dropped|once|direct
//
// A last pass, which forms the checksum, is not timed, and neither is a first one but with `once`
// and `direct`. `dropped` makes the kernel forget its pages of the file before each pass, and
// `direct` reads around them. The program does not know Penstock.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "checksum.h"

namespace {

using Seconds = std::chrono::duration<double>;
using Clock = std::chrono::steady_clock;

constexpr size_t kHugePage = 2 << 20, kPage = 4096;
constexpr std::chrono::milliseconds kPause{1};
constexpr std::chrono::seconds kPatience{10};

struct Work {
    int fd;
    size_t size, step;
    bool drops;
    unsigned char* buffer;
};

// Returns whether none of the file's pages is left, if they are to be forgotten. A server's thread
// in the kernel holds the pages that it filled until it runs again, which takes a while on a busy
// machine.
bool forget_pages(const Work& work) {
    if (!work.drops) return true;
    void* mapped = mmap(nullptr, work.size, PROT_READ, MAP_SHARED, work.fd, 0);
    if (mapped == MAP_FAILED) {
        std::perror("mmap");
        return false;
    }
    std::vector<unsigned char> kept((work.size + kPage - 1) / kPage);
    const auto any_left = [&] {
        posix_fadvise(work.fd, 0, 0, POSIX_FADV_DONTNEED);
        if (mincore(mapped, work.size, kept.data()) != 0) {
            std::perror("mincore");
            std::exit(1);
        }
        return std::any_of(kept.begin(), kept.end(), [](unsigned char one) { return one & 1; });
    };
    const auto end = Clock::now() + kPatience;
    bool any = any_left();
    for (; any && Clock::now() < end; any = any_left()) std::this_thread::sleep_for(kPause);
    if (any) std::fputs("pages of the file stay in the page cache\n", stderr);
    munmap(mapped, work.size);
    return !any;
}

// Calls `use(bytes)` behind each read. Returns whether the pass met all bytes.
template <class Use>
bool read_all(const Work& work, Use use) {
    if (lseek(work.fd, 0, SEEK_SET) != 0) return false;
    size_t done = 0;
    for (ssize_t got = 0; done < work.size; done += static_cast<size_t>(got)) {
        got = read(work.fd, work.buffer, work.step);
        if (got <= 0) {
            std::fprintf(stderr, "read of byte %zu: %s\n", done,
                         got == 0 ? "the file ends before" : std::strerror(errno));
            return false;
        }
        use(static_cast<size_t>(got));
    }
    return done == work.size;
}

bool measure(const Work& work, long passes, Seconds* taken) {
    for (long i = 0; i < passes; ++i) {
        if (!forget_pages(work)) return false;
        const auto begun = Clock::now();
        if (!read_all(work, [](size_t) {})) return false;
        *taken += Clock::now() - begun;
    }
    return true;
}

// Returns touched memory, on huge pages where the kernel has them.
unsigned char* take_buffer(size_t size) {
    const size_t whole = (size + kHugePage - 1) / kHugePage * kHugePage;
    void* memory = std::aligned_alloc(kHugePage, whole);
    if (memory == nullptr) return nullptr;
    madvise(memory, whole, MADV_HUGEPAGE);
    std::fill_n(static_cast<unsigned char*>(memory), whole, static_cast<unsigned char>(1));
    return static_cast<unsigned char*>(memory);
}

}  // namespace

int main(int count, char** words) {
    if (count != 5) return 2;
    const std::string_view way = words[4];
    const int fd = open(words[1], O_RDONLY | O_CLOEXEC | (way == "direct" ? O_DIRECT : 0));
    struct stat status {};
    if (fd < 0 || fstat(fd, &status) != 0) {
        std::perror(words[1]);
        return 1;
    }
    const auto step = static_cast<size_t>(std::atol(words[2]));
    const Work work{fd, static_cast<size_t>(status.st_size), step, way == "dropped",
                    take_buffer(step)};
    if (step == 0 || work.buffer == nullptr) return 1;
    const bool warms = way == "hot" || way == "dropped";
    if (warms && !(forget_pages(work) && read_all(work, [](size_t) {}))) return 1;
    Seconds taken{};
    if (!measure(work, std::atol(words[3]), &taken)) return 1;
    penstock::bench::Checksum sum;
    if (!forget_pages(work) || !read_all(work, [&](size_t got) { sum.add(work.buffer, got); }))
        return 1;
    std::printf("%.9f %u\n", taken.count(), sum.value());
    return 0;
}
