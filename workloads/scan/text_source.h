// One input of the scan as the host holds it: a regular file, or a stream that is spooled into
// memory.
//
// A source may grow while it is scanned: extend() looks again. A stream is taken in windows, so
// that an endless one is scanned as it comes; what is no longer needed of it is let go. Knows
// nothing of GPUs. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "penstock/status.h"
#include "scan/text_mapping.h"

namespace penstock::scan {

// Whether to go on; asked about ten times a second by whoever waits.
using KeepWaiting = std::function<bool()>;

class TextSource {
public:
    // "-" is standard input, of which the first bytes are waited for. A file that says it has no
    // bytes but has some (as in /proc) is read like a stream. EINVAL: neither a regular file nor
    // "-".
    [[nodiscard]] static Result<TextSource> open(const std::string& path,
                                                 const KeepWaiting& keep_waiting);

    // The regular file that `descriptor` is open on, by a duplicate of it.
    [[nodiscard]] static Result<TextSource> share(int descriptor);

    TextSource() = default;
    TextSource(TextSource&& other) noexcept;
    TextSource& operator=(TextSource&& other) noexcept;
    ~TextSource();

    // Bytes as of open() or the last extend().
    [[nodiscard]] uint64_t size() const { return size_; }
    // Looks for more: the size now, at least what it was. A stream waits until there are bytes or
    // none will come.
    [[nodiscard]] Result<uint64_t> extend(const KeepWaiting& keep_waiting);
    // Whether this is the file that `descriptor` is open on.
    [[nodiscard]] bool is_file(int descriptor) const;
    // A path by which the same bytes can be opened while this source lives.
    [[nodiscard]] std::string device_path() const;
    // The first bytes of a stream up to `offset` are not asked for again.
    void forget(uint64_t offset);
    // Where [offset, offset + size) lies in this process's memory; null unless the source is a file
    // that has them all and the OS page cache has the first of them. Once it has not, all that
    // follows is null: a file that storage must be asked for is not mapped. Asked in rising order.
    [[nodiscard]] const uint8_t* mapped(uint64_t offset, uint64_t size);
    // What mapped() has mapped so far: from the text's begin, or nothing. It may change under the
    // reader, as the file does.
    [[nodiscard]] std::string_view mapped_text() const {
        return {reinterpret_cast<const char*>(mapping_.bytes()), mapping_.size()};
    }
    // Whether mapped bytes were lost while they were searched: TextMapping::damaged().
    [[nodiscard]] bool damaged() const { return mapping_.damaged(); }
    // As pread: bytes read, 0 at the end.
    [[nodiscard]] Result<size_t> read(uint64_t offset, void* buffer, size_t size) const;

private:
    [[nodiscard]] Status start_spool();
    [[nodiscard]] Result<uint64_t> spool(const KeepWaiting& keep_waiting);

    int file_ = -1;    // what is scanned
    int stream_ = -1;  // where a spool is filled from; -1: none
    uint64_t size_ = 0;
    uint64_t forgotten_ = 0;
    TextMapping mapping_;
    bool unmappable_ = false;
};

}  // namespace penstock::scan
