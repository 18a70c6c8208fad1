// The readahead of Linux for one open file, for comparison in simulations.
//
// After ondemand_readahead(), get_init_ra_size(), get_next_ra_size() and try_context_readahead() of
// mm/readahead.c, and filemap_get_pages() of mm/filemap.c, Linux 6.1: a window that starts at two
// or four times the request, doubles to 32 pages (128 KiB), and is renewed when the reader comes to
// a marked page inside it. Left out: large folios, congestion, POSIX_FADV_*.
//
// Pure. One thread at a time.
#pragma once

#include <cstdint>

namespace penstock::readahead {

// The page cache as the window sees it; indices of pages of one file.
class LinuxPages {
public:
    virtual ~LinuxPages() = default;
    // Whether there is a page, be it still on its way.
    [[nodiscard]] virtual bool has(uint64_t page) const = 0;
    // Asks for those of [page, page + count) that are not there, as one request for each gap. If
    // `mark` is among them, it is marked.
    virtual void submit(uint64_t page, uint64_t count, uint64_t mark) = 0;
};

class LinuxWindow {
public:
    static constexpr uint64_t kPagesMax = 32;          // read_ahead_kb 128
    static constexpr uint64_t kRequestPagesMax = 256;  // what the device takes at once

    explicit LinuxWindow(uint64_t file_pages) : file_pages_(file_pages) {}

    // Page `index` is not there; the read goes on to `count` pages from it.
    void miss(LinuxPages& pages, uint64_t index, uint64_t count) {
        advance(pages, index, count, false);
    }
    // The reader has come to a marked page; its mark is gone.
    void reached_mark(LinuxPages& pages, uint64_t index, uint64_t count) {
        advance(pages, index, count, true);
    }
    // A read has ended; this page holds the byte behind it.
    void read_ended(uint64_t page) { previous_ = page; }

private:
    void advance(LinuxPages& pages, uint64_t index, uint64_t count, bool marked);
    bool place(LinuxPages& pages, uint64_t index, uint64_t count, bool marked, uint64_t most);
    void submit(LinuxPages& pages, uint64_t index, uint64_t count, uint64_t lookahead) const;

    uint64_t file_pages_;
    uint64_t start_ = 0, size_ = 0, async_size_ = 0;  // the window, and its part behind the mark
    uint64_t previous_ = UINT64_MAX;                  // as in Linux: none reads like page -1
};

}  // namespace penstock::readahead
