// Scans the tokens of a strace line: quotes, brackets and paths of descriptors may hold any bytes.
#include "access/trace_call.h"

#include <algorithm>

#include "access/trace_lines.h"

namespace penstock::access {
namespace {

// Scans arguments: finds where they are separated and where the call ends.
class Scanner {
public:
    explicit Scanner(std::string_view text) : text_(text) {}

    // Must stand after the opening bracket. Fills `arguments` and moves behind the closing bracket.
    bool arguments(std::vector<std::string_view>* arguments) {
        size_t depth = 0, begin = at_;
        while (at_ < text_.size()) {
            const char byte = text_[at_];
            if (byte == '"') {
                if (!pass_string()) return false;
                continue;
            }
            if (byte == '<' && at_ > 0 && is_digit_or_name(text_[at_ - 1])) {
                if (!pass_path()) return false;
                continue;
            }
            if (byte == '(' || byte == '[' || byte == '{') ++depth;
            if ((byte == ',' || byte == ')') && depth == 0) {
                add(arguments, begin);
                begin = at_ + 1;
            }
            if (byte == ')' || byte == ']' || byte == '}') {
                if (depth == 0) {
                    ++at_;
                    return byte == ')';
                }
                --depth;
            }
            ++at_;
        }
        return false;
    }
    void go_to(size_t at) { at_ = at; }
    [[nodiscard]] size_t at() const { return at_; }

private:
    static bool is_digit_or_name(char byte) {
        return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z');
    }
    void add(std::vector<std::string_view>* arguments, size_t begin) {
        std::string_view one = text_.substr(begin, at_ - begin);
        one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
        while (!one.empty() && one.back() == ' ') one.remove_suffix(1);
        if (!one.empty() || !arguments->empty()) arguments->push_back(one);
    }
    bool pass_string() {
        for (++at_; at_ < text_.size(); ++at_) {
            if (text_[at_] == '\\') {
                ++at_;
            } else if (text_[at_] == '"') {
                ++at_;
                return true;
            }
        }
        return false;
    }
    // 3</path> and 4<TCP:[1:2->3:4]>: a '>' in the path itself is escaped, but that of "->" is not.
    bool pass_path() {
        for (++at_; at_ < text_.size(); ++at_) {
            if (text_[at_] == '>' && text_[at_ - 1] != '-') {
                ++at_;
                return true;
            }
        }
        return false;
    }

    std::string_view text_;
    size_t at_ = 0;
};

// Decodes \n, \t, \\, \" and up to three octal digits.
std::string decode(std::string_view text) {
    std::string decoded;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\\' || i + 1 == text.size()) {
            decoded += text[i];
            continue;
        }
        ++i;
        int code = 0;
        size_t digits = 0;
        while (digits < 3 && i + digits < text.size() && text[i + digits] >= '0' &&
               text[i + digits] <= '7') {
            code = code * 8 + (text[i + digits++] - '0');
        }
        if (digits > 0) {
            decoded += static_cast<char>(code);
            i += digits - 1;
            continue;
        }
        constexpr std::string_view kLetters = "ntrvf", kBytes = "\n\t\r\v\f";
        const size_t letter = kLetters.find(text[i]);
        decoded += letter == std::string_view::npos ? text[i] : kBytes[letter];
    }
    return decoded;
}

}  // namespace

std::optional<CallHead> call_head(std::string_view line) {
    CallHead head;
    std::string_view rest = line;
    std::string_view word = take_word(rest);
    if (word == "[pid") {
        word = take_word(rest);
        if (!word.empty() && word.back() == ']') word.remove_suffix(1);
        const auto process = to_unsigned(word);
        if (!process) return std::nullopt;
        head.process = *process;
        word = take_word(rest);
    } else if (const auto process = to_unsigned(word)) {
        head.process = *process;
        word = take_word(rest);
    }
    // With -ttt there is a point. Without it, the number may be anything.
    if (word.find('.') == std::string_view::npos) return std::nullopt;
    const auto time_ns = seconds_to_ns(word);
    if (!time_ns) return std::nullopt;
    head.time_ns = *time_ns;
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    head.rest = rest;
    return head;
}

std::optional<Call> parse_call(std::string_view text) {
    Call call;
    const size_t open = text.find('(');
    if (open == std::string_view::npos) return std::nullopt;
    call.name = text.substr(0, open);
    Scanner scanner(text);
    scanner.go_to(open + 1);
    if (!scanner.arguments(&call.arguments)) return std::nullopt;
    text.remove_prefix(scanner.at());
    if (take_word(text) != "=") return std::nullopt;
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    // "3</a b> <0.000012>": the path has spaces, but the time after it has none.
    const size_t path = text.find('<');
    const size_t space = std::min(text.find(' '), text.size());
    const size_t end = path < space ? text.find('>', path) : space;
    if (end == std::string_view::npos) return std::nullopt;
    call.result = text.substr(0, path < space ? end + 1 : end);
    if (call.result.empty()) return std::nullopt;
    call.failed = call.result.starts_with("-") || call.result == "?";
    return call;
}

std::optional<CallDescriptor> call_descriptor(std::string_view text) {
    CallDescriptor descriptor;
    const size_t open = text.find('<');
    const auto number = to_signed(text.substr(0, open));
    if (!number || *number < 0) return std::nullopt;
    descriptor.number = *number;
    if (open != std::string_view::npos) {
        std::string_view path = text.substr(open + 1);
        if (path.ends_with('>')) path.remove_suffix(1);
        // strace shows a file that was unlinked like this.
        if (path.ends_with(">(deleted)")) path.remove_suffix(10);
        descriptor.path = decode(path);
    }
    return descriptor;
}

}  // namespace penstock::access
