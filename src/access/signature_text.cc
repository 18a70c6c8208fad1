// Writes and parses trace signatures. Pattern signatures are in pattern_signature.cc.
#include "access/signature_text.h"

#include <array>
#include <vector>

#include "access/canonical.h"
#include "access/signature_scanner.h"
#include "access/validate.h"

namespace penstock::access {
namespace {

Status unsupported(const char* text) { return {ENOTSUP, "trace signature", text}; }

// --- writing ------------------------------------------------------------------------------------

void put_list(const std::vector<int64_t>& numbers, std::string* out) {
    *out += '{';
    for (size_t i = 0; i < numbers.size(); ++i) {
        if (i > 0) *out += ", ";
        *out += std::to_string(numbers[i]);
    }
    *out += '}';
}

std::vector<int64_t> without_zeros(std::vector<int64_t> numbers) {
    while (numbers.size() > 1 && numbers.back() == 0) numbers.pop_back();
    return numbers;
}

// Loops of one body each, around an access or a delta unit.
struct Nest {
    std::vector<const Node*> loops;
    const Node* leaf = nullptr;
};

Status nest_at(const Program& program, size_t begin, Nest* nest) {
    size_t n = begin;
    for (; program.nodes[n].kind == NodeKind::kLoop; ++n) {
        const Node& inner = program.nodes[n + 1];
        if (program.nodes[n].body != 1 + inner.body) {
            return unsupported("the form has no place for a loop around several nodes");
        }
        nest->loops.push_back(&program.nodes[n]);
    }
    nest->leaf = &program.nodes[n];
    if (nest->leaf->kind == NodeKind::kList) return unsupported("the form has no place for a list");
    if (nest->leaf->kind == NodeKind::kRandom) {
        return unsupported("the form has no place for what cannot be told");
    }
    return {};
}

// Returns whether the outermost loop only repeats the rest at the same place.
bool only_repeats(const Nest& nest) {
    if (nest.loops.empty() || nest.loops[0]->trips.base < 0) return false;
    bool moves = nest.leaf->offset.per_loop[0] != 0 || nest.leaf->size.per_loop[0] != 0 ||
                 nest.leaf->trips.per_loop[0] != 0;
    for (const Node* loop : nest.loops) moves |= loop->trips.per_loop[0] != 0;
    return !moves;
}

// Returns the trips of a level, and what the outer levels from `first` on add.
std::vector<int64_t> trips_of(const Affine& trips, size_t first) {
    std::vector<int64_t> numbers = {trips.base};
    numbers.insert(numbers.end(), trips.per_loop.begin() + static_cast<ptrdiff_t>(first),
                   trips.per_loop.end());
    return without_zeros(numbers);
}

Status write_nest(const Nest& nest, Operation operation, std::string* out) {
    const Node& leaf = *nest.leaf;
    const size_t first = only_repeats(nest) ? 1 : 0;
    std::vector<std::string> levels;
    const auto level = [&](const std::vector<int64_t>& offsets, std::vector<int64_t> sizes,
                           const std::vector<int64_t>& trips) {
        std::string& text = levels.emplace_back("[");
        sizes.insert(sizes.begin(), leaf.size.base);
        put_list(offsets, &text);
        text += ", ";
        put_list(without_zeros(sizes), &text);
        text += ", ";
        put_list(trips, &text);
        text += ']';
    };
    for (size_t d = first; d < nest.loops.size(); ++d) {
        level({leaf.offset.per_loop[d]}, {leaf.size.per_loop[d]},
              trips_of(nest.loops[d]->trips, first));
    }
    if (leaf.kind == NodeKind::kDeltas) {
        std::vector<int64_t> offsets, sizes;
        for (const Delta& delta : leaf.deltas) {
            offsets.push_back(delta.offset);
            sizes.push_back(delta.size);
        }
        std::vector<int64_t> trips = trips_of(leaf.trips, first);
        if (offsets.size() == 1) {  // a loop of the accesses between, and the first
            if (trips.size() > 1 || trips[0] < 0 || nest.loops.size() == kDepthMax ||
                trips[0] >= static_cast<int64_t>(kTripsMax)) {
                return unsupported("the form has no place for a delta unit of one delta here");
            }
            ++trips[0];
        }
        level(offsets, sizes, trips);
    }
    const size_t dimension = levels.size();
    if (dimension == 0) level({0}, {0}, {1});
    *out += std::string("{") + kSignatureOperations[static_cast<size_t>(operation)] + ", " +
            std::to_string(leaf.offset.base) + ", " + std::to_string(dimension) + ", (";
    for (size_t i = 0; i < levels.size(); ++i) *out += (i == 0 ? "" : ", ") + levels[i];
    *out += "), " + std::to_string(first == 1 ? nest.loops[0]->trips.base : 1) + "}\n";
    return {};
}

// --- reading ------------------------------------------------------------------------------------

struct Level {
    std::vector<int64_t> offsets, sizes, trips;
};

bool read_list(SignatureScanner* text, size_t count_max, std::vector<int64_t>* numbers) {
    if (!text->take('{')) return false;
    do {
        if (numbers->size() == count_max) return text->fail("more numbers than a pattern has");
        int64_t number = 0;
        if (!text->number(&number)) return false;
        numbers->push_back(number);
    } while (text->comes(','));
    return text->take('}');
}

bool read_level(SignatureScanner* text, Level* level) {
    return text->take('[') && read_list(text, kPeriodMax, &level->offsets) && text->take(',') &&
           read_list(text, kPeriodMax + 1, &level->sizes) && text->take(',') &&
           read_list(text, kDepthMax + 1, &level->trips) && text->take(']');
}

class NestReader {
public:
    explicit NestReader(SignatureScanner* text) : text_(text) {}

