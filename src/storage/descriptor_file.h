// A regular file behind a file descriptor. posix and uring share it. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "storage/first_write.h"
#include "storage/storage.h"

namespace penstock::storage {

class DescriptorFile final : public File {
public:
    static Result<std::shared_ptr<File>> open(const std::string& path, int flags);
    static Result<std::shared_ptr<File>> adopt(int descriptor);
    static Status unlink(const std::string& path);
    ~DescriptorFile() override;

    Status stat(Identity* out) const override;
    int direct_descriptor() const override;
    void announce(uint64_t offset, uint64_t size) const override;
    void read_ahead(bool ahead) const override;
    Status sync(bool data_only) override;
    Status truncate(uint64_t size) override;
    void begin_write() override {
        if (first_write_ != nullptr) first_write_->begin(descriptor());
    }

private:
    static Result<std::shared_ptr<File>> make(int descriptor, Rights rights);
    DescriptorFile(const Identity& identity, DirectAlignment alignment, int descriptor,
                   Rights rights)
        : File(identity, alignment, descriptor, rights) {
        if (rights.write && alignment.offset != 0)
            first_write_ = FirstWrite::of(identity.device, identity.inode);
    }

    std::shared_ptr<FirstWrite> first_write_;  // null: not open for writing, or no direct I/O

    mutable std::mutex direct_mutex_;  // guards the opening of direct_descriptor_
    mutable std::atomic<int> direct_descriptor_{-EOPNOTSUPP};
};

}  // namespace penstock::storage
