// The compiled pattern set: one flat block of bytes that the host and GPU threads read alike.
//
//   PatternTable | spans | pattern bytes | bucket_begin | prefix bits | pair bits | [bits of 3] |
//   [gram bits | masks]
//
// Positions are byte offsets from the table's start, never pointers: it may be copied into GPU
// memory as it is. Written once by compile_patterns() (patterns.h), then only read, by any thread.
// Limits are asserted there.
//
// A pattern set is a set of byte strings none of which is a prefix of another, sorted within
// buckets. Patterns of 1 to 3 bytes are members of exact bitmaps; longer ones are found by a hash
// of their first prefix_size bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/abi/qualifiers.h"

namespace penstock::scan {

constexpr uint32_t kGramSize = 4;     // bytes of a sampled gram
constexpr uint32_t kGramStepMax = 8;  // a mask of offsets fits one byte
constexpr uint32_t kPrefixSizeMax = 8;
// Bytes behind the end of a text that must be readable, whatever they hold: wide loads pass the
// end.
constexpr size_t kTextPadding = 128;

// One pattern of 4 bytes or more.
struct PatternSpan {
    uint32_t offset;  // into the pattern bytes
    uint32_t size;
};

struct PatternTable {
    uint64_t size;  // bytes of the whole table

    uint32_t pattern_count;  // after duplicates and patterns that begin with another were dropped
    uint32_t shortest, longest;  // bytes; 0 when there is no pattern
    uint32_t every_line;  // 1: the empty pattern is in the list, so every line matches; the rest is
                          // empty

    // Patterns of 4 bytes and more.
    uint32_t long_count;
    uint32_t prefix_size;  // 4 to kPrefixSizeMax: bytes hashed; 0 when long_count is 0
    uint64_t prefix_mask;  // keeps prefix_size bytes of a little-endian word
    uint32_t bucket_bits;  // bucket_begin has 2^bucket_bits + 1 entries
    uint32_t prefix_bits;  // the prefix bitmap has 2^prefix_bits bits
    uint64_t spans_offset, bytes_offset, bucket_begin_offset, prefix_bits_offset;

    // Patterns of 1 to 3 bytes: bit b0, bit b0 | b1 << 8, bit b0 | b1 << 8 | b2 << 16. An offset of
    // 0: none.
    uint64_t ones_offset, twos_offset, threes_offset;

    // First two bytes of any pattern (for one of 1 byte, all 256 seconds): 64 Kbit.
    uint64_t pairs_offset;

    // Grams of kGramSize bytes at offsets 0 .. gram_step-1 of every pattern; gram_step 0: the
    // shortest is below 4. A text that holds a pattern at p holds one of its grams at the one
    // multiple of gram_step in [p, p+step).
    uint32_t gram_step, gram_bits;
    uint64_t grams_offset;       // 2^gram_bits bits
    uint64_t gram_masks_offset;  // 2^gram_bits bytes: bit j, the gram stands at offset j of some
                                 // pattern

    // Runs: a pattern begins only where run_size bytes of a set stand in a row. Byte b is in the
    // set, because it is among the first run_size bytes of some pattern, if bit (b >> 4) % 8 of
    // run_rows[b >> 7][b % 16] is set.
    uint32_t run_size;
    uint32_t run_set_count;  // members of the set
    uint8_t run_rows[2][16];

    // One pattern only: where its two rarest bytes stand and what they are; the same twice for a
    // pattern of 1 byte.
    uint32_t rare_offsets[2];
    uint8_t rare_bytes[2];
};

template <class T>
PENSTOCK_BOTH inline const T* table_at(const PatternTable& table, uint64_t offset) {
    return reinterpret_cast<const T*>(reinterpret_cast<const uint8_t*>(&table) + offset);
}

PENSTOCK_BOTH inline bool test_bit(const uint32_t* bits, uint32_t index) {
    return ((bits[index >> 5] >> (index & 31)) & 1) != 0;
}

// Multiplicative hashes; `bits` is 1 to 31.
PENSTOCK_BOTH inline uint32_t hash_gram(uint32_t gram, uint32_t bits) {
    return (gram * 0x9E3779B1u) >> (32 - bits);
}
PENSTOCK_BOTH inline uint32_t hash_prefix(uint64_t prefix, uint32_t bits) {
    return static_cast<uint32_t>((prefix * 0x9E3779B97F4A7C15u) >> (64 - bits));
}

}  // namespace penstock::scan
