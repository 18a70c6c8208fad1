// Divides chunks into lines and lines into streams, parses numbers, and has this project's own
// form.
#include "access/trace.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "access/trace_lines.h"

namespace penstock::access {
namespace {

constexpr const char* kOrigin = "trace";
constexpr std::string_view kHeader = "penstock-trace 1";

// Returns whether a file name must escape the byte.
bool hidden(char byte) {
    return static_cast<unsigned char>(byte) <= ' ' || byte == '%' || byte == 0x7f;
}

std::optional<std::string> unhide(std::string_view text) {
    std::string name;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            if (hidden(text[i])) return std::nullopt;
            name += text[i];
            continue;
        }
        unsigned byte = 0;
        if (text.size() - i < 3) return std::nullopt;
        const char* end = text.data() + i + 3;
        if (std::from_chars(text.data() + i + 1, end, byte, 16).ptr != end) return std::nullopt;
        name += static_cast<char>(byte);
        i += 2;
    }
    return name;
}

// This project's own form. An invalid line is an error, because no other program writes the form.
class OwnLines : public TraceLines {
public:
    Status line(std::string_view text) override {
        if (!headed_) {
            headed_ = true;
            if (text == kHeader) return {};
            if (text.starts_with("penstock-trace ")) {
                return {ENOTSUP, kOrigin, "a version of the form that is not known"};
            }
            return {EINVAL, kOrigin, "the first line is not \"penstock-trace 1\""};
        }
        // The preloaded library leaves zeros where a process ended before it wrote its line.
        text.remove_prefix(std::min(text.find_first_not_of('\0'), text.size()));
        if (text.empty() || text.front() == '#') return {};
        if (text.find('\0') != std::string_view::npos) {
            builder.skip("a line that a process did not finish before it ended");
            return {};
        }
        std::array<std::string_view, 6> fields;
        for (size_t i = 0; i < fields.size(); ++i) {
            const size_t end = std::min(text.find(' '), text.size());
            fields[i] = text.substr(0, end);
            const bool last = i + 1 == fields.size();
            if (last != (end == text.size())) {
                return {EINVAL, kOrigin, "there are not six fields with single spaces between"};
            }
            text.remove_prefix(last ? end : end + 1);
        }
        return access_of(fields);
    }

    Status cut_off() override { return {EINVAL, kOrigin, "the last line is cut off"}; }

    Status finish() override {
        return headed_ ? Status() : Status(EINVAL, kOrigin, "the trace is empty");
    }

private:
    Status access_of(const std::array<std::string_view, 6>& fields) {
        const auto time_ns = to_unsigned(fields[0]);
        if (!time_ns) return {EINVAL, kOrigin, "the time is no number of nanoseconds"};
        const auto stream = to_unsigned(fields[1]);
        if (!stream) return {EINVAL, kOrigin, "the stream is no number"};
        const bool read = fields[2] == "r";
        if (!read && fields[2] != "w") return {EINVAL, kOrigin, "the operation is not r or w"};
        const auto file = unhide(fields[3]);
        if (!file || file->empty()) return {EINVAL, kOrigin, "the file name is not well written"};
        const auto offset = to_signed(fields[4]);
        if (!offset || *offset < 0) return {EINVAL, kOrigin, "the offset is no offset"};
        const auto size = to_signed(fields[5]);
        if (!size || *size < 0) return {EINVAL, kOrigin, "the size is no size"};
        if (!in_a_file(*offset, *size)) return {EINVAL, kOrigin, "the access ends beyond 2^63"};
        return builder.add(*file, read ? Operation::kRead : Operation::kWrite, 0, *stream,
                           {*offset, *size}, *time_ns);
    }

    bool headed_ = false;
};

}  // namespace

Status TraceBuilder::add(std::string_view file, Operation operation, uint64_t context,
                         uint64_t rank, const Access& access, uint64_t time_ns, uint64_t thread) {
    auto key = std::make_tuple(std::string(file), operation, context, rank, thread);
    const auto [at, fresh] = index_.try_emplace(std::move(key), trace.streams.size());
    if (fresh) {
        if (trace.streams.size() == kTraceStreamsMax) {
            return {E2BIG, kOrigin, "there are more streams than can be read"};
        }
        trace.streams.push_back({{std::string(file), operation, context, rank, 1}, thread, {}, {}});
    }
    if (trace.accesses == kTraceAccessesMax) {
        return {E2BIG, kOrigin, "there are more accesses than can be read"};
    }
    TraceStream& stream = trace.streams[at->second];
    if (!stream.times_ns.empty() && time_ns < stream.times_ns.back()) {
        time_ns = stream.times_ns.back();
        ++trace.clock_jumps;
    }
    stream.accesses.push_back(access);
    stream.times_ns.push_back(time_ns);
    ++trace.accesses;
    return {};
}

void TraceBuilder::skip(std::string_view cause, uint64_t count) {
    if (count == 0) return;
    for (TraceSkip& one : trace.skips) {
        if (one.cause == cause) {
            one.count += count;
            return;
        }
    }
    trace.skips.push_back({std::string(cause), count, trace.lines});
}

