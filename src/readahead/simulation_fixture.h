// Measures what readahead is worth: replays recorded accesses in virtual time against models of a
// cache and a storage, under different policies.
//
// There is one reader: each access waits for its bytes, then computes for its think time. The cache
// is LRU over pages of 4 KiB, with advice if the policy has any. The storage answers after a
// latency and sends over one link. Requests beyond its slots wait, demand before prefetch. Pure and
// repeatable: the same seed gives the same figures.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "access/program.h"
#include "readahead/driver.h"
#include "readahead/predictor.h"

namespace penstock::readahead {

inline constexpr uint64_t kSimulationPage = 4096;

struct RecordedAccess {
    uint64_t stream = 0;  // our readahead tells streams apart; Linux sees one open file
    access::Access access;
    uint64_t think_ns = 0;  // computed before the access
};

struct Recording {
    std::string name;
    uint64_t file_size = 0;
    std::vector<RecordedAccess> accesses;
};

struct StorageModel {
    uint64_t latency_ns = 500'000;  // median; 0.8 to 1.2 times; one in twenty is three times
    double bandwidth = 2e9;         // bytes/s, of all requests together
    size_t slots = 32;
};

struct Setting {
    StorageModel storage;
    uint64_t cache_size = 64 << 20;
    uint64_t seed = 1;
    Options options;  // of our readahead
};

enum class Policy : uint8_t {
    kNone,
    kLinux,
    kPenstock,
    kOracle,  // knows each access; evicts what is used last (Belady)
};

[[nodiscard]] const char* name(Policy policy);

struct Figures {
    uint64_t time_ns = 0;   // of the whole replay
    uint64_t stall_ns = 0;  // part of it spent waiting for bytes
    uint64_t requests = 0;
    uint64_t demanded_size = 0;    // pages requested, counted each time
    uint64_t read_size = 0;        // what the storage delivered
    uint64_t prefetched_size = 0;  // part of it that came ahead of demand
    uint64_t used_size = 0;        // part of that used before it was evicted
    uint64_t missed_size = 0;      // fetched by demand
    uint64_t promotions = 0;

    // Bytes read ahead and not used, or read although they were cached.
    [[nodiscard]] uint64_t wasted_size() const { return read_size - missed_size - used_size; }
    // Returns the share of what was read ahead that was used; 1 if nothing was.
    [[nodiscard]] double accuracy() const;
    // Returns the share of the bytes not in the cache that prefetches brought.
    [[nodiscard]] double coverage() const;
};

// Makes the predictor of a stream. Used only with Policy::kPenstock.
using PredictorSource = std::function<std::unique_ptr<Predictor>(uint64_t stream)>;

[[nodiscard]] Figures simulate(const Recording& recording, Policy policy, const Setting& setting,
                               const PredictorSource& predictors);

}  // namespace penstock::readahead
