// One stream: follows the prediction, accounts for what was fetched because of it, and cuts the
// next predictions into fetches.
#include "readahead/readahead.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace penstock::readahead {
namespace {

constexpr double kFreeShare = 0.02;           // of the bytes read may be lost to prefetches
constexpr uint64_t kGapShare = 8;             // gaps of up to 1/8 of a run are read through
constexpr double kThinkReaches = 4;           // think time counts up to so many reaches
constexpr size_t kPassedMax = 3;              // predictions that one access may skip
constexpr uint64_t kFileSizeMax = INT64_MAX;  // files end below 2^63, whatever size is reported
constexpr uint64_t kVictimSizeMax = 1 << 20;  // neighbours are joined up to this

// Four times `size`, but at most the largest file.
constexpr uint64_t four_times(uint64_t size) { return 4 * std::min(size, kFileSizeMax / 4); }

constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

}  // namespace

Readahead::Readahead(const Options& options, uint64_t file, uint64_t file_size, Shared shared,
                     Predictor& predictor)
    : options_(options),
      file_(file),
      file_size_(std::min(file_size, kFileSizeMax)),
      shared_(shared),
      predictor_(predictor) {
    options_.granule = std::max<uint64_t>(options_.granule, 1);
    options_.request_size_max = std::max(
        options_.request_size_max / options_.granule * options_.granule, options_.granule);
    options_.unused_size_max = std::min(options_.unused_size_max, kFileSizeMax);
    options_.ahead_max = std::clamp<size_t>(options_.ahead_max, 1, kAheadMax);
    pieces_.reserve(kPiecesMax);
    victims_.reserve(kVictimsMax);
}

Readahead::~Readahead() {
    for (size_t i = pieces_.size(); i-- > 0;) withdraw_piece(i);
    shared_.budget.release(unused_size_);
    shared_.budget.return_trust(std::min(borrowed_, static_cast<uint64_t>(std::max(credit_, 0.0))));
}

// Returns the bytes of an access that are in the file.
Extent Readahead::clamp(const access::Access& access) const {
    if (access.offset < 0 || access.size <= 0) return {};
    const auto offset = static_cast<uint64_t>(access.offset);
    if (offset >= file_size_) return {};
    return {offset, std::min(static_cast<uint64_t>(access.size), file_size_ - offset)};
}

// Returns the granules that cover `bytes`.
Extent Readahead::widen(const Extent& bytes) const {
    const uint64_t offset = bytes.offset / options_.granule * options_.granule;
    const uint64_t past = bytes.end() % options_.granule;
    const uint64_t end = past == 0 ? bytes.end() : bytes.end() - past + options_.granule;
    return {offset, std::min(end, file_size_) - offset};
}

void Readahead::demand(const access::Access& access, uint64_t now_ns) {
    ++accesses_;
    if (accesses_ > 1) {
        const double gap = now_ns > served_ns_ ? static_cast<double>(now_ns - served_ns_) : 0;
        // A longer think time asks for the same distance, but would affect the mean for long.
        const double think = std::min(gap, kThinkReaches * reach_ns());
        if (think_ns_ < 0) think_ns_ = think;
        const double off = think - think_ns_;
        think_ns_ += off / 16;
        think_deviation_ns_ += (std::abs(off) - think_deviation_ns_) / 16;
    }
    const Extent bytes = clamp(access);
    if (accesses_ == 1) to_borrow_ = std::max(options_.credit_size_first, four_times(bytes.size));
    credit_ += kFreeShare * static_cast<double>(bytes.size);
    counts_.demanded_size += bytes.size;
    if (!bytes.empty()) use_pieces(bytes);
    give_up_stale();

    const bool as_expected = expects_ && access == expected_;
    if (feedback_.suspended()) as_expected ? feedback_.confirmed() : feedback_.refuted();
    predictor_.observe(access, now_ns);
    follow(as_expected);
    expects_ = predictor_.predict_from(0, {&expected_, 1}) == 1;

    const auto credit_max = static_cast<double>(
        std::max(options_.unused_size_max, four_times(std::max(bytes.size, options_.granule))));
    credit_ = std::min(credit_, credit_max);
}

