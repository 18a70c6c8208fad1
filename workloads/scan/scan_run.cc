// Plans, waits, adds up; see scan_run.h.
#include "scan/scan_run.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace penstock::scan {
namespace {

constexpr size_t kTextsMax = 128;  // texts a batch: each holds two descriptors of the process

double seconds_since(std::chrono::steady_clock::time_point began) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

ScanRun::ScanRun(FileSystem* files, BatchQueue* queue, ScanListener* listener,
                 const ScanOptions& options, uint64_t overlap, ScanInput input)
    : files_(files),
      queue_(queue),
      listener_(listener),
      options_(options),
      overlap_(overlap),
      ranges_(std::move(input.ranges)),
      walk_(std::move(input.paths)),
      before_(queue->totals()) {}

Status ScanRun::run() {
    Slot filled = Slot::kEven, waiting = Slot::kOdd;
    Status status = fill(filled);
    while (status.ok() && !parts_[static_cast<size_t>(filled)].empty()) {
        std::swap(filled, waiting);
        status = fill(filled);
        if (status.ok()) status = settle(waiting);
    }
    if (!status.ok()) {  // nothing may run on when the caller's memory goes
        stop();
        for (const Slot slot : {Slot::kEven, Slot::kOdd}) (void)wait(slot);
    }
    for (const auto& parts : parts_)
        for (const Part& part : parts)
            if (part.text->descriptor >= 0)
                (void)files_->close(std::exchange(part.text->descriptor, -1));
    if (current_ != nullptr && current_->descriptor >= 0) (void)files_->close(current_->descriptor);
    return status;
}

// The next text, opened; its status says if it could not be. Null: there is none.
std::shared_ptr<ScanRun::Text> ScanRun::open_next() {
    if (stopped_) return nullptr;
    auto text = std::make_shared<Text>();
    if (next_range_ < ranges_.size()) {
        const TextRange& range = ranges_[next_range_++];
        text->result.path = range.path;
        text->result.status = open_range(range, text.get());
    } else {
        TreeWalk::Entry entry;
        if (!walk_.next(&entry)) return nullptr;
        text->result.path = std::move(entry.path);
        text->result.status = entry.status.ok() ? open_text(text.get()) : entry.status;
    }
    known_size_ += text->size - text->next_offset;
    return text;
}

Status ScanRun::open_range(const TextRange& range, Text* text) {
    Result<TextSource> source = TextSource::share(range.file);
    if (!source.ok()) return source.status();
    text->source = std::move(source.value());
    text->is_range = true;
    if (const Status opened = open_on_device(text); !opened.ok()) return opened;
    text->fold = LineFold(range.begin, range.line_count);
    text->next_offset = range.begin;
    text->size = range.end;
    return {};
}

Status ScanRun::open_text(Text* text) {
    Result<TextSource> source = TextSource::open(text->result.path, [this] { return tick(); });
    if (!source.ok()) return source.status();
    text->source = std::move(source.value());
    if (options_.lines && options_.output >= 0 && text->source.is_file(options_.output))
        return {EINVAL, "scan", "the input is also the output"};
    text->size = text->source.size();
    if (text->size == 0) return {};
    const Status opened = open_on_device(text);
    if (!opened.ok()) text->size = 0;
    return opened;
}

Status ScanRun::open_on_device(Text* text) {
    if (text->descriptor >= 0) (void)files_->close(std::exchange(text->descriptor, -1));
    const Result<Descriptor> descriptor = files_->open(text->source.device_path());
    if (!descriptor.ok()) return descriptor.status();
    text->descriptor = descriptor.value();
    return {};
}

// Whether the text's end keeps this stride from looking as far as it should: if the text grows, it
// wants to be searched again.
bool ScanRun::is_cut(const Text& text, const StrideJob& job) const {
    return job.offset + job.size + overlap_ > text.size || job.size < queue_->options().stride_size;
}

// Appends the text's next strides; whether that was all. Cut strides come together, in the text's
// last batch.
bool ScanRun::plan(Text* text, std::vector<StrideJob>* jobs) const {
    const uint64_t stride = queue_->options().stride_size;
    while (text->next_offset < text->size && jobs->size() < kStridesMax) {
        const uint64_t left = text->size - text->next_offset;
        StrideJob job{};
        job.file = text->descriptor;
        job.offset = text->next_offset;
        job.size = static_cast<uint32_t>(std::min(stride, left));
        job.reach = static_cast<uint32_t>(std::min(job.size + overlap_, left));
        if (queue_->options().map_cached)
            job.mapped = text->source.mapped(job.offset, job.reach + kTextPadding);
        if (is_cut(*text, job) && jobs->size() + (left + stride - 1) / stride > kStridesMax)
            return false;
        jobs->push_back(job);
        text->next_offset += job.size;
    }
    return text->next_offset >= text->size;
}

Status ScanRun::fill(Slot slot) {
    std::vector<StrideJob>& jobs = queue_->jobs(slot);
    std::vector<Part>& parts = parts_[static_cast<size_t>(slot)];
    parts.clear();
    if (stopped_) return {};
    while (jobs.size() < kStridesMax && parts.size() < kTextsMax) {
        if (current_ == nullptr) current_ = open_next();
        if (current_ == nullptr) break;
        Part part{current_, jobs.size(), 0, false};
        part.last = plan(current_.get(), &jobs);
        part.stride_count = jobs.size() - part.first_stride;
        parts.push_back(part);
        if (!part.last) break;
        current_ = nullptr;
    }
    return queue_->start(slot);
}

Status ScanRun::wait(Slot slot) {
    return queue_->wait(slot, [this] { return tick(); });
}

// Waits for a batch and adds its parts up.
Status ScanRun::settle(Slot slot) {
    Status status = wait(slot);
    std::vector<Part>& parts = parts_[static_cast<size_t>(slot)];
    for (const Part& part : parts) {
        bool grown = false;
        if (status.ok()) status = add_part(slot, part, &grown);
        if (status.ok() && grown) status = follow(part.text.get());
        if (status.ok() && part.last) finish(part.text.get());
    }
    if (status.ok()) parts.clear();
    return status;
}

// Adds the part's strides. If it is the text's last and the text has grown, those that the old end
// cut are left out, and the text is planned again from there.
Status ScanRun::add_part(Slot slot, const Part& part, bool* grown) {
    Text* text = part.text.get();
    uint64_t size = text->size;
    const bool may_grow = part.last && !text->is_range && text->descriptor >= 0;
    if (may_grow && text->result.status.ok() && !stopped_) {
        // The source may have more already, for the sake of a line that did not end before.
        if (text->source.size() > text->size) {
            size = text->source.size();
        } else if (const auto now = text->source.extend([this] { return tick(); }); now.ok()) {
            size = now.value();
        } else {
            text->result.status = now.status();
        }
    }
    *grown = size > text->size;
    for (size_t i = 0; i < part.stride_count; ++i) {
        const StrideJob& job = queue_->job(slot, part.first_stride + i);
        if (*grown && is_cut(*text, job)) {
            text->next_offset = job.offset;
            break;
        }
        if (const Status added = add_stride(slot, part.first_stride + i, text); !added.ok())
            return added;
    }
    if (*grown) {
        known_size_ += size - text->size;
        text->size = size;
    }
    return {};
}

Status ScanRun::add_stride(Slot slot, size_t stride, Text* text) {
    const StrideJob& job = queue_->job(slot, stride);
    const StrideRecord& record = queue_->record(slot, stride);
    if (!text->result.status.ok()) return {};
    if (record.read_size < 0) {
        text->result.status = Status(
            static_cast<int>(-record.read_size), stopped_ ? "scan" : "gread",
            stopped_ ? "stopped" : "the text could not be read to its end");
        return {};
    }
    text->result.size += std::min<uint64_t>(static_cast<uint64_t>(record.read_size), job.size);
    if (options_.lines && record.entry_count > 0 && !stopped_) {
        Slot from = slot;
        const StrideRecord* lines = &record;
        if (record.first_entry == kNoEntries) {
            from = Slot::kAgain;
            queue_->jobs(from).assign(1, job);
            Status again = queue_->start(from);
            if (again.ok()) again = wait(from);
            if (!again.ok()) return again;
            lines = &queue_->record(from, 0);
        }
        if (const Status told = tell_lines(from, job, *lines, text); !told.ok()) return told;
    }
    text->fold.add(record.lines, job.offset);
    return {};
}

Status ScanRun::tell_lines(Slot slot, const StrideJob& job, const StrideRecord& record,
                           Text* text) {
    if (record.first_entry == kNoEntries) return {};  // the text became shorter since
    if (lines_.source() != &text->source) lines_.reset(&text->source);
    const LineEntry* entry = queue_->entries(slot) + record.first_entry;
    for (const LineEntry* end = entry + record.entry_count; entry != end && !stopped_; ++entry) {
        LineMatch match;
        match.number = text->fold.line_number(*entry);
        if (match.number <= text->last_number) continue;
        text->last_number = match.number;
        match.path = text->result.path;
        match.offset = text->fold.line_start(*entry, job.offset);
        const auto bytes = lines_.line(match.offset, [this] { return tick(); });
        if (!bytes.ok()) {
            text->result.status = bytes.status();
            return {};
        }
        if (stopped_) return {};  // the line may be a part of what is to come
        if (fail_damaged(text)) return {};
        match.bytes = bytes.value();
        if (!listener_->on_line(match)) stop();
    }
    return {};
}

// Scans the rest of a text that grew, until it grows no more.
Status ScanRun::follow(Text* text) {
    const std::shared_ptr<Text> alias(std::shared_ptr<Text>(), text);
    for (bool grown = true; grown && text->result.status.ok() && !stopped_;) {
        text->result.status = open_on_device(text);
        for (Part part{alias, 0, 0, false}; !part.last && text->result.status.ok();) {
            std::vector<StrideJob>& jobs = queue_->jobs(Slot::kGrown);
            part.last = plan(text, &jobs);
            part.stride_count = jobs.size();
            Status status = queue_->start(Slot::kGrown);
            if (status.ok()) status = wait(Slot::kGrown);
            if (status.ok()) status = add_part(Slot::kGrown, part, &grown);
            if (!status.ok()) return status;
        }
        const uint64_t open_line = text->fold.line_start({}, 0);
        text->source.forget(options_.lines ? std::min(open_line, text->next_offset)
                                           : text->next_offset);
    }
    return {};
}

// Whether the text lost bytes under its mapping; then it has failed.
bool ScanRun::fail_damaged(Text* text) {
    if (!text->source.damaged()) return false;
    if (text->result.status.ok())
        text->result.status = {EIO, "scan", "it became shorter, or storage failed, meanwhile"};
    return true;
}

void ScanRun::finish(Text* text) {
    (void)fail_damaged(text);
    if (options_.explain && text->descriptor >= 0) {
        if (auto pages = files_->file_statistics(text->descriptor); pages.ok())
            text->result.pages = pages.value();
    }
    if (text->descriptor >= 0) (void)files_->close(std::exchange(text->descriptor, -1));
    if (lines_.source() == &text->source) lines_.reset(nullptr);
    text->result.match_count = text->fold.match_count();
    text->result.line_count = text->fold.line_count();
    ++report_.text_count;
    report_.failed_count += text->result.status.ok() ? 0 : 1;
    report_.size += text->result.size;
    report_.match_count += text->result.match_count;
    if (!stopped_) listener_->on_text(text->result);
}

bool ScanRun::tick() {
    if (stopped_) return false;
    ScanProgress progress;
    progress.done_size = queue_->totals().done_size - before_.done_size;
    progress.known_size = known_size_;
    progress.text_count = report_.text_count;
    progress.seconds = seconds_since(began_);
    const bool asked = options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed);
    if (asked || !listener_->on_progress(progress)) stop();
    return !stopped_;
}

// Blocks that wait for storage stop waiting; the others leave before their next stride.
void ScanRun::stop() {
    if (stopped_) return;
    stopped_ = true;
    files_->abort(Status(ECANCELED, "scan", "stopped"));
}

void ScanRun::add_to(ScanReport* report) const {
    const BlockWords totals = queue_->totals();
    report->text_count = report_.text_count;
    report->failed_count = report_.failed_count;
    report->size = report_.size;
    report->match_count = report_.match_count;
    report->stopped = stopped_;
    report->seconds = seconds_since(began_);
    report->block_read_seconds = static_cast<double>(totals.read_ns - before_.read_ns) * 1e-9;
    report->block_search_seconds = static_cast<double>(totals.search_ns - before_.search_ns) * 1e-9;
}

}  // namespace penstock::scan
