// What the file systems cost that files are read from into one device memory: as calibrated, and as
// reads have found out since. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "backend/backend.h"
#include "storage/storage.h"
#include "transfer/source.h"

namespace penstock::file {

class CostBook {
public:
    // `device` may be null. Both must outlive it, or the last call of `of`.
    CostBook(const backend::Device* device, const storage::Storage& storage)
        : device_(device), storage_(storage) {}

    // Those of the file's file system: one object for all its files. The first of a file system
    // reads what is stored; if that cannot be read, a line on stderr says so, once a process.
    std::shared_ptr<transfer::Costs> of(const storage::File& file);

private:
    const backend::Device* const device_;
    const storage::Storage& storage_;
    std::mutex mutex_;
    uint64_t stored_ = 0;  // calibrations_stored() when known_ was made
    std::map<uint64_t, std::shared_ptr<transfer::Costs>> known_;  // by device number
};

}  // namespace penstock::file
