#include "file/signature_join.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "access/detector.h"
#include "access/validate.h"

namespace penstock::file {
namespace {

constexpr uint64_t kJoinedRanksMax = 16384;  // above this, trying all grids takes minutes
// Streams are taken together if that predicts this share of their bytes more than each alone. The
// first accesses of each, before its pattern is confirmed, are no reason.
constexpr double kNotably = 0.125;

// Threads that take the pieces of a file in turn make more accesses than this, each. Programs that
// all read one file at their start make fewer.
constexpr uint64_t kAccessesMin = 4;

using Group = std::vector<size_t>;  // indices of streams

// Returns the streams without those that are empty, in order.
std::vector<FoundStream> without_empty(std::vector<FoundStream> all) {
    std::erase_if(all, [](const FoundStream& one) { return one.members.empty(); });
    return all;
}

// Merges streams by time. Accesses of one time have no order, and Darshan's times are tenths of a
// millisecond; so these are taken by offset.
RecordedStream merge(const std::vector<const RecordedStream*>& streams) {
    std::vector<std::pair<uint64_t, access::Access>> timed;
    for (const RecordedStream* stream : streams) {
        for (size_t i = 0; i < stream->accesses.size(); ++i)
            timed.emplace_back(stream->times_ns[i], stream->accesses[i]);
    }
    std::ranges::stable_sort(
        timed, {}, [](const auto& one) { return std::pair(one.first, one.second.offset); });
    RecordedStream merged;
    for (const auto& [time_ns, access] : timed) {
        merged.times_ns.push_back(time_ns);
        merged.accesses.push_back(access);
    }
    return merged;
}

// Takes the streams of a group together. Returns false if that predicts hardly more bytes.
bool take_together(const std::vector<FoundStream>& all, const Group& group,
                   std::vector<RecordedStream>* recorded, FoundStream* out) {
    uint64_t accesses = 0, bytes = 0, told = 0;
    std::vector<const RecordedStream*> streams;
    for (const size_t i : group) {
        accesses += all[i].evidence.accesses();
        bytes += all[i].evidence.bytes();
        told += all[i].evidence.told_bytes();
        for (const size_t member : all[i].members) streams.push_back(&(*recorded)[member]);
    }
    const auto threshold = static_cast<double>(told) + kNotably * static_cast<double>(bytes);
    if (accesses < kAccessesMin * group.size() || threshold >= static_cast<double>(bytes))
        return false;
    RecordedStream merged = merge(streams);
    FoundStream together;
    together.evidence.watch(merged.accesses, merged.times_ns, streams.size());
    if (static_cast<double>(together.evidence.told_bytes()) < threshold) return false;
    together.program = access::analyse(merged.accesses, merged.times_ns);
    together.program.key = all[group[0]].program.key;
    for (const size_t i : group) {
        together.program.key.first_rank = std::min(together.program.key.first_rank,
                                                   all[i].program.key.first_rank);
    }
    together.invalid = access::validate(together.program);
    together.shared_by = streams.size();
    together.members = {recorded->size()};
    recorded->push_back(std::move(merged));
    *out = std::move(together);
    return true;
}

// Finds one program for all these streams. Returns false if there is none, or if it would describe
// a rank that is not among them.
bool join(const std::vector<FoundStream>& all, const Group& group, FoundStream* out) {
    std::vector<access::Program> programs;
    std::vector<uint64_t> ranks;
    for (const size_t i : group) {
        programs.push_back(all[i].program);
        ranks.push_back(all[i].program.key.first_rank);
    }
    const auto [low, high] = std::minmax_element(ranks.begin(), ranks.end());
    if (*high >= kJoinedRanksMax || *high - *low + 1 != ranks.size()) return false;
    FoundStream joined;
    if (!access::fit_ranks(programs, ranks, &joined.program) ||
        !access::validate(joined.program).ok()) {
        return false;
    }
    for (const size_t i : group) {
        joined.members.insert(joined.members.end(), all[i].members.begin(), all[i].members.end());
        joined.evidence.add(all[i].evidence);
    }
    *out = std::move(joined);
    return true;
}

// Replaces the first stream of the group, and empties the others.
void replace(std::vector<FoundStream>* all, const Group& group, FoundStream joined) {
    for (const size_t i : group) (*all)[i].members.clear();
    (*all)[group[0]] = std::move(joined);
}

}  // namespace

std::vector<FoundStream> join_threads(std::vector<FoundStream> all,
                                      std::vector<RecordedStream>* recorded) {
    std::map<std::tuple<std::string, access::Operation, uint64_t>, Group> groups;
    for (size_t i = 0; i < all.size(); ++i) {
        const access::StreamKey& key = all[i].program.key;
        groups[{key.file, key.operation, key.context}].push_back(i);
    }
    for (const auto& [key, group] : groups) {
        FoundStream together;
        if (group.size() > 1 && take_together(all, group, recorded, &together))
            replace(&all, group, std::move(together));
    }
    return without_empty(std::move(all));
}

std::vector<FoundStream> join_ranks(std::vector<FoundStream> all) {
    using Shape = std::vector<std::pair<access::NodeKind, uint32_t>>;
    std::map<std::tuple<std::string, access::Operation, uint64_t, uint64_t, Shape>, Group> groups;
    for (size_t i = 0; i < all.size(); ++i) {
        const access::Program& program = all[i].program;
        const access::StreamKey& key = program.key;
        if (!all[i].invalid.ok() || key.rank_count != 1 || all[i].shared_by != 1) continue;
        Shape shape;
        for (const access::Node& node : program.nodes) shape.emplace_back(node.kind, node.body);
        groups[{key.file, key.operation, key.context, all[i].thread, shape}].push_back(i);
    }
    for (auto& [key, group] : groups) {
        std::ranges::sort(group, {}, [&](size_t i) { return all[i].program.key.first_rank; });
        FoundStream joined;
        if (group.size() > 1 && join(all, group, &joined)) {
            replace(&all, group, std::move(joined));
            continue;
        }
        // The first rank often does something of its own.
        const Group others(group.begin() + 1, group.end());
        if (others.size() > 1 && join(all, others, &joined))
            replace(&all, others, std::move(joined));
    }
    return without_empty(std::move(all));
}

}  // namespace penstock::file
