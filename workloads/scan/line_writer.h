// Lines and counts in grep's output format, or lines as JSON, buffered, to a file descriptor. One
// thread.
#pragma once

#include <string>
#include <string_view>

#include "scan/scan.h"

namespace penstock::scan {

enum class LineForm : uint8_t {
    kNumber,  // "number:bytes", as grep for one text
    kPath,    // "path:number:bytes", as grep for several
    kJson,    // {"path": "...", "number": N, "offset": N, "line": "..."}
};

// Appends `bytes` as a JSON string. Bytes that are not UTF-8 become \udc80 to \udcff, as Python's
// surrogateescape has it.
void append_json(std::string_view bytes, std::string* out);

class LineWriter {
public:
    LineWriter(int file, LineForm form) : file_(file), form_(form) {}

    // Writes a line, or "[path:]count", which JSON has no form for. Whether the output still takes
    // lines.
    bool write_line(const LineMatch& match);
    bool write_count(const TextResult& result);
    bool flush();
    // 0, or the errno of the write that failed; EPIPE: the reader has gone.
    [[nodiscard]] int error_number() const { return error_number_; }

private:
    void append_number(uint64_t number);
    void append_object(const LineMatch& match);

    int file_;
    LineForm form_;
    int error_number_ = 0;
    std::string buffer_;
};

}  // namespace penstock::scan
