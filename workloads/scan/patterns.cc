// Sorts, prunes and lays out the pattern table; see pattern_table.h for the layout.
#include "scan/patterns.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace penstock::scan {
namespace {

static_assert(std::endian::native == std::endian::little,
              "grams and prefixes are little-endian words");

constexpr uint64_t kListSizeMax = 1u << 30;
constexpr uint32_t kGramBitsMin = 16, kGramBitsMax = 20;      // 8 KiB to 128 KiB of bits
constexpr uint32_t kPrefixBitsMin = 12, kPrefixBitsMax = 26;  // 512 bytes to 8 MiB of bits

void set_bit(uint32_t* bits, uint32_t index) { bits[index >> 5] |= 1u << (index & 31); }

// Index bits of a table of more than `count` slots, within the bounds.
uint32_t bits_for(uint64_t count, uint32_t bits_min, uint32_t bits_max) {
    return std::clamp(static_cast<uint32_t>(std::bit_width(count)), bits_min, bits_max);
}

uint32_t load_gram(const char* from) {
    uint32_t gram;
    std::memcpy(&gram, from, sizeof gram);
    return gram;
}

// How often a byte stands in text and source code, coarsely; larger is more frequent.
int frequency_rank(uint8_t byte) {
    static constexpr std::string_view
        kOrder = " etaoinsrldc/u.m01\"ph2-fg:,_3b=y456(;)789\nw*vTESA><kCIRN";
    const size_t at = kOrder.find(static_cast<char>(byte));
    if (at != std::string_view::npos) return 300 - static_cast<int>(at);
    if (byte >= 'A' && byte <= 'z') return 150;
    if (byte >= ' ' && byte < 0x7F) return 120;
    return byte == 0 ? 110 : 50;
}

// Reserves the sections one after another, then hands out pointers into the zeroed block.
class Layout {
public:
    uint64_t reserve(uint64_t size) {
        const uint64_t at = size_;
        size_ += (size + 63) / 64 * 64;
        return at;
    }
    [[nodiscard]] uint64_t size() const { return size_; }

private:
    uint64_t size_ = (sizeof(PatternTable) + 63) / 64 * 64;
};

template <class T>
T* section(PatternTable* table, uint64_t offset) {
    return reinterpret_cast<T*>(reinterpret_cast<uint8_t*>(table) + offset);
}

// Sorted, without duplicates and without patterns that begin with another: where those match, so
// does the other.
void prune(std::vector<std::string>* patterns) {
    std::sort(patterns->begin(), patterns->end());
    size_t kept = 0;
    for (size_t i = 0; i < patterns->size(); ++i) {
        std::string& candidate = (*patterns)[i];
        if (kept > 0 && candidate.starts_with((*patterns)[kept - 1])) continue;
        if (kept != i) (*patterns)[kept] = std::move(candidate);
        ++kept;
    }
    patterns->resize(kept);
}

struct Shape {
    std::vector<const std::string*> longs;  // 4 bytes and more
    bool has_size[4] = {};                  // patterns of 1, 2, 3 bytes
    uint64_t long_bytes = 0;
};

Shape measure(const std::vector<std::string>& patterns, PatternTable* head) {
    Shape shape;
    head->pattern_count = static_cast<uint32_t>(patterns.size());
    head->shortest = UINT32_MAX;
    uint32_t shortest_long = UINT32_MAX;
    for (const std::string& pattern : patterns) {
        const auto size = static_cast<uint32_t>(pattern.size());
        head->shortest = std::min(head->shortest, size);
        head->longest = std::max(head->longest, size);
        if (size < kGramSize) {
            shape.has_size[size] = true;
            continue;
        }
        shape.longs.push_back(&pattern);
        shape.long_bytes += size;
        shortest_long = std::min(shortest_long, size);
    }
    if (patterns.empty()) head->shortest = 0;
    head->long_count = static_cast<uint32_t>(shape.longs.size());
    if (head->long_count > 0) {
        head->prefix_size = std::min(shortest_long, kPrefixSizeMax);
        head->prefix_mask = head->prefix_size == 8 ? ~uint64_t{0}
                                                   : (uint64_t{1} << (8 * head->prefix_size)) - 1;
    }
    if (head->shortest >= kGramSize) {
        head->gram_step = std::min(head->shortest - (kGramSize - 1), kGramStepMax);
        const uint64_t gram_count = uint64_t{head->gram_step} * head->long_count;
        head->gram_bits = bits_for(gram_count * 4, kGramBitsMin, kGramBitsMax);
    }
    head->bucket_bits = bits_for(uint64_t{head->long_count} * 2, 4, 28);
    head->prefix_bits = bits_for(uint64_t{head->long_count} * 32, kPrefixBitsMin, kPrefixBitsMax);
    return shape;
}

void place(const Shape& shape, PatternTable* head) {
    Layout layout;
    head->spans_offset = layout.reserve(uint64_t{head->long_count} * sizeof(PatternSpan));
    head->bytes_offset = layout.reserve(shape.long_bytes + kPrefixSizeMax);
    head->bucket_begin_offset = layout.reserve(((uint64_t{1} << head->bucket_bits) + 1) *
                                               sizeof(uint32_t));
    head->prefix_bits_offset = layout.reserve((uint64_t{1} << head->prefix_bits) / 8);
    head->pairs_offset = layout.reserve((1 << 16) / 8);
    if (shape.has_size[1]) head->ones_offset = layout.reserve(256 / 8);
    if (shape.has_size[2]) head->twos_offset = layout.reserve((1 << 16) / 8);
    if (shape.has_size[3]) head->threes_offset = layout.reserve((1 << 24) / 8);
    if (head->gram_step > 0) {
        head->grams_offset = layout.reserve((uint64_t{1} << head->gram_bits) / 8);
        head->gram_masks_offset = layout.reserve(uint64_t{1} << head->gram_bits);
    }
    head->size = layout.size();
}

uint64_t prefix_of(const PatternTable& table, const std::string& pattern) {
    uint64_t word = 0;
    for (size_t i = 0; i < table.prefix_size; ++i)
        word |= uint64_t{static_cast<uint8_t>(pattern[i])} << (8 * i);
    return word;
}

void fill_long(Shape shape, PatternTable* table) {
    const auto bucket_of = [table](const std::string* pattern) {
        return hash_prefix(prefix_of(*table, *pattern), table->bucket_bits);
    };
    // The set is sorted; a stable sort by bucket keeps each bucket in lexicographic order.
    std::stable_sort(shape.longs.begin(), shape.longs.end(),
                     [&](auto* a, auto* b) { return bucket_of(a) < bucket_of(b); });
    auto* spans = section<PatternSpan>(table, table->spans_offset);
    auto* bytes = section<char>(table, table->bytes_offset);
    auto* bucket_begin = section<uint32_t>(table, table->bucket_begin_offset);
    auto* prefix_bits = section<uint32_t>(table, table->prefix_bits_offset);
    uint32_t offset = 0;
    for (uint32_t i = 0; i < table->long_count; ++i) {
        const std::string& pattern = *shape.longs[i];
        spans[i] = {offset, static_cast<uint32_t>(pattern.size())};
        std::copy(pattern.begin(), pattern.end(), bytes + offset);
        offset += spans[i].size;
        ++bucket_begin[bucket_of(&pattern) + 1];
        set_bit(prefix_bits, hash_prefix(prefix_of(*table, pattern), table->prefix_bits));
    }
    for (uint32_t bucket = 0; bucket < 1u << table->bucket_bits; ++bucket)
        bucket_begin[bucket + 1] += bucket_begin[bucket];
}

void fill_short(const std::vector<std::string>& patterns, PatternTable* table) {
    const uint64_t offsets[] = {0, table->ones_offset, table->twos_offset, table->threes_offset};
    auto* pairs = section<uint32_t>(table, table->pairs_offset);
    for (const std::string& pattern : patterns) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(pattern.data());
        uint32_t value = 0;  // of the first three bytes
        for (size_t i = 0; i < std::min<size_t>(pattern.size(), 3); ++i)
            value |= uint32_t{bytes[i]} << (8 * i);
        if (pattern.size() < kGramSize)
            set_bit(section<uint32_t>(table, offsets[pattern.size()]), value);
        if (pattern.size() >= 2)
            set_bit(pairs, value & 0xFFFF);
        else
            for (uint32_t second = 0; second < 256; ++second)
                set_bit(pairs, bytes[0] | second << 8);
    }
}

