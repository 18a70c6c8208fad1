// See line_writer.h.
#include "scan/line_writer.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>

namespace penstock::scan {
namespace {

constexpr size_t kBufferSize = 128 << 10;

// Bytes of the UTF-8 sequence that `text` begins with; 0 if it is none. RFC 3629, section 4.
size_t sequence_size(std::string_view text) {
    const auto byte = [text](size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
    };
    const unsigned lead = byte(0);
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || lead > 0xf4) return 0;
    const size_t size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    for (size_t i = 1; i < size; ++i)
        if ((byte(i) & 0xc0) != 0x80) return 0;
    const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
    const bool no_character = (lead == 0xed && byte(1) > 0x9f) || (lead == 0xf4 && byte(1) > 0x8f);
    return overlong || no_character ? 0 : size;
}

void append_escape(unsigned code, std::string* out) {
    constexpr char kDigits[] = "0123456789abcdef";
    out->append("\\u");
    for (int shift = 12; shift >= 0; shift -= 4) out->push_back(kDigits[code >> shift & 15]);
}

}  // namespace

void append_json(std::string_view bytes, std::string* out) {
    out->push_back('"');
    while (!bytes.empty()) {
        const auto first = static_cast<unsigned char>(bytes.front());
        const size_t size = sequence_size(bytes);
        if (size == 0)
            append_escape(0xdc00 + first, out);
        else if (first < 0x20)
            append_escape(first, out);
        else if (first == '"' || first == '\\')
            out->append(1, '\\').push_back(bytes.front());
        else
            out->append(bytes.substr(0, size));
        bytes.remove_prefix(size == 0 ? 1 : size);
    }
    out->push_back('"');
}

void LineWriter::append_number(uint64_t number) {
    char digits[20];
    const char* end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    buffer_.append(digits, static_cast<size_t>(end - digits));
}

bool LineWriter::write_line(const LineMatch& match) {
    if (form_ == LineForm::kJson) {
        append_object(match);
    } else {
        if (form_ == LineForm::kPath) buffer_.append(match.path).push_back(':');
        append_number(match.number);
        buffer_.push_back(':');
        buffer_.append(match.bytes).push_back('\n');
    }
    return buffer_.size() < kBufferSize || flush();
}

void LineWriter::append_object(const LineMatch& match) {
    buffer_.append("{\"path\": ");
    append_json(match.path, &buffer_);
    buffer_.append(", \"number\": ");
    append_number(match.number);
    buffer_.append(", \"offset\": ");
    append_number(match.offset);
    buffer_.append(", \"line\": ");
    append_json(match.bytes, &buffer_);
    buffer_.append("}\n");
}

bool LineWriter::write_count(const TextResult& result) {
    if (form_ == LineForm::kPath) buffer_.append(result.path).push_back(':');
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
