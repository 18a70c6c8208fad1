// A storage for tests with their own files. It opens none.
#pragma once

#include <cerrno>
#include <memory>
#include <span>
#include <string>

#include "storage/instant_queue.h"

namespace penstock::transfer {

class QueueStorage : public storage::Storage {
public:
    [[nodiscard]] storage::Kind kind() const override { return storage::Kind::kRam; }
    [[nodiscard]] std::string description() const override { return "for this test"; }
    Result<std::shared_ptr<storage::File>> open(const std::string&, int) override {
        return Status{ENOSYS, "open", "tests make their files"};
    }
};

// For storage::InstantQueue: makes each read by `File::read(operation)`.
template <class File>
struct ReadByFile {
    storage::Completion operator()(const storage::Operation& operation) const {
        return static_cast<File*>(operation.file)->read(operation);
    }
};

}  // namespace penstock::transfer
