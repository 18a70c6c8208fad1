// The online detector: decides which of its parts it believes, and when.
//
//              an access            confirmed
//   Initial ------------> Learning ----------> Stable
//                            ^                   | wrong, and no outlier
//                            |                   v
//                            |  (right for long) Suspended: confirmed 2, 4, 8 ... 64 times over,
//                            +-- it is Stable <-- and twice as often after each that soon fails
//
// A stream that has changed for good must be followed, whatever failed before. So a limited number
// of confirmations always suffices. That is five for a stride, the length of the period for a
// period, and for a nest at most two turns and the first access of a third. The cost is known:
// streams of random places and deltas reach that by chance only if there are few of them.
//
// LEARNING -> STABLE, SUSPENDED -> STABLE [decide]; STABLE -> SUSPENDED [fail]; STABLE -> LEARNING
// [decide], if what was believed has ended.
//
// The recogniser's guess is tried first, then delta periods, then the majority, then sequences of
// uneven sizes. A few accesses that do not follow a well supported guess are held back as outliers.
// If the stream does not return to the guess at once, they count as the beginning of something new.
#include "access/detector.h"

#include <algorithm>

#include "access/detector_loaded.h"
#include "access/detector_timing.h"
#include "access/nest.h"
#include "access/period.h"
#include "access/validate.h"

namespace penstock::access {
namespace {

constexpr size_t kHeldMax = 2;        // outliers in a row
constexpr uint32_t kSupportMin = 16;  // accesses predicted right before outliers are held back
constexpr unsigned kOutlierCost = 8;  // right accesses that make up for an outlier
constexpr unsigned kOutlierLevelMax = 32;
constexpr unsigned kBackoffMax = 6;  // 64 confirmations
constexpr unsigned kTiredAt = 3;     // backoff from which guesses are searched for less often
constexpr unsigned kSoon = 8;        // wrong after fewer right ones: confirm twice as often
constexpr unsigned kForgiven = 16;   // right ones in a row after which past failures do not count
constexpr unsigned kRandomMin = 64;  // accesses without a belief: random
// Confirmations that always suffice for a stride: one fewer than 8 accesses give, because the first
// may lie on a line with what came before.
constexpr unsigned kStrideNeed = 5;
constexpr unsigned kSequenceMin = 3;  // joints of accesses of uneven sizes: a sequence

// Returns true for one count in eight, without a period that a stream could have too. A search that
// always comes at the same place of a turn may never find the loop.
bool is_eighth(uint64_t count) { return count * 0x9E3779B97F4A7C15u >> 61 == 0; }

}  // namespace

struct Detector::Parts {
    enum class Belief : uint8_t { kNothing, kLoaded, kNest, kPeriod, kMajority, kSequence };

    void take(const Access& access);
    bool hold_back(const Access& access);
    void track(const Access& access);
    void decide();
    void believe(Belief what, Algorithm as);
    void fail();
    [[nodiscard]] bool confirmed() const;
    [[nodiscard]] Algorithm nest_algorithm() const;
    size_t ahead(size_t skip, std::span<Access> out) const;

    NestRecogniser nest{NestLimits{}};
    DeltaTracker deltas;
    GapMeter gaps;
    Statistics statistics;
    std::unique_ptr<LoadedProgram> loaded;

    Belief belief = Belief::kNothing;
    Algorithm algorithm = Algorithm::kNone;
    State state = State::kInitial;
    size_t period = 0;        // of kPeriod
    uint32_t need = 0;        // confirmations that a belief needs
    unsigned backoff = 0;     // need is 2^backoff, or 0
    unsigned right_run = 0;   // right since it became stable
    unsigned aimless = 0;     // accesses since anything was believed
    bool unsearched = false;  // the recogniser has a guess, but has not searched for the best
    unsigned outlier_level = 0;
    unsigned joints = 0;  // accesses in a row that began where the last ended

