// Remembers, by block, what kernels read that was not read ahead. It records one launch and
// predicts the next one of the same kernel.
//
// For each file, the misses of a launch become an access program in pages (access/program.h). If
// all blocks do the same thing as a function of their number, it is one program of a few nodes,
// which also serves launches of another size. Otherwise it is the list of what all blocks together
// read. A program that fits is used at once. A list is used only after another launch has read the
// same, so that kernels that read at random do not pay twice. If a launch misses as much as before
// although it was predicted, its kernel is forgotten, and twice as many launches must agree before
// it is trusted again. If the lists of consecutive launches differ, launches are recorded more and
// more rarely: recording and comparing costs time, and gains nothing for kernels that read at
// random.
//
//   UNKNOWN --[recorded]--> PROGRAM (told from the next launch on) or LIST
//   LIST --[agreement() launches read the same]--> told from the next launch on
//   PROGRAM, LIST --[told, and half as many misses as before or more]--> UNKNOWN, agreement doubled
//
// Pure: the owner reports when a launch begins and what it requests. One thread at a time.
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

// Pages of a file. `file` is the number by which the owner knows it.
struct PageRun {
    uint64_t file = 0;
    uint64_t first = 0, count = 0;
    friend constexpr bool operator==(const PageRun&, const PageRun&) = default;
};

class KernelMemory {
public:
    static constexpr size_t kMissesMax = 1 << 16;  // of a recorded launch
    static constexpr size_t kKernelsMax = 64;      // known; the one launched longest ago is dropped
    static constexpr uint64_t kAgreementMax = 64;
    static constexpr uint64_t kUnlikeMax = 5;  // at most 2^5 - 1 launches in a row are not recorded

    // Begins a launch of `blocks` blocks, which must be alone on its device. First learns from the
    // last launch. Returns the pages that this one will read, sorted and without overlaps, at most
    // `pages_max`: the first pages of all blocks. Returns nothing if they are not known.
    std::vector<PageRun> begin(const std::string& kernel, uint64_t blocks, uint64_t pages_max);
    // Drops the recording: other kernels run at the same time, and the requests cannot be told
    // apart.
    void spoil() { recording_.reset(); }

    // Returns whether misses should be reported now.
    [[nodiscard]] bool records() const { return recording_.has_value(); }
    // Records that a block of the launch had to request pages, in order. Pages that were predicted
    // for the launch do not count as misses.
    void missed(uint64_t block, const PageRun& pages);

    // For tests and statistics: returns whether the kernel's blocks do the same thing.
    [[nodiscard]] bool knows_program(const std::string& kernel) const;

private:
    struct Miss {
        uint64_t block;
        PageRun pages;
    };
    struct Recording {
        std::string kernel;
        uint64_t blocks = 0;
        std::vector<PageRun> told;  // was read ahead, so a request for it is no miss
        bool whole = true;          // no miss was left out
        std::vector<Miss> misses;
    };
    struct Kernel {
        uint64_t blocks = 0;                           // of the launch that was learned from
        uint64_t miss_pages = 0;                       // its missed pages
        std::map<uint64_t, access::Program> programs;  // by file; offsets and sizes in pages
        std::vector<PageRun> list;                     // used if no program describes all blocks
        uint64_t agreed = 0;                           // launches that read what is known
        uint64_t agreement = 1;                        // launches that must agree
        uint64_t unlike = 0;                           // consecutive lists that did not agree
        uint64_t rest = 0;                             // launches that will not be recorded
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
