// The replay: an event loop over fetches, a page table, and the four policies.
#include "readahead/simulation_fixture.h"

#include <algorithm>
#include <array>
#include <list>
#include <optional>
#include <queue>
#include <set>
#include <unordered_map>

#include "base/check.h"
#include "base/prng.h"
#include "readahead/linux_window_fixture.h"

namespace penstock::readahead {
namespace {

constexpr uint64_t kPage = kSimulationPage;
constexpr size_t kVictimsSeen = 8;  // of the oldest pages, if there is advice
constexpr uint64_t kNoStream = UINT64_MAX;

struct Page {
    bool present = false;  // else in flight
    bool prefetched = false;
    bool used = false;
    bool shared = false;          // by several streams
    bool marked = false;          // Linux's readahead flag
    uint64_t stream = kNoStream;  // the last stream that requested it
    std::list<uint64_t>::iterator age;
    uint64_t next_use = 0;  // for the oracle
};

struct Completion {
    uint64_t time_ns;
    uint64_t started_ns;
    Flight flight;
    bool operator>(const Completion& other) const { return time_ns > other.time_ns; }
};

Extent bytes_of(const Extent& pages) { return {pages.offset * kPage, pages.size * kPage}; }

class Replay : public LinuxPages, public Presence {
public:
    Replay(const Recording& recording, Policy policy, const Setting& setting,
           const PredictorSource& predictors);
    Figures run();

    [[nodiscard]] bool has(uint64_t page) const override { return pages_.contains(page); }
    void submit(uint64_t page, uint64_t count, uint64_t mark) override;
    Extent missing(uint64_t file, const Extent& range) override;

private:
    void read(size_t index);
    void read_linux(const access::Access& access);
    void read_whole(uint64_t stream, const Extent& pages);
    bool fetch_missing(uint64_t stream, const Extent& pages, Priority priority);
    void prefetch_ours(uint64_t stream);
    void prefetch_oracle(size_t index);
    void start_fetches();
    void complete_next();
    void arrive(const Completion& completion);
    void evict_one(uint64_t guilty);
    uint64_t choose_victim();
    void use(uint64_t stream, const Extent& pages);
    void note_next_use(uint64_t index, Page& page);
    void enter(const Extent& bytes, uint64_t stream, bool prefetched);
    void begin_stream(uint64_t stream);
    [[nodiscard]] Extent pages_of(const access::Access& access) const;
    uint64_t latency_ns();

    const Recording& recording_;
    Policy policy_;
    const Setting& setting_;
    const PredictorSource& predictors_;
    base::Prng prng_;
    Figures figures_;

    uint64_t now_ns_ = 0;
    uint64_t link_free_ns_ = 0;
    size_t slots_used_ = 0;
    std::priority_queue<Completion, std::vector<Completion>, std::greater<>> completions_;
    Driver driver_;
    Flights& flights_ = driver_.flights();

