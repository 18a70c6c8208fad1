// The bytes of lines whose begin is known, read back from a text in rising order. One thread.
#pragma once

#include <string_view>
#include <vector>

#include "scan/text_source.h"

namespace penstock::scan {

class LineReader {
public:
    // From now on lines are those of `source`, which ends at `size` and must live as long as it is
    // read.
    void reset(const TextSource* source, uint64_t size);
    [[nodiscard]] const TextSource* source() const { return source_; }
    // The line that begins at `start`, without its newline; valid until the next call. Cost: one
    // read of the window for each kWindowSize bytes that lines lie apart.
    [[nodiscard]] Result<std::string_view> line(uint64_t start);

private:
    [[nodiscard]] Status fill(uint64_t start, size_t size);

    const TextSource* source_ = nullptr;
    uint64_t size_ = 0;
    uint64_t begin_ = 0;  // of the window
    std::vector<char> window_;
};

}  // namespace penstock::scan
