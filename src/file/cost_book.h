// Holds the cost model of each file system, for reads into one device memory. A model begins with
// the stored calibration, and reads refine it. Any thread.
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
    // `device` may be null. Both arguments must outlive this object or the last call of of().
    CostBook(const backend::Device* device, const storage::Storage& storage)
        : device_(device), storage_(storage) {}

    // Returns the costs of the file's file system; all its files share one object. The first call
    // for a file system reads the stored calibration. If that fails, a line on stderr says so, once
    // per process.
    std::shared_ptr<transfer::Costs> of(const storage::File& file);

private:
    const backend::Device* const device_;
    const storage::Storage& storage_;
    std::mutex mutex_;
    uint64_t stored_ = 0;  // calibrations_stored() when known_ was last cleared
    std::map<uint64_t, std::shared_ptr<transfer::Costs>> known_;  // by device number
};

}  // namespace penstock::file
