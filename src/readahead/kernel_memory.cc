#include "readahead/kernel_memory.h"

#include <algorithm>
#include <span>
#include <utility>

#include "access/cursor.h"
#include "access/detector.h"
#include "access/validate.h"

namespace penstock::readahead {
namespace {

using access::Access;
using access::Program;

// Blocks that a fit looks at. Its result is compared with all blocks.
constexpr size_t kFittedMax = 8;
constexpr size_t kFittedMin = 3;

// Returns the runs sorted and without overlaps.
std::vector<PageRun> united(std::vector<PageRun> runs) {
    std::ranges::sort(runs, {}, [](const PageRun& run) { return std::pair(run.file, run.first); });
    std::vector<PageRun> result;
    for (const PageRun& run : runs) {
        if (!result.empty() && result.back().file == run.file &&
            run.first <= result.back().first + result.back().count) {
            PageRun& last = result.back();
            last.count = std::max(last.first + last.count, run.first + run.count) - last.first;
        } else {
            result.push_back(run);
        }
    }
    return result;
}

uint64_t pages_of(const std::vector<PageRun>& runs) {
    uint64_t pages = 0;
    for (const PageRun& run : runs) pages += run.count;
    return pages;
}

// Returns whether the first of `pages` is among the sorted runs.
bool contains(const std::vector<PageRun>& runs, const PageRun& pages) {
    const auto after = std::ranges::upper_bound(
        runs, std::pair(pages.file, pages.first), {},
        [](const PageRun& run) { return std::pair(run.file, run.first); });
    if (after == runs.begin()) return false;
    const PageRun& run = *std::prev(after);
    return run.file == pages.file && pages.first < run.first + run.count;
}

// Returns the program with room for `blocks` blocks: its last dimension is extended.
Program with_blocks(Program program, uint64_t blocks) {
    uint64_t places = 1;
    size_t last = 0;
    for (size_t g = 0; g < access::kGridMax; ++g) {
        if (program.grid[g] > 1) last = g;
    }
    for (size_t g = 0; g < last; ++g) places *= program.grid[g];
    program.grid[last] = std::max(program.grid[last], (blocks + places - 1) / places);
    program.key.rank_count = std::max(program.key.rank_count, blocks);
    return program;
}

// Appends to the accesses of one block, in order. Adjacent accesses are joined.
void append(std::vector<Access>& accesses, const PageRun& pages) {
    const auto first = static_cast<int64_t>(pages.first);
    const auto count = static_cast<int64_t>(pages.count);
    if (!accesses.empty() && accesses.back().offset + accesses.back().size == first) {
        accesses.back().size += count;
    } else {
        accesses.push_back({first, count});
    }
}

}  // namespace

std::vector<PageRun> KernelMemory::begin(const std::string& kernel, uint64_t blocks,
                                         uint64_t pages_max) {
    learn();
    ++launches_;
    if (kernels_.size() == kKernelsMax && !kernels_.contains(kernel)) {
        kernels_.erase(std::ranges::min_element(
            kernels_, {}, [](const auto& entry) { return entry.second.used_at; }));
    }
    Kernel& known = kernels_[kernel];
    known.used_at = launches_;
    std::vector<PageRun> runs;
    if (known.trusted()) runs = tell(known, blocks, pages_max);
    if (runs.empty() && known.rest > 0) {
        --known.rest;
    } else {
        recording_ = Recording{kernel, blocks, runs, true, {}};
    }
    return runs;
}

void KernelMemory::missed(uint64_t block, const PageRun& pages) {
    if (!recording_ || contains(recording_->told, pages)) return;
    if (recording_->misses.size() == kMissesMax) {
        recording_->whole = false;
        return;
    }
    recording_->misses.push_back({block, pages});
}

bool KernelMemory::knows_program(const std::string& kernel) const {
    const auto found = kernels_.find(kernel);
    return found != kernels_.end() && !found->second.programs.empty();
}

void KernelMemory::learn() {
    if (!recording_) return;
    const Recording recording = std::exchange(recording_, std::nullopt).value();
    const auto found = kernels_.find(recording.kernel);
    if (found == kernels_.end()) return;
    Kernel& kernel = found->second;
    uint64_t pages = 0;
    for (const Miss& miss : recording.misses) pages += miss.pages.count;
    if (!recording.told.empty()) {
        if (2 * pages < kernel.miss_pages || recording.blocks != kernel.blocks) return;
        // The kernel does something else by now.
        const uint64_t agreement = std::min(2 * kernel.agreement, kAgreementMax);
        kernel = Kernel{};
        kernel.agreement = agreement;
        return;
    }
    // If what is known missed little, it is cached already; the misses say nothing else.
    if (pages == 0 || (kernel.known() && 2 * pages < kernel.miss_pages)) return;
    if (recording.whole) learn_anew(kernel, recording);
}

void KernelMemory::learn_anew(Kernel& kernel, const Recording& recording) {
    std::map<uint64_t, std::map<uint64_t, std::vector<Access>>> files;
    std::vector<PageRun> all;
    uint64_t pages = 0;
    for (const Miss& miss : recording.misses) {
        append(files[miss.pages.file][miss.block], miss.pages);
        all.push_back(miss.pages);
        pages += miss.pages.count;
    }
    all = united(std::move(all));
    Kernel now;
    now.blocks = recording.blocks;
    now.miss_pages = pages;
    now.agreement = kernel.agreement;
    for (const auto& [file, blocks] : files) {
        auto program = program_of(blocks);
        if (!program) break;
        now.programs.emplace(file, std::move(*program));
    }
    if (now.programs.size() == files.size()) {
        if (kernel.programs == now.programs) now.agreed = kernel.agreed + 1;
    } else {
        now.programs.clear();
        now.list = std::move(all);
        if (kernel.list == now.list) {
            now.agreed = kernel.agreed + 1;
        } else if (kernel.known()) {
            now.unlike = std::min(kernel.unlike + 1, kUnlikeMax);
            now.rest = (uint64_t{1} << (now.unlike - 1)) - 1;
        }
    }
    now.used_at = kernel.used_at;
    kernel = std::move(now);
}

// Returns one program that describes exactly what all blocks did. Returns nothing if there is none,
// or if there are too few blocks.
std::optional<Program> KernelMemory::program_of(
    const std::map<uint64_t, std::vector<Access>>& blocks) {
    if (blocks.size() < kFittedMin) return std::nullopt;
    std::vector<Program> programs;
    std::vector<uint64_t> ranks;
    for (const auto& [block, accesses] : blocks) {
        if (programs.size() == kFittedMax) break;
        programs.push_back(access::analyse(accesses, {}));
        ranks.push_back(block);
    }
    Program fitted;
    if (!access::fit_ranks(programs, ranks, &fitted)) return std::nullopt;
    fitted = with_blocks(std::move(fitted), blocks.rbegin()->first + 1);
    // A fitted list says no more than the list of everything does.
    for (const access::Node& node : fitted.nodes) {
        if (node.kind == access::NodeKind::kList || node.kind == access::NodeKind::kRandom)
            return std::nullopt;
    }
    if (!access::validate(fitted).ok()) return std::nullopt;
    std::vector<Access> told;
    for (const auto& [block, accesses] : blocks) {
        access::Cursor cursor(fitted, block);
        told.resize(accesses.size() + 1);
        told.resize(cursor.next(told));
        if (told != accesses) return std::nullopt;
    }
    return fitted;
}

std::vector<PageRun> KernelMemory::tell(const Kernel& kernel, uint64_t blocks, uint64_t pages_max) {
    std::vector<PageRun> runs;
    if (kernel.programs.empty()) {
        uint64_t left = pages_max;
        for (PageRun run : kernel.list) {
            run.count = std::min(run.count, left);
            left -= run.count;
            if (run.count > 0) runs.push_back(run);
        }
        return runs;
    }
    const uint64_t ranks = std::max<uint64_t>(blocks, 1) * kernel.programs.size();
    const uint64_t quota = std::max<uint64_t>(pages_max / ranks, 1);
    uint64_t total = 0;
    for (const auto& [file, known] : kernel.programs) {
        const Program program = with_blocks(known, blocks);
        if (!access::validate(program).ok()) continue;
        const uint64_t looked_at = std::min<uint64_t>(blocks, pages_max);
        for (uint64_t rank = 0; rank < looked_at && total < pages_max; ++rank) {
            access::Cursor cursor(program, rank);
            uint64_t left = std::min(quota, pages_max - total);
            while (left > 0) {
                const auto next = cursor.next();
                if (!next || next->offset < 0) break;
                const uint64_t count = std::min(left, static_cast<uint64_t>(next->size));
                runs.push_back({file, static_cast<uint64_t>(next->offset), count});
                left -= count;
                total += count;
            }
        }
    }
    runs = united(std::move(runs));
    return pages_of(runs) == 0 ? std::vector<PageRun>{} : runs;
}

}  // namespace penstock::readahead
