// The public reader of traces and programs: detects the format, finds the program of each stream,
// and joins streams of different ranks and threads.
//
// Each stream of a trace goes through both detectors. The offline detector finds the program; the
// online one gives class and confidence, with the trackers of signature_evidence.h. Of an access
// program only the first accesses do. The accesses are kept for plots.
#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <utility>

#include "access/binary.h"
#include "access/cursor.h"
#include "access/detector.h"
#include "access/json.h"
#include "access/names.h"
#include "access/signature_text.h"
#include "access/trace.h"
#include "access/validate.h"
#include "file/signature_evidence.h"
#include "file/signature_join.h"
#include "file/signature_plot.h"
#include "penstock/access.h"

namespace penstock {
namespace {

using file::FoundStream;
using file::RecordedStream;

constexpr const char* kOrigin = "signature";
constexpr size_t kHeadSize = 64 << 10;  // bytes from which the format is detected
constexpr size_t kWalkMax = 1 << 20;    // accesses that are looked at per program
constexpr size_t kWalksMax = 16 << 20;  // and over all programs: 256 MiB
constexpr double kMostBytes = 0.9;      // of a stream that counts as contiguous
constexpr size_t kSideMax = 8192;       // cells of a plot along one axis

enum class Form : uint8_t { kUnknown, kTrace, kJson, kBinary, kTraceSignature };

std::span<const uint8_t> bytes_of(std::string_view text) {
    return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Returns why data of a form that another program reads is refused, with what to do; or null.
const char* refused(std::string_view head) {
    constexpr size_t kMagicAt = 8;
    constexpr std::string_view kDarshan("\x37\x35\x64\0\0\0\0\0", 8);  // 6567223
    if (head.starts_with("\x1f\x8b")) return "compressed by gzip: zcat FILE | penstock signature -";
    if (head.starts_with("\x28\xb5\x2f\xfd"))
        return "compressed by zstd: zstdcat FILE | penstock signature -";
    if (head.starts_with(std::string_view("\xfd\x37zXZ\0", 6)))
        return "compressed by xz: xzcat FILE | penstock signature -";
    if (head.size() < kMagicAt + kDarshan.size()) return nullptr;
    const std::string_view magic = head.substr(kMagicAt, kDarshan.size());
    if (std::ranges::equal(magic, kDarshan) ||
        std::equal(magic.begin(), magic.end(), kDarshan.rbegin()))
        return "a log of Darshan: darshan-dxt-parser FILE | penstock signature -";
    return nullptr;
}

// Adds the accesses that the program lists one by one or cannot describe.
void describe_nodes(const access::Program& program, SignatureStream* out) {
    uint64_t listed = 0, random = 0;
    bool endless = false;
    for (const access::Node& node : program.nodes) {
        if (node.kind == access::NodeKind::kList) listed += node.list.size();
        if (node.kind != access::NodeKind::kRandom) continue;
        random += static_cast<uint64_t>(std::max<int64_t>(node.trips.base, 0));
        endless = endless || node.trips == access::Affine{};
    }
    if (listed != 0)
        out->unfolded.push_back({"a list: no nest and no period is shorter", listed, 0, 0});
    if (random != 0) out->unfolded.push_back({"random, and too many for a list", random, 0, 0});
    if (endless) out->unfolded.push_back({"random, without an end", 0, 0, 0});
}

// Returns the class of the program. If its accesses are contiguous but for their sizes and a few
// jumps, it is a list, or loops and lists one after another. What was predicted says what they are.
access::PatternSignature pattern_of(const FoundStream& found) {
    access::PatternSignature pattern = access::pattern_of(found.program,
                                                          found.program.key.first_rank);
    const access::Algorithm algorithm = found.evidence.algorithm();
    const bool contiguous = algorithm == access::Algorithm::kContiguous;
    const bool mixed = pattern.spatial == access::Spatial::kCombination;
    const bool random = pattern.spatial == access::Spatial::kRandomStrided;
    if (contiguous && (mixed || random) && found.evidence.confidence() >= kMostBytes) {
        pattern.spatial = access::Spatial::kContiguous;
        pattern.dimension = 1;
        pattern.repetition = access::Repetition::kSingle;
    } else if (random && (contiguous || algorithm == access::Algorithm::kInterleaved)) {
        pattern.spatial = access::Spatial::kCombination;
    }
    return pattern;
}

SignatureStream describe(const FoundStream& found) {
    SignatureStream out;
    const access::Program& program = found.program;
    out.file = program.key.file;
    out.operation = access::name(program.key.operation);
    out.context = program.key.context;
    out.first_rank = program.key.first_rank;
    out.rank_count = program.key.rank_count;
    out.thread = found.thread;
    out.shared_by = found.shared_by;
    out.grid = program.grid;
    out.all = found.all;
    found.evidence.describe(&out);
    if (!found.invalid.ok()) {
        out.why_no_program = out.why_no_signature = found.invalid.text();
        return out;
    }
    out.nodes = static_cast<uint32_t>(program.nodes.size());
    describe_nodes(program, &out);
    out.pattern_signature = access::write_pattern_signature(pattern_of(found));
    auto text = access::write_trace_signature(program, out.first_rank);
    if (text.ok()) {
        out.trace_signature = std::move(text.value());
    } else {
        out.why_no_signature = text.status().text();
    }
    return out;
}

}  // namespace

struct SignatureReader::Parts {
    Status fail(Status why, std::string line);
    Status feed(std::string_view chunk);
    Status begin();
    Status end_trace();
    Status end_programs();
    void step_trace(access::TraceStream& stream);
    void step_program(const access::Program& program);

