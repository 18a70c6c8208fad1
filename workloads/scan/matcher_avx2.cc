// Filters 64 bytes at a time; see matcher_wide.h. Compiled for AVX2 function by function, so that
// this file may be linked into a program that runs without it.
#include "scan/matcher_avx2.h"

#include <immintrin.h>

#define PENSTOCK_AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))
#define PENSTOCK_AVX2_INLINE PENSTOCK_AVX2 static inline __attribute__((always_inline))

namespace penstock::scan::avx2 {
namespace {

constexpr size_t kBlock = 64;  // positions that one mask covers

// Only starts before the result can match: the text must hold the shortest pattern behind them.
size_t last_start(const PatternTable& table, const Text& text, size_t end) {
    if (text.limit < table.shortest) return 0;
    const size_t past = text.limit - table.shortest + 1;
    return end < past ? end : past;
}

PENSTOCK_AVX2_INLINE __m256i load(const uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

PENSTOCK_AVX2_INLINE uint64_t join(__m256i low, __m256i high) {
    return static_cast<uint32_t>(_mm256_movemask_epi8(low)) |
           uint64_t{static_cast<uint32_t>(_mm256_movemask_epi8(high))} << 32;
}

// Set membership of 32 bytes at once: a row of 8 bits by the low nibble, a bit of it by the high
// nibble.
struct ByteSet {
    __m256i rows_low, rows_high, columns;
};

PENSTOCK_AVX2_INLINE __m256i broadcast(const uint8_t* row) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row)));
}

PENSTOCK_AVX2_INLINE ByteSet run_set(const PatternTable& table) {
    const __m128i columns = _mm_set_epi8(-128, 64, 32, 16, 8, 4, 2, 1, -128, 64, 32, 16, 8, 4, 2,
                                         1);
    return {broadcast(table.run_rows[0]), broadcast(table.run_rows[1]),
            _mm256_broadcastsi128_si256(columns)};
}

// 0xFF where the byte is a member. A shuffle gives 0 for an index of 128 and more, so each table
// sees its half.
PENSTOCK_AVX2_INLINE __m256i members(const ByteSet& set, __m256i bytes) {
    const __m256i flipped = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
    const __m256i rows = _mm256_or_si256(_mm256_shuffle_epi8(set.rows_low, bytes),
                                         _mm256_shuffle_epi8(set.rows_high, flipped));
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15));
    const __m256i column = _mm256_shuffle_epi8(set.columns, high);
    return _mm256_cmpeq_epi8(_mm256_and_si256(rows, column), column);
}

PENSTOCK_AVX2_INLINE uint64_t member_mask(const ByteSet& set, const uint8_t* from) {
    return join(members(set, load(from)), members(set, load(from + 32)));
}

// Bit i stays if bits i .. i+size-1 of mask:next are set; size is 1 to 8.
PENSTOCK_AVX2_INLINE uint64_t runs_of(uint64_t mask, uint64_t next, uint32_t size) {
    for (uint32_t have = 1; have < size;) {
        const uint32_t step = have < size - have ? have : size - have;
        mask &= mask >> step | next << (64 - step);
        next &= next >> step;
        have += step;
    }
    return mask;
}

// The low end - at bits, at most 64.
PENSTOCK_AVX2_INLINE uint64_t below(size_t at, size_t end) {
    return end - at < kBlock ? (uint64_t{1} << (end - at)) - 1 : ~uint64_t{0};
}

bool only_pattern_at(const PatternTable& table, const Text& text, size_t at) {
    if (table.long_count == 0) return short_at(table, text, at);
    return memcmp(table_at<uint8_t>(table, table.bytes_offset), text.bytes + at, table.longest) ==
           0;
}

}  // namespace

PENSTOCK_AVX2 size_t find_pair(const PatternTable& table, const Text& text, size_t from,
                               size_t end) {
    const size_t past = last_start(table, text, end);
    const uint8_t* first = text.bytes + table.rare_offsets[0];
    const uint8_t* second = text.bytes + table.rare_offsets[1];
    const __m256i first_byte = _mm256_set1_epi8(static_cast<char>(table.rare_bytes[0]));
    const __m256i second_byte = _mm256_set1_epi8(static_cast<char>(table.rare_bytes[1]));
    for (size_t block = from; block < past; block += kBlock) {
        look_ahead(text.bytes + block);
        const __m256i low = _mm256_and_si256(_mm256_cmpeq_epi8(load(first + block), first_byte),
                                             _mm256_cmpeq_epi8(load(second + block), second_byte));
        const __m256i high = _mm256_and_si256(
            _mm256_cmpeq_epi8(load(first + block + 32), first_byte),
            _mm256_cmpeq_epi8(load(second + block + 32), second_byte));
        const __m256i any = _mm256_or_si256(low, high);
        if (_mm256_testz_si256(any, any) != 0) continue;
        uint64_t candidates = join(low, high) & below(block, past);
        for (; candidates != 0; candidates &= candidates - 1) {
            const size_t at = block + static_cast<size_t>(__builtin_ctzll(candidates));
            if (only_pattern_at(table, text, at)) return at;
        }
    }
    return end;
}

PENSTOCK_AVX2 size_t find_run(const PatternTable& table, const Text& text, size_t from,
                              size_t end) {
    const size_t past = last_start(table, text, end);
    if (from >= past) return end;
    const ByteSet set = run_set(table);
    const bool only_long = table.shortest >= kGramSize;
    uint64_t mask = member_mask(set, text.bytes + from);
    for (size_t block = from; block < past; block += kBlock) {
        look_ahead(text.bytes + block);
        const uint64_t next = member_mask(set, text.bytes + block + kBlock);
        uint64_t candidates = runs_of(mask, next, table.run_size) & below(block, past);
        for (; candidates != 0; candidates &= candidates - 1) {
            const size_t at = block + static_cast<size_t>(__builtin_ctzll(candidates));
            if (only_long ? long_at(table, text, at) : matches_at(table, text, at)) return at;
        }
        mask = next;
    }
    return end;
}

PENSTOCK_AVX2 uint64_t count_run_candidates(const PatternTable& table, const Text& text,
                                            size_t from, size_t end) {
    const size_t past = last_start(table, text, end);
    if (from >= past) return 0;
    const ByteSet set = run_set(table);
    uint64_t count = 0;
    for (size_t block = from; block < past; block += kBlock) {
        const uint64_t mask = member_mask(set, text.bytes + block);
        const uint64_t next = member_mask(set, text.bytes + block + kBlock);
        count += static_cast<uint64_t>(
            __builtin_popcountll(runs_of(mask, next, table.run_size) & below(block, past)));
    }
    return count;
}

PENSTOCK_AVX2 uint64_t count_newlines(const uint8_t* bytes, size_t from, size_t end) {
    const __m256i newline = _mm256_set1_epi8('\n');
    uint64_t count = 0;
    for (size_t block = from; block < end; block += kBlock) {
        const uint64_t mask = join(_mm256_cmpeq_epi8(load(bytes + block), newline),
                                   _mm256_cmpeq_epi8(load(bytes + block + 32), newline));
        count += static_cast<uint64_t>(__builtin_popcountll(mask & below(block, end)));
    }
    return count;
}

}  // namespace penstock::scan::avx2
