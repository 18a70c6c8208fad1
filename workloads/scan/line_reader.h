// The bytes of lines whose begin is known, read back from a text in rising order. One thread.
//
// A text may end within a line and have more of it later: a pipe does so all the time.
#pragma once

#include <string_view>
#include <vector>

#include "scan/text_source.h"

namespace penstock::scan {

class LineReader {
public:
    // From now on lines are those of `source`, which must live as long as it is read.
    void reset(TextSource* source);
    [[nodiscard]] const TextSource* source() const { return source_; }
    // Returns the line that begins at `start`, without its newline; valid until the next call. A
    // line that the source does not hold whole is waited for: TextSource::extend() is called until
    // its newline or the end of the text is there, or `keep_waiting` says no. Cost: one read of the
    // window for each kWindowSize bytes that lines lie apart.
    [[nodiscard]] Result<std::string_view> line(uint64_t start, const KeepWaiting& keep_waiting);

private:
    [[nodiscard]] Status fill(uint64_t start, size_t size);

    TextSource* source_ = nullptr;
    uint64_t begin_ = 0;  // of the window
    std::vector<char> window_;
};

}  // namespace penstock::scan
