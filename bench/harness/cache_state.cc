#include "bench/harness/cache_state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <thread>

#include "base/prng.h"
#include "base/units.h"
#include "bench/harness/report.h"

namespace penstock::bench {
namespace {

constexpr int kTriesMax = 40;
constexpr auto kTryPeriod = std::chrono::milliseconds(1);  // reads under way end meanwhile
constexpr uint64_t kLongRun = base::kMiB / kCachePage;     // pages

// Calls `on_run(first page, end)` for the maximal runs of `state` in `map`.
void each_run(const PageMap& map, unsigned char state,
              const std::function<void(size_t, size_t)>& on_run) {
    for (auto at = map.begin(); at != map.end();) {
        const auto first = std::find(at, map.end(), state);
        at = std::find(first, map.end(), static_cast<unsigned char>(1 - state));
        if (first != at) {
            on_run(static_cast<size_t>(first - map.begin()), static_cast<size_t>(at - map.begin()));
        }
    }
}

}  // namespace

void mark_runs(PageMap* map, size_t pages, size_t run_pages, unsigned of_four, uint64_t seed) {
    base::Prng random(seed);
    for (size_t group = 0; group < pages; group += 4 * run_pages) {
        std::array<size_t, 4> order{0, 1, 2, 3};
        for (size_t i = 3; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
        for (size_t i = 0; i < of_four; ++i)
            std::fill_n(map->begin() + static_cast<ptrdiff_t>(group + order[i] * run_pages),
                        run_pages, 1);
    }
}

CacheState::CacheState(const TestFile& file)
    : file_(file),
      random_(open(file.path().c_str(), O_RDONLY | O_CLOEXEC)),
      map_(mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.descriptor(), 0)),
      now_(file.size() / kCachePage) {
    if (random_ < 0 || map_ == MAP_FAILED) fail(file.path() + ": cannot be opened and mapped");
    posix_fadvise(random_, 0, 0, POSIX_FADV_RANDOM);
}

CacheState::~CacheState() {
    munmap(map_, file_.size());
    close(random_);
}

void CacheState::look() {
    if (mincore(map_, file_.size(), now_.data()) != 0) fail(file_.path() + ": mincore failed");
    for (unsigned char& page : now_) page &= 1;
}

uint64_t CacheState::wrong_pages(const PageMap& wanted) {
    look();
    uint64_t wrong = 0;
    for (size_t i = 0; i < now_.size(); ++i) wrong += now_[i] != wanted[i];
    return wrong;
}

// Evicts whole runs of unwanted pages, if they hold any: a folio leaves only if all of it is
// dropped at once.
void CacheState::evict(const PageMap& wanted) {
    each_run(wanted, 0, [&](size_t first, size_t end) {
        const auto from = now_.begin() + static_cast<ptrdiff_t>(first);
        const auto to = now_.begin() + static_cast<ptrdiff_t>(end);
        if (std::find(from, to, 1) == to) return;
        posix_fadvise(file_.descriptor(), static_cast<off_t>(first * kCachePage),
                      static_cast<off_t>((end - first) * kCachePage), POSIX_FADV_DONTNEED);
    });
}

void CacheState::fill(const PageMap& wanted) {
    PageMap missing(wanted.size());
    for (size_t i = 0; i < missing.size(); ++i) missing[i] = wanted[i] == 1 && now_[i] == 0;
    std::vector<char> buffer(base::kMiB);
    const auto in_pieces = [&](const std::function<void(off_t, size_t)>& act) {
        each_run(missing, 1, [&](size_t first, size_t end) {
            for (uint64_t at = first * kCachePage; at < end * kCachePage; at += buffer.size()) {
                act(static_cast<off_t>(at), std::min<size_t>(buffer.size(), end * kCachePage - at));
            }
        });
    };
    // All reads are started before the first wait.
    in_pieces([&](off_t offset, size_t size) {
        posix_fadvise(random_, offset, static_cast<off_t>(size), POSIX_FADV_WILLNEED);
    });
    in_pieces([&](off_t offset, size_t size) {
        if (pread(random_, buffer.data(), size, offset) < 0) {
            fail(file_.path() + ": cannot be read");
        }
    });
}

void CacheState::lay(const PageMap& wanted) {
    set(PageMap(wanted.size(), 0));
    bool long_runs = false;
    each_run(wanted, 1,
             [&](size_t first, size_t end) { long_runs = long_runs || end - first >= kLongRun; });
    if (long_runs) file_.warm();
}

bool CacheState::set(const PageMap& wanted) {
    for (int i = 0; i < kTriesMax; ++i) {
        if (wrong_pages(wanted) == 0) return true;
        if (i > 0) std::this_thread::sleep_for(kTryPeriod);
        evict(wanted);
        fill(wanted);
    }
    return wrong_pages(wanted) == 0;
}

}  // namespace penstock::bench