    Form form = Form::kUnknown;
    access::TraceForm trace_form = access::TraceForm::kStrace;
    std::string kept;  // the first bytes; then the whole input unless it is a trace
    std::optional<access::TraceReader> reader;
    Status status;
    std::string message;

    SignatureSource source;
    std::vector<access::TraceStream> waiting;
    std::vector<access::Program> programs;
    size_t next = 0;
    bool done = false;
    std::vector<RecordedStream> recorded;
    std::vector<FoundStream> found;
    std::vector<SignatureStream> streams;
};

Status SignatureReader::Parts::fail(Status why, std::string line) {
    status = why;
    message = std::move(line);
    return status;
}

// Detects the format from the first bytes.
Status SignatureReader::Parts::begin() {
    const std::string_view head = kept;
    const size_t first = std::min(head.find_first_not_of(" \t\r\n"), head.size());
    if (first == head.size()) return fail({EINVAL, kOrigin, "it is empty"}, "it is empty");
    if (const char* const why = refused(head); why != nullptr)
        return fail({EINVAL, kOrigin, why}, why);
    if (head.starts_with("PSAP")) {
        form = Form::kBinary;
        source.form = "access programs, binary";
    } else if (head.find('\0') != std::string_view::npos &&
               access::trace_form(head) != access::TraceForm::kPenstock) {
        constexpr const char* kWhy = "binary data, neither a trace nor access programs";
        return fail({EINVAL, kOrigin, kWhy}, kWhy);
    } else if (head[first] == '{') {
        const size_t second = head.find_first_not_of(" \t\r\n", first + 1);
        const char after = second == std::string_view::npos ? '\0' : head[second];
        const bool signature = after == 'R' || after == 'W';
        form = signature ? Form::kTraceSignature : Form::kJson;
        source.form = signature ? "trace signature" : "access programs, JSON";
    } else {
        form = Form::kTrace;
        source.trace = true;
        trace_form = access::trace_form(head);
        source.form = trace_form == access::TraceForm::kPenstock  ? "penstock trace"
                      : trace_form == access::TraceForm::kDarshan ? "Darshan DXT"
                                                                  : "strace";
        reader.emplace(trace_form);
        const std::string begun = std::exchange(kept, {});
        return feed(begun);
    }
    return {};
}

Status SignatureReader::Parts::feed(std::string_view chunk) {
    if (form == Form::kTrace) {
        const Status read = reader->read(chunk);
        return read.ok() ? read : fail(read, reader->message());
    }
    if (kept.size() + chunk.size() > access::kJsonBytesMax) {
        constexpr const char* kWhy = "it is larger than 256 MiB";
        return fail({E2BIG, kOrigin, kWhy}, kWhy);
    }
    kept += chunk;
    return form == Form::kUnknown && kept.size() >= kHeadSize ? begin() : Status();
}

Status SignatureReader::Parts::end_trace() {
    const Status ended = reader->finish();
    if (!ended.ok()) return fail(ended, reader->message());
    access::Trace trace = reader->take();
    reader.reset();
    source.lines = trace.lines;
    source.accesses = trace.accesses;
    source.clock_jumps = trace.clock_jumps;
    for (const access::TraceSkip& skip : trace.skips)
        source.skips.push_back({skip.cause, skip.count, skip.first_line, 0});
    std::ranges::stable_sort(source.skips, std::ranges::greater(), &SignatureLoss::count);
    for (const access::TraceSkip& one : trace.warnings)
        source.warnings.push_back({one.cause, one.count, one.first_line, 0});
    waiting = std::move(trace.streams);
    if (trace.accesses != 0) return {};
    std::string line = "no access to a file in " + std::to_string(trace.lines) +
                       (trace.lines == 1 ? " line" : " lines");
    if (!source.skips.empty())
        line += " (line " + std::to_string(source.skips[0].first_line) + ": " +
                source.skips[0].cause + ")";
    return fail({EINVAL, kOrigin, "no access to a file"}, line);
}

Status SignatureReader::Parts::end_programs() {
    if (form == Form::kTraceSignature) {
        auto one = access::parse_trace_signature(kept);
        if (!one.ok()) return fail(one.status(), one.status().text());
        programs.push_back(std::move(one.value()));
    } else {
        size_t error_at = 0;
        auto all = form == Form::kJson ? access::parse_json(kept, &error_at)
                                       : access::parse_binary(bytes_of(kept));
        if (!all.ok()) {
            const std::string where = form == Form::kJson
                                          ? "byte " + std::to_string(error_at) + ": "
                                          : "";
            return fail(all.status(), where + all.status().text());
        }
        programs = std::move(all.value());
    }
    kept.clear();
    if (!programs.empty()) return {};
    return fail({EINVAL, kOrigin, "it holds no program"}, "it holds no program");
}

void SignatureReader::Parts::step_trace(access::TraceStream& stream) {
    FoundStream one;
    one.program = access::analyse(stream.accesses, stream.times_ns);
    one.program.key = std::move(stream.key);
    one.thread = stream.thread;
    one.invalid = access::validate(one.program);
    one.evidence.watch(stream.accesses, stream.times_ns);
    one.members = {recorded.size()};
    recorded.push_back({std::move(stream.accesses), std::move(stream.times_ns)});
    found.push_back(std::move(one));
}

void SignatureReader::Parts::step_program(const access::Program& program) {
    FoundStream one;
    one.program = program;
    access::Cursor cursor(one.program, program.key.first_rank);
    RecordedStream walk;
    const size_t walk_max = std::min(kWalkMax, kWalksMax / programs.size());
    while (walk.accesses.size() < walk_max) {
        const auto access = cursor.next();
        if (!access) break;
        walk.accesses.push_back(*access);
    }
    one.all = cursor.count() == walk.accesses.size();
    one.evidence.watch(walk.accesses, {});
    one.members = {recorded.size()};
    source.accesses += walk.accesses.size();
    recorded.push_back(std::move(walk));
    found.push_back(std::move(one));
}

SignatureReader::SignatureReader() : parts_(std::make_unique<Parts>()) {}
SignatureReader::~SignatureReader() = default;
SignatureReader::SignatureReader(SignatureReader&&) noexcept = default;
SignatureReader& SignatureReader::operator=(SignatureReader&&) noexcept = default;

Status SignatureReader::read(std::string_view chunk) {
    return parts_->status.ok() ? parts_->feed(chunk) : parts_->status;
}

Status SignatureReader::finish() {
    Parts& parts = *parts_;
    if (parts.status.ok() && parts.form == Form::kUnknown) (void)parts.begin();
    if (!parts.status.ok()) return parts.status;
    return parts.form == Form::kTrace ? parts.end_trace() : parts.end_programs();
}

const std::string& SignatureReader::message() const { return parts_->message; }

size_t SignatureReader::steps() const {
    return parts_->source.trace ? parts_->waiting.size() : parts_->programs.size();
}

bool SignatureReader::step() {
    Parts& parts = *parts_;
    if (parts.done) return false;
    if (parts.next < steps()) {
        if (parts.source.trace) {
            parts.step_trace(parts.waiting[parts.next]);
        } else {
            parts.step_program(parts.programs[parts.next]);
        }
        ++parts.next;
        return true;
    }
    if (parts.source.trace) {
        parts.found = file::join_threads(std::move(parts.found), &parts.recorded);
        parts.found = file::join_ranks(std::move(parts.found));
        // A program reads dozens of small configuration files before its data, so the streams with
        // the most bytes come first.
        std::ranges::stable_sort(parts.found, std::ranges::greater(), [](const FoundStream& one) {
            return std::pair(one.evidence.bytes(), one.evidence.accesses());
        });
    }
    for (const FoundStream& one : parts.found) parts.streams.push_back(describe(one));
    parts.done = true;
    return false;
}

const SignatureSource& SignatureReader::source() const { return parts_->source; }

const std::vector<SignatureStream>& SignatureReader::streams() const { return parts_->streams; }

Result<std::string> SignatureReader::programs(bool binary) const {
    std::vector<access::Program> valid;
    for (const FoundStream& one : parts_->found) {
        if (one.invalid.ok()) valid.push_back(one.program);
    }
    if (valid.size() > access::kProgramsMax)
        return Status{E2BIG, kOrigin, "there are more programs than a file may hold"};
    if (!binary) return access::write_json(valid);
    const std::vector<uint8_t> bytes = access::write_binary(valid);
    return std::string(bytes.begin(), bytes.end());
}

Result<SignaturePlot> SignatureReader::plot(size_t columns, size_t rows, bool over_time,
                                            std::span<const size_t> chosen) const {
    if (columns == 0 || rows == 0 || columns > kSideMax || rows > kSideMax)
        return Status{EINVAL, kOrigin, "a plot has 1 to 8192 columns and rows"};
    if (over_time && !parts_->source.trace)
        return Status{ENOTSUP, kOrigin, "access programs have no times"};
    file::SignaturePlotter plotter(columns, rows);
    const auto each = [&](const auto& visit) {
        for (size_t i = 0; i < parts_->found.size(); ++i) {
            if (!chosen.empty() && std::ranges::find(chosen, i) == chosen.end()) continue;
            for (const size_t member : parts_->found[i].members) {
                const RecordedStream& one = parts_->recorded[member];
                if (one.accesses.empty()) continue;
                visit(i, one.accesses,
                      over_time ? std::span<const uint64_t>(one.times_ns)
                                : std::span<const uint64_t>());
            }
        }
    };
    each([&](size_t, auto& accesses, auto times) { plotter.measure(accesses, times); });
    each([&](size_t i, auto& accesses, auto times) { plotter.draw(i, accesses, times); });
    return plotter.take();
}

}  // namespace penstock
