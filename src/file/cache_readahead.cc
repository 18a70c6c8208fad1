#include "file/cache_readahead.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "readahead/detector_predictor.h"

namespace penstock::file {
namespace {

constexpr uint64_t kFetchSizeMax = 1 << 20;
constexpr size_t kFlightsMax = 64;

readahead::Driver::Settings settings_for(uint64_t chunk_size, uint64_t cache_size) {
    readahead::Driver::Settings settings;
    settings.options.granule = chunk_size;
    settings.options.request_size_max = std::max(kFetchSizeMax, chunk_size);
    settings.options.unused_size_max = std::min<uint64_t>(16 << 20, cache_size / 8);
    settings.cache_size = cache_size;
    settings.flights_max = kFlightsMax;
    return settings;
}

}  // namespace

CacheReadahead::CacheReadahead(Near near, uint64_t chunk_size, uint64_t cache_size)
    : near_(std::move(near)),
      chunk_size_(chunk_size),
      driver_(settings_for(chunk_size, cache_size), this) {}

bool CacheReadahead::observe(chunk_cache::FileId file, uint64_t file_size, uint64_t offset,
                             uint64_t size) {
    // Whole chunks are fetched, so whole chunks count as used.
    const uint64_t begin = offset / chunk_size_ * chunk_size_;
    const uint64_t end = std::min((offset + size + chunk_size_ - 1) / chunk_size_ * chunk_size_,
                                  file_size);
    if (begin >= end || file_size <= 2 * chunk_size_) return false;
    auto [at, is_new] = last_.try_emplace(file);
    if (is_new)
        driver_.begin(file, file, file_size, std::make_unique<readahead::DetectorPredictor>());
    if (at->second.offset == begin && at->second.size == end - begin) return false;
    at->second = {begin, end - begin};
    const uint64_t now_ns = base::monotonic_ns();
    driver_.observe(file, {static_cast<int64_t>(begin), static_cast<int64_t>(end - begin)}, now_ns);
    driver_.served(file, now_ns);
    std::array<readahead::Target, 32> targets;
    return driver_.plan(file, now_ns, targets) > 0;
}

std::optional<CacheReadahead::Fetch> CacheReadahead::next() {
    const uint64_t now_ns = base::monotonic_ns();
    const auto flight = driver_.start(now_ns);
    if (!flight.has_value()) return std::nullopt;
    return Fetch{static_cast<chunk_cache::FileId>(flight->file), flight->extent, *flight, now_ns};
}

void CacheReadahead::done(const Fetch& fetch, bool good) {
    const auto end = good ? readahead::Driver::End::kArrived : readahead::Driver::End::kFailed;
    driver_.ended(fetch.flight, end, fetch.started_ns, base::monotonic_ns());
}

void CacheReadahead::forget(chunk_cache::FileId file) {
    if (last_.erase(file) > 0) driver_.finish(file);
}

extent::Extent CacheReadahead::missing(uint64_t file, const extent::Extent& range) {
    const auto id = static_cast<chunk_cache::FileId>(file);
    uint64_t first = range.offset / chunk_size_,
             end = (range.end() + chunk_size_ - 1) / chunk_size_;
    while (first < end && near_(id, first)) ++first;
    while (end > first && near_(id, end - 1)) --end;
    if (first == end) return {};
    const uint64_t begin = std::max(range.offset, first * chunk_size_);
    return {begin, std::min(range.end(), end * chunk_size_) - begin};
}

}  // namespace penstock::file