// Accounts for a demand of `bytes` that may have been prefetched.
void Readahead::use_pieces(const Extent& bytes) {
    for (size_t i = pieces_.size(); i-- > 0;) {
        const Piece& piece = pieces_[i];
        const uint64_t shared = intersect(piece.extent, bytes).size;
        if (shared == 0) continue;
        const uint64_t size = std::min(shared, piece.wanted_size);
        const bool late = piece.flight != 0;
        counts_.used_size += size;
        ++counts_.uses;
        counts_.late += late ? 1 : 0;
        // If it is late for lack of room, a greater distance would not help.
        feedback_.used(size, late && !starved_);
        // Counted twice, so that the distance may double with each useful window.
        credit_ += 2 * static_cast<double>(size);
        const uint64_t earned = std::min(size, borrowed_);
        borrowed_ -= earned;
        shared_.budget.return_trust(earned);
        take(i, bytes, size);
    }
}

// Removes `range`, of which `size` bytes were wanted, from a piece: it is used or gone.
void Readahead::take(size_t index, const Extent& range, uint64_t size) {
    Piece& piece = pieces_[index];
    piece.wanted_size -= size;
    if (piece.wanted_size == 0) return remove_piece(index);
    release(piece, intersect(piece.extent, range).size);
    if (piece.flight == 0) trim(piece, range);
}

// Cuts `range` off an end of a piece, without granules that are partly left. In the middle it
// stays.
void Readahead::trim(Piece& piece, const Extent& range) const {
    const uint64_t granule = options_.granule, end = piece.extent.end();
    if (range.contains(piece.extent.offset)) {
        const uint64_t offset = std::max(piece.extent.offset, range.end() / granule * granule);
        piece.extent = {offset, end - offset};
    } else if (range.contains(end - 1)) {
        const uint64_t last = std::min(end, round_up(range.offset, granule));
        piece.extent.size = last - piece.extent.offset;
    }
}

void Readahead::give_up_stale() {
    for (size_t i = pieces_.size(); i-- > 0;) {
        // A fetch in flight takes room until it arrives.
        const bool stale = accesses_ >= pieces_[i].until;
        if (stale && !withdraw_piece(i) && pieces_[i].flight == 0) give_up(i);
    }
}

// Withdraws a fetch that has not begun. Returns false if it has.
bool Readahead::withdraw_piece(size_t index) {
    const FlightId flight = pieces_[index].flight;
    if (flight == 0 || !shared_.flights.withdraw(flight)) return false;
    counts_.fetched_size -= pieces_[index].extent.size;
    credit_ += static_cast<double>(pieces_[index].extent.size);
    remove_piece(index);
    return true;
}

// Borrows what the credit lacks for a fetch of `size` bytes of the first window.
void Readahead::borrow(uint64_t size) {
    const auto lacking = static_cast<uint64_t>(
        std::max(std::ceil(static_cast<double>(size) - credit_), 0.0));
    const uint64_t lent = shared_.budget.lend_trust(std::min(lacking, to_borrow_));
    to_borrow_ -= lent;
    borrowed_ += lent;
    credit_ += static_cast<double>(lent);
}

// Finds the stream's position in the prediction after an access.
void Readahead::follow(bool as_expected) {
    if (ahead_ == 0) return;
    if (as_expected) {
        --ahead_;
        return;
    }
    // An outlier leaves the position unchanged. Skipped accesses advance it.
    access::Access at;
    for (size_t passed = 0; passed <= kPassedMax && passed < ahead_; ++passed) {
        if (predictor_.predict_from(ahead_ - 1 - passed, {&at, 1}) == 1 && at == frontier_) {
            ahead_ -= passed;
            return;
        }
    }
    drop_prediction();
}

// Drops the prediction. What was fetched stays and may be used, but no longer belongs to a
// prediction.
void Readahead::drop_prediction() {
    ahead_ = 0;
    for (Piece& piece : pieces_) piece.until = std::min(piece.until, until(0));
}

