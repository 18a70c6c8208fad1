// Answers the control calls of kernels (gopen, gclose, ...) at their ports.
//
// A file system has one. Any thread that has a worker.
#pragma once

#include <atomic>

#include "penstock/abi/file_system.h"
#include "penstock/abi/limits.h"
#include "service/file_table.h"
#include "service/progress.h"
#include "service/write_backs.h"

namespace penstock::service {

class ControlCalls {
public:
    // `state` is as the host sees it.
    ControlCalls(FileSystemState& state, FileTable& files, const Abort& abort)
        : state_(state), files_(files), abort_(abort) {}

    // Answers the calls at all ports. `progress` and `writes` are the worker's. Returns false if
    // there were none.
    bool serve(Progress& progress, WriteBacks& writes);

private:
    [[nodiscard]] uint64_t next_call(uint32_t port) const;
    int64_t answer(ControlPort& port, ControlCall call, WriteBacks& writes);

    FileSystemState& state_;
    FileTable& files_;
    const Abort& abort_;
    std::atomic_flag taken_[limits::kPortsMax];
};

}  // namespace penstock::service
