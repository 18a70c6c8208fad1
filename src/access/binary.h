// Access programs in a compact binary form, for storing and sending. A strided nest takes 40 bytes.
//
//   "PSAP", version, count of programs, the programs, CRC-32 of all before it (4 bytes)
//
// Numbers are varints of 7 bits (least significant first, shortest form only); signed numbers are
// zigzag. An affine is a byte that says which of its 8 coefficients are not 0, followed by those.
// Lists hold differences. Each program has one encoding, and the parser accepts no other.
// docs/access-program.md describes the fields. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "access/program.h"
#include "penstock/status.h"

namespace penstock::access {

inline constexpr uint64_t kBinaryVersion = 1;

// Writes programs, which must have passed validate().
[[nodiscard]] std::vector<uint8_t> write_binary(std::span<const Program> programs);

// Parses programs. EINVAL: the bytes are wrong; the status says why. ENOTSUP: a later version. The
// memory that it takes is in proportion to the bytes given.
[[nodiscard]] Result<std::vector<Program>> parse_binary(std::span<const uint8_t> bytes);

// Returns the CRC-32 (IEEE 802.3, as in zlib).
[[nodiscard]] uint32_t checksum(std::span<const uint8_t> bytes);

}  // namespace penstock::access
