// What files should hold: flat bytes kept beside a storage, with which every read is compared.
//
// ReferenceFile is one file's bytes; what was never written is zero and takes no memory, so it may
// be larger than memory. ReferenceFiles changes such a file and the real one together: in a folder
// of the machine, or in a RamStorage. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "storage/ram.h"

namespace penstock::testing {

class ReferenceFile {
public:
    [[nodiscard]] uint64_t size() const { return size_; }
    void resize(uint64_t size);                                     // grows with zeros or cuts off
    void write(uint64_t offset, std::span<const std::byte> bytes);  // grows where it must

    // How many of `size` bytes from `offset` on the file has.
    [[nodiscard]] uint64_t count(uint64_t offset, uint64_t size) const;
    // Index of the first of `bytes` that is not the file's at `offset`, or bytes.size(). All of
    // them must lie in the file.
    [[nodiscard]] size_t mismatch(uint64_t offset, std::span<const std::byte> bytes) const;

private:
    static constexpr uint64_t kChunkSize = 64 << 10;
    std::map<uint64_t, std::vector<std::byte>> chunks_;  // by offset / kChunkSize; absent: zeros
    uint64_t size_ = 0;
};

class ReferenceFiles {
public:
    // Files lie in `folder`, which must be there; or in `ram` (then `folder` is empty).
    ReferenceFiles(std::string folder, std::shared_ptr<storage::RamStorage> ram)
        : folder_(std::move(folder)), ram_(std::move(ram)) {}

    // What gopen calls it.
    [[nodiscard]] std::string path(const std::string& name) const;
    [[nodiscard]] const ReferenceFile& file(const std::string& name) const;

    // Each changes the real file at once, by one system call or a few. False: that failed.
    [[nodiscard]] bool create(const std::string& name);
    [[nodiscard]] bool resize(const std::string& name, uint64_t size);
    [[nodiscard]] bool write(const std::string& name, uint64_t offset,
                             std::span<const std::byte> bytes);
    [[nodiscard]] bool remove(const std::string& name);
    // `from` gets the name `to`, whose file goes.
    [[nodiscard]] bool rename(const std::string& from, const std::string& to);

private:
    const std::string folder_;
    const std::shared_ptr<storage::RamStorage> ram_;
    std::map<std::string, ReferenceFile> files_;
};

}  // namespace penstock::testing
