// Chunks that other processes may write, by file and by age. Pure; a grant takes O(log n).
#pragma once

#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "chunk_cache/chunk_cache.h"

namespace penstock::file {

// A chunk, and what others see of it: the chunk itself, or its copy in the host window.
struct Grant {
    chunk_cache::ChunkId chunk = chunk_cache::kNone, seen = chunk_cache::kNone;
    chunk_cache::FileId file = chunk_cache::kNone;
    uint64_t number = 0;  // of the chunk in the file
    bool operator==(const Grant&) const = default;
};

class GrantTable {
public:
    [[nodiscard]] size_t size() const { return by_age_.size(); }
    [[nodiscard]] bool empty() const { return by_age_.empty(); }
    [[nodiscard]] const Grant& oldest() const { return by_age_.front(); }
    [[nodiscard]] const std::list<Grant>& all() const { return by_age_; }  // the oldest first

    [[nodiscard]] bool contains(const Grant& grant) const { return of_files_.contains(key(grant)); }

    void add(const Grant& grant) {
        by_age_.push_back(grant);
        const bool is_new = of_files_.try_emplace(key(grant), --by_age_.end()).second;
        PENSTOCK_CHECK(is_new, "a chunk is granted once");
    }

    void remove(const Grant& grant) {
        const auto at = of_files_.find(key(grant));
        PENSTOCK_CHECK(at != of_files_.end(), "only a granted chunk is taken back");
        by_age_.erase(at->second);
        of_files_.erase(at);
    }

    // Returns the grants of chunks first..last of a file, in their order.
    [[nodiscard]] std::vector<Grant> of(
        chunk_cache::FileId file, uint64_t first = 0,
        uint64_t last = std::numeric_limits<uint64_t>::max()) const {
        std::vector<Grant> found;
        for (auto at = of_files_.lower_bound({file, first, 0});
             at != of_files_.end() && at->second->file == file && at->second->number <= last; ++at)
            found.push_back(*at->second);
        return found;
    }

private:
    using Key = std::tuple<chunk_cache::FileId, uint64_t, chunk_cache::ChunkId>;

    static Key key(const Grant& grant) { return {grant.file, grant.number, grant.chunk}; }

    std::list<Grant> by_age_;
    std::map<Key, std::list<Grant>::iterator> of_files_;
};

}  // namespace penstock::file
