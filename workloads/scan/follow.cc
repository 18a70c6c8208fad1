// Looks at names and files, finds what is new; see follow.h.
#include "scan/follow.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace penstock::scan {
namespace {

constexpr std::chrono::milliseconds kLookInterval(1000);  // without an event
// Between looks while a writer goes on, so that a scan serves several writes.
constexpr std::chrono::milliseconds kLookGap(2);
constexpr std::chrono::seconds kQuietTime(10);
constexpr size_t kReplacedMax = 16;
constexpr uint64_t kPieceSize = 64 << 10;

// The end of the last whole line in [begin, end) of a file; `begin` if no line ends there. Bytes
// that cannot be read count as whole, so that the scan of them tells the error.
uint64_t end_of_lines(int file, uint64_t begin, uint64_t end) {
    std::vector<char> piece(std::min(kPieceSize, end - begin));
    while (end > begin) {
        const uint64_t size = std::min(kPieceSize, end - begin);
        const ssize_t count = pread(file, piece.data(), size, static_cast<off_t>(end - size));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return end;
        const void* newline = memrchr(piece.data(), '\n', static_cast<size_t>(count));
        end -= size;
        if (newline != nullptr)
            return end + static_cast<uint64_t>(static_cast<const char*>(newline) - piece.data()) +
                   1;
    }
    return begin;
}

}  // namespace

struct Follower::File {
    File(Name* its_name, int its_descriptor, dev_t its_device, ino_t its_inode)
        : name(its_name), descriptor(its_descriptor), device(its_device), inode(its_inode) {}
    ~File() { close(descriptor); }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    [[nodiscard]] bool is(dev_t other_device, ino_t other_inode) const {
        return device == other_device && inode == other_inode;
    }

    Name* const name;
    const int descriptor;
    const dev_t device;
    const ino_t inode;
    int watch = ChangeWatch::kNone;
    uint64_t seen_size = 0;     // bytes in which the ends of lines were looked for
    uint64_t scanned_size = 0;  // bytes that were scanned, all of them whole lines
    uint64_t line_count = 0;    // lines in them
    bool replaced = false, finished = false;
    Clock::time_point grown{};  // when it grew or was replaced last
};

// Adds the results of the ranges up, which come in order.
class Follower::Told final : public ScanListener {
public:
    explicit Told(Follower* owner) : owner_(owner) {}

    bool on_line(const LineMatch& match) override { return owner_->listener_->on_line(match); }
    bool on_progress(const ScanProgress& progress) override {
        return owner_->listener_->on_progress(progress);
    }
    void on_text(const TextResult& result) override {
        const TextRange& range = owner_->ranges_[next_];
        File* file = owner_->scanned_[next_++];
        file->line_count = result.line_count;
        file->name->sum.size += result.size;
        file->name->sum.match_count += result.match_count;
        if (result.status.ok()) return;
        struct stat now {};
        // The next look finds it truncated, and scans it anew.
        if (fstat(file->descriptor, &now) == 0 && static_cast<uint64_t>(now.st_size) < range.end)
            return;
        file->name->sum.status = result.status;
        owner_->notice(Notice::kTrouble, range.path, result.status.message());
    }

private:
    Follower* owner_;
    size_t next_ = 0;
};

Follower::Follower(Scanner* scanner, FollowListener* listener, std::vector<std::string> paths,
                   int output)
    : scanner_(scanner), listener_(listener), output_(output), names_(paths.size()) {
    for (size_t i = 0; i < paths.size(); ++i) names_[i].sum.path = std::move(paths[i]);
}

Follower::~Follower() = default;

Status Follower::run() {
    for (;;) {
        const Clock::time_point looked = Clock::now();
        for (Name& name : names_) look_up(&name);
        for (const auto& file : files_) look_for_lines(file.get());
        if (const Status status = scan_new(); !status.ok()) return status;
        close_quiet();
        tell_of_events();
        report_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
        if (report_.stopped || !listener_->on_idle()) return {};
        std::this_thread::sleep_until(looked + kLookGap);
        output_closed_ = !watch_.wait(kLookInterval, output_);
        if (output_closed_) return {};
    }
}

