// Writes and parses pattern signatures, and finds the class of a program. See signature_text.h.
#include <algorithm>
#include <optional>
#include <vector>

#include "access/canonical.h"
#include "access/signature_scanner.h"
#include "access/signature_text.h"

namespace penstock::access {
namespace {

constexpr int64_t kMediumBytes = 4096, kLargeBytes = 65536;

constexpr std::array<const char*, 6> kSpatialNames = {"contiguous",     "fixed strided",
                                                      "k-d strided",    "negative strided",
                                                      "random strided", "combination"};
constexpr std::array<const char*, 2> kRepetitionNames = {"single occurrence", "repeating"};
constexpr std::array<const char*, 7> kSizeNames = {
    "unknown",       "fixed small",    "fixed medium", "fixed large",
    "varying small", "varying medium", "varying large"};
constexpr std::array<const char*, 3> kIntervalNames = {"unknown", "fixed", "random"};

struct Shape {
    Spatial spatial = Spatial::kContiguous;
    uint32_t dimension = 0;
};

// Returns whether each access begins where the last one ended.
bool is_sequence(const std::vector<Access>& accesses) {
    return std::ranges::adjacent_find(accesses, [](const Access& one, const Access& next) {
               return one.offset + one.size != next.offset;
           }) == accesses.end();
}

// Returns the accesses that a list node in no loop has, for one rank.
std::vector<Access> accesses_of(const Node& list) {
    std::vector<Access> accesses = list.list;
    for (Access& one : accesses) {
        one.offset += list.offset.base;
        one.size += list.size.base;
    }
    return accesses;
}

// Returns whether the program is a sequence of single accesses, and no other nodes.
bool is_sequence_of_places(const std::vector<Node>& nodes) {
    std::vector<Access> places;
    for (const Node& node : nodes) {
        if (node.kind != NodeKind::kAccess) return false;
        places.push_back({node.offset.base, node.size.base});
    }
    return places.size() > 2 && is_sequence(places);
}

// Returns the shape of one node that is no loop and has `level` loops around it.
Shape shape_of(const Node& node, size_t level) {
    const auto begin = node.offset.per_loop.begin();
    const auto strides = static_cast<uint32_t>(std::count_if(
        begin, begin + static_cast<ptrdiff_t>(level), [](int64_t s) { return s != 0; }));
    switch (node.kind) {
        case NodeKind::kDeltas:
            return {Spatial::kCombination, strides + 1};
        case NodeKind::kList:
            if (level == 0 && is_sequence(accesses_of(node))) return {Spatial::kContiguous, 1};
            return {Spatial::kRandomStrided, std::max(strides, 1u)};
        case NodeKind::kRandom:
            return {Spatial::kRandomStrided, std::max(strides, 1u)};
        default:
            break;
    }
    if (strides == 0) return {Spatial::kContiguous, 0};
    int64_t innermost = 0;
    for (size_t d = 0; d < level; ++d) {
        if (node.offset.per_loop[d] != 0) innermost = node.offset.per_loop[d];
    }
    const bool fixed_size = node.size.per_loop == Affine{}.per_loop;
    if (innermost < 0) return {Spatial::kNegativeStrided, strides};
    if (strides > 1) return {Spatial::kNestedStrided, strides};
    const bool contiguous = fixed_size && innermost == node.size.base;
    return {contiguous ? Spatial::kContiguous : Spatial::kFixedStrided, 1};
}

// Collects the classes of the nodes.
class Classifier {
public:
    explicit Classifier(const Program& program) : program_(program) {}

    PatternSignature classify() {
        out_.operation = program_.key.operation;
        const std::vector<Node>& nodes = program_.nodes;
        for (size_t n = 0; n < nodes.size(); n += 1 + nodes[n].body) visit(n, 0, false);
        if (is_sequence_of_places(nodes)) {
            out_.spatial = Spatial::kContiguous;
            out_.dimension = 1;
        }
        if (size_max_) {
            out_.size = *size_max_ < kMediumBytes  ? SizeClass::kSmall
                        : *size_max_ < kLargeBytes ? SizeClass::kMedium
                                                   : SizeClass::kLarge;
        }
        return out_;
    }

private:
    // `among`: the same body of a loop has other nodes.
    void visit(size_t n, size_t level, bool among) {
        const Node& node = program_.nodes[n];
        if (node.kind == NodeKind::kLoop) {
            const bool several = node.body != 1 + program_.nodes[n + 1].body;
            const bool nested = level > 0;
            if (several || nested) out_.repetition = Repetition::kRepeating;
            for (size_t inner = n + 1; inner < n + 1 + node.body;
                 inner += 1 + program_.nodes[inner].body) {
                visit(inner, level + 1, among || several);
            }
            return;
        }
        Shape shape = shape_of(node, level);
        // Single accesses one by one. A short list is the same, because the canonical form writes
        // it out.
        const bool place = level == 0 && node.kind == NodeKind::kAccess;
        if (place && ++places_ > 1) shape = {Spatial::kRandomStrided, 1};
        // The same accesses again.
        const bool stays = level > 0 && node.offset.per_loop == Affine{}.per_loop;
        if (node.kind == NodeKind::kDeltas || stays) out_.repetition = Repetition::kRepeating;
        const bool first_was_place = places_ == 2 && nodes_ == 1;  // not a pattern yet
        const bool differs = nodes_ > 0 && !first_was_place && shape.spatial != out_.spatial;
        if (among || differs) shape.spatial = Spatial::kCombination;
        out_.spatial = shape.spatial;
        out_.dimension = std::max(out_.dimension, shape.dimension);
        ++nodes_;
        if (node.kind != NodeKind::kRandom) add_sizes(node);
    }

