// A run: adjacent pages of one file, read by one request to the executor. Pure.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "penstock/abi/request.h"
#include "transfer/source.h"

namespace penstock::service {

// One page of a request. `place` is its index in the staging of its drain, if there is staging.
struct PageOf {
    const Request* request;
    size_t page, place;

    [[nodiscard]] PageIndex index() const { return request->page + page; }
    [[nodiscard]] FrameIndex frame() const {
        return static_cast<FrameIndex>(request->frame + page);
    }
    // Returns the page behind it in the run.
    [[nodiscard]] PageOf next() const {
        return page + 1 < request->page_count ? PageOf{request, page + 1, place + 1}
                                              : PageOf{request + 1, 0, place + 1};
    }
};

// The pages belong to several requests, or are one page of a request that is read again.
struct ReadRun {
    std::span<const Request> requests;
    std::span<const iovec> pieces;  // where the bytes go
    PageOf first{};
    size_t pages = 0;
    transfer::Source* source = nullptr;  // null: the file is closed
    bool again = false;                  // its page is read again
    bool background = false;             // from the background ring
    bool pending = false;                // one of PendingWindows
    bool hot = false;                    // `pending`, and the OS page cache had all its pages
    uint64_t taken_ns = 0;               // when its requests were taken

    // Calls `visit(page, count)` for the adjacent frames of each request, from its page `page` on,
    // among the first `limit` pages of the run.
    template <class Visit>
    void visit_frames(size_t limit, const Visit& visit) const {
        PageOf page = first;
        for (size_t done = 0; done < limit;) {
            const size_t count = std::min<size_t>(limit - done,
                                                  page.request->page_count - page.page);
            visit(page, count);
            done += count;
            page = {page.request + 1, 0, page.place + count};
        }
    }
};

// Sorts requests by their place in the files.
inline bool is_before(const Request& a, const Request& b) {
    return a.file_slot != b.file_slot ? a.file_slot < b.file_slot : a.page < b.page;
}

}  // namespace penstock::service