    std::unordered_map<uint64_t, Page> pages_;
    std::list<uint64_t> ages_;                            // oldest first; present pages only
    std::unordered_map<uint64_t, size_t> last_accesses_;  // by stream
    LinuxWindow window_;
    Extent linux_read_;  // the current read, to tell demand from readahead
    // The oracle: when each page is used, and how far it has fetched.
    std::unordered_map<uint64_t, std::vector<uint32_t>> uses_;
    std::set<std::pair<uint64_t, uint64_t>> next_uses_;  // of pages that are present
    size_t oracle_next_ = 0;
    uint64_t oracle_size_ = 0;  // of the accesses up to there
    size_t position_ = 0;
};

Replay::Replay(const Recording& recording, Policy policy, const Setting& setting,
               const PredictorSource& predictors)
    : recording_(recording),
      policy_(policy),
      setting_(setting),
      predictors_(predictors),
      prng_(setting.seed),
      driver_({.options = setting.options,
               .cache_size = setting.cache_size,
               .latency_ns = setting.storage.latency_ns,
               .bandwidth = setting.storage.bandwidth / 4,
               .flights_max = 512},
              this),
      window_((recording.file_size + kPage - 1) / kPage) {
    for (size_t i = 0; i < recording.accesses.size(); ++i) {
        last_accesses_[recording.accesses[i].stream] = i;
    }
    if (policy != Policy::kOracle) return;
    for (size_t i = 0; i < recording.accesses.size(); ++i) {
        const Extent pages = pages_of(recording.accesses[i].access);
        for (uint64_t page = pages.offset; page < pages.end(); ++page) {
            uses_[page].push_back(static_cast<uint32_t>(i));
        }
    }
}

// Returns the page indices of an access.
Extent Replay::pages_of(const access::Access& access) const {
    const auto offset = static_cast<uint64_t>(access.offset);
    const uint64_t end = std::min(offset + static_cast<uint64_t>(access.size),
                                  recording_.file_size);
    if (end <= offset) return {};
    return {offset / kPage, (end + kPage - 1) / kPage - offset / kPage};
}

uint64_t Replay::latency_ns() {
    const auto median = static_cast<double>(setting_.storage.latency_ns);
    const double spread = prng_.below(20) == 0 ? 3 : 0.8 + 0.4 * prng_.fraction();
    return static_cast<uint64_t>(median * spread);
}

Figures Replay::run() {
    for (size_t i = 0; i < recording_.accesses.size(); ++i) {
        const uint64_t until = now_ns_ + recording_.accesses[i].think_ns;
        while (!completions_.empty() && completions_.top().time_ns <= until) complete_next();
        now_ns_ = until;
        position_ = i;
        read(i);
    }
    figures_.time_ns = now_ns_;
    figures_.promotions = flights_.promotions();
    while (!completions_.empty()) complete_next();
    for (const auto& [stream, index] : last_accesses_) driver_.finish(stream);
    PENSTOCK_CHECK(flights_.count() == 0, "every fetch ends");
    PENSTOCK_CHECK(driver_.budget().reserved() == 0, "every prefetched byte is given back");
    return figures_;
}

void Replay::read(size_t index) {
    const RecordedAccess& one = recording_.accesses[index];
    const Extent pages = pages_of(one.access);
    const uint64_t began_ns = now_ns_;
    figures_.demanded_size += pages.size * kPage;
    if (policy_ == Policy::kLinux) {
        read_linux(one.access);
    } else if (policy_ == Policy::kPenstock) {
        begin_stream(one.stream);
        driver_.observe(one.stream, one.access, now_ns_);
        fetch_missing(one.stream, pages, Priority::kDemand);
        prefetch_ours(one.stream);
        read_whole(one.stream, pages);
        driver_.served(one.stream, now_ns_);
        if (last_accesses_.at(one.stream) == index) driver_.finish(one.stream);
    } else {
        fetch_missing(kNoStream, pages, Priority::kDemand);
        if (policy_ == Policy::kOracle) prefetch_oracle(index + 1);
        read_whole(kNoStream, pages);
    }
    figures_.stall_ns += now_ns_ - began_ns;
}

void Replay::read_whole(uint64_t stream, const Extent& pages) {
    PENSTOCK_CHECK(pages.size * kPage * 4 <= setting_.cache_size, "accesses fit the cache");
    while (fetch_missing(stream, pages, Priority::kDemand)) {
        start_fetches();
        complete_next();
    }
    start_fetches();
    use(stream, pages);
}

void Replay::read_linux(const access::Access& access) {
    const Extent pages = pages_of(access);
    linux_read_ = pages;
    for (uint64_t page = pages.offset; page < pages.end(); ++page) {
        if (!has(page)) window_.miss(*this, page, pages.end() - page);
        if (!has(page)) submit(page, 1, UINT64_MAX);  // the window skipped it
        Page& first = pages_[page];
        if (first.marked) {
            first.marked = false;
            window_.reached_mark(*this, page, pages.end() - page);
        }
        start_fetches();
        while (!pages_[page].present) complete_next();
        use(kNoStream, {page, 1});
    }
    const auto end = static_cast<uint64_t>(access.offset + access.size);
    if (!pages.empty()) window_.read_ended(std::min(end, recording_.file_size) / kPage);
}

void Replay::submit(uint64_t page, uint64_t count, uint64_t mark) {
    for (uint64_t at = page; at < page + count;) {
        if (has(at)) {
            ++at;
            continue;
        }
        const uint64_t first = at;
        while (at < page + count && !has(at)) {
            enter(bytes_of({at, 1}), kNoStream, !linux_read_.contains(at));
            pages_[at].marked = at == mark;
            ++at;
        }
        // Without priorities: readahead and demand are one request.
        const Claim claim = flights_.claim(0, bytes_of({first, at - first}), Priority::kDemand,
                                           now_ns_);
        PENSTOCK_CHECK(claim.outcome == Claim::Outcome::kTaken, "the window fits the table");
    }
}

// Marks the missing pages of `bytes` as in flight.
void Replay::enter(const Extent& bytes, uint64_t stream, bool prefetched) {
    for (uint64_t page = bytes.offset / kPage; page * kPage < bytes.end(); ++page) {
        const auto found = pages_.find(page);
        if (found != pages_.end()) {
            if (found->second.present) continue;
            // It was in flight and was withdrawn.
            (found->second.prefetched ? figures_.prefetched_size : figures_.missed_size) -= kPage;
        }
        (prefetched ? figures_.prefetched_size : figures_.missed_size) += kPage;
        Page& fresh = pages_[page];
        fresh.prefetched = prefetched;
        fresh.stream = stream;
    }
}

// Returns whether pages are still missing, and requests those that are not in flight.
bool Replay::fetch_missing(uint64_t stream, const Extent& pages, Priority priority) {
    bool missing = false;
    for (uint64_t page = pages.offset; page < pages.end();) {
        const auto found = pages_.find(page);
        if (found != pages_.end() && found->second.present) {
            // A page that is about to be read is no longer the oldest.
            if (priority == Priority::kDemand) ages_.splice(ages_.end(), ages_, found->second.age);
            ++page;
            continue;
        }
        missing = true;
        uint64_t end = page + 1;
        const auto absent = [&](uint64_t at) {
            const auto other = pages_.find(at);
            return other == pages_.end() || !other->second.present;
        };
        while (end < pages.end() && absent(end)) ++end;
        const Extent absent_bytes = bytes_of({page, end - page});
        const Claim claim = policy_ == Policy::kPenstock
                                ? driver_.demand(stream, absent_bytes, now_ns_)
                                : flights_.claim(0, absent_bytes, priority, now_ns_);
        if (claim.outcome == Claim::Outcome::kFull) return true;
        if (claim.outcome == Claim::Outcome::kTaken) {
            enter(claim.extent, stream, priority == Priority::kPrefetch);
        }
        page = claim.extent.end() / kPage;
    }
    return missing;
}

void Replay::begin_stream(uint64_t stream) {
    if (driver_.find(stream) == nullptr)
        driver_.begin(stream, 0, recording_.file_size, predictors_(stream));
}

Extent Replay::missing(uint64_t /*file*/, const Extent& range) {
    Extent lacking;
    for (uint64_t page = range.offset / kPage; page * kPage < range.end(); ++page) {
        const auto found = pages_.find(page);
        if (found == pages_.end() || !found->second.present) {
            lacking = cover(lacking, intersect(bytes_of({page, 1}), range));
        } else {
            ages_.splice(ages_.end(), ages_, found->second.age);
        }
    }
    return lacking;
}

void Replay::prefetch_ours(uint64_t stream) {
    std::array<Target, 32> targets;
    const size_t count = driver_.plan(stream, now_ns_, targets);
    for (const Target& target : std::span(targets).first(count)) enter(target.extent, stream, true);
}

// Fetches what the next accesses want, up to a quarter of the cache.
void Replay::prefetch_oracle(size_t index) {
    if (oracle_next_ < index) {
        oracle_next_ = index;
        oracle_size_ = 0;
    } else {
        oracle_size_ -= pages_of(recording_.accesses[index - 1].access).size * kPage;
    }
    Extent run;
    for (; oracle_next_ < recording_.accesses.size(); ++oracle_next_) {
        const Extent pages = pages_of(recording_.accesses[oracle_next_].access);
        if (oracle_size_ + pages.size * kPage > setting_.cache_size / 4) break;
        if (flights_.count() > flights_.capacity() / 2) break;
        oracle_size_ += pages.size * kPage;
        const Extent both = cover(run, pages);
        if (both.size <= run.size + pages.size && both.size * kPage <= 1 << 20) {
            run = both;
            continue;
        }
        fetch_missing(kNoStream, run, Priority::kPrefetch);
        run = pages;
    }
    fetch_missing(kNoStream, run, Priority::kPrefetch);
}

void Replay::start_fetches() {
    const StorageModel& storage = setting_.storage;
    while (slots_used_ < storage.slots) {
        // A quarter of the slots is reserved for demand.
        const auto flight = driver_.start(now_ns_, storage.slots * 3 / 4);
        if (!flight) return;
        ++slots_used_;
        ++figures_.requests;
        figures_.read_size += flight->extent.size;
        const auto sending_ns = static_cast<uint64_t>(static_cast<double>(flight->extent.size) *
                                                      1e9 / storage.bandwidth);
        link_free_ns_ = std::max(now_ns_, link_free_ns_) + sending_ns;
        const uint64_t end_ns = std::max(link_free_ns_, now_ns_ + latency_ns() + sending_ns);
        completions_.push({end_ns, now_ns_, *flight});
    }
}

void Replay::complete_next() {
    PENSTOCK_CHECK(!completions_.empty(), "who waits has asked");
    const Completion completion = completions_.top();
    completions_.pop();
    now_ns_ = std::max(now_ns_, completion.time_ns);
    --slots_used_;
    driver_.ended(completion.flight, Driver::End::kArrived, completion.started_ns,
                  completion.time_ns);
    arrive(completion);
    start_fetches();
}

void Replay::arrive(const Completion& completion) {
    const uint64_t guilty = completion.flight.stream.value_or(kNoStream);
    const Extent& bytes = completion.flight.extent;
    for (uint64_t page = bytes.offset / kPage; page * kPage < bytes.end(); ++page) {
        // The page was present, to be bridged, and has been evicted since.
        if (!has(page)) enter(bytes_of({page, 1}), guilty, true);
        Page& arrived = pages_[page];
        if (arrived.present) continue;  // fetched to bridge a gap
        if (ages_.size() * kPage >= setting_.cache_size) evict_one(guilty);
        arrived.present = true;
        arrived.age = ages_.insert(ages_.end(), page);
        note_next_use(page, arrived);
    }
}

// Returns the oldest page, or an old one that is known to be less useful.
uint64_t Replay::choose_victim() {
    std::optional<uint64_t> spare;  // the oldest page not known to be wanted
    if (policy_ == Policy::kOracle) return next_uses_.rbegin()->second;
    size_t seen = 0;
    for (auto at = ages_.begin(); at != ages_.end() && seen < kVictimsSeen; ++at, ++seen) {
        const Page& page = pages_[*at];
        if (policy_ == Policy::kPenstock) {
            const Readahead* stream = driver_.find(page.stream);
            Advice advice = Advice::kNone;
            if (!page.shared) {
                advice = stream == nullptr ? Advice::kUsedOnce : stream->advise(bytes_of({*at, 1}));
            }
            if (advice == Advice::kUsedOnce) return *at;
            if (advice == Advice::kNone && !spare) spare = *at;
        } else {
            break;
        }
    }
    return spare.value_or(ages_.front());
}

// Makes room for one page, which a demand or a prefetch of stream `guilty` brings.
void Replay::evict_one(uint64_t guilty) {
    const uint64_t victim = choose_victim();
    const Page page = pages_[victim];
    if (page.prefetched && !page.used) {
        driver_.evicted(page.stream, bytes_of({victim, 1}));
    } else {
        driver_.displaced(guilty, bytes_of({victim, 1}));
    }
    next_uses_.erase({page.next_use, victim});
    ages_.erase(page.age);
    pages_.erase(victim);
}

void Replay::use(uint64_t stream, const Extent& pages) {
    for (uint64_t at = pages.offset; at < pages.end(); ++at) {
        Page& page = pages_[at];
        if (page.prefetched && !page.used) {
            figures_.used_size += kPage;
            if (page.stream != stream) driver_.used(page.stream, bytes_of({at, 1}));
        }
        page.shared = page.shared || (page.used && page.stream != stream);
        page.used = true;
        page.stream = stream;
        ages_.splice(ages_.end(), ages_, page.age);
        note_next_use(at, page);
    }
}

// Stores when a page is used after the present access. When the page arrives, this access counts
// too.
void Replay::note_next_use(uint64_t index, Page& page) {
    if (policy_ != Policy::kOracle) return;
    next_uses_.erase({page.next_use, index});
    const std::vector<uint32_t>& uses = uses_[index];
    const auto next = std::lower_bound(uses.begin(), uses.end(), position_ + (page.used ? 1 : 0));
    page.next_use = next == uses.end() ? UINT64_MAX : *next;
    next_uses_.insert({page.next_use, index});
}

}  // namespace

const char* name(Policy policy) {
    switch (policy) {
        case Policy::kNone:
            return "none";
        case Policy::kLinux:
            return "linux";
        case Policy::kPenstock:
            return "penstock";
        case Policy::kOracle:
            return "oracle";
    }
    return "";
}

double Figures::accuracy() const {
    if (read_size == missed_size) return 1;
    return static_cast<double>(used_size) / static_cast<double>(read_size - missed_size);
}

double Figures::coverage() const {
    const uint64_t wanted = used_size + missed_size;
    return wanted == 0 ? 0 : static_cast<double>(used_size) / static_cast<double>(wanted);
}

Figures simulate(const Recording& recording, Policy policy, const Setting& setting,
                 const PredictorSource& predictors) {
    PENSTOCK_CHECK(recording.file_size % kPage == 0, "recorded files end with a page");
    Replay replay(recording, policy, setting, predictors);
    return replay.run();
}

}  // namespace penstock::readahead
