#include "service/run_completer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace penstock::service {

void RunCompleter::finish(const ReadRun& run, const transfer::Outcome& outcome,
                          std::vector<PageOf>* retries) {
    if (shared_.log != nullptr && !run.again) log(run, outcome.error);
    if (!run.again && outcome.bytes == run.pages * page_size_ && delivery_.complete_whole(run))
        return;
    uint64_t left = outcome.bytes;
    size_t completed = 0;
    PageOf page = run.first;
    while (completed < run.pages) {
        const uint64_t bytes = std::min(left, page_size_);
        left -= bytes;
        const bool struck = outcome.error != 0 && bytes < page_size_;
        // A failed direct read returns no bytes. Which page failed shows when each one is read
        // again.
        if (struck && run.pages > 1 && outcome.bytes == 0) break;
        complete(page, bytes, struck ? outcome.error : 0);
        page = page.next();
        ++completed;
        if (struck) break;
    }
    delivery_.announce(run, completed);
    if (!run.again) delivery_.answer_nothing(run);
    for (; completed < run.pages; ++completed, page = page.next()) retries->push_back(page);
}

void RunCompleter::refuse(const ReadRun& run) {
    PageOf page = run.first;
    for (size_t i = 0; i < run.pages; ++i, page = page.next()) complete(page, 0, kErrorClosed);
    delivery_.announce(run, run.pages);
    if (!run.again) delivery_.answer_nothing(run);
}

// Completes one page of which `bytes` bytes are valid. The rest lies beyond the end of the file,
// unless `error` says why it is missing.
void RunCompleter::complete(const PageOf& page, uint64_t bytes, int error) {
    const Request& request = *page.request;
    if (bytes < page_size_) {
        const uint64_t begin = page.index() * page_size_;
        // In a file that is written here, bytes that the host does not have were not written back
        // yet, or never written: they are zeros. Only GPU threads know the end of such a file, and
        // no error lies beyond it.
        const bool written = shared_.files->is_written(request.file_slot);
        const uint64_t size = shared_.files->size_of(request.file_slot);
        const uint64_t expected = size > begin ? std::min(page_size_, size - begin) : 0;
        if (written ? error == 0 : bytes >= expected) {
            error = 0;
        } else if (error == 0) {
            const Progress::During during(progress_, Activity::kStorage);  // may wait
            // Without this, GPU threads would take the missing bytes for zeros.
            const Status shrunk = shared_.files->shrink(request, begin, bytes);
            if (!shrunk.ok())
                error = shrunk.error_number() == ESTALE ? static_cast<int>(kErrorClosed) : EIO;
        }
        std::memset(delivery_.destination(page) + bytes, 0, page_size_ - bytes);
    }
    if (error != 0 && error != static_cast<int>(kErrorClosed))
        progress_.counters.failed_pages.add(1);
    delivery_.complete(page, make_completion(request.generation, static_cast<uint32_t>(error),
                                             static_cast<uint32_t>(bytes)));
}

// Logs one event for the pages of the run that each block requested. This happens before the first
// of them is answered, so that the log is complete for a reader after a kernel has ended.
void RunCompleter::log(const ReadRun& run, int error) {
    const uint64_t now = base::monotonic_ns();
    const auto thread = static_cast<uint32_t>(gettid());
    ServiceEvent events[limits::kDrainMax];
    size_t count = 0;
    for (const Request& request : run.requests) {
        if (count > 0 && request.block == events[count - 1].block) {
            events[count - 1].page_count += request.page_count;
            continue;
        }
        ServiceEvent& event = events[count++];
        event.kind = is_window(request.kind) ? ServedFor::kWindow
                     : run.background        ? ServedFor::kAdvice
                                             : ServedFor::kDemand;
        event.block = request.block;
        event.thread = thread;
        event.page_count = request.page_count;
        event.page = request.page;
        event.file = request.file_slot;
        event.taken_ns = run.taken_ns;
        event.arrived_ns = now;
        event.error_number = error;
    }
    const Progress::During during(progress_, Activity::kStorage);  // the file table may be locked
    shared_.log->add({events, count});
}

}  // namespace penstock::service