void fill_grams(const std::vector<std::string>& patterns, PatternTable* table) {
    auto* grams = section<uint32_t>(table, table->grams_offset);
    auto* masks = section<uint8_t>(table, table->gram_masks_offset);
    for (const std::string& pattern : patterns) {
        for (uint32_t offset = 0; offset < table->gram_step; ++offset) {
            const uint32_t slot = hash_gram(load_gram(pattern.data() + offset), table->gram_bits);
            set_bit(grams, slot);
            masks[slot] |= static_cast<uint8_t>(1u << offset);
        }
    }
}

void fill_run(const std::vector<std::string>& patterns, PatternTable* table) {
    table->run_size = std::min<uint32_t>(table->shortest, kPrefixSizeMax);
    for (const std::string& pattern : patterns)
        for (uint32_t i = 0; i < table->run_size; ++i) {
            const auto byte = static_cast<uint8_t>(pattern[i]);
            table->run_rows[byte >> 7][byte & 15] |= static_cast<uint8_t>(1u << (byte >> 4 & 7));
        }
    for (const auto& rows : table->run_rows)
        for (const uint8_t row : rows)
            table->run_set_count += static_cast<uint32_t>(std::popcount(row));
}

void fill_rare(const std::string& only, PatternTable* table) {
    uint32_t* rare = table->rare_offsets;
    const auto rank = [&](uint32_t at) { return frequency_rank(static_cast<uint8_t>(only[at])); };
    for (uint32_t i = 1; i < only.size(); ++i)
        if (rank(i) < rank(rare[0])) rare[0] = i;
    rare[1] = rare[0] == 0 && only.size() > 1 ? 1 : 0;
    for (uint32_t i = 0; i < only.size(); ++i) {
        if (only[i] == only[rare[0]]) continue;
        if (only[rare[1]] == only[rare[0]] || rank(i) < rank(rare[1])) rare[1] = i;
    }
    for (int i = 0; i < 2; ++i) table->rare_bytes[i] = static_cast<uint8_t>(only[rare[i]]);
}

}  // namespace

