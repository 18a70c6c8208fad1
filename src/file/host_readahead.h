// Reads ahead of a thread that reads small pieces of a file in a pattern that the kernel does not
// follow: with gaps, backward, or in nested loops. It announces to the OS page cache the pieces
// that the thread reads next, as far as they are not cached.
//
// Reads that continue forward are left to the kernel, which reads ahead of them better. Before a
// random read, and before most reads of cached bytes, this takes a few instructions:
//
//      WATCHING --[kRepeats equal distances, and bytes ahead are not cached]--> AHEAD
//      WATCHING --[kRepeats equal distances, and bytes ahead are cached]--> RESTING
//      RESTING  --[2^n reads with equal distances]--> WATCHING, n grows with each rest up to 16
//      AHEAD    --[kCachedMax predicted pieces in a row are cached]--> RESTING
//      AHEAD    --[kIdleMax reads in a row without an announcement]--> WATCHING
//
// A stream of which an access program is known is AHEAD from the start, and stays so (ReadAhead).
//
// Each thread has its own streams, at most kStreams, so no read waits for another thread. A stream
// keeps its memory until the thread ends or reads ahead in another file in its place. A read
// announces at most 32 ranges. At most 16 MiB of a stream are announced and not yet read.
#pragma once

#include <cstdint>

#include "extent/extent.h"
#include "transfer/source.h"

namespace penstock::file {

// The largest read that counts. A longer one keeps storage busy by itself.
inline constexpr uint64_t kHostReadaheadSizeMax = 64 << 10;

// The size of one announcement. The kernel ignores bytes beyond its own limit, which is
// read_ahead_kb (128 KiB by default) or more.
inline constexpr uint64_t kAnnouncedSizeMax = 128 << 10;

// Reports that the calling thread reads `range` of a file through the OS page cache, before the
// read. `file` is a number that no other open file of the process ever had.
void read_ahead_of(transfer::Source& source, uint64_t file, const extent::Extent& range);

// Returns a number for a file that is opened: 1, 2, ... Any thread.
[[nodiscard]] uint64_t next_file_number();

}  // namespace penstock::file
