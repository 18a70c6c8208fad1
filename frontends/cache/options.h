// The command line of penstock-cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::cache_service {

struct Options {
    std::string path;                         // --path: the folder whose files are cached
    std::string mountpoint;                   // --mount: where the mount goes; empty: there is none
    bool read_only = false;                   // --read-only 1: nothing can be written there
    bool suid = false, dev = false;           // --suid 1, --dev 1: set-ID bits, devices count
    std::string socket;                       // --socket: where programs ask; empty: none do
    std::string device = "cpu";               // --device: one or several, with commas between
    uint64_t cache_size = uint64_t{1} << 30;  // --cache-size, in bytes of each device
    uint64_t chunk_size = 64 << 10;           // --chunk-size, in bytes
    uint64_t dirty_size_max = 0;              // --dirty-limit, in bytes; 0: a quarter of the cache
    uint64_t keep_free = 0;                   // --keep-free, in bytes of each device
    std::string tier;                         // --tier: a folder of a quick disk; empty: none
    uint64_t tier_size = 0;                   // --tier-size, in bytes; 0: the cache chooses
    bool tier_writes = false;                 // --tier-writes 1: a sync is durable in the tier
    std::string log;                          // --log: the file of its lines
    int ready = -1;                           // --ready-fd: gets "ready", or the line of an error
    int starter = -1;  // --starter-fd: a pipe whose end of file, when its writer ends, is the end
};

// Returns a number of bytes as text: 12 bytes, 1.5 MiB.
std::string size_text(uint64_t size);

// Returns the names in Options::device.
std::vector<std::string> device_names(const Options& options);

// Returns false with a line in `error` if the command line is wrong.
bool read_options(int count, char** words, Options* options, std::string* error);

}  // namespace penstock::cache_service
