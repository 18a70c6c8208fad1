// From a list of fixed strings, as `grep -F -f` reads it, to the table that the matcher runs on.
//
// Knows nothing of files or GPUs. Pure: both functions may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/status.h"
#include "scan/pattern_table.h"

namespace penstock::scan {

// Splits `list` at newlines; every other byte, NUL and CR included, belongs to a pattern. A newline
// ends a pattern, so a list without a last newline means the same, an empty list holds no pattern
// at all, and an empty line is the empty pattern. Appends to `patterns`.
void append_pattern_list(std::string_view list, std::vector<std::string>* patterns);

// As `grep -e TEXT`: like a list, but the empty text is the empty pattern.
void append_pattern_text(std::string_view text, std::vector<std::string>* patterns);

// The table for `patterns`; its first bytes are a PatternTable. In 8-byte words so that it is
// aligned. E2BIG: patterns of more than 1 GiB in all, or one of more than kPatternSizeMax.
Result<std::vector<uint64_t>> compile_patterns(std::vector<std::string> patterns);

constexpr size_t kPatternSizeMax = 64 << 20;  // bytes: every block's buffer holds a stride and one
                                              // pattern

inline const PatternTable& table_of(const std::vector<uint64_t>& words) {
    return *reinterpret_cast<const PatternTable*>(words.data());
}

}  // namespace penstock::scan
