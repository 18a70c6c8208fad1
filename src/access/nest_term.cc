#include "access/nest_term.h"

#include <algorithm>

#include "access/linear_form.h"

namespace penstock::access {
namespace {

// A walk skips so many consecutive empty turns before it gives up. These are turns that
// first_turn() cannot leave out.
constexpr unsigned kEmptyTurnsMax = 1024;
constexpr uint32_t kWeightMax = 1u << 20;

// The products of the steps do not depend on each other, so that a node costs a few cycles.
uint64_t mixed(const Steps& steps, uint64_t factor) {
    uint64_t sum = 0;
    for (const int64_t step : steps) {
        sum += static_cast<uint64_t>(step) * factor;
        factor += 0x9E3779B97F4A7C16u;
    }
    return sum ^ sum >> 29;
}

void shift_out(Value& value) {
    for (size_t d = kDepthMax - 1; d > 0; --d) value.step[d] = value.step[d - 1];
    value.step[0] = 0;
}

Value shift_in(const Value& value, const Steps& index, size_t depth) {
    if (depth == 0) return value;
    if (depth == 1) {
        return {add(value.base, multiply(value.step[0], index[0])),
                {value.step[1], value.step[2], value.step[3], 0}};
    }
    Value out;
    out.base = value.at(index, depth);
    for (size_t d = depth; d < kDepthMax; ++d) out.step[d - depth] = value.step[d];
    return out;
}

// Returns whether `own`, of a separate term, is `other` with the outer indices filled in.
bool same(const Value& own, const Value& other, const Steps& index, size_t depth) {
    // index[depth] counts too: it is the turn at which the term begins.
    if (own.base != other.at(index, depth + 1)) return false;
    for (size_t d = depth; d < kDepthMax; ++d) {
        if (own.step[d - depth] != other.step[d]) return false;
    }
    return true;
}

}  // namespace

Term plain(const Access& access) {
    Term term;
    term.offset.base = access.offset;
    term.size.base = access.size;
    return term;
}

uint32_t shape_of(const Term* term) {
    if (!term->is_loop()) return 0;
    uint64_t hash = 0;
    for (uint32_t i = 0; i < term->span; ++i) {
        hash = (hash << 5 | hash >> 59) ^
               (static_cast<uint64_t>(term[i].kind) << 32 | term[i].span);
        if (term[i].is_loop()) {
            hash += mixed(term[i].trips.step, 0xC2B2AE3D27D4EB4Fu);
        } else {
            hash += mixed(term[i].offset.step, 0x9E3779B97F4A7C15u) ^
                    mixed(term[i].size.step, 0x165667B19E3779F9u);
        }
        hash *= 0xD6E8FEB86659FD93u;
    }
    return static_cast<uint32_t>(hash >> 32) | 1;
}

const Term& first_leaf(const Term* term) {
    while (term->is_loop()) ++term;
    return *term;
}

uint32_t weight(const Term* term) {
    if (!term->is_loop()) return 1;
    uint64_t sum = 0;
    for (uint32_t at = 1; at < term->span; at += term[at].span) sum += weight(term + at);
    const auto trips = static_cast<uint64_t>(
        std::clamp<int64_t>(term->trips.base, 0, int64_t{kWeightMax}));
    return static_cast<uint32_t>(std::min<uint64_t>(sum * trips, kWeightMax));
}

void wrap(std::span<Term> nodes) {
    for (Term& node : nodes) {
        shift_out(node.offset);
        shift_out(node.size);
        shift_out(node.trips);
    }
}

void fill_in(Term* node, const Steps& index, size_t depth) {
    // Loops have only trips; accesses have offset and size.
    if (node->is_loop()) {
        node->trips = shift_in(node->trips, index, depth);
    } else {
        node->offset = shift_in(node->offset, index, depth);
        node->size = shift_in(node->size, index, depth);
    }
}

void Walker::start(const Term* terms, uint32_t count, const Program* program) {
    terms_ = terms;
    program_ = program;
    count_ = count;
    at_ = 0;
    depth_ = 0;
    index_ = {};
    settle();
}

void Walker::start_at(const Term* loop, int64_t turn, int64_t trips) {
    terms_ = loop;
    program_ = nullptr;
    count_ = loop->span;
    at_ = 1;
    depth_ = 1;
    index_ = {};
    loop_[0] = 0;
    index_[0] = turn;
    trips_[0] = trips;
    settle();
}

void Walker::settle() {
    unsigned empty = 0;
    for (;;) {
        if (depth_ > 0 && at_ == loop_[depth_ - 1] + terms_[loop_[depth_ - 1]].span) {
            const size_t d = depth_ - 1;
            // The first turn that ends here had an access. If the second had none, later ones may
            // have none too.
            ++index_[d];
            const int64_t next = empty > 0 ? first_turn(loop_[d], d) : index_[d];
            if (next < trips_[d] && ++empty < kEmptyTurnsMax) {
                index_[d] = next;
                at_ = loop_[d] + 1;
            } else {
                // The index stays behind the last turn, for callers that ask how often the root has
                // turned.
                --depth_;
            }
            continue;
        }
        if (at_ >= count_) return;
        const Term& node = terms_[at_];
        if (!node.is_loop()) {
            enter_leaf();
            if (at_ >= count_ || inside_ < inside_end_) return;
            ++at_;
            continue;
        }
        const int64_t trips = node.trips.at(index_, depth_);
        if (trips <= 0 || depth_ == kDepthMax) {
            at_ += node.span;
            continue;
        }
        loop_[depth_] = at_;
        index_[depth_] = 0;
        trips_[depth_] = trips;
        ++depth_;
        ++at_;
    }
}

// Returns the first turn of the loop at `depth`, from the present one on, in which the node `at`
// (that loop or one inside it) may have accesses. All turns before have none. Returns kTripsMax if
// none has.
int64_t Walker::first_turn(uint32_t at, size_t depth) const {
    const Term& node = terms_[at];
    const int64_t now = index_[depth];
    if (!node.is_loop()) return now;
    int64_t own = now;
    const Steps& step = node.trips.step;
    const bool alone = std::all_of(step.begin() + static_cast<ptrdiff_t>(depth) + 1, step.end(),
                                   [](int64_t one) { return one == 0; });
    const int64_t trips = node.trips.at(index_, depth + 1);
    if (at != loop_[depth] && alone && trips < 1) {
        if (step[depth] <= 0) return int64_t{kTripsMax};
        const Wide turns = (Wide{step[depth]} - trips) / step[depth];
        own = static_cast<int64_t>(std::min<Wide>(Wide{now} + turns, int64_t{kTripsMax}));
    }
    auto inside = int64_t{kTripsMax};
    for (uint32_t child = at + 1; child < at + node.span; child += terms_[child].span)
        inside = std::min(inside, first_turn(child, depth));
    return std::max(own, inside);
}

// Sets inside_ and inside_end_. A leaf without accesses has none; a random leaf ends the walk.
void Walker::enter_leaf() {
    const Term& node = terms_[at_];
    inside_ = 0;
    inside_end_ = 1;
    if (node.kind == NodeKind::kAccess) return;
    if (node.kind == NodeKind::kRandom || program_ == nullptr) {
        at_ = count_;
        depth_ = 0;
        return;
    }
    const Node& source = program_->nodes[node.source];
    if (node.kind == NodeKind::kList) {
        inside_end_ = source.list.size();
        return;
    }
    const int64_t trips = std::max<int64_t>(0, node.trips.at(index_, depth_));
    inside_end_ = 1 + static_cast<uint64_t>(trips) * source.deltas.size();
    running_ = {node.offset.at(index_, depth_), node.size.at(index_, depth_)};
}

Access Walker::current() const {
    const Term& node = terms_[at_];
    if (node.kind == NodeKind::kDeltas) return running_;
    Access access{node.offset.at(index_, depth_), node.size.at(index_, depth_)};
    if (node.kind == NodeKind::kList) {
        const Access& listed = program_->nodes[node.source].list[inside_];
        access = {add(access.offset, listed.offset), add(access.size, listed.size)};
    }
    return access;
}

void Walker::advance() {
    const Term& node = terms_[at_];
    if (++inside_ < inside_end_) {
        if (node.kind == NodeKind::kDeltas) {
            const std::vector<Delta>& deltas = program_->nodes[node.source].deltas;
            const Delta& delta = deltas[(inside_ - 1) % deltas.size()];
            running_ = {add(running_.offset, delta.offset), add(running_.size, delta.size)};
        }
        return;
    }
    ++at_;
    settle();
}

void Walker::skip(uint64_t accesses) {
    while (accesses > 0 && !ended()) {
        // If a loop holds only accesses, all its complete turns but the last are skipped in one
        // step.
        if (depth_ > 0 &&
            terms_[loop_[depth_ - 1]].span == terms_[loop_[depth_ - 1]].children + 1u &&
            terms_[loop_[depth_ - 1]].depth == 1) {
            const uint64_t each = terms_[loop_[depth_ - 1]].children;
            const auto left = static_cast<uint64_t>(trips_[depth_ - 1] - 1 - index_[depth_ - 1]);
            const uint64_t turns = std::min(accesses / each, left);
            index_[depth_ - 1] += static_cast<int64_t>(turns);
            accesses -= turns * each;
            if (accesses == 0) return;
        }
        advance();
        --accesses;
    }
}

void Walker::pass() {
    if (depth_ > 1) {
        depth_ = 1;
        at_ = loop_[1] + terms_[loop_[1]].span;
        settle();
    } else {
        advance();
    }
}

size_t Walker::loops_kept(const Walker& before) const {
    size_t kept = 0;
    while (kept < depth_ && kept < before.depth_ && loop_[kept] == before.loop_[kept] &&
           index_[kept] == before.index_[kept]) {
        ++kept;
    }
    return kept;
}

bool Walker::fresh(size_t depth) const {
    for (size_t d = depth + 1; d < depth_; ++d) {
        if (index_[d] != 0 || loop_[d] != loop_[d - 1] + 1) return false;
    }
    return at_ == loop_[depth_ - 1] + 1;
}

bool Walker::matches_from(const Term* term, size_t depth) const {
    const Term* loop = terms_ + loop_[depth];
    if (term->span != loop->span || term->depth != loop->depth) return false;
    for (uint32_t i = 1; i < term->span; ++i) {
        if (term[i].kind != loop[i].kind || term[i].span != loop[i].span) return false;
        if (!same(term[i].offset, loop[i].offset, index_, depth)) return false;
        if (!same(term[i].size, loop[i].size, index_, depth)) return false;
        if (term[i].is_loop() && !same(term[i].trips, loop[i].trips, index_, depth)) return false;
    }
    return true;
}

bool Walker::consume(const Term* term) {
    if (ended()) return false;
    if (!term->is_loop()) {
        if (current() != Access{term->offset.base, term->size.base}) return false;
        advance();
        return true;
    }
    for (size_t d = 0; d < depth_; ++d) {
        const int64_t turns = term->trips.base;
        if (!fresh(d) || turns > trips_[d] - index_[d] || !matches_from(term, d)) continue;
        depth_ = d + 1;
        // settle() counts the last of the turns.
        index_[d] += turns - 1;
        at_ = loop_[d] + terms_[loop_[d]].span;
        settle();
        return true;
    }
    return false;
}

}  // namespace penstock::access