    bool read(Operation* operation, std::vector<Node>* nodes) {
        int64_t dimension = 0, repetitions = 0;
        if (!text_->take('{') || !read_operation(operation) || !text_->take(',') ||
            !text_->number(&leaf_.offset.base) || !text_->take(',') || !text_->number(&dimension) ||
            !text_->take(',') || !text_->take('(')) {
            return false;
        }
        do {
            if (levels_.size() > kDepthMax) return text_->fail("more than 5 levels");
            if (!read_level(text_, &levels_.emplace_back())) return false;
        } while (text_->comes(','));
        if (!text_->take(')') || !text_->take(',') || !text_->number(&repetitions) ||
            !text_->take('}')) {
            return false;
        }
        if (repetitions < 0) return text_->fail("repetitions below 0");
        const size_t wanted = dimension == 0 ? 1 : static_cast<size_t>(dimension);
        if (dimension < 0 || levels_.size() != wanted) {
            return text_->fail("as many levels as dimensions were expected");
        }
        return build(dimension, repetitions, nodes);
    }

private:
    bool read_operation(Operation* operation) {
        size_t index = 0;
        if (!text_->name(kSignatureOperations, &index)) return false;
        *operation = static_cast<Operation>(index);
        return true;
    }

    bool build(int64_t dimension, int64_t repetitions, std::vector<Node>* nodes) {
        leaf_.size.base = levels_[0].sizes[0];
        if (dimension == 0) {
            const Level& only = levels_[0];
            if (only.offsets != std::vector<int64_t>{0} || only.sizes.size() != 1 ||
                only.trips != std::vector<int64_t>{1}) {
                return text_->fail("a single access is [{0}, {size}, {1}]");
            }
            levels_.clear();
        }
        if (repetitions != 1) add_loop(repetitions);
        first_ = loops_.size();
        for (size_t i = 0; i < levels_.size(); ++i) {
            if (!add_level(levels_[i], i + 1 == levels_.size())) return false;
        }
        if (loops_.size() > kDepthMax) return text_->fail("loops nest deeper than 4");
        for (size_t d = 0; d < loops_.size(); ++d) {
            loops_[d].body = static_cast<uint32_t>(loops_.size() - d);
            nodes->push_back(loops_[d]);
        }
        nodes->push_back(leaf_);
        return true;
    }

    void add_loop(int64_t trips) {
        Node& loop = loops_.emplace_back();
        loop.kind = NodeKind::kLoop;
        loop.trips.base = trips;
    }

    bool add_level(const Level& level, bool last) {
        const size_t deltas = level.offsets.size(), depth = loops_.size();
        if (level.sizes[0] != leaf_.size.base) {
            return text_->fail("the size of the first access differs between levels");
        }
        if (level.sizes.size() > 1 + deltas) return text_->fail("more growths than offsets");
        if (level.trips.size() > 1 + depth - first_) {
            return text_->fail("trips that depend on a loop that is not around");
        }
        Affine trips;
        trips.base = level.trips[0];
        for (size_t i = 1; i < level.trips.size(); ++i) {
            trips.per_loop[first_ + i - 1] = level.trips[i];
        }
        const auto growth = [&](size_t i) {
            return i + 1 < level.sizes.size() ? level.sizes[i + 1] : 0;
        };
        if (deltas > 1) {
            if (!last) return text_->fail("a delta unit that is not the innermost level");
            leaf_.kind = NodeKind::kDeltas;
            leaf_.trips = trips;
            for (size_t i = 0; i < deltas; ++i) {
                leaf_.deltas.push_back({level.offsets[i], growth(i)});
            }
            return true;
        }
        if (depth == kDepthMax) return text_->fail("loops nest deeper than 4");
        add_loop(0);
        loops_.back().trips = trips;
        leaf_.offset.per_loop[depth] = level.offsets[0];
        leaf_.size.per_loop[depth] = growth(0);
        return true;
    }

    SignatureScanner* text_;
    std::vector<Level> levels_;
    std::vector<Node> loops_;
    size_t first_ = 0;  // index of the first of loops_ that is a level
    Node leaf_;
};

}  // namespace

Result<std::string> write_trace_signature(const Program& program, uint64_t rank) {
    const Result<Program> one = for_rank(program, rank);
    if (!one.ok()) return one.status();
    std::string out;
    const std::vector<Node>& nodes = one.value().nodes;
    for (size_t n = 0; n < nodes.size(); n += 1 + nodes[n].body) {
        Nest nest;
        if (Status status = nest_at(one.value(), n, &nest); !status.ok()) return status;
        if (Status status = write_nest(nest, program.key.operation, &out); !status.ok()) {
            return status;
        }
    }
    return out;
}

Result<Program> parse_trace_signature(std::string_view text) {
    SignatureScanner scanner(text, "trace signature");
    Program program;
    for (bool first = true; !scanner.at_end(); first = false) {
        Operation operation = Operation::kRead;
        if (!NestReader(&scanner).read(&operation, &program.nodes)) return scanner.status();
        if (program.nodes.size() > kNodesMax) {
            scanner.fail("more than 64 nodes");
            return scanner.status();
        }
        if (!first && operation != program.key.operation) {
            scanner.fail("two operations in one program");
            return scanner.status();
        }
        program.key.operation = operation;
    }
    if (Status status = validate(program); !status.ok()) return status;
    return program;
}

}  // namespace penstock::access
