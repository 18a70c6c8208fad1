// Reads JSON text piece by piece, strictly: RFC 8259, valid UTF-8, whole numbers exactly.
//
// The first error stays and ends everything: each call then returns false. A lone escape \udc80 to
// \udcff stands for the byte 0x80 to 0xff (as in Python's "surrogateescape"), so that file names
// that are not UTF-8 can be told; other lone surrogates are refused. Nesting is the caller's
// recursion, and bounded by what it asks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "penstock/status.h"

namespace penstock::access {

class JsonReader {
public:
    JsonReader(std::string_view text, size_t string_bytes_max)
        : text_(text), string_bytes_max_(string_bytes_max) {}

    [[nodiscard]] bool ok() const { return status_.ok(); }
    [[nodiscard]] const Status& status() const { return status_; }
    [[nodiscard]] size_t at() const { return at_; }  // byte where reading stands, or failed

    // '[' or '{', if it is the next.
    bool open(char bracket);
    // Whether another element of a list comes; reads the comma before it, or the closing bracket.
    // `*first`: true at first.
    bool element(bool* first) { return another(first, ']'); }
    // The same for objects. The name is one of `known`, whose index goes to `*index`, and is in no
    // bit of `*seen` yet.
    bool member(bool* first, std::initializer_list<std::string_view> known, uint32_t* seen,
                size_t* index);
    // The end of an object behind a member.
    bool close();

    bool string(std::string* value);
    bool integer(int64_t* value);
    bool natural(uint64_t* value);
    // A natural number; one beyond 64 bits, which would be an error elsewhere, is the greatest.
    bool version(uint64_t* value);
    bool number(double* value);
    // The character that comes next, spaces passed over; 0 at the end.
    char peek();
    // Only spaces are left.
    bool end();

    // Always false.
    bool fail(const char* text);

private:
    bool another(bool* first, char closing);
    bool take(char character, const char* otherwise);
    bool escape(std::string* value);
    bool hexadecimal(uint32_t* value);
    std::string_view digits();

    std::string_view text_;
    size_t string_bytes_max_;
    size_t at_ = 0;
    Status status_;
};

// Bytes of the UTF-8 sequence at the front of the text; 0: none.
[[nodiscard]] size_t utf8_length(std::string_view text);

}  // namespace penstock::access