// Returns when to give up what the next `ahead` accesses want. Outliers among them take extra time.
uint64_t Readahead::until(size_t ahead) const {
    return accesses_ + ahead + ahead / 4 + kStrayAccesses;
}

void Readahead::release(Piece& piece, uint64_t size) {
    const uint64_t given = std::min(size, piece.reserved_size);
    piece.reserved_size -= given;
    unused_size_ -= given;
    shared_.budget.release(given);
}

void Readahead::remove_piece(size_t index) {
    release(pieces_[index], pieces_[index].reserved_size);
    pieces_[index] = pieces_.back();
    pieces_.pop_back();
}

void Readahead::give_up(size_t index) {
    const uint64_t size = pieces_[index].wanted_size;
    counts_.wasted_size += size;
    feedback_.wasted(size);
    remove_piece(index);
}

// A quarter more than the quantile, because a fetch that is expected just in time is late half of
// the time.
double Readahead::reach_ns() const {
    return 1.25 * static_cast<double>(shared_.model.latency_p95_ns());
}

size_t Readahead::distance() const {
    const double think_ns = std::max(think_ns_, 1.0);
    // The accesses that fall into that time. If they come in bursts, two standard deviations more.
    // (The mean deviation is kept; the standard one is 1.25 times that.)
    const double mean = reach_ns() / think_ns;
    const double spread = std::min(1.25 * think_deviation_ns_ / think_ns, 1.0) * std::sqrt(mean);
    const double count = std::ceil(feedback_.scale() * shared_.budget.scale() *
                                   (mean + 2 * spread));
    const auto most = static_cast<double>(options_.ahead_max);
    return static_cast<size_t>(std::clamp(count, 1.0, most));
}

size_t Readahead::next(uint64_t now_ns, std::span<Target> out) {
    starved_ = false;
    if (feedback_.suspended() || !expects_) return 0;
    // Half of what is fetched covers the distance. When less is left, the other half is fetched.
    const size_t wanted = 2 * distance();
    if (2 * ahead_ >= wanted) return 0;
    access::Access at;
    if (ahead_ > 0 && (predictor_.predict_from(ahead_ - 1, {&at, 1}) == 0 || at != frontier_)) {
        drop_prediction();
    }
    const size_t from = ahead_, pieces = pieces_.size();
    size_t count = 0;
    Run run;
    // The frontier once `run` is issued too. A run that finds no room is tried again the next time.
    size_t seen = ahead_;
    access::Access seen_last = frontier_;
    const auto fetch_run = [&] {
        starved_ = !issue(run, seen, now_ns, out, count);
        if (starved_) return;
        ahead_ = seen;
        frontier_ = seen_last;
    };
    std::array<access::Access, kBatch> batch;
    bool more = true;
    while (more && !starved_ && seen < wanted) {
        const size_t asked = std::min(kBatch, wanted - seen);
        const size_t got = predictor_.predict_from(seen, {batch.data(), asked});
        more = got == asked;
        for (size_t i = 0; i < got; ++i) {
            const Extent bytes = clamp(batch[i]);
            Extent pages = bytes.empty() ? bytes : fresh_part(widen(bytes), pieces);
            if (shared_.presence != nullptr && !pages.empty()) {
                pages = shared_.presence->missing(file_, pages);
            }
            const Run single{pages, intersect(bytes, pages).size, 0};
            if (!pages.empty() && !join(run, single)) {
                fetch_run();
                if (starved_) break;
                run = single;
            }
            ++seen;
            seen_last = batch[i];
        }
    }
    if (!starved_) fetch_run();
    credit_pieces(from, pieces);
    return count;
}

