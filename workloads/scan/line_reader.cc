// A window over the text that grows to hold one line; see line_reader.h.
#include "scan/line_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace penstock::scan {
namespace {

constexpr size_t kWindowSize = 256 << 10;

}  // namespace

void LineReader::reset(TextSource* source) {
    source_ = source;
    begin_ = 0;
    window_.clear();
}

// Makes the window [start, start + size) as far as the text goes, keeping what it has of it.
Status LineReader::fill(uint64_t start, size_t size) {
    const uint64_t end = begin_ + window_.size();
    if (start >= begin_ && start < end) {
        window_.erase(window_.begin(),
                      window_.begin() + static_cast<std::ptrdiff_t>(start - begin_));
    } else {
        window_.clear();
    }
    begin_ = start;
    size_t have = window_.size();
    window_.resize(std::max<uint64_t>(have, std::min<uint64_t>(size, source_->size() - start)));
    while (have < window_.size()) {
        const Result<size_t> count = source_->read(start + have, window_.data() + have,
                                                   window_.size() - have);
        if (!count.ok()) return count.status();
        if (count.value() == 0) break;  // it became shorter
        have += count.value();
    }
    window_.resize(have);
    return {};
}

Result<std::string_view> LineReader::line(uint64_t start, const KeepWaiting& keep_waiting) {
    if (const std::string_view mapped = source_->mapped_text(); start < mapped.size()) {
        const std::string_view rest = mapped.substr(start);
        if (const size_t size = rest.find('\n'); size != rest.npos) return rest.substr(0, size);
    }
    size_t searched = 0;  // bytes of the line that hold no newline
    for (;;) {
        const uint64_t end = begin_ + window_.size();
        const bool inside = start >= begin_ && start < end;
        const size_t at = inside ? start - begin_ : 0;
        if (inside) {
            const char* bytes = window_.data() + at;
            const size_t left = window_.size() - at;
            const void* newline = std::memchr(bytes + searched, '\n', left - searched);
            if (newline != nullptr)
                return std::string_view(bytes, static_cast<const char*>(newline));
            searched = left;
            if (end >= source_->size()) {
                const Result<uint64_t> extended = source_->extend(keep_waiting);
                if (!extended.ok()) return extended.status();
                if (extended.value() <= end) return std::string_view(bytes, left);
            }
        }
        const size_t before = inside ? window_.size() - at : 0;
        if (const Status filled = fill(start, std::max(kWindowSize, 2 * before)); !filled.ok())
            return filled;
        if (window_.size() <= before) return std::string_view(window_.data(), window_.size());
    }
}

}  // namespace penstock::scan
