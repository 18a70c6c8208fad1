// Access programs as JSON text: for people, for other tools, and for files that are kept.
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
// docs/access-program.md tells all of it. Format and version come first, in this order, so that a
// text of a later version is refused as that and nothing else. Reading is strict: unknown and
// repeated keys, missing ones, numbers that are not exact and programs that validate() refuses are
// errors. Pure.
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
inline constexpr size_t kProgramsMax = 65536;               // of one text
inline constexpr size_t kJsonBytesMax = size_t{256} << 20;  // of one text

// The programs have passed validate(). The same programs give the same text.
[[nodiscard]] std::string write_json(std::span<const Program> programs);

// EINVAL with a line that says what is wrong; `*error_at`, where it is given, gets the byte at
// which reading ended. ENOTSUP: a later version.
[[nodiscard]] Result<std::vector<Program>> parse_json(std::string_view text,
                                                      size_t* error_at = nullptr);

}  // namespace penstock::access
