// Writes and parses the binary form of access programs: see binary.h.
#include "access/binary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include "access/json.h"
#include "access/validate.h"

namespace penstock::access {
namespace {

constexpr std::string_view kMagic = "PSAP";
constexpr uint8_t kHasThink = 0x80;  // in the byte of a node's kind
constexpr size_t kChecksumBytes = 4;

uint64_t zigzag(int64_t value) {
    return static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63);
}

int64_t unzigzag(uint64_t value) { return static_cast<int64_t>(value >> 1 ^ (0 - (value & 1))); }

bool has_place(NodeKind kind) {
    return kind == NodeKind::kAccess || kind == NodeKind::kDeltas || kind == NodeKind::kList;
}

bool has_trips(NodeKind kind) {
    return kind == NodeKind::kLoop || kind == NodeKind::kDeltas || kind == NodeKind::kRandom;
}

// Calls visit(coefficient, bit) for the eight coefficients of an affine.
template <class AnyAffine, class Visit>
void for_each_coefficient(AnyAffine& affine, Visit visit) {
    unsigned bit = 0;
    visit(affine.base, bit++);
    for (auto& coefficient : affine.per_loop) visit(coefficient, bit++);
    for (auto& coefficient : affine.per_rank) visit(coefficient, bit++);
    static_assert(1 + kDepthMax + kGridMax == 8);
}

class Writer {
public:
    void natural(uint64_t value) {
        for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<uint8_t>(value | 0x80));
        out_.push_back(static_cast<uint8_t>(value));
    }

    void integer(int64_t value) { natural(zigzag(value)); }

    void fixed(uint64_t word, size_t bytes) {
        for (size_t i = 0; i < bytes; ++i) out_.push_back(static_cast<uint8_t>(word >> 8 * i));
    }

    void real(double value) { fixed(std::bit_cast<uint64_t>(value), 8); }

    void text(std::string_view value) { out_.insert(out_.end(), value.begin(), value.end()); }

    void affine(const Affine& value) {
        uint8_t mask = 0;
        for_each_coefficient(value, [&](int64_t one, unsigned bit) {
            if (one != 0) mask |= static_cast<uint8_t>(1u << bit);
        });
        out_.push_back(mask);
        for_each_coefficient(value, [&](int64_t one, unsigned) {
            if (one != 0) integer(one);
        });
    }

    template <class Pairs>
    void pairs(const Pairs& pairs) {
        natural(pairs.size());
        uint64_t offset = 0, size = 0;
        for (const auto& pair : pairs) {
            integer(static_cast<int64_t>(static_cast<uint64_t>(pair.offset) - offset));
            integer(static_cast<int64_t>(static_cast<uint64_t>(pair.size) - size));
            offset = static_cast<uint64_t>(pair.offset);
            size = static_cast<uint64_t>(pair.size);
        }
    }

    void node(const Node& node) {
        const bool think = node.think != Timing{};
        fixed(static_cast<uint8_t>(node.kind) | (think ? kHasThink : 0u), 1);
        if (has_place(node.kind)) {
            affine(node.offset);
            affine(node.size);
        }
        if (has_trips(node.kind)) affine(node.trips);
        if (node.kind == NodeKind::kLoop) natural(node.body);
        if (node.kind == NodeKind::kDeltas) pairs(node.deltas);
        if (node.kind == NodeKind::kList) pairs(node.list);
        if (!think) return;
        real(node.think.mean_ns);
        real(node.think.deviation_ns);
        natural(node.think.count);
    }

    void program(const Program& program) {
        natural(program.key.file.size());
        text(program.key.file);
        fixed(static_cast<uint64_t>(program.key.operation), 1);
        natural(program.key.context);
        natural(program.key.first_rank);
        natural(program.key.rank_count);
        for (const uint64_t places : program.grid) natural(places);
        natural(program.nodes.size());
        for (const Node& one : program.nodes) node(one);
        fixed(static_cast<uint64_t>(program.provenance.origin), 1);
        natural(program.provenance.support);
        real(program.provenance.confidence);
    }

