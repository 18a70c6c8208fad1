// Lines and counts in grep's output format, buffered, to a file descriptor. One thread.
#pragma once

#include <string>

#include "scan/scan.h"

namespace penstock::scan {

class LineWriter {
public:
    // `with_path`: each line begins with the text's path, as grep does for several texts.
    LineWriter(int file, bool with_path) : file_(file), with_path_(with_path) {}

    // "[path:]number:bytes" and "[path:]count". Whether the output still takes lines.
    bool write_line(const LineMatch& match);
    bool write_count(const TextResult& result);
    bool flush();
    // 0, or the errno of the write that failed; EPIPE: the reader has gone.
    [[nodiscard]] int error_number() const { return error_number_; }

private:
    void append_number(uint64_t number);

    int file_;
    bool with_path_;
    int error_number_ = 0;
    std::string buffer_;
};

}  // namespace penstock::scan
