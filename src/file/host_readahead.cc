#include "file/host_readahead.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "penstock/read_ahead.h"
#include "readahead/detector_predictor.h"
#include "readahead/driver.h"
#include "readahead/program_predictor.h"
#include "storage/storage.h"

namespace penstock::file {
namespace {

constexpr size_t kStreams = 4;  // files that a thread may read in turn
constexpr uint64_t kPage = 4096;
constexpr uint32_t kRepeats = 4;                  // equal distances in a row
constexpr uint32_t kCachedMax = 16;               // predicted ranges in a row
constexpr uint32_t kLooksAgain = 64;              // predicted ranges
constexpr uint32_t kIdleMax = 256;                // reads in a row
constexpr uint32_t kRestMin = 10, kRestMax = 16;  // of reads, as powers of two
constexpr uint64_t kStream = 0;                   // the one stream of a driver

// The kernel does not say when announced bytes arrive, so the driver assumes the latency of network
// storage. On faster storage the limits in `options` bound the distance.
constexpr readahead::Driver::Settings kSettings{
    .options = {.request_size_max = kAnnouncedSizeMax, .ahead_max = 128},
    .cache_size = 64 << 20,
    .latency_ns = 20'000'000,
    .bandwidth = 1e9,
    .flights_max = 64,
};

// Returns whether the kernel does not read ahead of reads of `size` bytes at this distance from
// each other.
bool leaves_gap(uint64_t distance, uint64_t size) {
    return static_cast<int64_t>(distance) < 0 || distance >= size + kPage;
}

enum class Unknown : uint8_t { kIsCached, kIsMissing };

// Returns whether some of the range is not cached. `unknown` says what counts where the kernel does
// not tell.
bool lacks(transfer::Source& source, const extent::Extent& range, Unknown unknown) {
    std::array<extent::ResidencyRun, 4> runs;
    storage::ResidencyQuestion question;
    question.range = range;
    question.grain = uint64_t{1} << 30;  // one answer suffices
    const size_t count = source.probe.ask(question, runs).runs;
    return std::any_of(runs.begin(), runs.begin() + count, [unknown](const auto& run) {
        return run.state == Residency::kMissing || run.state == Residency::kMixed ||
               (run.state == Residency::kUnknown && unknown == Unknown::kIsMissing);
    });
}

// The readahead of one stream of reads.
class Ahead final : public readahead::Presence {
public:
    // `distance` is that between the reads so far.
    Ahead(transfer::Source& source, uint64_t distance)
        : source_(&source),
          unknown_(Unknown::kIsCached),
          cleared_bits_(distance % kPage == 0 ? kPage - 1 : 0),
          size_min_(std::min(distance, -distance) >= kPage ? kPage : 0),
          driver_(kSettings, this) {
        driver_.begin(kStream, 0, source.known_size(),
                      std::make_unique<readahead::DetectorPredictor>());
    }
    // The reads are those of a program.
    Ahead(transfer::Source& source, std::shared_ptr<const access::Program> program)
        : source_(&source), unknown_(Unknown::kIsMissing), driver_(kSettings, this) {
        driver_.begin(kStream, 0, source.known_size(),
                      std::make_unique<readahead::ProgramPredictor>(std::move(program)));
    }
    // Announces what comes after a read of `range`. Returns false if nothing was announced.
    bool announce(transfer::Source& source, const extent::Extent& range) {
        source_ = &source;
        // Whole pages are fetched. A read that is alone in its page counts as a use of the whole
        // page. Otherwise the bytes beside it would count as wasted.
        const uint64_t offset = range.offset & ~cleared_bits_;
        const uint64_t size = std::max(range.end() - offset, size_min_);
        const access::Access access{static_cast<int64_t>(offset), static_cast<int64_t>(size)};
        // The read has not happened yet, so its time counts as the reader's own. One call for each
        // read suffices then. A read that waits for storage shortens the distance of later ones.
        const uint64_t now_ns = base::monotonic_ns();
        driver_.observe(kStream, access, now_ns);
        driver_.served(kStream, now_ns);
        return announce_planned(now_ns);
    }
    // Announces what is planned, before a first read too.
    bool announce_planned(uint64_t now_ns) {
        std::array<readahead::Target, 32> targets;
        const size_t count = driver_.plan(kStream, now_ns, targets);
        while (const auto flight = driver_.start(now_ns)) {
            source_->file->announce(flight->extent.offset, flight->extent.size);
            driver_.ended(*flight, readahead::Driver::End::kAnnounced, now_ns, now_ns);
        }
        return count > 0;
    }
    [[nodiscard]] bool all_cached() const { return cached_ >= kCachedMax; }

