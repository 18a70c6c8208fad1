#include "bench/seed000/threads.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>

#include "bench/harness/report.h"

namespace penstock::bench {

ReadingThreads::ReadingThreads(const TestFile& file, unsigned count, uint64_t piece_max)
    : file_(file), piece_max_(piece_max), buffers_(count * piece_max), crew_(count) {}

uint64_t ReadingThreads::take(int descriptor, unsigned thread, uint64_t offset, uint64_t piece) {
    unsigned char* buffer = buffers_.data() + thread * piece_max_;
    if (pread(descriptor, buffer, piece, static_cast<off_t>(offset)) != static_cast<ssize_t>(piece))
        return 1;
    return count_wrong(buffer, offset, piece);
}

double ReadingThreads::read(const std::function<void(unsigned, uint64_t*)>& work, bool* right) {
    std::atomic<uint64_t> wrong{0};
    const double seconds = timed([&] {
        crew_.run(crew_.count(), [&](unsigned thread) {
            uint64_t mine = 0;
            work(thread, &mine);
            wrong += mine;
        });
    });
    *right = *right && wrong == 0;
    return seconds;
}

double ReadingThreads::in_order(uint64_t piece, bool* right) {
    const uint64_t pieces = file_.size() / piece;
    return read(
        [&](unsigned thread, uint64_t* wrong) {
            const int own = open(file_.path().c_str(), O_RDONLY | O_CLOEXEC);
            const uint64_t end = pieces * (thread + 1) / crew_.count();
            for (uint64_t i = pieces * thread / crew_.count(); i < end; ++i)
                *wrong += take(own, thread, i * piece, piece);
            close(own);
        },
        right);
}

double ReadingThreads::in_this_order(const std::vector<std::vector<uint64_t>>& orders,
                                     uint64_t piece, bool* right) {
    const int common = open(file_.path().c_str(), O_RDONLY | O_CLOEXEC);
    const double seconds = read(
        [&](unsigned thread, uint64_t* wrong) {
            for (const uint64_t number : orders[thread])
                *wrong += take(common, thread, number * piece, piece);
        },
        right);
    close(common);
    return seconds;
}

}  // namespace penstock::bench