    std::vector<uint8_t> take() {
        fixed(checksum(out_), kChecksumBytes);
        return std::move(out_);
    }

private:
    std::vector<uint8_t> out_;
};

// The first error is kept; values read after it are 0.
class Reader {
public:
    explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

    [[nodiscard]] bool ok() const { return status_.ok(); }
    [[nodiscard]] const Status& status() const { return status_; }
    [[nodiscard]] size_t left() const { return bytes_.size() - at_; }

    void fail(const char* text) {
        if (ok()) status_ = {EINVAL, "access program in binary form", text};
    }

    uint64_t fixed(size_t count) {
        if (!ok() || left() < count) {
            fail("it ends too early");
            return 0;
        }
        uint64_t word = 0;
        for (size_t i = 0; i < count; ++i) word |= uint64_t{bytes_[at_++]} << 8 * i;
        return word;
    }

    uint64_t natural() {
        uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            const uint64_t byte = fixed(1);
            if (shift == 63 && byte > 1) break;
            value |= (byte & 0x7f) << shift;
            if (byte >= 0x80) continue;
            if (byte == 0 && shift > 0) fail("a number that is not in its shortest form");
            return ok() ? value : 0;
        }
        fail("a number beyond 64 bits");
        return 0;
    }

    // Reads a natural of any length. One beyond 64 bits becomes the largest.
    uint64_t version() {
        uint64_t value = 0;
        for (unsigned shift = 0;; shift = std::min(shift + 7, 64u)) {
            const uint64_t byte = fixed(1), digits = byte & 0x7f;
            if (digits > (shift < 64 ? UINT64_MAX >> shift : 0)) {
                value = UINT64_MAX;
            } else if (digits > 0) {
                value |= digits << shift;
            }
            if (byte >= 0x80) continue;
            if (byte == 0 && shift > 0) fail("a number that is not in its shortest form");
            return ok() ? value : 0;
        }
    }

    int64_t integer() { return unzigzag(natural()); }
    double real() { return std::bit_cast<double>(fixed(8)); }

    void text(size_t count_max, std::string* value) {
        const uint64_t count = natural();
        if (count > count_max) fail("a text that is too long");
#ifndef PENSTOCK_CANARY
        if (ok() && count > left()) fail("it ends too early");
#endif
        if (!ok()) return;
        value->assign(reinterpret_cast<const char*>(bytes_.data()) + at_, count);
        at_ += count;
    }

    void affine(Affine* value) {
        const uint64_t mask = fixed(1);
        for_each_coefficient(*value, [&](int64_t& one, unsigned bit) {
            if ((mask >> bit & 1) == 0) return;
            one = integer();
            if (one == 0) fail("a coefficient of 0 that is not left out");
        });
    }

    template <class Pair>
    void pairs(size_t count_max, std::vector<Pair>* pairs) {
        const uint64_t count = natural();
        if (count > count_max) fail("a list that is too long");
        if (ok() && count > left() / 2) fail("it ends too early");  // at least one byte per number
        uint64_t offset = 0, size = 0;
        for (uint64_t i = 0; i < count && ok(); ++i) {
            offset += static_cast<uint64_t>(integer());
            size += static_cast<uint64_t>(integer());
            pairs->push_back({static_cast<int64_t>(offset), static_cast<int64_t>(size)});
        }
    }

    void node(Node* node) {
        const uint64_t kind = fixed(1);
        node->kind = static_cast<NodeKind>(kind & ~uint64_t{kHasThink});
        if (node->kind > NodeKind::kRandom) return fail("no such kind of node");
        if (has_place(node->kind)) {
            affine(&node->offset);
            affine(&node->size);
        }
        if (has_trips(node->kind)) affine(&node->trips);
        if (node->kind == NodeKind::kLoop) {
            const uint64_t body = natural();
            if (body > kNodesMax) return fail("a loop's body is longer than what it is in");
            node->body = static_cast<uint32_t>(body);
        }
        if (node->kind == NodeKind::kDeltas) pairs(kPeriodMax, &node->deltas);
        if (node->kind == NodeKind::kList) pairs(kListMax, &node->list);
        if ((kind & kHasThink) == 0) return;
        node->think.mean_ns = real();
        node->think.deviation_ns = real();
        node->think.count = natural();
        if (node->think == Timing{}) fail("a think time of 0 that is not left out");
    }

    void program(Program* program) {
        text(kFileBytesMax, &program->key.file);
        program->key.operation = static_cast<Operation>(fixed(1));
        program->key.context = natural();
        program->key.first_rank = natural();
        program->key.rank_count = natural();
        for (uint64_t& places : program->grid) places = natural();
        const uint64_t count = natural();
        if (count > kNodesMax) return fail("more than 64 nodes");
        for (uint64_t i = 0; i < count && ok(); ++i) node(&program->nodes.emplace_back());
        program->provenance.origin = static_cast<Origin>(fixed(1));
        program->provenance.support = natural();
        program->provenance.confidence = real();
    }

