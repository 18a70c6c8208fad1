// The result of a call that can fail: an errno, where it arose, and a sentence.
//
// This header knows nothing of files or GPUs. A Status is a value of three words: it owns nothing,
// copying it costs nothing, and any thread may read it. Front-ends add the file's name and print
// one line.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace penstock {

// The result of a call: ok, or an errno with its origin and text.
class [[nodiscard]] Status {
public:
    constexpr Status() = default;

    // Makes the Status of an error.
    //   error_number  a positive errno
    //   origin        the call that failed ("pread")
    //   text          what the error means to the caller
    // A Status never frees the two strings. They must live as long as the program, as string
    // literals do.
    constexpr Status(int error_number, const char* origin, const char* text)
        : error_number_(error_number), origin_(origin), text_(text) {}

    [[nodiscard]] constexpr bool ok() const { return error_number_ == 0; }
    [[nodiscard]] constexpr int error_number() const { return error_number_; }
    [[nodiscard]] constexpr const char* origin() const { return origin_; }
    [[nodiscard]] constexpr const char* text() const { return text_; }

    // Returns one line: "pread: Input/output error: the page could not be read".
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

// A value, or the Status that says why there is no value.
template <class T>
class [[nodiscard]] Result {
public:
    Result(T value) : value_(std::move(value)) {}
    Result(Status status) : status_(status) {}

    [[nodiscard]] bool ok() const { return status_.ok(); }
    [[nodiscard]] const Status& status() const { return status_; }
    [[nodiscard]] T& value() { return value_; }  // requires ok()
    [[nodiscard]] const T& value() const { return value_; }

private:
    T value_{};
    Status status_;
};

}  // namespace penstock
