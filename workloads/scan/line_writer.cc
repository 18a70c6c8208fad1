// See line_writer.h.
#include "scan/line_writer.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>

namespace penstock::scan {
namespace {

constexpr size_t kBufferSize = 128 << 10;

}  // namespace

void LineWriter::append_number(uint64_t number) {
    char digits[20];
    const char* end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    buffer_.append(digits, static_cast<size_t>(end - digits));
}

bool LineWriter::write_line(const LineMatch& match) {
    if (with_path_) buffer_.append(match.path).push_back(':');
    append_number(match.number);
    buffer_.push_back(':');
    buffer_.append(match.bytes).push_back('\n');
    return buffer_.size() < kBufferSize || flush();
}

bool LineWriter::write_count(const TextResult& result) {
    if (with_path_) buffer_.append(result.path).push_back(':');
    append_number(result.match_count);
    buffer_.push_back('\n');
    return buffer_.size() < kBufferSize || flush();
}

bool LineWriter::flush() {
    for (size_t done = 0; done < buffer_.size() && error_number_ == 0;) {
        const ssize_t count = write(file_, buffer_.data() + done, buffer_.size() - done);
        if (count >= 0)
            done += static_cast<size_t>(count);
        else if (errno != EINTR)
            error_number_ = errno;
    }
    buffer_.clear();
    return error_number_ == 0;
}

}  // namespace penstock::scan
