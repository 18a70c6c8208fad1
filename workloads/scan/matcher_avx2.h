// The filters of WideEngine in AVX2. Call them only where the CPU has it; see matcher_wide.h for
// what each does.
//
// find_*: as Engine::find. Each may read to 128 bytes past the text's limit. Pure.
#pragma once

#include "scan/matcher.cuh"

namespace penstock::scan::avx2 {

size_t find_pair(const PatternTable& table, const Text& text, size_t from, size_t end);
size_t find_run(const PatternTable& table, const Text& text, size_t from, size_t end);
uint64_t count_newlines(const uint8_t* bytes, size_t from, size_t end);

// Positions in [from, end) that the filter would pass on to be verified.
uint64_t count_run_candidates(const PatternTable& table, const Text& text, size_t from, size_t end);

}  // namespace penstock::scan::avx2
