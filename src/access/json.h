// Access programs as JSON text: for people, for other tools, and for files.
//
//   {"format": "penstock access programs", "version": 1, "programs": [
//     {"key": {"file": "data", "operation": "read", "context": 0, "first_rank": 0, "rank_count":
//     4},
//      "grid": [4, 1, 1],
//      "nodes": [
//        {"kind": "loop", "trips": 125, "body": [
//          {"kind": "access", "offset": {"base": 0, "loops": [4096], "ranks": [512]}, "size":
//          512}]}],
//      "provenance": {"origin": "online", "support": 1000, "confidence": 0.99}}]}
//
// docs/access-program.md describes it in full. The format and the version come first, in this
// order, so that a text of a later version gives ENOTSUP and no other error. Parsing is strict.
// These are errors: unknown, repeated and missing keys, numbers that are not exact, and programs
// that validate() refuses. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "access/program.h"
#include "penstock/status.h"

namespace penstock::access {

inline constexpr uint64_t kJsonVersion = 1;
inline constexpr size_t kProgramsMax = 65536;               // per text
inline constexpr size_t kJsonBytesMax = size_t{256} << 20;  // per text

// Writes programs, which must have passed validate(). The same programs give the same text.
[[nodiscard]] std::string write_json(std::span<const Program> programs);

// Parses programs. EINVAL: the text is wrong; the status says why, and `*error_at`, unless null,
// gets the byte at which parsing ended. ENOTSUP: a later version.
[[nodiscard]] Result<std::vector<Program>> parse_json(std::string_view text,
                                                      size_t* error_at = nullptr);

}  // namespace penstock::access
