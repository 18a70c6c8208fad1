// Parses strict JSON: see json_reader.h.
#include "access/json_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

namespace penstock::access {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(uint32_t code, std::string* out) {
    const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
    if (code < 0x80) {
        put(code);
    } else if (code < 0x800) {
        put(0xc0 | code >> 6);
        put(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        put(0xe0 | code >> 12);
        put(0x80 | (code >> 6 & 0x3f));
        put(0x80 | (code & 0x3f));
    } else {
        put(0xf0 | code >> 18);
        put(0x80 | (code >> 12 & 0x3f));
        put(0x80 | (code >> 6 & 0x3f));
        put(0x80 | (code & 0x3f));
    }
}

}  // namespace

size_t utf8_length(std::string_view text) {
    if (text.empty()) return 0;
    const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
    const uint8_t first = byte(0);
    if (first < 0x80) return 1;
    const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
    for (size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80) return 0;
    }
    // Refuses overlong forms, surrogates, and code points beyond U+10FFFF.
    if (first == 0xe0 && byte(1) < 0xa0) return 0;
    if (first == 0xed && byte(1) > 0x9f) return 0;
    if (first == 0xf0 && byte(1) < 0x90) return 0;
    if (first == 0xf4 && byte(1) > 0x8f) return 0;
    return length;
}

bool JsonReader::fail(const char* text) {
    if (ok()) status_ = {EINVAL, "access program in JSON", text};
    return false;
}

char JsonReader::peek() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
        ++at_;
    }
    return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonReader::take(char character, const char* otherwise) {
    if (!ok()) return false;
    if (peek() != character || at_ == text_.size()) return fail(otherwise);
    ++at_;
    return true;
}

bool JsonReader::open(char bracket) {
    return take(bracket, bracket == '[' ? "a list was expected" : "an object was expected");
}

bool JsonReader::another(bool* first, char closing) {
    if (!ok()) return false;
    const bool is_first = std::exchange(*first, false);
    if (peek() == closing) {
        ++at_;
        return false;
    }
    return is_first || take(',', "a comma or a closing bracket was expected");
}

bool JsonReader::member(bool* first, std::initializer_list<std::string_view> known, uint32_t* seen,
                        size_t* index) {
    if (!another(first, '}')) return false;
    std::string name;
    if (!string(&name) || !take(':', "a colon was expected")) return false;
    const auto* const found = std::find(known.begin(), known.end(), name);
    if (found == known.end()) return fail("a key that is not known here");
    *index = static_cast<size_t>(found - known.begin());
    if (*seen >> *index & 1) return fail("a key that was there already");
    *seen |= 1u << *index;
    return true;
}

bool JsonReader::close() { return take('}', "a closing bracket was expected"); }

bool JsonReader::hexadecimal(uint32_t* value) {
    if (text_.size() - at_ < 4) return fail("the text ends within a string");
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, begin + 4, *value, 16);
    if (error != std::errc() || end != begin + 4)
        return fail("four hexadecimal digits were expected");
    at_ += 4;
    return true;
}

// Parses an escape after the backslash.
bool JsonReader::escape(std::string* value) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
    if (at_ == text_.size()) return fail("the text ends within a string");
    const char name = text_[at_++];
    if (const size_t i = kNames.find(name); i != std::string_view::npos) {
        value->push_back(kValues[i]);
        return true;
    }
    uint32_t code = 0;
    if (name != 'u') return fail("no such escape");
    if (!hexadecimal(&code)) return false;
    if (code >= 0xdc80 && code <= 0xdcff) {
        value->push_back(static_cast<char>(code - 0xdc00));
        return true;
    }
    if (code >= 0xd800 && code <= 0xdbff) {
        uint32_t low = 0;
        if (text_.substr(at_, 2) != "\\u") return fail("half of a surrogate pair");
        at_ += 2;
        if (!hexadecimal(&low)) return false;
        if (low < 0xdc00 || low > 0xdfff) return fail("half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code <= 0xdfff) {
        return fail("half of a surrogate pair");
    }
    append_utf8(code, value);
    return true;
}

bool JsonReader::string(std::string* value) {
    value->clear();
    if (!take('"', "a string was expected")) return false;
    for (;;) {
        if (value->size() > string_bytes_max_) return fail("a string that is too long");
        if (at_ == text_.size()) return fail("the text ends within a string");
        const char next = text_[at_];
        if (next == '"') break;
        if (static_cast<uint8_t>(next) < 0x20) return fail("a control character in a string");
        if (next == '\\') {
            ++at_;
            if (!escape(value)) return false;
            continue;
        }
        const size_t length = utf8_length(text_.substr(at_));
        if (length == 0) return fail("text that is not UTF-8");
        value->append(text_.substr(at_, length));
        at_ += length;
    }
    ++at_;
    return true;
}

// Takes the characters that may be a number; the caller checks them.
std::string_view JsonReader::digits() {
    peek();
    const size_t begin = at_;
    while (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '-' || text_[at_] == '+' ||
                                  text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) {
        ++at_;
    }
    return text_.substr(begin, at_ - begin);
}

namespace {

constexpr const char* kBeyond = "a whole number beyond 64 bits";

// Parses a whole number as JSON has it: no plus, no leading zeros, nothing after the digits.
// Returns null or what is wrong; kBeyond if it is only too large.
template <class Number>
const char* parse_whole(std::string_view text, Number* value) {
    const bool negative = !text.empty() && text[0] == '-';
    const std::string_view bare = text.substr(negative ? 1 : 0);
    if (bare.empty() || !std::all_of(bare.begin(), bare.end(), is_digit) ||
        (bare.size() > 1 && bare[0] == '0')) {
        return "a whole number was expected";
    }
    if (negative && std::is_unsigned_v<Number>) return "a number below 0 where it may not be";
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    return error == std::errc() ? nullptr : kBeyond;
}

}  // namespace

bool JsonReader::integer(int64_t* value) {
    if (!ok()) return false;
    const char* const error = parse_whole(digits(), value);
    return error == nullptr || fail(error);
}

bool JsonReader::natural(uint64_t* value) {
    if (!ok()) return false;
    const char* const error = parse_whole(digits(), value);
    return error == nullptr || fail(error);
}

bool JsonReader::version(uint64_t* value) {
    if (!ok()) return false;
    const char* const error = parse_whole(digits(), value);
    if (error == kBeyond) *value = std::numeric_limits<uint64_t>::max();
    return error == nullptr || error == kBeyond || fail(error);
}

bool JsonReader::number(double* value) {
    if (!ok()) return false;
    const std::string_view text = digits();
    const std::string_view bare = text.substr(!text.empty() && text[0] == '-' ? 1 : 0);
    const size_t point = bare.find('.');
    const bool shaped = !bare.empty() && is_digit(bare[0]) &&
                        (bare[0] != '0' || bare.size() == 1 || !is_digit(bare[1])) &&
                        (point == std::string_view::npos ||
                         (point + 1 < bare.size() && is_digit(bare[point + 1])));
    if (!shaped) return fail("a number was expected");
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    if (end != text.data() + text.size()) return fail("a number was expected");
    if (error != std::errc() || !std::isfinite(*value))
        return fail("a number too large or too small to be held");
    return true;
}

bool JsonReader::end() {
    if (!ok()) return false;
    peek();
    return at_ == text_.size() || fail("text behind the end");
}

}  // namespace penstock::access
