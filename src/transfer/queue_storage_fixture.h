// Storage for tests that bring files of their own: it opens none.
#pragma once

#include <cerrno>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "storage/storage.h"

namespace penstock::transfer {

class QueueStorage : public storage::Storage {
public:
    [[nodiscard]] storage::Kind kind() const override { return storage::Kind::kRam; }
    [[nodiscard]] std::string description() const override { return "for this test"; }
    Result<std::shared_ptr<storage::File>> open(const std::string&, int) override {
        return Status{ENOSYS, "open", "tests make their files"};
    }
};

// A queue that has each read done, by `File::read(operation)`, while it is submitted.
template <class File>
class InstantQueue final : public storage::Queue {
public:
    explicit InstantQueue(uint32_t depth) : Queue(depth) {}

    size_t submit(std::span<const storage::ReadOperation> operations) override {
        for (const storage::ReadOperation& operation : operations)
            done_.push_back(static_cast<File*>(operation.file)->read(operation));
        return operations.size();
    }
    size_t reap(std::span<storage::Completion> out, bool /*wait*/) override {
        size_t count = 0;
        for (; count < out.size() && !done_.empty(); done_.pop_front())
            out[count++] = done_.front();
        return count;
    }
    [[nodiscard]] size_t outstanding() const override { return done_.size(); }

private:
    std::deque<storage::Completion> done_;
};

}  // namespace penstock::transfer
