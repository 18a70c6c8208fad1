// Storage for tests that bring a queue of their own: it opens no files.
#pragma once

#include <cerrno>
#include <memory>
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

}  // namespace penstock::transfer
