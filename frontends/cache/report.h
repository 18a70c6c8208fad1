// What the process tells the commands that started it or wait for its end.
//
// The report is a file in memory, which a command opens as /proc/PID/fd/N while the process lives,
// and reads on when it is gone. It has one line: "serving", "writing N" with N bytes that are still
// dirty, "done", or "failed: " and a cause. One thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "log.h"

namespace penstock::cache_service {

class Report {
public:
    // `ready`: a descriptor that gets one line at start, or -1.
    Report(int ready, Log* log);
    Report(const Report&) = delete;
    Report& operator=(const Report&) = delete;
    ~Report();

    // Returns how to find the report: "PID N".
    [[nodiscard]] std::string place() const;
    // Returns whether the process that waits for the line at start has gone.
    [[nodiscard]] bool is_abandoned() const;
    // Tells that the process serves, or why it does not: here and at standard error. begin()
    // returns false if the process that waits for it has gone.
    [[nodiscard]] bool begin();
    // Tells something that the user must know, before begin().
    void note(const std::string& line);
    void refuse(const std::string& line);
    void writing(uint64_t dirty_size);
    void end(const std::string& failure);  // empty: nothing failed

private:
    [[nodiscard]] bool write_line(const std::string& line) const;
    [[nodiscard]] bool tell_starter(const std::string& line);
    void set(const std::string& line);

    int ready_;
    Log* const log_;
    const int file_;
};

}  // namespace penstock::cache_service
