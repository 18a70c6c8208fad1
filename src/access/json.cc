// Writes and parses the JSON text of access programs: see json.h.
#include "access/json.h"

#include <array>
#include <charconv>
#include <initializer_list>

#include "access/json_reader.h"
#include "access/names.h"
#include "access/validate.h"

namespace penstock::access {
namespace {

constexpr std::string_view kFormat = "penstock access programs";

// --- writing ------------------------------------------------------------------------------------

template <class Number>
void put(Number value, std::string* out) {
    std::array<char, 32> digits;
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    out->append(digits.data(), end);
}

void put_string(std::string_view text, std::string* out) {
    static constexpr std::string_view kHexadecimal = "0123456789abcdef";
    const auto put_escape = [out](std::string_view begin, uint8_t byte) {
        *out += begin;
        *out += kHexadecimal[byte >> 4];
        *out += kHexadecimal[byte & 15];
    };
    *out += '"';
    while (!text.empty()) {
        const size_t length = utf8_length(text);
        const uint8_t byte = static_cast<uint8_t>(text[0]);
        if (length == 0) {
            put_escape("\\udc", byte);
        } else if (byte < 0x20) {
            put_escape("\\u00", byte);
        } else {
            if (byte == '"' || byte == '\\') *out += '\\';
            *out += text.substr(0, length);
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    *out += '"';
}

template <class List>
void put_list(const char* name, const List& list, std::string* out) {
    size_t count = list.size();
    while (count > 0 && list[count - 1] == 0) --count;
    if (count == 0) return;
    *out += name;
    for (size_t i = 0; i < count; ++i) {
        *out += i == 0 ? "[" : ", ";
        put(list[i], out);
    }
    *out += ']';
}

void put_affine(const char* name, const Affine& affine, std::string* out) {
    *out += name;
    if (affine == Affine{affine.base, {}, {}}) return put(affine.base, out);
    *out += "{\"base\": ";
    put(affine.base, out);
    put_list(", \"loops\": ", affine.per_loop, out);
    put_list(", \"ranks\": ", affine.per_rank, out);
    *out += '}';
}

template <class Pairs>
void put_pairs(const char* name, const Pairs& pairs, std::string* out) {
    *out += name;
    for (size_t i = 0; i < pairs.size(); ++i) {
        *out += i == 0 ? "[[" : ", [";
        put(pairs[i].offset, out);
        *out += ", ";
        put(pairs[i].size, out);
        *out += ']';
    }
    *out += ']';
}

void put_nodes(std::span<const Node> nodes, size_t indent, std::string* out) {
    *out += '[';
    for (size_t n = 0; n < nodes.size(); n += 1 + nodes[n].body) {
        const Node& node = nodes[n];
        const bool random = node.kind == NodeKind::kRandom, loop = node.kind == NodeKind::kLoop;
        *out += n == 0 ? "\n" : ",\n";
        out->append(indent, ' ');
        *out += "{\"kind\": \"";
        *out += name(node.kind);
        *out += '"';
        if (!loop && !random) {
            put_affine(", \"offset\": ", node.offset, out);
            put_affine(", \"size\": ", node.size, out);
        }
        if (loop || random || node.kind == NodeKind::kDeltas) {
            put_affine(", \"trips\": ", node.trips, out);
        }
        if (node.kind == NodeKind::kDeltas) put_pairs(", \"deltas\": ", node.deltas, out);
        if (node.kind == NodeKind::kList) put_pairs(", \"list\": ", node.list, out);
        if (node.think != Timing{}) {
            *out += ", \"think\": {\"mean_ns\": ";
            put(node.think.mean_ns, out);
            *out += ", \"deviation_ns\": ";
            put(node.think.deviation_ns, out);
            *out += ", \"count\": ";
            put(node.think.count, out);
            *out += '}';
        }
        if (loop) {
            *out += ", \"body\": ";
            put_nodes(nodes.subspan(n + 1, node.body), indent + 2, out);
        }
        *out += '}';
    }
    *out += ']';
}

void put_program(const Program& program, std::string* out) {
    *out += "  {\"key\": {\"file\": ";
    put_string(program.key.file, out);
    *out += ", \"operation\": \"";
    *out += name(program.key.operation);
    *out += "\", \"context\": ";
    put(program.key.context, out);
    *out += ", \"first_rank\": ";
    put(program.key.first_rank, out);
    *out += ", \"rank_count\": ";
    put(program.key.rank_count, out);
    *out += "},\n   \"grid\": [";
    for (size_t g = 0; g < kGridMax; ++g) {
        if (g > 0) *out += ", ";
        put(program.grid[g], out);
    }
    *out += "],\n   \"nodes\": ";
    put_nodes(program.nodes, 5, out);
    *out += ",\n   \"provenance\": {\"origin\": \"";
    *out += name(program.provenance.origin);
    *out += "\", \"support\": ";
    put(program.provenance.support, out);
    *out += ", \"confidence\": ";
    put(program.provenance.confidence, out);
    *out += "}}";
}

// --- reading ------------------------------------------------------------------------------------

class ProgramReader {
public:
    explicit ProgramReader(std::string_view text) : json_(text, kFileBytesMax) {}

    [[nodiscard]] size_t at() const { return json_.at(); }

    Status read(std::vector<Program>* programs) {
        Status later;
        if (!read_heading(&later)) return later.ok() ? json_.status() : later;
        for (bool first = true; json_.element(&first);) {
            if (programs->size() == kProgramsMax) {
                json_.fail("more than 65536 programs");
                break;
            }
            Program& program = programs->emplace_back();
            if (!read_program(&program)) break;
            if (Status status = validate(program); !status.ok()) return status;
        }
        json_.close();
        json_.end();
        return json_.status();
    }

private:
    // Reads up to the opening bracket of the programs.
    bool read_heading(Status* later) {
        bool first = true;
        uint32_t seen = 0;
        size_t key = 0;
        std::string format;
        uint64_t version = 0;
        if (!json_.open('{')) return false;
        if (!json_.member(&first, {"format"}, &seen, &key)) return missing("no format");
        if (!json_.string(&format)) return false;
        if (format != kFormat) return json_.fail("the format is not \"penstock access programs\"");
        if (!json_.member(&first, {"format", "version"}, &seen, &key)) return missing("no version");
        if (!json_.version(&version)) return false;
        if (version > kJsonVersion) {
            *later = {ENOTSUP, "access program in JSON",
                      "the text is of a later version than this program reads (1)"};
            return false;
        }
        if (version == 0) return json_.fail("there is no version 0");
        if (!json_.member(&first, {"format", "version", "programs"}, &seen, &key)) {
            return missing("no programs");
        }
        return json_.open('[');
    }

    bool missing(const char* text) { return json_.fail(text); }

    bool read_program(Program* program) {
        uint32_t seen = 0;
        const bool read = read_members({"nodes", "key", "grid", "provenance"}, &seen,
                                       [&](size_t key) {
                                           if (key == 0) return read_nodes(&program->nodes, 0);
                                           if (key == 1) return read_key(&program->key);
                                           if (key == 2)
                                               return read_numbers(&program->grid, kGridMax);
                                           return read_provenance(&program->provenance);
                                       });
        return read && ((seen & 1) != 0 || missing("a program without nodes"));
    }

    // Reads the members of an object in any order: take(i) reads the value of names[i].
    template <class Take>
    bool read_members(std::initializer_list<std::string_view> names, uint32_t* seen, Take take) {
        size_t key = 0;
        if (!json_.open('{')) return false;
        for (bool first = true; json_.member(&first, names, seen, &key);) take(key);
        return json_.ok();
    }

    bool read_key(StreamKey* value) {
        uint32_t seen = 0;
        return read_members({"file", "operation", "context", "first_rank", "rank_count"}, &seen,
                            [&](size_t key) {
                                if (key == 0) return json_.string(&value->file);
                                if (key == 1)
                                    return read_name(&value->operation, "no such operation");
                                return json_.natural(key == 2   ? &value->context
                                                     : key == 3 ? &value->first_rank
                                                                : &value->rank_count);
                            });
    }

    bool read_provenance(Provenance* value) {
        uint32_t seen = 0;
        return read_members({"origin", "support", "confidence"}, &seen, [&](size_t key) {
            if (key == 0) return read_name(&value->origin, "no such origin");
            if (key == 1) return json_.natural(&value->support);
            return json_.number(&value->confidence);
        });
    }

    bool read_timing(Timing* value) {
        uint32_t seen = 0;
        const bool read = read_members(
            {"mean_ns", "deviation_ns", "count"}, &seen, [&](size_t key) {
                if (key == 2) return json_.natural(&value->count);
                return json_.number(key == 0 ? &value->mean_ns : &value->deviation_ns);
            });
        return read && (seen == 7 || missing("a think time needs mean, deviation and count"));
    }

    template <class Name>
    bool read_name(Name* value, const char* otherwise) {
        std::string text;
        return json_.string(&text) && (parse_name(text, value) || json_.fail(otherwise));
    }

    template <class Numbers>
    bool read_numbers(Numbers* numbers, size_t count_max) {
        if (!json_.open('[')) return false;
        size_t count = 0;
        for (bool first = true; json_.element(&first); ++count) {
            if (count == count_max) return json_.fail("a list that is too long");
            if constexpr (std::is_same_v<typename Numbers::value_type, uint64_t>) {
                json_.natural(&(*numbers)[count]);
            } else {
                json_.integer(&(*numbers)[count]);
            }
        }
        return json_.ok();
    }

    bool read_affine(Affine* value) {
        if (json_.peek() != '{') return json_.integer(&value->base);
        uint32_t seen = 0;
        return read_members({"base", "loops", "ranks"}, &seen, [&](size_t key) {
            if (key == 0) return json_.integer(&value->base);
            if (key == 1) return read_numbers(&value->per_loop, kDepthMax);
            return read_numbers(&value->per_rank, kGridMax);
        });
    }

    template <class Pair>
    bool read_pairs(std::vector<Pair>* pairs, size_t count_max) {
        if (!json_.open('[')) return false;
        for (bool first = true; json_.element(&first);) {
            if (pairs->size() == count_max) return json_.fail("a list that is too long");
            std::array<int64_t, 2> pair{};
            bool inner_first = true;
            json_.open('[');
            for (int64_t& number : pair) {
                if (json_.ok() && !json_.element(&inner_first)) json_.fail("a pair was expected");
                json_.integer(&number);
            }
            if (json_.ok() && json_.element(&inner_first)) json_.fail("a pair was expected");
            pairs->push_back({pair[0], pair[1]});
        }
        return json_.ok();
    }

    bool read_nodes(std::vector<Node>* nodes, size_t depth) {
        if (depth > kDepthMax) return json_.fail("loops nest deeper than 4");
        if (!json_.open('[')) return false;
        for (bool first = true; json_.element(&first);) {
            if (nodes->size() == kNodesMax) return json_.fail("more than 64 nodes");
            if (!read_node(nodes, depth)) return false;
        }
        return json_.ok();
    }

    // The kind comes first, so that the other keys have a meaning when they are read.
    bool read_node(std::vector<Node>* nodes, size_t depth) {
        bool first = true;
        uint32_t seen = 0;
        size_t key = 0;
        const size_t at = nodes->size();
        Node node;
        if (!json_.open('{')) return false;
        if (!json_.member(&first, {"kind"}, &seen, &key)) return missing("a node without a kind");
        if (!read_name(&node.kind, "no such kind of node")) return false;
        nodes->push_back(node);
        while (json_.member(&first,
                            {"kind", "offset", "size", "trips", "deltas", "list", "body", "think"},
                            &seen, &key)) {
            switch (key) {
                case 1:
                    read_affine(&node.offset);
                    break;
                case 2:
                    read_affine(&node.size);
                    break;
                case 3:
                    read_affine(&node.trips);
                    break;
                case 4:
                    read_pairs(&node.deltas, kPeriodMax);
                    break;
                case 5:
                    read_pairs(&node.list, kListMax);
                    break;
                case 6:
                    read_nodes(nodes, depth + 1);
                    break;
                default:
                    read_timing(&node.think);
                    break;
            }
        }
        if (!json_.ok()) return false;
        node.body = static_cast<uint32_t>(nodes->size() - at - 1);
        (*nodes)[at] = std::move(node);
        // offset 1, size 2, trips 3, deltas 4, list 5, body 6; think may be missing.
        static constexpr std::array<uint32_t, 5> kKeys = {0b0000111, 0b1001001, 0b0011111,
                                                          0b0100111, 0b0001001};
        const uint32_t wanted = kKeys[static_cast<size_t>((*nodes)[at].kind)];
        if ((wanted & ~seen) != 0) return missing("a node without a key that its kind needs");
        return (seen & 0x7f & ~wanted) == 0 || json_.fail("a key that this kind of node has not");
    }

    JsonReader json_;
};

}  // namespace

std::string write_json(std::span<const Program> programs) {
    std::string out = "{\"format\": \"";
    out += kFormat;
    out += "\", \"version\": ";
    put(kJsonVersion, &out);
    out += ", \"programs\": [";
    for (size_t i = 0; i < programs.size(); ++i) {
        out += i == 0 ? "\n" : ",\n";
        put_program(programs[i], &out);
    }
    out += "]}\n";
    return out;
}

Result<std::vector<Program>> parse_json(std::string_view text, size_t* error_at) {
    if (text.size() > kJsonBytesMax) {
        return Status{EINVAL, "access program in JSON", "a text of more than 256 MiB"};
    }
    std::vector<Program> programs;
    ProgramReader reader(text);
    if (Status status = reader.read(&programs); !status.ok()) {
        if (error_at != nullptr) *error_at = reader.at();
        return status;
    }
    return programs;
}

}  // namespace penstock::access
