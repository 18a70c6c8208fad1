// What readahead is worth: recorded accesses replayed in virtual time against a cache and a storage
// that are models, under different policies.
//
// One reader: each access waits for its bytes, then computes for its think time. The cache is LRU
// over pages of 4 KiB, with advice where the policy has any. The storage answers after a latency
// and sends over one link; requests beyond its slots wait, demand before prefetch. Pure and
// repeatable: the same seed gives the same figures.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "access/program.h"
#include "readahead/predictor.h"
#include "readahead/readahead.h"

namespace penstock::readahead {

inline constexpr uint64_t kSimulationPage = 4096;

struct RecordedAccess {
    uint64_t stream = 0;  // what our readahead tells apart; Linux sees one open file
    access::Access access;
    uint64_t think_ns = 0;  // computed before it
};

struct Recording {
    std::string name;
    uint64_t file_size = 0;
    std::vector<RecordedAccess> accesses;
};

struct StorageModel {
    uint64_t latency_ns = 500'000;  // median; spread 0.8 to 1.2, and one in twenty takes three
                                    // times
    double bandwidth = 2e9;         // bytes a second, of all requests together
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
    kOracle,  // knows every access; evicts what is used last (Belady)
};

[[nodiscard]] const char* name(Policy policy);

struct Figures {
    uint64_t time_ns = 0;   // of the whole replay
    uint64_t stall_ns = 0;  // of that, waiting for bytes
    uint64_t requests = 0;
    uint64_t demanded_size = 0;    // pages that were asked for, each time
    uint64_t read_size = 0;        // what the storage delivered
    uint64_t prefetched_size = 0;  // of that, ahead of demand
    uint64_t used_size = 0;        // of that, used before it was evicted
    uint64_t missed_size = 0;      // fetched by demand
    uint64_t promotions = 0;

    // Read ahead and not used, or read though it was there.
    [[nodiscard]] uint64_t wasted_size() const { return read_size - missed_size - used_size; }
    // Share of what was read ahead that was used; 1 if nothing was.
    [[nodiscard]] double accuracy() const;
    // Share of what was not in the cache that prefetches brought.
    [[nodiscard]] double coverage() const;
};

// Makes the predictor of a stream; for Policy::kPenstock only.
using PredictorSource = std::function<std::unique_ptr<Predictor>(uint64_t stream)>;

[[nodiscard]] Figures simulate(const Recording& recording, Policy policy, const Setting& setting,
                               const PredictorSource& predictors);

}  // namespace penstock::readahead