    void add_sizes(const Node& node) {
        bool fixed = node.size.per_loop == Affine{}.per_loop;
        int64_t size = node.size.base;
        for (const Delta& delta : node.deltas) fixed &= delta.size == 0;
        for (const Access& one : node.list) fixed &= one.size == node.list[0].size;
        if (!node.list.empty()) size += std::ranges::max(node.list, {}, &Access::size).size;
        out_.size_fixed &= fixed && (!size_max_ || *size_max_ == size);
        size_max_ = size_max_ ? std::max(*size_max_, size) : size;
    }

    const Program& program_;
    PatternSignature out_;
    size_t places_ = 0, nodes_ = 0;  // seen so far: single accesses in no loop, nodes but loops
    std::optional<int64_t> size_max_;
};

Interval interval_of(const Program& program) {
    Interval interval = Interval::kUnknown;
    for (const Node& node : program.nodes) {
        if (node.think.count == 0) continue;
        if (node.think.deviation_ns > node.think.mean_ns / 4) return Interval::kRandom;
        interval = Interval::kFixed;
    }
    return interval;
}

}  // namespace

PatternSignature pattern_of(const Program& program, uint64_t rank) {
    const Result<Program> one = for_rank(program, rank);
    PatternSignature pattern = Classifier(canonical(one.ok() ? one.value() : program)).classify();
    pattern.interval = interval_of(program);
    return pattern;
}

std::string write_pattern_signature(const PatternSignature& pattern) {
    std::string out = "{";
    out += kSignatureOperations[static_cast<size_t>(pattern.operation)];
    out += ", <";
    const std::string dimension = std::to_string(pattern.dimension);
    if (pattern.spatial == Spatial::kNestedStrided) {
        out += dimension + "-d strided";
    } else {
        out += kSpatialNames[static_cast<size_t>(pattern.spatial)];
    }
    out += ", " + dimension + ">, <";
    out += kRepetitionNames[static_cast<size_t>(pattern.repetition)];
    out += ">, <";
    const size_t size = static_cast<size_t>(pattern.size);
    out += kSizeNames[size == 0 || pattern.size_fixed ? size : size + 3];
    out += ">, <";
    out += kIntervalNames[static_cast<size_t>(pattern.interval)];
    out += ">}";
    return out;
}

Result<PatternSignature> parse_pattern_signature(std::string_view text) {
    SignatureScanner scanner(text, "pattern signature");
    PatternSignature pattern;
    size_t operation = 0, spatial = 0, repetition = 0, size = 0, interval = 0;
    int64_t dimension = 0;
    const std::array<std::string, 4> nested = {"2-d strided", "3-d strided", "4-d strided",
                                               "5-d strided"};
    std::vector<const char*> names(kSpatialNames.begin(), kSpatialNames.end());
    for (const std::string& one : nested) names.push_back(one.c_str());
    names[static_cast<size_t>(Spatial::kNestedStrided)] = "";  // only with its dimension
    const bool read = scanner.take('{') && scanner.name(kSignatureOperations, &operation) &&
                      scanner.take(',') && scanner.take('<') && scanner.name(names, &spatial) &&
                      scanner.take(',') && scanner.number(&dimension) && scanner.take('>') &&
                      scanner.take(',') && scanner.take('<') &&
                      scanner.name(kRepetitionNames, &repetition) && scanner.take('>') &&
                      scanner.take(',') && scanner.take('<') && scanner.name(kSizeNames, &size) &&
                      scanner.take('>') && scanner.take(',') && scanner.take('<') &&
                      scanner.name(kIntervalNames, &interval) && scanner.take('>') &&
                      scanner.take('}');
    if (!read) return scanner.status();
    if (!scanner.at_end()) scanner.fail("text behind the end");
    if (dimension < 0 || dimension > static_cast<int64_t>(kDepthMax) + 1) {
        scanner.fail("a dimension is a number from 0 to 5");
    }
    if (spatial >= kSpatialNames.size()) {
        const auto named = static_cast<int64_t>(spatial - kSpatialNames.size() + 2);
        if (named != dimension) scanner.fail("two dimensions that differ");
        spatial = static_cast<size_t>(Spatial::kNestedStrided);
    } else if (spatial == static_cast<size_t>(Spatial::kNestedStrided)) {
        scanner.fail("a name that is not known here");
    }
    if (!scanner.status().ok()) return scanner.status();
    pattern.operation = static_cast<Operation>(operation);
    pattern.spatial = static_cast<Spatial>(spatial);
    pattern.dimension = static_cast<uint32_t>(dimension);
    pattern.repetition = static_cast<Repetition>(repetition);
    pattern.size_fixed = size <= 3;
    pattern.size = static_cast<SizeClass>(size <= 3 ? size : size - 3);
    pattern.interval = static_cast<Interval>(interval);
    return pattern;
}

}  // namespace penstock::access
