// The report of penstock-cache.
#include "report.h"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

namespace penstock::cache_service {

Report::Report(int ready, Log* log)
    : ready_(ready), log_(log), file_(memfd_create("penstock-report", MFD_CLOEXEC)) {
    set("serving");
}

Report::~Report() {
    if (ready_ >= 0) close(ready_);
    if (file_ >= 0) close(file_);
}

std::string Report::place() const { return std::to_string(getpid()) + " " + std::to_string(file_); }

void Report::note(const std::string& line) {
    if (ready_ < 0 || log_->is_file()) log_->line(line);
    if (ready_ >= 0) (void)write_line("note: " + line);
}

bool Report::is_abandoned() const {
    pollfd starter{ready_, 0, 0};
    return ready_ >= 0 && poll(&starter, 1, 0) > 0 && (starter.revents & POLLERR) != 0;
}

bool Report::begin() { return tell_starter("ready"); }

void Report::refuse(const std::string& line) {
    if (ready_ < 0) log_->line(line);
    (void)tell_starter(line);
}

void Report::writing(uint64_t dirty_size) { set("writing " + std::to_string(dirty_size)); }

void Report::end(const std::string& failure) {
    if (!failure.empty()) log_->line(failure);
    set(failure.empty() ? "done" : "failed: " + failure);
}

bool Report::write_line(const std::string& line) const {
    const std::string text = line + "\n";
    return write(ready_, text.data(), text.size()) >= 0;
}

bool Report::tell_starter(const std::string& line) {
    if (ready_ < 0) return true;
    const bool told = write_line(line);
    close(ready_);
    ready_ = -1;
    return told;
}

// Lines are padded to one length, so that each replaces the last in one write.
void Report::set(const std::string& line) {
    constexpr size_t kLength = 512;
    std::string text = line.substr(0, kLength - 1);
    text.resize(kLength - 1, ' ');
    text += '\n';
    if (pwrite(file_, text.data(), text.size(), 0) < 0) std::perror("penstock-cache: report");
}

}  // namespace penstock::cache_service