private:
    std::span<const uint8_t> bytes_;
    size_t at_ = 0;
    Status status_;
};

Status parse(std::span<const uint8_t> bytes, std::vector<Program>* programs) {
    Reader reader(bytes);
    for (const char letter : kMagic) {
        if (reader.fixed(1) != static_cast<uint8_t>(letter))
            reader.fail("it does not begin with PSAP");
    }
    const uint64_t version = reader.version();
    if (reader.ok() && version > kBinaryVersion) {
        return {ENOTSUP, "access program in binary form",
                "it is of a later version than this program reads (1)"};
    }
    if (version == 0) reader.fail("there is no version 0");
    if (reader.ok() && reader.left() < kChecksumBytes) reader.fail("it ends too early");
    if (!reader.ok()) return reader.status();
    const size_t end = bytes.size() - kChecksumBytes;
    const uint64_t sum = Reader(bytes.subspan(end)).fixed(kChecksumBytes);
    if (sum != checksum(bytes.first(end))) {
        reader.fail("the checksum is wrong: it was cut short or changed");
        return reader.status();
    }
    Reader body(bytes.subspan(bytes.size() - reader.left(), reader.left() - kChecksumBytes));
    const uint64_t count = body.natural();
    if (count > kProgramsMax) body.fail("more than 65536 programs");
    for (uint64_t i = 0; i < count && body.ok(); ++i) {
        Program& program = programs->emplace_back();
        body.program(&program);
        if (!body.ok()) break;
        if (Status status = validate(program); !status.ok()) return status;
    }
    if (body.ok() && body.left() > 0) body.fail("bytes behind the last program");
    return body.status();
}

constexpr std::array<uint32_t, 256> crc_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
        uint32_t word = i;
        for (int bit = 0; bit < 8; ++bit) word = word >> 1 ^ ((word & 1) != 0 ? 0xedb88320u : 0);
        table[i] = word;
    }
    return table;
}

}  // namespace

uint32_t checksum(std::span<const uint8_t> bytes) {
    static constexpr std::array<uint32_t, 256> kTable = crc_table();
    uint32_t word = 0xffffffff;
    for (const uint8_t byte : bytes) word = word >> 8 ^ kTable[(word ^ byte) & 0xff];
    return ~word;
}

std::vector<uint8_t> write_binary(std::span<const Program> programs) {
    Writer writer;
    writer.text(kMagic);
    writer.natural(kBinaryVersion);
    writer.natural(programs.size());
    for (const Program& program : programs) writer.program(program);
    return writer.take();
}

Result<std::vector<Program>> parse_binary(std::span<const uint8_t> bytes) {
    std::vector<Program> programs;
    if (Status status = parse(bytes, &programs); !status.ok()) return status;
    return programs;
}

}  // namespace penstock::access