// Returns what is left of `pages` after the first `count` pieces are cut off its ends. A piece in
// the middle is fetched again, which is rare and cheaper than a cut.
Extent Readahead::fresh_part(Extent pages, size_t count) const {
    for (bool cut = true; cut && !pages.empty();) {
        cut = false;
        for (size_t i = 0; i < count && !pages.empty(); ++i) {
            const Extent& have = pieces_[i].extent;
            if (!overlap(have, pages)) continue;
            const uint64_t end = pages.end();
            if (have.contains(pages.offset)) {
                // A granule that was the last of the file when it was fetched is not fetched again.
                const uint64_t offset = std::min(round_up(have.end(), options_.granule), end);
                pages = {offset, end - offset};
                cut = true;
            } else if (have.contains(end - 1)) {
                pages.size = have.offset - pages.offset;
                cut = true;
            }
        }
    }
    return pages;
}

// Predictions [from, ahead_) also use the first `count` pieces, which existed before.
void Readahead::credit_pieces(size_t from, size_t count) {
    std::array<access::Access, kBatch> batch;
    for (size_t index = from; count > 0 && index < ahead_;) {
        const size_t asked = std::min(kBatch, ahead_ - index);
        const size_t got = predictor_.predict_from(index, {batch.data(), asked});
        for (size_t i = 0; i < got; ++i) {
            const Extent bytes = clamp(batch[i]);
            for (size_t k = 0; k < count; ++k) {
                Piece& piece = pieces_[k];
                const uint64_t shared = intersect(piece.extent, bytes).size;
                if (shared == 0) continue;
                piece.until = std::max(piece.until, until(index + i + 1));
                piece.wanted_size = std::min(piece.wanted_size + shared, piece.extent.size);
            }
        }
        if (got < asked) return;
        index += got;
    }
}

// Adds `next` to the run if one fetch of both is better.
bool Readahead::join(Run& run, const Run& next) const {
    if (run.extent.empty()) {
        run = next;
        return true;
    }
    const Extent both = cover(run.extent, next.extent);
    if (both.size > std::min(options_.request_size_max, room())) return false;
    const uint64_t sum = run.extent.size + next.extent.size;
    const uint64_t gap = both.size > sum ? both.size - sum : 0;
    if (gap > shared_.model.gap_size()) return false;
    if ((run.gap_size + gap) * kGapShare > both.size) return false;
    run = {both, std::min(run.wanted_size + next.wanted_size, both.size), run.gap_size + gap};
    return true;
}

// Returns the bytes that may be fetched now.
uint64_t Readahead::room() const {
    const Budget& budget = shared_.budget;
    const uint64_t most = std::max(options_.unused_size_max, unused_size_);
    const auto credit = static_cast<uint64_t>(std::max(credit_, 0.0));
    return std::min({credit + std::min(to_borrow_, budget.trust()), most - unused_size_,
                     budget.limit() - budget.reserved()});
}

// Makes fetches of a run that the next `ahead` accesses want. Returns false if there is no room for
// all of it.
bool Readahead::issue(const Run& run, size_t ahead, uint64_t now_ns, std::span<Target> out,
                      size_t& count) {
    Extent rest = run.extent;
    while (!rest.empty()) {
        const Extent wanted{rest.offset, std::min(rest.size, options_.request_size_max)};
        if (pieces_.size() == kPiecesMax || count == out.size()) return false;
        if (room() < wanted.size || !shared_.budget.reserve(wanted.size)) return false;
        const Claim claim = shared_.flights.claim(file_, wanted, Priority::kPrefetch, now_ns);
        const bool taken = claim.outcome == Claim::Outcome::kTaken;
        shared_.budget.release(taken ? wanted.size - claim.extent.size : wanted.size);
        if (claim.outcome == Claim::Outcome::kFull) return false;
        const uint64_t end = std::min(round_up(claim.extent.end(), options_.granule), rest.end());
        rest = {end, rest.end() - end};
        if (!taken) continue;  // another stream fetches it and accounts for it
        const uint64_t size = claim.extent.size;
        const double share = static_cast<double>(size) / static_cast<double>(run.extent.size);
        const auto share_size = static_cast<uint64_t>(
            std::ceil(share * static_cast<double>(run.wanted_size)));
        const uint64_t expected = std::clamp<uint64_t>(share_size, 1, size);
        pieces_.push_back({claim.extent, claim.flight, expected, size, until(ahead)});
        unused_size_ += size;
        borrow(size);
        credit_ -= static_cast<double>(size);
        counts_.fetched_size += size;
        out[count++] = {claim.flight, claim.extent};
    }
    return true;
}

