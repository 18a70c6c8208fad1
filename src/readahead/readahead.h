// Readahead of one stream: decides which ranges to fetch next, and how far ahead of the reader.
//
// The distance is a time: as many accesses ahead as happen while the storage answers. It is limited
// by bytes (of the stream, and of the cache that it shares with others), by a credit that only
// useful prefetches earn, and by feedback. The credit bounds the harm. A stream whose prefetches
// are never used loses its first window, lent from the trust that all streams of a cache share, and
// after that 2 % of what it reads.
//
// It knows nothing of caches and storage. Their owner reports the events of each access in this
// order: demand(), then the fetches of what is missing, then next() and its fetches, then served().
// The constructor takes all memory. Pure: time is an argument. One thread at a time; this includes
// the FetchModel, Budget and Flights that streams share.
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
    uint64_t granule = 4096;  // the cache fetches multiples of this, but for the end of file
    uint64_t request_size_max = 1 << 20;     // of one fetch
    uint64_t unused_size_max = 16 << 20;     // fetched or in flight, but not used: of this stream
    uint64_t credit_size_first = 256 << 10;  // may be lost before any prefetch was used
    size_t ahead_max = 256;                  // of distance(), in accesses; up to 4096
};

// The content of the cache.
class Presence {
public:
    virtual ~Presence() = default;
    // Returns the smallest part of `range` that contains all its bytes that the cache lacks. Bytes
    // in flight count as lacking. The cache should keep the bytes that it has for now, because they
    // are wanted soon.
    virtual Extent missing(uint64_t file, const Extent& range) = 0;
};

// What the streams of a cache share: the storage's figures, the budget, the flights.
struct Shared {
    FetchModel& model;
    Budget& budget;
    Flights& flights;
    Presence* presence = nullptr;  // null: the cache is empty
};

// A range to fetch. It is already in the flights, as a prefetch.
struct Target {
    FlightId flight = 0;
    Extent extent;
};

enum class Outcome : uint8_t {
    kArrived,
    kFailed,  // dropped: the demand will meet the error itself
};

// What a cache should do with a range, as far as this stream knows.
enum class Advice : uint8_t {
    kNone,
    kUsedSoon,  // keep it
    kUsedOnce,  // it was used and will not be again: evict it first
};

struct Counts {
    uint64_t demanded_size = 0;
    uint64_t fetched_size = 0;  // by prefetches that arrived
    uint64_t used_size = 0;     // of what was predicted
    uint64_t wasted_size = 0;   // predicted, but not used
    uint64_t uses = 0, late = 0, polluted = 0, failed = 0;
};

class Readahead {
public:
    // `file` identifies the file in the flights. The references must outlive this object.
    Readahead(const Options& options, uint64_t file, uint64_t file_size, Shared shared,
              Predictor& predictor);
    // Returns its bytes to the budget and withdraws what is still queued.
    ~Readahead();
    Readahead(const Readahead&) = delete;
    Readahead& operator=(const Readahead&) = delete;

    // Reports that the stream requests `access` now.
    void demand(const access::Access& access, uint64_t now_ns);
    // Reports that the stream has its bytes. The time until the next demand is its own.
    void served(uint64_t now_ns) { served_ns_ = now_ns; }
    // Writes what to fetch now and returns how many ranges; 0 if there are none. Each range must
    // end in completed(), unless this stream withdraws it while it is queued: the stream ends, the
    // file gets shorter, or the range is no longer wanted. start() does not return withdrawn
    // ranges.
    size_t next(uint64_t now_ns, std::span<Target> out);
    void completed(FlightId flight, Outcome outcome);
    // Reports that another stream has used this range, which this one prefetched.
    void used_by_other(const Extent& range) { use_pieces(range); }
    // Reports that the cache has evicted this range, which was prefetched and never used.
    void evicted(const Extent& range);
    // Reports that used bytes of the file were evicted to make room for a prefetch of this stream.
    // The pieces may be of any size; neighbours are joined.
    void displaced(const Extent& range);
    // Reports that a demand of this stream found nothing here, neither in the cache nor in flight.
    void missed(const Extent& range);
    // Returns advice on `range`, which must be of what this stream alone fetched or used. It is
    // O(256 predictions), so call it to choose a victim and not at each access.
    [[nodiscard]] Advice advise(const Extent& range) const;
    // Reports the new size of the file. Queued fetches beyond a new end are withdrawn.
    void resize(uint64_t size);

