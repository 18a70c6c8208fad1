#include "log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

namespace penstock::cache_service {

Log::Log(const std::string& path) {
    if (path.empty()) return;
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (dup2(file, STDERR_FILENO) >= 0) path_ = path;
    close(file);
}

Log::~Log() {
    struct stat ours {
    }, there{};
    if (!path_.empty() && fstat(STDERR_FILENO, &ours) == 0 && ours.st_size == 0 &&
        stat(path_.c_str(), &there) == 0 && there.st_ino == ours.st_ino)
        unlink(path_.c_str());
}

void Log::line(const std::string& text) {
    const std::lock_guard lock(mutex_);
    write_line(text);
}

void Log::often(const std::string& text) {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now - minute_ >= std::chrono::minutes(1)) {
        if (left_out_ > 0) write_line(std::to_string(left_out_) + " lines were left out");
        minute_ = now;
        written_ = left_out_ = 0;
    }
    if (written_ == kOftenMax) {
        ++left_out_;
        return;
    }
    ++written_;
    write_line(text);
}

// A line is one write, so that several processes may share a file.
void Log::write_line(const std::string& text) const {
    std::string line = "penstock-cache: " + text + "\n";
    if (!path_.empty()) {
        const std::time_t now = std::time(nullptr);
        std::tm parts{};
        char time[32];
        std::strftime(time, sizeof time, "%F %T", localtime_r(&now, &parts));
        line = std::string(time) + " [" + std::to_string(getpid()) + "] " + text + "\n";
    }
    (void)!write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace penstock::cache_service
