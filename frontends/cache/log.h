// Lines of penstock-cache for its user: at standard error, or in a file where that is not seen.
//
// Any thread.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

namespace penstock::cache_service {

class Log {
public:
    // `path`: a file, which is made, and becomes standard error; empty: there is none.
    explicit Log(const std::string& path);
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;
    // Removes a file that has got no line.
    ~Log();

    [[nodiscard]] bool is_file() const { return !path_.empty(); }
    void line(const std::string& text);
    // The same for what may come often: at most kOftenMax lines a minute. The next line after them
    // says how many are missing.
    void often(const std::string& text);

private:
    static constexpr unsigned kOftenMax = 20;
    void write_line(const std::string& text) const;

    std::mutex mutex_;
    std::string path_;
    std::chrono::steady_clock::time_point minute_;
    unsigned written_ = 0, left_out_ = 0;  // of often(), in this minute
};

}  // namespace penstock::cache_service