void Readahead::completed(FlightId flight, Outcome outcome) {
    for (size_t i = 0; i < pieces_.size(); ++i) {
        Piece& piece = pieces_[i];
        if (piece.flight != flight) continue;
        piece.flight = 0;
        if (outcome == Outcome::kArrived) return cut_at_end(i);
        counts_.fetched_size -= piece.extent.size;
        ++counts_.failed;
        remove_piece(i);
        return;
    }
    // Used up while it was in flight, and accounted for then.
}

void Readahead::evicted(const Extent& range) {
    for (size_t i = pieces_.size(); i-- > 0;) {
        const Piece& piece = pieces_[i];
        const uint64_t shared = intersect(piece.extent, range).size;
        if (shared == 0 || piece.flight != 0) continue;
        const uint64_t lost = std::min(shared, piece.wanted_size);
        counts_.wasted_size += lost;
        feedback_.wasted(lost);
        take(i, range, lost);
    }
}

void Readahead::resize(uint64_t size) {
    const uint64_t file_size = std::min(size, kFileSizeMax);
    const bool grown = file_size > file_size_;
    file_size_ = file_size;
    // What lay beyond the end counted as fetched up to here. Now there is something to fetch.
    if (grown && ahead_ > 0) drop_prediction();
    for (size_t i = pieces_.size(); i-- > 0;) {
        if (pieces_[i].extent.end() <= file_size) continue;
        if (!withdraw_piece(i) && pieces_[i].flight == 0) cut_at_end(i);
    }
}

// Bytes that the file has lost do not count as wasted.
void Readahead::cut_at_end(size_t index) {
    const Extent& extent = pieces_[index].extent;
    if (extent.end() <= file_size_) return;
    const Extent gone = intersect(extent, {file_size_, extent.end() - file_size_});
    if (gone.size == extent.size) return remove_piece(index);
    take(index, gone, std::min(gone.size, pieces_[index].wanted_size));
}

void Readahead::displaced(const Extent& range) {
    if (!victims_.empty()) {
        Extent& last = victims_[(victim_next_ + victims_.size() - 1) % victims_.size()];
        if (adjacent(last, range) && last.size + range.size <= kVictimSizeMax) {
            last = cover(last, range);
            return;
        }
    }
    if (victims_.size() < kVictimsMax) {
        victims_.push_back(range);
        return;
    }
    victims_[victim_next_] = range;
    victim_next_ = (victim_next_ + 1) % kVictimsMax;
}

void Readahead::missed(const Extent& range) {
    for (Extent& victim : victims_) {
        if (!overlap(victim, range)) continue;
        // Bytes behind it may be missed too.
        const uint64_t offset = std::min(range.end(), victim.end());
        victim = {offset, victim.end() - offset};
        ++counts_.polluted;
        feedback_.polluted();
        return;
    }
}

Advice Readahead::advise(const Extent& range) const {
    if (!expects_ || feedback_.suspended()) return Advice::kNone;
    for (const Piece& piece : pieces_) {
        if (piece.until > until(0) && overlap(piece.extent, range)) return Advice::kUsedSoon;
    }
    std::array<access::Access, kBatch> batch;
    size_t told = 0;
    while (told % kBatch == 0 && told < kHorizon) {
        const size_t got = predictor_.predict_from(told, batch);
        for (size_t i = 0; i < got; ++i) {
            if (overlap(clamp(batch[i]), range)) return Advice::kUsedSoon;
        }
        if (got == 0) break;
        told += got;
    }
    // A predictor that knows only the next access cannot say what will not be used.
    return told > 1 ? Advice::kUsedOnce : Advice::kNone;
}

}  // namespace penstock::readahead
