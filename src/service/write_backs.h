// Writes back the dirty pages of a drain, and the bytes of control calls. Reads that end meanwhile
// are completed.
//
// Each worker has one; one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "penstock/abi/file_system.h"
#include "penstock/abi/limits.h"
#include "service/page_reader.h"
#include "service/page_writer.h"
#include "service/progress.h"
#include "service/shared.h"

namespace penstock::service {

class WriteBacks {
public:
    // `reader` uses the same executor.
    WriteBacks(const Shared& shared, Progress& progress, transfer::Executor& executor,
               PageReader& reader)
        : shared_(shared), progress_(progress), executor_(executor), reader_(reader) {}
    // Takes the memory that pages pass through.
    Status take_staging();

    // Moves the writes among the requests of a drain aside. Returns the reads, now without gaps.
    std::span<Request> set_aside(std::span<Request> requests);
    // Writes the pages that were set aside.
    void write();
    // Writes the bytes of a kernel's control call at once. Returns an errno.
    int write_bytes(ControlPort& port);

private:
    using Writing = std::function<void(const PageWriter::OtherOutcome&, PageWriter::Done*)>;
    void use_writer(const Writing& writing);

    const Shared& shared_;
    Progress& progress_;
    transfer::Executor& executor_;
    PageReader& reader_;
    std::unique_ptr<PageWriter> writer_;
    Request writes_[limits::kDrainMax];
    size_t count_ = 0;
};

}  // namespace penstock::service
