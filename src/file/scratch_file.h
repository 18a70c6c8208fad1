// Makes a file of random bytes to measure reads on. Its name is removed during creation, so that
// the file disappears however the program ends. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "penstock/status.h"
#include "storage/storage.h"
#include "storage/system_calls.h"
#include "transfer/source.h"

namespace penstock::file {

// How much of the file is in the OS page cache. kUntold: the kernel does not say.
enum class ScratchState : uint8_t { kCold, kHot, kMixed, kUntold };

class ScratchFile {
public:
    // Creates an empty file of `size` bytes in the folder `path`, or in the folder of the file
    // `path`. Fails with the errors of open(2).
    static Result<std::unique_ptr<ScratchFile>> create(const std::string& path, uint64_t size,
                                                       storage::Storage& storage);

    // Returns the free bytes of the file system that such a file would use.
    static Result<uint64_t> room(const std::string& path);

    [[nodiscard]] uint64_t size() const { return size_; }
    [[nodiscard]] transfer::Source& source() { return *source_; }
    [[nodiscard]] const storage::File& file() const { return *source_->file; }

    // Writes random bytes to [offset, offset + size) through the OS page cache. sync() brings them
    // to storage.
    Status fill(uint64_t offset, uint64_t size);
    Status sync();
    // Asks the kernel to drop the file from the OS page cache. Repeats this until it succeeds or
    // some tenths of a second have passed.
    ScratchState make_cold();
    [[nodiscard]] ScratchState state();

private:
    ScratchFile(int descriptor, uint64_t size) : descriptor_(descriptor), size_(size) {}

    const storage::system::ScopedDescriptor descriptor_;  // open for writing
    const uint64_t size_;
    std::unique_ptr<transfer::Source> source_;
};

}  // namespace penstock::file
