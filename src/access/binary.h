// Access programs in a compact binary form: what is stored and sent. A strided nest is 40 bytes.
//
//   "PSAP", version, count of programs, the programs, CRC-32 of all before it (4 bytes)
//
// Numbers are varints of 7 bits (least significant first, shortest form only), signed ones zigzag;
// an affine is a byte that says which of its 8 coefficients are not 0, and those; lists hold
// differences. Each program has one encoding, and nothing else is read. docs/access-program.md
// tells the fields. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "access/program.h"
#include "penstock/status.h"

namespace penstock::access {

inline constexpr uint64_t kBinaryVersion = 1;

// The programs have passed validate().
[[nodiscard]] std::vector<uint8_t> write_binary(std::span<const Program> programs);

// EINVAL with a line that says what is wrong; ENOTSUP: a later version. What is taken in memory is
// in proportion to the bytes given.
[[nodiscard]] Result<std::vector<Program>> parse_binary(std::span<const uint8_t> bytes);

// CRC-32 (IEEE 802.3, as in zlib).
[[nodiscard]] uint32_t checksum(std::span<const uint8_t> bytes);

}  // namespace penstock::access
