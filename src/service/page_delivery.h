// Says where pages are read to, and tells the teams that wait for them that they have arrived.
//
// Each worker has one; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "penstock/status.h"
#include "service/progress.h"
#include "service/read_run.h"
#include "service/shared.h"

namespace penstock::service {

class PageDelivery {
public:
    // Makes the delivery for the file system's device. Call one at a time.
    static std::unique_ptr<PageDelivery> create(Shared& shared, Progress& progress);
    virtual ~PageDelivery() = default;
    PageDelivery(const PageDelivery&) = delete;
    PageDelivery& operator=(const PageDelivery&) = delete;

    // Takes the memory that pages pass through.
    virtual Status take_staging() { return {}; }
    // Begins a drain of a ring. Returns the limit of its pages; 0: nothing may be taken now.
    virtual size_t begin(uint32_t ring) = 0;
    // Returns whether the ready requests of that ring may be claimed.
    virtual bool may_claim() { return true; }
    // Ends a drain, whose pages use the first `pages` places.
    virtual void end(size_t pages) = 0;

    // Returns where a page must be read to.
    [[nodiscard]] virtual std::byte* destination(const PageOf& page) = 0;
    // Completes a run that was read completely, if its pages are in their frames or their teams
    // copy them. Returns false otherwise.
    virtual bool complete_whole(const ReadRun& run) = 0;
    // complete() gives one page its completion word. announce() follows it, with the first `pages`
    // pages of a run; it wakes the threads that wait for them.
    virtual void complete(const PageOf& page, Completion word) = 0;
    virtual void announce(const ReadRun& run, size_t pages) = 0;
    // Tells the teams of a run that there is nothing to copy, because the completion words say all.
    virtual void answer_nothing(const ReadRun&) {}

    // Sends what is on its way to the device: answers, or everything, or what is due at `now_ns`.
    virtual void send_answers() {}
    virtual void send() {}
    virtual void send_due(uint64_t) {}

protected:
    PageDelivery() = default;
};

}  // namespace penstock::service
