// Words of the page table's directory: runs of them are given to files and come back.
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

    // The first of `count` adjacent words, the lowest there are; none: there are none.
    std::optional<uint64_t> take(uint64_t count);
    // Up to `most` words from `first` on, as far as they are free: how many.
    uint64_t take_at(uint64_t first, uint64_t most);
    void give_back(uint64_t first, uint64_t count);

private:
    std::map<uint64_t, uint64_t> free_;  // first -> count; runs do not touch
};

}  // namespace penstock::service
