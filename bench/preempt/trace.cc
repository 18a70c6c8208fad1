#include "bench/preempt/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include "bench/preempt/cases.h"
#include "bench/preempt/rig.h"
#include "preemption/pieces.h"

namespace penstock::bench {
namespace {

using workloads::Pieces;
using workloads::PiecesOptions;
using workloads::PieceTimes;

constexpr unsigned kComputeKernels = 2;

// One kernel of the mix.
struct Kernel {
    std::string name;
    Pieces* pieces;
    unsigned pieces_of_block;
    bool reads;
};

// One piece of one block, of all kernels of a run.
struct Span {
    const Kernel* kernel;
    size_t block, piece;
    PieceTimes times;
};

double microseconds(uint64_t ns) { return static_cast<double>(ns) * 1e-3; }

class Events {
public:
    void name_process(unsigned run, const std::string& name) {
        add(R"("ph":"M","name":"process_name","pid":)" + std::to_string(run) +
            R"(,"args":{"name":")" + name + "\"}");
    }
    void name_place(unsigned run, unsigned place) {
        add(R"("ph":"M","name":"thread_name","pid":)" + std::to_string(run) + R"(,"tid":)" +
            std::to_string(place) + R"(,"args":{"name":"place )" + std::to_string(place) + "\"}");
    }
    // A time in which a block has a place.
    void in_place(unsigned run, unsigned place, const std::string& name, const char* category,
                  uint64_t begin_ns, uint64_t end_ns) {
        add(R"("ph":"X","pid":)" + std::to_string(run) + R"(,"tid":)" + std::to_string(place) +
            common(name, category, begin_ns) + R"(,"dur":)" + number(end_ns - begin_ns));
    }
    // A time in which a block is outside.
    void outside(unsigned run, const std::string& name, uint64_t begin_ns, uint64_t end_ns) {
        const std::string id = R"(,"id":)" + std::to_string(++next_id_);
        for (const bool begins : {true, false})
            add(std::string(R"("ph":")") + (begins ? "b" : "e") + R"(","pid":)" +
                std::to_string(run) + R"(,"tid":0)" + id +
                common(name, "outside", begins ? begin_ns : end_ns));
    }
    void write(const std::string& path) const {
        std::ofstream file(path);
        file << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" << text_ << "\n]}\n";
        file.close();
        if (!file) fail(path + ": " + std::strerror(errno));
    }

private:
    static std::string number(uint64_t ns) {
        char text[32];
        std::snprintf(text, sizeof text, "%.3f", microseconds(ns));
        return text;
    }
    static std::string common(const std::string& name, const char* category, uint64_t ns) {
        return R"(,"name":")" + name + R"(","cat":")" + category + R"(","ts":)" + number(ns);
    }
    void add(const std::string& event) { text_ += (text_.empty() ? "{" : ",\n{") + event + "}"; }

    std::string text_;
    unsigned next_id_ = 0;
};

// The mix of figure 7: reads and computation take about 160 ms each.
class TracedMix {
public:
    TracedMix(const Arguments& arguments, const Constants& constants)
        : rig_(arguments.device, std::thread::hardware_concurrency(), kStudyDisk),
          stream_(need(Stream::create(rig_.device()), "stream")) {
        const unsigned places = std::thread::hardware_concurrency();
        const double piece = kIoOptions.piece_size / (kStudyDisk.bandwidth_mbs * 1e6);
        const double io = kBalancedKernels * kIoOptions.blocks * kIoOptions.pieces * piece;
        const auto rounds = [&](double seconds) {
            return static_cast<unsigned>(seconds / std::max(constants.round, 1e-9));
        };
        for (size_t i = 0; i < kBalancedKernels; ++i) {
            PiecesOptions options = kIoOptions;
            options.seed = i + 1;
            if (arguments.smoke) options.blocks = 2;
            options.rounds = rounds(piece * places / 4);  // a quarter of C
            add("I/O " + std::to_string(i + 1), options);
        }
        for (unsigned i = 0; i < kComputeKernels; ++i) {
            PiecesOptions options = kIoOptions;
            options.reads_file = false;
            options.pieces = 1;
            options.blocks = arguments.smoke ? 2 : 64;
            options.rounds = rounds(0.75 * io * places / (kComputeKernels * 64));
            add("compute " + std::to_string(i + 1), options);
        }
    }

