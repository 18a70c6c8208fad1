// A machine that can lose its power, wrapped round a storage: what is written and cut stays in
// memory until it is synced, and crash() forgets it, all but what a disk may happen to have had.
//
// Any thread; a Queue one at a time, as every storage's. Names are made and taken away underneath
// at once. Nobody else may change the files underneath.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "storage/storage.h"

namespace penstock::testing {

class CrashImage;  // one file, shared by its name and its open files

class CrashStorage final : public storage::Storage {
public:
    // What is kept or lost as one.
    static constexpr uint64_t kSectorSize = 512;

    // Whose files can be opened for reading and writing.
    explicit CrashStorage(std::shared_ptr<storage::Storage> under);

    [[nodiscard]] storage::Kind kind() const override { return under_->kind(); }
    [[nodiscard]] std::string description() const override;
    Result<std::shared_ptr<storage::File>> open(const std::string& path, int flags) override;
    Status unlink(const std::string& path) override;
    Result<std::unique_ptr<storage::Queue>> make_queue(uint32_t depth) override;

    // Of what was not synced, each sector of each write and each cut is lost or kept as `seed` has
    // it: seed 0 loses all. From then on every call on a file that is open fails with EIO; opened
    // anew, files hold what was kept. Errors: those of the storage underneath.
    Status crash(uint64_t seed);
    // Writes and cuts that are not synced, over all files.
    [[nodiscard]] uint64_t unsynced() const;

private:
    const std::shared_ptr<storage::Storage> under_;
    mutable std::mutex mutex_;                                   // guards the map
    std::map<std::string, std::shared_ptr<CrashImage>> images_;  // by path
};

}  // namespace penstock::testing
