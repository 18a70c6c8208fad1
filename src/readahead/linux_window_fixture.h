// The readahead of Linux for one open file, for comparison in simulations.
//
// It follows ondemand_readahead(), get_init_ra_size(), get_next_ra_size() and
// try_context_readahead() of mm/readahead.c, and filemap_get_pages() of mm/filemap.c, in Linux 6.1.
// A window starts at two or four times the request, doubles up to 32 pages (128 KiB), and is
// renewed when the reader reaches a marked page in it. Large folios, congestion and POSIX_FADV_*
// are left out.
//
// Pure. One thread at a time.
#pragma once

#include <cstdint>

namespace penstock::readahead {

// The page cache of one file, as the window sees it. Arguments are page indices.
class LinuxPages {
public:
    virtual ~LinuxPages() = default;
    // Returns whether there is a page, even if it is still in flight.
    [[nodiscard]] virtual bool has(uint64_t page) const = 0;
    // Requests the missing pages of [page, page + count), with one request per gap. Marks page
    // `mark` if it is among them.
    virtual void submit(uint64_t page, uint64_t count, uint64_t mark) = 0;
};

class LinuxWindow {
public:
    static constexpr uint64_t kPagesMax = 32;          // read_ahead_kb 128
    static constexpr uint64_t kRequestPagesMax = 256;  // what the device takes at once

    explicit LinuxWindow(uint64_t file_pages) : file_pages_(file_pages) {}

    // Handles a read of `count` pages from page `index` on, which is missing.
    void miss(LinuxPages& pages, uint64_t index, uint64_t count) {
        advance(pages, index, count, false);
    }
    // Handles a reader that has reached a marked page. The mark is gone.
    void reached_mark(LinuxPages& pages, uint64_t index, uint64_t count) {
        advance(pages, index, count, true);
    }
    // Records the end of a read. `page` holds the byte after it.
    void read_ended(uint64_t page) { previous_ = page; }

private:
    void advance(LinuxPages& pages, uint64_t index, uint64_t count, bool marked);
    bool place(LinuxPages& pages, uint64_t index, uint64_t count, bool marked, uint64_t most);
    void submit(LinuxPages& pages, uint64_t index, uint64_t count, uint64_t lookahead) const;

    uint64_t file_pages_;
    uint64_t start_ = 0, size_ = 0, async_size_ = 0;  // the window, and its part after the mark
    uint64_t previous_ = UINT64_MAX;                  // as in Linux: no reader reads like page -1
};

}  // namespace penstock::readahead
