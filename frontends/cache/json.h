// Strings as JSON has them.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace penstock::cache_service {

// Returns a string in quotes. Bytes that are no UTF-8 become the lone surrogates that Python makes
// of such names, so that the reader can tell them.
inline std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte == '"' || byte == '\\') {
            out += '\\';
            out += text[i];
        } else if (byte >= 0x20 && byte < 0x7f) {
            out += text[i];
        } else {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", byte < 0x80 ? byte : 0xdc00 + byte);
            out += escape;
        }
    }
    return out + '"';
}

}  // namespace penstock::cache_service
