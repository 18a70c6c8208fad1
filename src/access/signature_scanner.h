// Scans the tokens of trace and pattern signatures. The first error is kept. Pure.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <span>
#include <string_view>

#include "penstock/status.h"

namespace penstock::access {

// In the order of Operation:
inline constexpr std::array<const char*, 3> kSignatureOperations = {"READ", "WRITE", "READ/WRITE"};

class SignatureScanner {
public:
    // `origin` is a literal for the Status.
    SignatureScanner(std::string_view text, const char* origin) : text_(text), origin_(origin) {}

    [[nodiscard]] const Status& status() const { return status_; }

    // Returns false always.
    bool fail(const char* text) {
        if (status_.ok()) status_ = {EINVAL, origin_, text};
        return false;
    }

    bool at_end() {
        skip_spaces();
        return text_.empty();
    }

    // Takes the character if it comes next.
    bool comes(char character) {
        skip_spaces();
        if (!status_.ok() || text_.empty() || text_[0] != character) return false;
        text_.remove_prefix(1);
        return true;
    }

    bool take(char character) {
        return comes(character) || fail("not of the form that a signature has");
    }

    bool number(int64_t* value) {
        skip_spaces();
        const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(),
                                                  *value);
        if (error == std::errc::result_out_of_range) return fail("a number beyond 64 bits");
        if (error != std::errc()) return fail("a number was expected");
        text_.remove_prefix(static_cast<size_t>(end - text_.data()));
        return true;
    }

    // Takes the text up to ',' or '>', which must be one of the names.
    bool name(std::span<const char* const> names, size_t* index) {
        skip_spaces();
        const std::string_view word = text_.substr(0, text_.find_first_of(",>"));
        for (size_t i = 0; i < names.size(); ++i) {
            if (word != names[i]) continue;
            *index = i;
            text_.remove_prefix(word.size());
            return status_.ok();
        }
        return fail("a name that is not known here");
    }

private:
    void skip_spaces() {
        const size_t count = text_.find_first_not_of(" \t\r\n");
        text_.remove_prefix(count == std::string_view::npos ? text_.size() : count);
    }

    std::string_view text_;
    const char* origin_;
    Status status_;
};

}  // namespace penstock::access