    std::array<Access, kHeldMax + 1> held{};
    size_t held_count = 0;
    Access last;    // the last one that the trackers have seen
    Access anchor;  // of the majority: the last access on its stride
    bool begun = false;
};

size_t Detector::Parts::ahead(size_t skip, std::span<Access> out) const {
    if (state != State::kStable || out.empty()) return 0;
    switch (belief) {
        case Belief::kLoaded:
            return loaded->predict_from(skip, out);
        case Belief::kNest:
            return write_ahead(nest.ahead(), skip, 0, 0, out);
        case Belief::kMajority: {
            const Delta* delta = deltas.majority();
            if (skip > 0 || delta == nullptr) return 0;
            out[0] = {add(anchor.offset, delta->offset), add(anchor.size, delta->size)};
            return possible(out[0]) ? 1 : 0;
        }
        case Belief::kPeriod:
        case Belief::kSequence:
            break;
        case Belief::kNothing:
            return 0;
    }
    Access access = last;
    const auto step = [&](size_t i) {
        const Delta delta = belief == Belief::kPeriod ? deltas.ahead(period, i)
                                                      : Delta{access.size, 0};
        access = {add(access.offset, delta.offset), add(access.size, delta.size)};
    };
    for (size_t i = 0; i < skip; ++i) step(i);
    size_t count = 0;
    for (; count < out.size(); ++count) {
        step(skip + count);
        if (!possible(access)) break;
        out[count] = access;
    }
    return count;
}

void Detector::Parts::take(const Access& access) {
    ++statistics.observed;
    Access next;
    const bool stood = held_count == 0 && ahead(0, {&next, 1}) == 1;
    const bool right = stood && next == access;
    statistics.predicted += stood ? 1 : 0;
    statistics.right += right ? 1 : 0;
    if (right && ++right_run >= kForgiven) need = backoff = 0;
    if (loaded != nullptr) {
        statistics.outliers -= loaded->outliers();
        loaded->observe(access);
        statistics.outliers += loaded->outliers();
        if (loaded->spent()) loaded.reset();
    }
    if (nest.follows(access)) {
        statistics.outliers += held_count;
        held_count = 0;
        outlier_level -= outlier_level > 0 ? 1 : 0;
        nest.advance();
        if (unsearched) nest.search();
        unsearched = false;
        track(access);
    } else if (hold_back(access)) {
        return;
    } else {
        if (stood && !right && (belief == Belief::kNest || belief == Belief::kPeriod)) fail();
        held[held_count++] = access;
        // It takes too long for one access to take a guess apart and to search for another. If
        // guesses have failed repeatedly, the search is not worth its time.
        const bool thorough = !nest.has_guess();
        const bool tired = backoff >= kTiredAt && !is_eighth(statistics.observed);
        nest.learn({held.data(), held_count}, thorough && !tired);
        unsearched = !thorough && !tired && !nest.in_third_turn();
        for (size_t i = 0; i < held_count; ++i) track(held[i]);
        held_count = 0;
    }
    decide();
}

// Returns whether the access is held back. A well supported guess that it does not follow may
// continue after it: at the access before which it came, or at the one after that which it
// replaced. Not if the guess was blind, if the access shows what else there may be, or if nothing
// can follow the guess.
bool Detector::Parts::hold_back(const Access& access) {
    if (belief != Belief::kNest || state != State::kStable) return false;
    if (nest.evidence() < kSupportMin || outlier_level > kOutlierLevelMax) return false;
    Walker walker = nest.ahead();
    if (held_count == 0 && !possible(walker.current())) return false;
    for (size_t passed = 1; passed <= held_count; ++passed) {
        walker.advance();
        if (walker.ended()) break;
        if (walker.current() != access) continue;
        for (size_t i = 0; i <= passed; ++i) nest.advance();
        statistics.outliers += held_count;
        held_count = 0;
        track(access);
        decide();
        return true;
    }
    held[held_count] = access;
    if (held_count == kHeldMax || nest.is_blind() ||
        nest.may_begin_third({held.data(), held_count + 1})) {
        fail();
        return false;
    }
    nest.prepare();
    ++held_count;
    outlier_level += kOutlierCost;
    return true;
}

void Detector::Parts::track(const Access& access) {
    if (begun) {
        const Delta delta{subtract(access.offset, last.offset), subtract(access.size, last.size)};
        deltas.observe(delta);
        joints = delta.offset == last.size && last.size > 0 ? joints + 1 : 0;
        if (const Delta* most = deltas.majority(); most != nullptr) {
            const int64_t moved = subtract(access.offset, anchor.offset);
            // On the stride, or one after an access that something else replaced.
            if (delta == *most || moved == most->offset || moved == multiply(2, most->offset))
                anchor = access;
        } else {
            anchor = access;
        }
    } else {
        anchor = access;
    }
    last = access;
    begun = true;
}

void Detector::Parts::believe(Belief what, Algorithm as) {
    if (state != State::kStable) right_run = 0;
    belief = what;
    algorithm = as;
    state = State::kStable;
    aimless = 0;
}

void Detector::Parts::decide() {
    if (loaded != nullptr) {
        believe(Belief::kLoaded, Algorithm::kLoaded);
        state = loaded->state();
        return;
    }
    period = deltas.period(need);
    if (nest.has_guess() && confirmed()) {
        // A run that is part of a longer period says less than the period does.
        const bool part = nest.guess().size() == 2 && period > 1 &&
                          nest.ahead().index()[0] <= static_cast<int64_t>(period);
        if (!part) return believe(Belief::kNest, nest_algorithm());
    }
    if (period > 1) return believe(Belief::kPeriod, Algorithm::kPeriod);
    if (deltas.majority() != nullptr) return believe(Belief::kMajority, Algorithm::kMajority);
    if (joints >= kSequenceMin + need) return believe(Belief::kSequence, Algorithm::kContiguous);
    belief = Belief::kNothing;
    algorithm = ++aimless >= kRandomMin ? Algorithm::kRandom : Algorithm::kNone;
    state = need > 0 ? State::kSuspended : State::kLearning;
}

// Returns whether enough supports the recogniser's guess.
bool Detector::Parts::confirmed() const {
    if (nest.evidence() >= need || nest.in_third_turn()) return true;
    // Two accesses have a stride, and each later one confirms it.
    if (nest.run() >= kStrideNeed + 2) return true;
    if (nest.evidence() < kStrideNeed) return false;
    uint32_t turn = 0;
    const std::vector<Term>& guess = nest.guess();
    for (uint32_t at = 1; at < guess[0].span; at += guess[at].span) turn += weight(&guess[at]);
    return nest.evidence() + 1 >= std::max(kStrideNeed + 1, turn);
}

void Detector::Parts::fail() {
    ++statistics.suspensions;
    backoff = right_run >= kSoon ? 1 : std::min(backoff + 1, kBackoffMax);
    need = 1u << backoff;
    right_run = 0;
    belief = Belief::kNothing;
    state = State::kSuspended;
}

Algorithm Detector::Parts::nest_algorithm() const {
    const std::vector<Term>& guess = nest.guess();
    if (guess[0].depth > 1) return Algorithm::kNest;
    const auto joined = [](const Term& access) {
        return access.offset.step[0] == access.size.base && access.size.step[0] == 0;
    };
    if (guess.size() == 2)
        return joined(guess[1]) ? Algorithm::kContiguous : Algorithm::kFixedStride;
    bool alike = true, all_joined = true;
    for (size_t i = 1; i < guess.size(); ++i) {
        alike = alike && guess[i].offset.step == guess[1].offset.step &&
                guess[i].size.step == guess[1].size.step;
        all_joined = all_joined && joined(guess[i]);
    }
    // Slots that move alike are deltas with a period, unless each is its own sequence.
    if (guess.size() <= 5 && (!alike || all_joined)) return Algorithm::kInterleaved;
    return alike ? Algorithm::kPeriod : Algorithm::kNest;
}

Detector::Detector() : parts_(std::make_unique<Parts>()) {}
Detector::~Detector() = default;
Detector::Detector(Detector&&) noexcept = default;
Detector& Detector::operator=(Detector&&) noexcept = default;

void Detector::observe(const Access& access, uint64_t time_ns) {
    // If thousands of streams take turns, this prefetches all of the stream's memory at once,
    // instead of one line at a time when it is needed.
    constexpr size_t kLine = 64;
    const auto* bytes = reinterpret_cast<const char*>(parts_.get());
    for (size_t at = 0; at < sizeof(Parts); at += kLine) __builtin_prefetch(bytes + at);
    parts_->gaps.add_time(time_ns);
    parts_->take(access);
}

State Detector::state() const { return parts_->state; }
Algorithm Detector::algorithm() const { return parts_->algorithm; }
const Statistics& Detector::statistics() const { return parts_->statistics; }
Timing Detector::timing() const { return parts_->gaps.timing(); }

size_t Detector::predict(std::span<Access> out) const { return predict_from(0, out); }

size_t Detector::predict_from(size_t skip, std::span<Access> out) const {
    return parts_->held_count > 0 ? 0 : parts_->ahead(skip, out);
}

namespace {

// Gives a loop without a known end as many turns as leave each of its accesses possible in a file.
void end_loops(Program* program, int64_t turns) {
    for (Node& node : program->nodes) {
        if (node.kind != NodeKind::kLoop || node.trips.base != int64_t{kTripsMax}) continue;
        while (node.trips.base > turns && !validate(*program).ok())
            node.trips.base = std::max(turns, node.trips.base / 2);
    }
}

}  // namespace

Program Detector::program() const {
    const Statistics& seen = parts_->statistics;
    Program program;
    if (parts_->loaded != nullptr) {
        program = parts_->loaded->program();
    } else {
        const NestRecogniser& nest = parts_->nest;
        std::vector<Term> terms(nest.terms().begin(),
                                nest.terms().begin() + static_cast<ptrdiff_t>(nest.guess_start()));
        if (nest.has_guess()) terms.insert(terms.end(), nest.guess().begin(), nest.guess().end());
        nodes_of(terms, &program.nodes);
        if (nest.has_guess()) end_loops(&program, nest.ahead().index()[0] + 1);
    }
    program.provenance.origin = Origin::kOnline;
    program.provenance.support = seen.observed;
    program.provenance.confidence = seen.predicted == 0 ? 0.0
                                                        : static_cast<double>(seen.right) /
                                                              static_cast<double>(seen.predicted);
    for (Node& node : program.nodes) {
        if (node.kind != NodeKind::kLoop) node.think = timing();
    }
    return program;
}

void Detector::load(const Program& program, uint64_t rank) {
    reset();
    parts_->loaded = std::make_unique<LoadedProgram>(program, rank);
    if (parts_->loaded->spent()) {
        parts_->loaded.reset();
        return;
    }
    parts_->belief = Parts::Belief::kLoaded;
    parts_->algorithm = Algorithm::kLoaded;
    parts_->state = State::kLearning;
}

void Detector::reset() { parts_ = std::make_unique<Parts>(); }

}  // namespace penstock::access
