// A file of known bytes for benchmarks, and whether the OS has it cached. Goes when the object
// goes.
//
// The 8-byte word at offset o is stamp(o), so any piece can be checked by itself.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/abi/qualifiers.h"

namespace penstock::bench {

PENSTOCK_BOTH constexpr uint64_t stamp(uint64_t offset) {
    uint64_t word = offset + 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    return word ^ (word >> 27);
}
// Draw `index` of a walk over random pages of a file of `pages`.
PENSTOCK_BOTH constexpr uint64_t random_page(uint64_t seed, uint64_t index, uint64_t pages) {
    return stamp(seed + index) % pages;
}

// The one word of the 4 KiB at `offset` (a multiple of 4 KiB) that timed loops look at.
PENSTOCK_BOTH constexpr uint64_t checked_word(uint64_t offset) { return (offset >> 12) % 512 * 8; }

// How many of the words that timed loops look at are wrong in `size` bytes read from `offset` (both
// multiples of 4 KiB).
PENSTOCK_BOTH inline uint64_t count_wrong(const unsigned char* bytes, uint64_t offset,
                                          uint64_t size) {
    uint64_t wrong = 0;
    for (uint64_t at = 0; at < size; at += 4096) {
        const uint64_t place = checked_word(offset + at);
        uint64_t word = 0;
        __builtin_memcpy(&word, bytes + at + place, sizeof word);
        wrong += word != stamp(offset + at + place);
    }
    return wrong;
}

// The same of any offset and size; wipes the words it looks at, so that bytes that an earlier read
// left do not pass for those of the next. Of less than 4 KiB at a multiple of 8 it looks at the
// first word.
uint64_t count_wrong_and_wipe(unsigned char* bytes, uint64_t offset, uint64_t size);

// Reads all of a file through the OS page cache; whether a share of it, `enough`, is cached then.
// Some virtual machines give pages that were idle back to their host, every few seconds: it reads
// again, ten times at most.
bool warm_file(const std::string& path, double enough = 1.0);

// Share of a file's pages that the OS has cached, as mincore says to the owner; -1: cannot be told.
double cached_share(const std::string& path);

// $TMPDIR, or /var/tmp: on a disk where there is one.
std::string temporary_folder();

class TestFile {
public:
    // `size` a multiple of 1 MiB; lies in `folder`, else in the temporary folder.
    explicit TestFile(uint64_t size, const std::string& folder = {});
    ~TestFile();
    TestFile(const TestFile&) = delete;
    TestFile& operator=(const TestFile&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] uint64_t size() const { return size_; }
    [[nodiscard]] int descriptor() const { return descriptor_; }

    bool warm() const;  // warm_file()
    // The same, without a read where all of it is cached; for before each run.
    [[nodiscard]] bool make_hot() const;

private:
    std::string path_;
    uint64_t size_;
    int descriptor_;
};

}  // namespace penstock::bench
