// What kernels read that nothing had read ahead, by block: recorded during one launch, and told
// before the next of the same kernel.
//
// The misses of a launch become an access program for each file (access/program.h), in pages:
// where all blocks do one thing that depends on their number, one program of a few nodes, which
// also serves launches of another size; else the list of what all of them together read. A program
// that fits is acted upon at once, a list only when another launch has read the same: kernels that
// read at random must not pay twice. A launch that misses as much as before, though it was told
// ahead, has its kernel forgotten, and twice as many launches must agree before it is trusted
// again. Launches whose lists differ one after the other are looked at more and more rarely: to
// record and to compare costs kernels that read at random time, and gives them nothing.
//
//   UNKNOWN --[recorded]--> PROGRAM (told from the next launch on) or LIST
//   LIST --[agreement() launches read the same]--> told from the next launch on
//   PROGRAM, LIST --[told, and half as many misses as before or more]--> UNKNOWN, agreement doubled
//
// Pure: whoever owns it says when a launch begins and what it asked for. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "access/program.h"

namespace penstock::readahead {

// Pages of a file, by whatever number the owner knows files.
struct PageRun {
    uint64_t file = 0;
    uint64_t first = 0, count = 0;
    friend constexpr bool operator==(const PageRun&, const PageRun&) = default;
};

class KernelMemory {
public:
    static constexpr size_t kMissesMax = 1 << 16;  // of a launch that is recorded
    static constexpr size_t kKernelsMax = 64;      // known; the one launched longest ago goes
    static constexpr uint64_t kAgreementMax = 64;
    static constexpr uint64_t kUnlikeMax = 5;  // 2^5 - 1 launches in a row that nobody looks at

    // A launch of `blocks` blocks begins, alone on its device; what the last one did is learned
    // first. Returns what it will read, sorted, without overlaps, at most `pages_max` pages: of all
    // blocks their first ones. Empty: nothing is known.
    std::vector<PageRun> begin(const std::string& kernel, uint64_t blocks, uint64_t pages_max);
    // Others run beside it: what is recorded cannot be told apart, and is dropped.
    void spoil() { recording_.reset(); }

    // Whether misses are of interest now.
    [[nodiscard]] bool records() const { return recording_.has_value(); }
    // A block of the launch had to ask for pages, in the order of asking. What the launch was told
    // is left out: that it is asked for ahead is no miss.
    void missed(uint64_t block, const PageRun& pages);

    // For tests and statistics: whether the kernel's blocks do one thing.
    [[nodiscard]] bool knows_program(const std::string& kernel) const;

private:
    struct Miss {
        uint64_t block;
        PageRun pages;
    };
    struct Recording {
        std::string kernel;
        uint64_t blocks = 0;
        std::vector<PageRun> told;  // was read ahead: asking for that is no miss
        bool whole = true;          // all of it was recorded
        std::vector<Miss> misses;
    };
    struct Kernel {
        uint64_t blocks = 0;                           // of the launch that was learned from
        uint64_t miss_pages = 0;                       // it had
        std::map<uint64_t, access::Program> programs;  // by file; offsets and sizes in pages
        std::vector<PageRun> list;                     // where no program tells all blocks
        uint64_t agreed = 0;                           // launches that read what is known
        uint64_t agreement = 1;                        // that it takes
        uint64_t unlike = 0;                           // lists in a row that did not agree
        uint64_t rest = 0;                             // launches that are not recorded
        uint64_t used_at = 0;
        [[nodiscard]] bool known() const { return !programs.empty() || !list.empty(); }
        [[nodiscard]] bool trusted() const {
            return known() && agreed >= (programs.empty() ? agreement : agreement - 1);
        }
    };

    void learn();
    void learn_anew(Kernel& kernel, const Recording& recording);
    static std::optional<access::Program> program_of(
        const std::map<uint64_t, std::vector<access::Access>>& blocks);
    static std::vector<PageRun> tell(const Kernel& kernel, uint64_t blocks, uint64_t pages_max);

    std::map<std::string, Kernel> kernels_;
    std::optional<Recording> recording_;
    uint64_t launches_ = 0;
};

}  // namespace penstock::readahead
