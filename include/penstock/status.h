// What a call that can fail returns: an errno, where it arose, and a sentence.
//
// Knows nothing of files or GPUs. A Status is a value of three words: copying it is free, it owns
// nothing and any thread may read it. Front-ends add the file's name and turn it into one line.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace penstock {

class [[nodiscard]] Status {
public:
    constexpr Status() = default;

    // `error_number` is a positive errno; `origin` names the call that failed ("pread"); `text`
    // says what that means to the caller. Both live as long as the program, as string literals do:
    // a Status never frees them.
    constexpr Status(int error_number, const char* origin, const char* text)
        : error_number_(error_number), origin_(origin), text_(text) {}

    [[nodiscard]] constexpr bool ok() const { return error_number_ == 0; }
    [[nodiscard]] constexpr int error_number() const { return error_number_; }
    [[nodiscard]] constexpr const char* origin() const { return origin_; }
    [[nodiscard]] constexpr const char* text() const { return text_; }

    // "pread: Input/output error: the page could not be read".
    [[nodiscard]] std::string message() const {
        if (ok()) return "ok";
        std::string line = std::string(origin_) + ": " + std::strerror(error_number_);
        if (*text_ != '\0') line += std::string(": ") + text_;
        return line;
    }

private:
    int error_number_ = 0;
    const char* origin_ = "";
    const char* text_ = "";
};

// A value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
public:
    Result(T value) : value_(std::move(value)) {}
    Result(Status status) : status_(status) {}

    [[nodiscard]] bool ok() const { return status_.ok(); }
    [[nodiscard]] const Status& status() const { return status_; }
    [[nodiscard]] T& value() { return value_; }  // only after ok()
    [[nodiscard]] const T& value() const { return value_; }

private:
    T value_{};
    Status status_;
};

}  // namespace penstock
