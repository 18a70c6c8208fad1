// Readahead of a file cache: what readers of a file take next is fetched before they ask, by
// threads of the cache. Source: seed 003 (P-readahead). The lock of the cache protects all calls.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "chunk_cache/chunk_cache.h"
#include "readahead/driver.h"

namespace penstock::file {

class CacheReadahead final : public readahead::Presence {
public:
    struct Fetch {
        chunk_cache::FileId file = 0;
        extent::Extent range;
        readahead::Flight flight;
        uint64_t started_ns = 0;
    };
    // `near` says whether a reader of the file finds a chunk where it looks.
    using Near = std::function<bool(chunk_cache::FileId file, uint64_t number)>;
    CacheReadahead(Near near, uint64_t chunk_size, uint64_t cache_size);

    // A reader of the file requests a range. Returns whether there is something to fetch now.
    bool observe(chunk_cache::FileId file, uint64_t file_size, uint64_t offset, uint64_t size);
    // Returns the next fetch, which done() ends.
    std::optional<Fetch> next();
    void done(const Fetch& fetch, bool good);
    // Nobody reads the file any more.
    void forget(chunk_cache::FileId file);

    extent::Extent missing(uint64_t file, const extent::Extent& range) override;

private:
    struct Last {
        uint64_t offset = ~0ull, size = 0;
    };
    const Near near_;
    const uint64_t chunk_size_;
    readahead::Driver driver_;
    std::unordered_map<chunk_cache::FileId, Last> last_;  // of files with a stream
};

}  // namespace penstock::file
