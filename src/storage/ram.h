// Named byte arrays in memory. They serve as files for tests and studies that no disk, page cache
// or other process can disturb. Any thread. Several threads may read a file at once; a change waits
// for them.
#pragma once

#include <map>
#include <mutex>

#include "storage/storage.h"

namespace penstock::storage {

class RamBytes;  // one array, shared by its name and its open files

class RamStorage final : public Storage, public std::enable_shared_from_this<RamStorage> {
public:
    [[nodiscard]] Kind kind() const override { return Kind::kRam; }
    [[nodiscard]] std::string description() const override { return "ram"; }
    Result<std::shared_ptr<File>> open(const std::string& name, int flags) override;
    Status unlink(const std::string& name) override;
    Result<std::unique_ptr<Queue>> make_queue(uint32_t depth) override;

    // Makes a file of `size` zero bytes. They take no memory until they are written. EEXIST,
    // ENOMEM.
    Status create(const std::string& name, uint64_t size);
    // Extends the file with zeros, or shortens it. ENOENT, ENOMEM.
    Status resize(const std::string& name, uint64_t size);
    // Overwrites the bytes from `offset` on, and extends the file if necessary. ENOENT, ENOMEM.
    Status write(const std::string& name, uint64_t offset, std::span<const std::byte> bytes);

private:
    std::shared_ptr<RamBytes> find(const std::string& name);

    std::mutex mutex_;  // guards names_ and inode_last_
    std::map<std::string, std::shared_ptr<RamBytes>> names_;
    uint64_t inode_last_ = 0;
};

}  // namespace penstock::storage