void append_pattern_list(std::string_view list, std::vector<std::string>* patterns) {
    while (!list.empty()) {
        const size_t newline = list.find('\n');
        patterns->emplace_back(list.substr(0, newline));
        if (newline == std::string_view::npos) return;
        list.remove_prefix(newline + 1);
    }
}

void append_pattern_text(std::string_view text, std::vector<std::string>* patterns) {
    if (text.empty()) patterns->emplace_back();
    append_pattern_list(text, patterns);
    if (text.ends_with('\n')) patterns->emplace_back();
}

Result<std::vector<uint64_t>> compile_patterns(std::vector<std::string> patterns) {
    uint64_t total = 0;
    for (const std::string& pattern : patterns) {
        total += pattern.size();
        if (pattern.size() > kPatternSizeMax)
            return Status(E2BIG, "compile_patterns", "one pattern is longer than 64 MiB");
    }
    if (total > kListSizeMax) return Status(E2BIG, "compile_patterns", "the patterns exceed 1 GiB");
    prune(&patterns);
    PatternTable head{};
    if (!patterns.empty() && patterns.front().empty()) {
        head.every_line = 1;
        patterns.clear();
    }
    Shape shape = measure(patterns, &head);
    place(shape, &head);
    std::vector<uint64_t> words(head.size / sizeof(uint64_t));
    auto* table = reinterpret_cast<PatternTable*>(words.data());
    *table = head;
    fill_long(std::move(shape), table);
    fill_short(patterns, table);
    if (table->gram_step > 0) fill_grams(patterns, table);
    fill_run(patterns, table);
    if (patterns.size() == 1) fill_rare(patterns.front(), table);
    return words;
}

}  // namespace penstock::scan
