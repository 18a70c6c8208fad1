// A file of random bytes that nobody else sees, to measure reads on: it has no name but for a
// moment, so that it goes however the program ends. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "penstock/status.h"
#include "storage/storage.h"
#include "transfer/source.h"

namespace penstock::file {

// What of it is in the OS page cache.
enum class ScratchState : uint8_t { kCold, kHot, kMixed, kUntold };

class ScratchFile {
public:
    // Beside or in `path`, without content. Errors: those of open(2).
    static Result<std::unique_ptr<ScratchFile>> create(const std::string& path, uint64_t size,
                                                       storage::Storage& storage);
    ~ScratchFile();
    ScratchFile(const ScratchFile&) = delete;
    ScratchFile& operator=(const ScratchFile&) = delete;

    // Bytes that are free where it would be.
    static Result<uint64_t> room(const std::string& path);

    [[nodiscard]] uint64_t size() const { return size_; }
    [[nodiscard]] transfer::Source& source() { return *source_; }
    [[nodiscard]] const storage::File& file() const { return *source_->file; }

    // Random bytes for [offset, offset + size), into the cache; sync() brings them to storage.
    Status fill(uint64_t offset, uint64_t size);
    Status sync();
    // Asks the cache to let go of it, until it has or for some tenths of a second.
    ScratchState make_cold();
    [[nodiscard]] ScratchState state();

private:
    ScratchFile(int descriptor, uint64_t size) : descriptor_(descriptor), size_(size) {}

    const int descriptor_;  // to write
    const uint64_t size_;
    std::unique_ptr<transfer::Source> source_;
};

}  // namespace penstock::file
