// Follows files by name as `tail -F` does, and scans each line once it is whole.
//
// The Follower decides which bytes of which file are new; the Scanner searches them as it searches
// any text. A followed name and the files that have had it:
//
//   NONE    -> CURRENT   the name appears, or the file can be opened now
//   CURRENT -> REPLACED  the name is gone, or means another file
//   REPLACED -> CURRENT  the name means this file again
//   REPLACED -> closed   nothing was appended for kQuietTime, or kReplacedMax others are younger
//
// A REPLACED file is still followed, as its writer goes on until it opens the name anew. Its last
// line counts without a newline, when it is closed. One thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "penstock/status.h"
#include "scan/change_watch.h"
#include "scan/scan.h"

namespace penstock::scan {

enum class Notice : uint8_t {
    kTrouble,  // a file cannot be read, or not yet
    kChange,   // a name means another file, or a file was truncated
};

// Told what is found and what becomes of the files. on_text() is not called.
class FollowListener : public ScanListener {
public:
    void on_text(const TextResult&) final {}
    virtual void on_notice(Notice notice, const std::string& path, const std::string& text) = 0;
    // Called whenever all lines that have arrived are told. Whether to go on.
    virtual bool on_idle() = 0;
};

class Follower {
public:
    // `scanner` and `listener` outlive the Follower. `output` is where the caller writes what is
    // found, or -1: such a file is not scanned, and run() ends when nothing reads such a pipe.
    Follower(Scanner* scanner, FollowListener* listener, std::vector<std::string> paths,
             int output);
    ~Follower();

    // Scans what the files have and then what they get, until the listener wants no more or the
    // output has no reader. Errors are those of the device.
    Status run();

    // One a path, in order: what was scanned of all files that had the name.
    [[nodiscard]] std::vector<TextResult> results() const;
    // Sums over all scans; `seconds` is the time since run() began.
    [[nodiscard]] const ScanReport& report() const { return report_; }
    // Whether run() ended because the output has no reader.
    [[nodiscard]] bool output_closed() const { return output_closed_; }

private:
    using Clock = std::chrono::steady_clock;
    struct File;
    struct Name {
        TextResult sum;
        File* current = nullptr;
        std::string trouble;  // what was told last; empty: nothing, or it has passed
        bool seen = false;    // it has been looked for before
    };
    class Told;

    void look_up(Name* name);
    void lose(Name* name, const std::string& why);
    void take(Name* name, int descriptor, dev_t device, ino_t inode);
    void retire(File* file);
    void look_for_lines(File* file);
    void close_quiet();
    Status scan_new();
    void tell_of_events();
    void notice(Notice kind, const std::string& path, const std::string& text) {
        listener_->on_notice(kind, path, text);
    }

    Scanner* scanner_;
    FollowListener* listener_;
    int output_;
    ChangeWatch watch_;
    bool told_of_events_ = false, output_closed_ = false;
    std::vector<Name> names_;
    std::vector<std::unique_ptr<File>> files_;
    std::vector<TextRange> ranges_;  // new, to be scanned
    std::vector<File*> scanned_;     // whose they are
    ScanReport report_;
    Clock::time_point began_ = Clock::now();
};

}  // namespace penstock::scan