    // Runs the mix and returns its spans, in the order in which they begin.
    std::vector<Span> run(WaitMode mode, double* seconds) {
        const MixRun run = rig_.run({kBalancedKernels, true}, workloads::Part::kAll, mode);
        if (!run.right) fail("a result is wrong");
        *seconds = run.seconds;
        std::vector<Span> spans;
        for (const Kernel& kernel : kernels_) {
            const std::vector<PieceTimes> times = need(kernel.pieces->times(stream_), "times");
            for (size_t i = 0; i < times.size(); ++i)
                spans.push_back(
                    {&kernel, i / kernel.pieces_of_block, i % kernel.pieces_of_block, times[i]});
        }
        std::ranges::sort(spans, {}, [](const Span& span) { return span.times.begun_ns; });
        return spans;
    }

private:
    static constexpr PiecesOptions kIoOptions{
        .blocks = 16, .pieces = 2, .piece_size = 32 << 10, .records_times = true};

    void add(const std::string& name, const PiecesOptions& options) {
        auto made = need(make_pieces(rig_.site(), options), "pieces");
        kernels_.push_back({name, made.get(), options.pieces, options.reads_file});
        rig_.add(std::unique_ptr<workloads::Workload>(std::move(made)), "pieces");
    }

    MixRig rig_;
    Stream stream_;
    std::vector<Kernel> kernels_;
};

// Whether another block had the span's place while the span's block waited. Then the block was
// outside; otherwise it may have kept its place.
bool was_outside(const Span& waits, const std::vector<Span>& spans) {
    const PieceTimes& own = waits.times;
    return own.place != own.begun_place || std::ranges::any_of(spans, [&](const Span& other) {
               return other.times.place == own.place && other.times.got_ns < own.got_ns &&
                      other.times.done_ns > own.begun_ns && other.times.got_ns >= own.begun_ns;
           });
}

void add_run(Events* events, unsigned run, WaitMode mode, const std::vector<Span>& spans) {
    events->name_process(run, name(mode));
    for (unsigned place = 0; place < std::thread::hardware_concurrency(); ++place)
        events->name_place(run, place);
    const uint64_t began = spans.front().times.begun_ns;
    for (const Span& span : spans) {
        const PieceTimes& times = span.times;
        std::string block = span.kernel->name + ", block " + std::to_string(span.block);
        if (span.kernel->reads) {
            block += ", read " + std::to_string(span.piece + 1);
            if (mode != WaitMode::kSpin && was_outside(span, spans)) {
                events->outside(run, block, times.begun_ns - began, times.got_ns - began);
            } else {
                events->in_place(run, times.place, block + ": waits", "waits",
                                 times.begun_ns - began, times.got_ns - began);
            }
        }
        events->in_place(run, times.place, block + ": computes",
                         span.kernel->reads ? "io-kernel" : "compute-kernel", times.got_ns - began,
                         times.done_ns - began);
    }
}

}  // namespace

void write_trace(Report& report, const Arguments& arguments, const Constants& constants) {
    if (arguments.trace.empty()) return;
    TracedMix mix(arguments, constants);
    Events events;
    unsigned run = 0;
    double spin = 0;
    for (const WaitMode mode : {WaitMode::kSpin, WaitMode::kAdaptive, WaitMode::kSeedPolicy}) {
        if (!has_mode(mode)) continue;
        Row row;
        row.name = std::string("trace-") + name(mode);
        row.against = name(WaitMode::kSpin);
        double seconds = 0;
        add_run(&events, ++run, mode, mix.run(mode, &seconds));
        if (mode == WaitMode::kSpin) spin = seconds;
        row.pairs = {{seconds, spin}};
        row.verified = true;
        row.note = "one run of five I/O kernels and two compute kernels, with times recorded";
        report.add(std::move(row));
    }
    events.write(arguments.trace);
    report.describe("trace", arguments.trace);
    std::fprintf(stderr, "trace: %s (open it in chrome://tracing or ui.perfetto.dev)\n",
                 arguments.trace.c_str());
}

}  // namespace penstock::bench
