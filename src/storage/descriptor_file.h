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
    // Stands for a descriptor that stays the caller's, for hints and questions only. EINVAL: it was
    // opened with O_DIRECT, so its reads do not use the OS page cache.
    static Result<std::shared_ptr<File>> borrow(int descriptor);
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
    int begin_append() override {
        append_mutex_.lock();
        return append_descriptor_ >= 0 ? append_descriptor_ : descriptor();
    }
    void end_append() override { append_mutex_.unlock(); }

private:
    static Result<std::shared_ptr<File>> make(int descriptor, Rights rights, bool owns = true);
    void open_for_appends();
    DescriptorFile(const Identity& identity, DirectAlignment alignment, int descriptor,
                   Rights rights, bool owns)
        : File(identity, alignment, descriptor, rights), owns_(owns) {
        if (rights.write && alignment.offset != 0)
            first_write_ = FirstWrite::of(identity.device, identity.inode);
    }

    const bool owns_;             // the destructor closes descriptor()
    std::mutex append_mutex_;     // guards the position of the descriptor that appends use
    int append_descriptor_ = -1;  // that descriptor; -1: it is descriptor()
    std::shared_ptr<FirstWrite> first_write_;  // null: not open for writing, or no direct I/O

    mutable std::mutex direct_mutex_;  // guards the opening of direct_descriptor_
    mutable std::atomic<int> direct_descriptor_{-EOPNOTSUPP};
};

}  // namespace penstock::storage
