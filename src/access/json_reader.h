// Parses JSON text piece by piece and strictly: RFC 8259, valid UTF-8, whole numbers exactly.
//
// The first error is kept, and each later call returns false. A lone escape \udc80 to \udcff stands
// for the byte 0x80 to 0xff (as in Python's "surrogateescape"), so that file names that are not
// UTF-8 can be expressed. Other lone surrogates are errors. Nesting is the caller's recursion, and
// bounded by what the caller asks for.
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
    [[nodiscard]] size_t at() const { return at_; }  // the byte at which parsing stands or failed

    // Takes '[' or '{' if it comes next.
    bool open(char bracket);
    // Returns whether another element of a list follows. Takes the comma before it, or the closing
    // bracket. `*first` must be true at the first call.
    bool element(bool* first) { return another(first, ']'); }
    // Does the same for objects. The name must be one of `known`, whose index is stored in
    // `*index`, and its bit in `*seen` must not be set yet.
    bool member(bool* first, std::initializer_list<std::string_view> known, uint32_t* seen,
                size_t* index);
    // Takes the end of an object after a member.
    bool close();

    bool string(std::string* value);
    bool integer(int64_t* value);
    bool natural(uint64_t* value);
    // Takes a natural number. One beyond 64 bits, which is an error elsewhere, becomes the largest.
    bool version(uint64_t* value);
    bool number(double* value);
    // Returns the next character after spaces; 0 at the end.
    char peek();
    // Checks that only spaces are left.
    bool end();

    // Returns false always.
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

// Returns the length in bytes of the UTF-8 sequence at the front of the text; 0 if there is none.
[[nodiscard]] size_t utf8_length(std::string_view text);

}  // namespace penstock::access
