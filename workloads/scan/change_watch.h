// Sleeps until a followed file or its folder may have changed: inotify, with a limit of time.
//
// Says only that something may have changed, not what. File systems that other machines write to
// report nothing, and memory mappings write without an event, so a caller looks once in a while
// anyway. Knows nothing of texts. One thread.
#pragma once

#include <chrono>
#include <string>

namespace penstock::scan {

class ChangeWatch {
public:
    static constexpr int kNone = -1;

    ChangeWatch();
    ~ChangeWatch();
    ChangeWatch(const ChangeWatch&) = delete;
    ChangeWatch& operator=(const ChangeWatch&) = delete;

    // Watches the names in the folder that holds `path`. A folder that is watched already stays so.
    void add_folder_of(const std::string& path);
    // Watches the file that `descriptor` is open on. Returns what remove() takes, or kNone.
    [[nodiscard]] int add_file(int descriptor);
    void remove(int watch);
    // Returns after a change, after a signal, or after `limit`. Returns false once nothing reads
    // what is written to the pipe, socket or terminal `output`; -1: there is none.
    [[nodiscard]] bool wait(std::chrono::milliseconds limit, int output) const;
    // The errno for which some changes are not reported, or 0.
    [[nodiscard]] int error_number() const { return error_number_; }

private:
    int events_ = -1;
    int error_number_ = 0;
};

}  // namespace penstock::scan