// Finds out which file has the name now.
void Follower::look_up(Name* name) {
    const std::string& path = name->sum.path;
    if (name->current == nullptr) watch_.add_folder_of(path);
    struct stat found {};
    if (stat(path.c_str(), &found) != 0) return lose(name, std::strerror(errno));
    if (name->current != nullptr && name->current->is(found.st_dev, found.st_ino)) return;
    if (!S_ISREG(found.st_mode)) return lose(name, "not a regular file");
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0) return lose(name, std::strerror(errno));
    struct stat output {};
    const bool regular = fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode);
    const bool is_output = regular && output_ >= 0 && fstat(output_, &output) == 0 &&
                           output.st_dev == found.st_dev && output.st_ino == found.st_ino;
    if (regular && !is_output) return take(name, descriptor, found.st_dev, found.st_ino);
    close(descriptor);
    lose(name, is_output ? "the input is also the output" : "not a regular file");
}

// The name means no file that can be followed; told once for each reason.
void Follower::lose(Name* name, const std::string& why) {
    if (name->current != nullptr)
        notice(Notice::kTrouble, name->sum.path, "has become inaccessible: " + why + "; waiting");
    else if (name->trouble != why)
        notice(Notice::kTrouble, name->sum.path, why + "; waiting");
    name->trouble = why;
    name->seen = true;
    if (name->current != nullptr) retire(std::exchange(name->current, nullptr));
}

void Follower::take(Name* name, int descriptor, dev_t device, ino_t inode) {
    const auto old = std::find_if(files_.begin(), files_.end(), [&](const auto& file) {
        return file->name == name && file->is(device, inode);
    });
    if (name->current != nullptr)
        notice(Notice::kChange, name->sum.path, "has been replaced; following the new file");
    else if (name->seen)
        notice(Notice::kChange, name->sum.path, "has appeared; following it");
    name->trouble.clear();
    name->seen = true;
    if (name->current != nullptr) retire(name->current);
    if (old != files_.end()) {
        close(descriptor);
        name->current = old->get();
        name->current->replaced = name->current->finished = false;
        return;
    }
    ++report_.text_count;
    files_.push_back(std::make_unique<File>(name, descriptor, device, inode));
    name->current = files_.back().get();
    // Before the first look at its size: what is appended later makes an event.
    name->current->watch = watch_.add_file(descriptor);
}

void Follower::retire(File* file) {
    file->replaced = true;
    file->grown = Clock::now();
    size_t count = 0;
    File* oldest = file;
    for (const auto& one : files_) {
        if (!one->replaced || one->finished) continue;
        ++count;
        if (one->grown < oldest->grown) oldest = one.get();
    }
    if (count > kReplacedMax) oldest->finished = true;
}

// Plans to scan the lines that have become whole since the last look.
void Follower::look_for_lines(File* file) {
    struct stat status {};
    if (fstat(file->descriptor, &status) != 0) return;
    const auto size = static_cast<uint64_t>(status.st_size);
    if (size < file->seen_size) {
        notice(Notice::kChange, file->name->sum.path, "was truncated; scanning it anew");
        file->seen_size = file->scanned_size = file->line_count = 0;
    }
    uint64_t end = file->scanned_size;
    if (size > file->seen_size) {
        const uint64_t lines_end = end_of_lines(file->descriptor, file->seen_size, size);
        if (lines_end > file->seen_size) end = lines_end;
        file->seen_size = size;
        file->grown = Clock::now();
    }
    if (file->replaced && Clock::now() - file->grown >= kQuietTime) file->finished = true;
    if (file->finished) end = size;
    if (end <= file->scanned_size) return;
    ranges_.push_back(
        {file->name->sum.path, file->descriptor, file->scanned_size, end, file->line_count});
    scanned_.push_back(file);
    file->scanned_size = end;
}

Status Follower::scan_new() {
    if (ranges_.empty()) return {};
    Told told(this);
    const Status status = scanner_->scan(ranges_, told);
    const ScanReport& report = scanner_->report();
    report_.size += report.size;
    report_.match_count += report.match_count;
    report_.failed_count += report.failed_count;
    report_.block_read_seconds += report.block_read_seconds;
    report_.block_search_seconds += report.block_search_seconds;
    report_.stopped = report.stopped;
    ranges_.clear();
    scanned_.clear();
    return status;
}

void Follower::close_quiet() {
    std::erase_if(files_, [this](const auto& file) {
        if (file->finished) watch_.remove(file->watch);
        return file->finished;
    });
}

void Follower::tell_of_events() {
    if (told_of_events_ || watch_.error_number() == 0) return;
    told_of_events_ = true;
    notice(Notice::kTrouble, "inotify",
           std::string(std::strerror(watch_.error_number())) + "; looking once a second");
}

std::vector<TextResult> Follower::results() const {
    std::vector<TextResult> results;
    for (const Name& name : names_) results.push_back(name.sum);
    return results;
}

}  // namespace penstock::scan