std::optional<uint64_t> to_unsigned(std::string_view text) {
    uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (text.empty() || error != std::errc() || at != end) return std::nullopt;
    return value;
}

std::optional<int64_t> to_signed(std::string_view text) {
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (text.empty() || error != std::errc() || at != end) return std::nullopt;
    return value;
}

std::optional<uint64_t> seconds_to_ns(std::string_view text) {
    constexpr uint64_t kSecond = 1'000'000'000;
    const size_t point = text.find('.');
    const auto whole = to_unsigned(text.substr(0, point));
    if (!whole || *whole >= UINT64_MAX / kSecond) return std::nullopt;
    if (point == std::string_view::npos) return *whole * kSecond;
    std::string_view digits = text.substr(point + 1);
    if (digits.empty()) return std::nullopt;
    uint64_t part = 0, unit = kSecond;
    for (const char digit : digits) {
        if (digit < '0' || digit > '9') return std::nullopt;
        unit /= 10;
        part += unit * static_cast<uint64_t>(digit - '0');
    }
    return *whole * kSecond + part;
}

bool in_a_file(int64_t offset, int64_t size) {
    return offset >= 0 && size >= 0 && size <= INT64_MAX - offset;
}

std::string_view take_word(std::string_view& text) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    const size_t end = std::min(text.find_first_of(" \t"), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(end);
    return word;
}

TraceForm trace_form(std::string_view head) {
    if (head.starts_with("penstock-trace")) return TraceForm::kPenstock;
    while (!head.empty()) {
        for (const char* mark : {"# darshan log version", "# DXT_POSIX module data",
                                 "# DXT_MPIIO module data", "# DXT, file_id:"}) {
            if (head.starts_with(mark)) return TraceForm::kDarshan;
        }
        head.remove_prefix(std::min(head.find('\n'), head.size() - 1) + 1);
    }
    return TraceForm::kStrace;
}

TraceReader::TraceReader(TraceForm form) : form_(form) {
    switch (form_) {
        case TraceForm::kPenstock:
            lines_ = std::make_unique<OwnLines>();
            break;
        case TraceForm::kStrace:
            lines_ = strace_lines();
            break;
        case TraceForm::kDarshan:
            lines_ = darshan_lines();
            break;
    }
}

TraceReader::~TraceReader() = default;

Status TraceReader::line(std::string_view text) {
    ++lines_->builder.trace.lines;
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    return lines_->line(text);
}

Status TraceReader::read(std::string_view chunk) {
    while (status_.ok() && !chunk.empty()) {
        const size_t end = chunk.find('\n');
        const std::string_view part = chunk.substr(0, end);
        if (rest_.size() + part.size() > kTraceLineMax) {
            ++lines_->builder.trace.lines;
            status_ = {E2BIG, kOrigin, "the line is longer than 1 MiB"};
            break;
        }
        if (end == std::string_view::npos) {
            rest_ += part;
            break;
        }
        if (rest_.empty()) {
            status_ = line(part);
        } else {
            rest_ += part;
            status_ = line(rest_);
            rest_.clear();
        }
        chunk.remove_prefix(end + 1);
    }
    return status_;
}

Status TraceReader::finish() {
    if (status_.ok() && rest_.find_first_not_of('\0') != std::string::npos) {
        ++lines_->builder.trace.lines;
        rest_.clear();
        status_ = lines_->cut_off();
    }
    if (status_.ok()) status_ = lines_->finish();
    return status_;
}

Trace TraceReader::take() { return std::move(lines_->builder.trace); }

std::string TraceReader::message() const {
    return "line " + std::to_string(lines_->builder.trace.lines) + ": " + status_.text();
}

Result<Trace> read_trace(TraceForm form, std::string_view text) {
    TraceReader reader(form);
    Status status = reader.read(text);
    if (status.ok()) status = reader.finish();
    if (!status.ok()) return status;
    return reader.take();
}

std::string write_trace(const std::vector<TraceStream>& streams) {
    struct Place {
        uint64_t time_ns;
        size_t stream, index;
    };
    std::vector<Place> places;
    for (size_t i = 0; i < streams.size(); ++i) {
        for (size_t k = 0; k < streams[i].accesses.size(); ++k) {
            places.push_back({streams[i].times_ns[k], i, k});
        }
    }
    std::ranges::stable_sort(places, {}, &Place::time_ns);
    std::string text = std::string(kHeader) + "\n";
    for (const Place& place : places) {
        const TraceStream& stream = streams[place.stream];
        const Access& access = stream.accesses[place.index];
        text += std::to_string(place.time_ns) + " " + std::to_string(stream.key.first_rank);
        text += stream.key.operation == Operation::kWrite ? " w " : " r ";
        for (const char byte : stream.key.file) {
            constexpr const char* kDigits = "0123456789ABCDEF";
            const auto code = static_cast<unsigned char>(byte);
            if (hidden(byte)) {
                text += {'%', kDigits[code / 16], kDigits[code % 16]};
            } else {
                text += byte;
            }
        }
        text += " " + std::to_string(access.offset) + " " + std::to_string(access.size) + "\n";
    }
    return text;
}

}  // namespace penstock::access