    // Returns nothing if the whole range is known to be cached, or if the last kCachedMax predicted
    // ranges were. Otherwise returns the whole range.
    extent::Extent missing(uint64_t /*file*/, const extent::Extent& range) override {
        // A program may reach bytes that are not cached after any number that are.
        if (all_cached() && (unknown_ == Unknown::kIsCached || ++rested_ % kLooksAgain != 0))
            return {};
        if (lacks(*source_, range, unknown_)) {
            cached_ = 0;
            return range;
        }
        ++cached_;
        return {};
    }

private:
    transfer::Source* source_;  // of the current announce()
    const Unknown unknown_;
    const uint64_t cleared_bits_ = 0;  // of an offset, so that it is that of its page
    const uint64_t size_min_ = 0;      // of a use
    readahead::Driver driver_;
    uint32_t cached_ = 0;  // predicted ranges in a row
    uint32_t rested_ = 0;  // predicted ranges after all were cached
};

// What is known of the reads of one file by this thread. Trivial, so that its use needs no guard.
struct Watch {
    uint64_t file = 0;
    uint64_t offset = 0, distance = 0;  // of the last read; modulo 2^64
    uint32_t repeats = 0;               // equal distances in a row
    uint32_t rest = 0;                  // reads left of the present rest
    uint32_t rest_log = kRestMin;       // the next rest is 2^rest_log reads
    uint32_t idle = 0;                  // reads in a row without an announcement
    bool ahead = false;
    bool expected = false;  // an access program tells what is read

    void begin_rest() {
        rest = 1u << rest_log;
        rest_log = std::min(rest_log + 1, kRestMax);
        ahead = false;
    }
};

// Found without a call: the model of a library that may also be loaded later takes a few bytes of
// what the loader keeps free for that.
[[gnu::tls_model("initial-exec")]] constinit thread_local std::array<Watch, kStreams> watches;
thread_local std::array<std::unique_ptr<Ahead>, kStreams> streams;

// Returns whether one of the next reads will miss.
bool begins_to_miss(transfer::Source& source, const Watch& watch, uint64_t size) {
    if (source.probe.in_memory()) return false;
    for (uint64_t i = 1; i <= 8; i *= 2) {
        const uint64_t offset = watch.offset + i * watch.distance;
        if (offset >= source.known_size()) return false;
        const extent::Extent range{offset, std::min(size, source.known_size() - offset)};
        if (lacks(source, range, Unknown::kIsCached)) return true;
    }
    return false;
}

[[gnu::noinline]] void go_ahead(transfer::Source& source, Watch& watch,
                                std::unique_ptr<Ahead>& stream, const extent::Extent& range) {
    if (!watch.ahead) {
        if (!begins_to_miss(source, watch, range.size)) {
            watch.begin_rest();
            return;
        }
        stream = std::make_unique<Ahead>(source, watch.distance);
        watch.ahead = true;
        watch.idle = 0;
    }
    const bool announced = stream->announce(source, range);
    if (watch.expected) return;
    watch.idle = announced ? 0 : watch.idle + 1;
    if (announced) watch.rest_log = kRestMin;
    if (stream->all_cached()) watch.begin_rest();
    if (watch.idle >= kIdleMax) watch.ahead = false;
    if (!watch.ahead) stream.reset();
}

// Notes a read. Returns whether go_ahead() should look at it.
bool follow(Watch& watch, const extent::Extent& range) {
    const uint64_t distance = range.offset - watch.offset;
    watch.offset = range.offset;
    if (watch.ahead) return true;
    const bool repeats = distance == watch.distance && leaves_gap(distance, range.size);
    watch.distance = distance;
    watch.repeats = repeats ? watch.repeats + 1 : 0;
    if (watch.repeats < kRepeats) return false;
    if (watch.rest == 0) return true;
    --watch.rest;
    return false;
}

}  // namespace

void read_ahead_of(transfer::Source& source, uint64_t file, const extent::Extent& range) {
    const size_t place = file % kStreams;
    Watch& watch = watches[place];
    if (watch.file != file) {
        watch = {.file = file, .offset = range.offset};
        return;
    }
    if (follow(watch, range)) go_ahead(source, watch, streams[place], range);
}

uint64_t next_file_number() {
    static std::atomic<uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace penstock::file

namespace penstock {

struct ReadAhead::Parts {
    explicit Parts(std::shared_ptr<storage::File> file) : source(std::move(file)) {}

    transfer::Source source;
    file::Watch watch;
    std::unique_ptr<file::Ahead> stream;
};

ReadAhead::ReadAhead() = default;
ReadAhead::ReadAhead(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
ReadAhead::ReadAhead(ReadAhead&&) noexcept = default;
ReadAhead& ReadAhead::operator=(ReadAhead&&) noexcept = default;
ReadAhead::~ReadAhead() = default;

Result<ReadAhead> ReadAhead::of(int descriptor) {
    auto file = storage::borrow(descriptor);
    if (!file.ok()) return file.status();
    return ReadAhead(std::make_unique<Parts>(std::move(file.value())));
}

Status ReadAhead::expect(const AccessPrograms& programs, std::string_view name) {
    auto program = programs.find(name);
    if (program == nullptr) return {ENOENT, "expect", "no program reads a file of this name"};
    parts_->watch = {.ahead = true, .expected = true};
    parts_->stream = std::make_unique<file::Ahead>(parts_->source, std::move(program));
    parts_->stream->announce_planned(base::monotonic_ns());
    return {};
}

uint64_t ReadAhead::observe(uint64_t offset, uint64_t size) {
    file::Watch& watch = parts_->watch;
    if (size == 0 || offset > INT64_MAX || size > INT64_MAX - offset) return 0;
    if (size > file::kHostReadaheadSizeMax && !watch.expected) return 0;
    const extent::Extent range{offset, size};
    if (file::follow(watch, range)) file::go_ahead(parts_->source, watch, parts_->stream, range);
    return std::exchange(watch.rest, 0);
}

}  // namespace penstock