    // Accesses between the reader and the end of what is fetched. distance() is the least there
    // should be; ahead() is the present number. Up to twice the least is fetched.
    [[nodiscard]] size_t distance() const;
    [[nodiscard]] size_t ahead() const { return ahead_; }
    [[nodiscard]] uint64_t unused_size() const { return unused_size_; }
    [[nodiscard]] const Counts& counts() const { return counts_; }
    [[nodiscard]] const Feedback& feedback() const { return feedback_; }

private:
    static constexpr size_t kAheadMax = 4096;       // next() looks at twice as many predictions
    static constexpr size_t kPiecesMax = 256;       // prefetched ranges that are not used up
    static constexpr size_t kVictimsMax = 64;       // remembered to detect pollution
    static constexpr size_t kBatch = 32;            // predictions taken at a time
    static constexpr uint64_t kStrayAccesses = 64;  // accesses an unused piece stays past its time
    static constexpr size_t kHorizon = 256;         // accesses that advise() looks ahead

    // A prefetched range, until it is used up or given up.
    struct Piece {
        Extent extent;               // without what is used or gone at its ends, in whole granules
        FlightId flight = 0;         // 0: it has arrived
        uint64_t wanted_size = 0;    // predicted and not used yet; the rest are gaps and granules
        uint64_t reserved_size = 0;  // of the budget, not yet returned
        uint64_t until = 0;          // the access at which it is given up
    };
    // Neighbouring predictions that may become one fetch.
    struct Run {
        Extent extent;
        uint64_t wanted_size = 0;
        uint64_t gap_size = 0;
    };

    void use_pieces(const Extent& bytes);
    void follow(bool as_expected);
    void drop_prediction();
    void give_up(size_t index);
    void cut_at_end(size_t index);
    void give_up_stale();
    void take(size_t index, const Extent& range, uint64_t size);
    void trim(Piece& piece, const Extent& range) const;
    void release(Piece& piece, uint64_t size);
    void remove_piece(size_t index);
    bool withdraw_piece(size_t index);
    void borrow(uint64_t size);
    [[nodiscard]] uint64_t until(size_t ahead) const;
    [[nodiscard]] Extent fresh_part(Extent pages, size_t count) const;
    void credit_pieces(size_t from, size_t count);
    bool join(Run& run, const Run& next) const;
    bool issue(const Run& run, size_t ahead, uint64_t now_ns, std::span<Target> out, size_t& count);
    [[nodiscard]] uint64_t room() const;
    [[nodiscard]] double reach_ns() const;
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

    // The prediction as far as it is fetched: `ahead_` accesses, of which `frontier_` is the last.
    size_t ahead_ = 0;
    access::Access frontier_;
    bool expects_ = false;
    access::Access expected_;

    uint64_t accesses_ = 0;
    uint64_t served_ns_ = 0;
    double think_ns_ = -1;  // between served() and demand(), smoothed; negative: not known
    double think_deviation_ns_ = 0;
    double credit_ = 0;       // bytes that may be fetched on trust
    uint64_t to_borrow_ = 0;  // part of the first window that is not lent yet
    uint64_t borrowed_ = 0;   // part that is lent and not earned since
    uint64_t unused_size_ = 0;
    bool starved_ = false;  // the last next() had too little room for its fetches
};

}  // namespace penstock::readahead
