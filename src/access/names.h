// The names of kinds, operations, origins, states and algorithms in texts.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "access/detector.h"
#include "access/program.h"

namespace penstock::access {

// In the order of the enumerations:
inline constexpr std::array<const char*, 5> kKindNames = {"access", "loop", "deltas", "list",
                                                          "random"};
inline constexpr std::array<const char*, 3> kOperationNames = {"read", "write", "read/write"};
inline constexpr std::array<const char*, 3> kOriginNames = {"declared", "online", "offline"};
inline constexpr std::array<const char*, 4> kStateNames = {"initial", "learning", "stable",
                                                           "suspended"};
inline constexpr std::array<const char*, 9> kAlgorithmNames = {
    "none",        "contiguous", "fixed stride", "nest",  "period",
    "interleaved", "majority",   "loaded",       "random"};

constexpr const char* name(NodeKind kind) { return kKindNames[static_cast<size_t>(kind)]; }
constexpr const char* name(Operation one) { return kOperationNames[static_cast<size_t>(one)]; }
constexpr const char* name(Origin origin) { return kOriginNames[static_cast<size_t>(origin)]; }
constexpr const char* name(State state) { return kStateNames[static_cast<size_t>(state)]; }
constexpr const char* name(Algorithm one) { return kAlgorithmNames[static_cast<size_t>(one)]; }

template <class Name, size_t kCount>
constexpr bool parse_name(std::string_view text, const std::array<const char*, kCount>& names,
                          Name* value) {
    for (size_t i = 0; i < kCount; ++i) {
        if (text != names[i]) continue;
        *value = static_cast<Name>(i);
        return true;
    }
    return false;
}

// Returns false and leaves `*value` unchanged if there is no such name.
constexpr bool parse_name(std::string_view text, NodeKind* value) {
    return parse_name(text, kKindNames, value);
}
constexpr bool parse_name(std::string_view text, Operation* value) {
    return parse_name(text, kOperationNames, value);
}
constexpr bool parse_name(std::string_view text, Origin* value) {
    return parse_name(text, kOriginNames, value);
}

}  // namespace penstock::access
