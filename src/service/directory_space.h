// Allocates runs of words in the page table's directory to files.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace penstock::service {

class DirectorySpace {
public:
    explicit DirectorySpace(uint64_t words) { free_.emplace(0, words); }

    // Takes the lowest run of `count` adjacent words and returns its first word. Returns nothing if
    // there is none.
    std::optional<uint64_t> take(uint64_t count);
    // Takes up to `most` words from `first` on, as far as they are free. Returns how many.
    uint64_t take_at(uint64_t first, uint64_t most);
    void give_back(uint64_t first, uint64_t count);

private:
    std::map<uint64_t, uint64_t> free_;  // first word -> count; runs do not touch
};

}  // namespace penstock::service
