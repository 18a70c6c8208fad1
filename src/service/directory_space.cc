#include "service/directory_space.h"

#include <algorithm>
#include <iterator>

namespace penstock::service {

std::optional<uint64_t> DirectorySpace::take(uint64_t count) {
    const auto place = std::find_if(free_.begin(), free_.end(),
                                    [&](const auto& run) { return run.second >= count; });
    if (place == free_.end()) return std::nullopt;
    const uint64_t first = place->first;
    (void)take_at(first, count);
    return first;
}

uint64_t DirectorySpace::take_at(uint64_t first, uint64_t most) {
    const auto place = free_.find(first);
    if (place == free_.end()) return 0;
    const uint64_t count = std::min(most, place->second), left = place->second - count;
    free_.erase(place);
    if (left > 0) free_.emplace(first + count, left);
    return count;
}

void DirectorySpace::give_back(uint64_t first, uint64_t count) {
    auto after = free_.lower_bound(first);
    if (after != free_.end() && after->first == first + count) {
        count += after->second;
        after = free_.erase(after);
    }
    if (after != free_.begin()) {
        const auto before = std::prev(after);
        if (before->first + before->second == first) {
            before->second += count;
            return;
        }
    }
    free_.emplace(first, count);
}

}  // namespace penstock::service
