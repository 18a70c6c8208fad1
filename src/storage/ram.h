// Named byte arrays held in memory: files for tests and studies that no disk, no page cache and no
// other process can disturb. Any thread; readers of a file run side by side, a change waits for
// them.
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

    // `size` zero bytes, which take no memory until they are written. EEXIST, ENOMEM.
    Status create(const std::string& name, uint64_t size);
    // Grows with zeros or cuts off. ENOENT, ENOMEM.
    Status resize(const std::string& name, uint64_t size);
    // Overwrites from `offset` on, growing the file where it must. ENOENT, ENOMEM.
    Status write(const std::string& name, uint64_t offset, std::span<const std::byte> bytes);

private:
    std::shared_ptr<RamBytes> find(const std::string& name);

    std::mutex mutex_;  // guards the two below
    std::map<std::string, std::shared_ptr<RamBytes>> names_;
    uint64_t inode_last_ = 0;
};

}  // namespace penstock::storage
