// Readahead of one stream: which ranges to fetch next, and how far ahead of the reader.
//
// The distance is a time: as many accesses ahead as happen while the storage answers. It is capped
// by bytes (of the stream, and of the cache it shares with others), by a credit that only useful
// prefetches earn, and by feedback. The credit is what bounds the harm: a stream whose prefetches
// are never used loses a first window and then 2 % of what it reads.
//
// Knows nothing of caches and storage: their owner tells it what happens, in this order for each
// access: demand(), then the fetches of what is missing, next() and its fetches, served(). All
// memory is taken at construction. Pure: time is an argument. One thread at a time, as for the
// FetchModel, Budget and Flights that streams share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "access/program.h"
#include "extent/extent.h"
#include "readahead/budget.h"
#include "readahead/feedback.h"
#include "readahead/fetch_model.h"
#include "readahead/flights.h"
#include "readahead/predictor.h"

namespace penstock::readahead {

struct Options {
    uint64_t granule = 4096;  // what the cache fetches is a multiple of this, but at the file's end
    uint64_t request_size_max = 1 << 20;     // of one fetch
    uint64_t unused_size_max = 16 << 20;     // fetched or under way, not used: this stream's
    uint64_t credit_size_first = 256 << 10;  // what may be lost before anything was of use
    size_t ahead_max = 256;                  // accesses
};

// What the streams of a cache share: the storage's figures, the bytes, the flights.
struct Shared {
    FetchModel& model;
    Budget& budget;
    Flights& flights;
};

// A range to fetch: already in the flights, as a prefetch.
struct Target {
    FlightId flight = 0;
    Extent extent;
};

enum class Outcome : uint8_t {
    kArrived,
    kPresent,  // the cache had it already and will keep it for now: nothing was fetched
    kFailed,   // dropped: the demand will meet the error itself
};

// What a cache should do with a range, as far as this stream knows.
enum class Advice : uint8_t {
    kNone,
    kUsedSoon,  // spare it
    kUsedOnce,  // was used and will not be again: take it first
};

struct Counts {
    uint64_t demanded_size = 0;
    uint64_t fetched_size = 0;  // by prefetches that arrived
    uint64_t used_size = 0;     // of what was predicted
    uint64_t wasted_size = 0;   // predicted, and not used
    uint64_t uses = 0, late = 0, polluted = 0, failed = 0;
};

class Readahead {
public:
    // `file` names the file in the flights. The references must outlive this.
    Readahead(const Options& options, uint64_t file, uint64_t file_size, Shared shared,
              Predictor& predictor);
    // Gives its bytes back to the budget.
    ~Readahead();
    Readahead(const Readahead&) = delete;
    Readahead& operator=(const Readahead&) = delete;

    // The stream asks for this, now.
    void demand(const access::Access& access, uint64_t now_ns);
    // It has its bytes; what follows until the next demand is its own time.
    void served(uint64_t now_ns) { served_ns_ = now_ns; }
    // Writes what to fetch now; 0: nothing. Each has to end in completed().
    size_t next(uint64_t now_ns, std::span<Target> out);
    void completed(FlightId flight, Outcome outcome);
    // The cache has evicted this range, which was prefetched, and not used by anybody.
    void evicted(const Extent& range);
    // Used bytes of the file were evicted to make room for a prefetch of this stream.
    void displaced(const Extent& range);
    // A demand of this stream found nothing here, neither in the cache nor under way.
    void missed(const Extent& range);
    // O(256 predictions): for the moment of choosing a victim, not for every access.
    [[nodiscard]] Advice advise(const Extent& range) const;
    void resize(uint64_t file_size) { file_size_ = file_size; }

    // Accesses between the reader and the end of what is fetched: the least there should be, and as
    // it is. Up to twice the least is fetched.
    [[nodiscard]] size_t distance() const;
    [[nodiscard]] size_t ahead() const { return ahead_; }
    [[nodiscard]] uint64_t unused_size() const { return unused_size_; }
    [[nodiscard]] const Counts& counts() const { return counts_; }
    [[nodiscard]] const Feedback& feedback() const { return feedback_; }

private:
    static constexpr size_t kPiecesMax = 256;  // prefetched ranges that are not used up
    static constexpr size_t kVictimsMax = 64;  // remembered for pollution
    static constexpr size_t kBatch = 32;       // predictions taken at a time
    static constexpr uint64_t kStrayAccesses = 64;
    static constexpr size_t kHorizon = 256;  // accesses that advice looks ahead

    // A prefetched range until it is used up or given up.
    struct Piece {
        Extent extent;
        FlightId flight = 0;       // 0: arrived
        uint64_t wanted_size = 0;  // predicted bytes, above used_size; the rest are gaps and
                                   // granules
        uint64_t used_size = 0;
        uint64_t reserved_size = 0;  // of the budget, still
        uint64_t stray_since = 0;    // access at which the prediction dropped it; 0: it stands
    };
    // Neighbouring predictions on the way to becoming one fetch.
    struct Run {
        Extent extent;
        uint64_t wanted_size = 0;
        uint64_t gap_size = 0;
    };

    void use_pieces(const Extent& bytes);
    void follow(bool as_expected);
    void drop_prediction();
    void give_up(size_t index);
    void release(Piece& piece, uint64_t size);
    void remove_piece(size_t index);
    [[nodiscard]] Extent fresh_part(Extent pages, size_t count) const;
    void credit_pieces(size_t from, size_t count);
    bool join(Run& run, const Run& next) const;
    bool issue(const Run& run, uint64_t now_ns, std::span<Target> out, size_t& count);
    [[nodiscard]] uint64_t room() const;
    [[nodiscard]] Extent clamp(const access::Access& access) const;
    [[nodiscard]] Extent widen(const Extent& bytes) const;

    Options options_;
    uint64_t file_;
    uint64_t file_size_;
    Shared shared_;
    Predictor& predictor_;

    Feedback feedback_;
    Counts counts_;
    std::vector<Piece> pieces_;
    std::vector<Extent> victims_;  // a ring
    size_t victim_next_ = 0;

    // The prediction, as far as it is fetched: `ahead_` accesses, the last of them `frontier_`.
    size_t ahead_ = 0;
    access::Access frontier_;
    bool expects_ = false;
    access::Access expected_;

    uint64_t accesses_ = 0;
    uint64_t served_ns_ = 0;
    double think_ns_ = -1;  // between served() and demand(), smoothed; negative: not known
    double think_deviation_ns_ = 0;
    double credit_ = -1;  // bytes that may be fetched on trust; negative: not begun
    uint64_t unused_size_ = 0;
    bool starved_ = false;  // the last next() had more to fetch than it had room for
};

}  // namespace penstock::readahead
