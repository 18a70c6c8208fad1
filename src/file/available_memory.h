// How much memory of the host this process can take: what the system has, and what the limits of
// its control groups leave. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace penstock::file {

// Returns the bytes that can be taken without swapping and without an end by the kernel; the
// largest number if the kernel does not tell.
uint64_t available_memory();

// Returns the number behind a key at the begin of a line; UINT64_MAX: there is none.
uint64_t number_behind(std::string_view text, std::string_view key);

}  // namespace penstock::file
