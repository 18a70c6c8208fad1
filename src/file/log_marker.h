// Says beside the cached files which log of writes may be ahead of them (write_log.h).
//
// A log lies on another disk, which may be away for a while, and a log that comes back must not be
// put over what storage was given since. So storage itself has a small file in the folder that is
// cached, from before the first record until the log has ended. Only the log that the file names is
// replayed, and only if the log has the same generation. A new one is drawn at each start.
//
// The folder is an open descriptor: a mount may lie over its path. Blocks. Any thread; one process
// at a time, which has the log.
#pragma once

#include <cstdint>
#include <string>

#include "file/write_log.h"
#include "penstock/status.h"

namespace penstock::file {

struct LogMarker {
    // Programs that list a mount do not see these two names (frontends/cache/mount/hidden.h).
    static constexpr char kName[] = ".penstock-log", kNewName[] = ".penstock-log.new";
    static constexpr uint64_t kSizeMax = 64 << 10;

    uint64_t generation = 0;   // of the log; never 0
    LoggedFile root;           // the folder that is cached, as a copy of it has a copy of this
    std::string host;          // the machine that has the log
    std::string path, folder;  // of the cached folder, and of the one that has the log
    uint32_t owner = 0;        // the user who has the file; read_marker() tells it
};

// Describes the folder behind a descriptor as a log on this machine does, with a new generation.
// Errors: those of statx(2) and getrandom(2).
Result<LogMarker> new_marker(int root, const std::string& path, const std::string& folder);
// Returns whether a marker was made for the folder behind a descriptor, and not for one of which
// that is a copy.
[[nodiscard]] bool is_of(const LogMarker& marker, int root, const std::string& path);

// Reads the marker of a folder. Errors: ENOENT, there is none; EUCLEAN, it is damaged; those of
// open(2) and read(2).
Result<LogMarker> read_marker(int root);
// Replaces the marker, durably. Returns how far the clock of storage is ahead of this machine's, in
// ns. Errors: those of storage; then the old one counts.
Result<int64_t> write_marker(int root, const LogMarker& marker);
// Removes the marker, durably. Where there is none that is no error.
Status remove_marker(int root);

// Returns whether a process of this machine has the log of a marker open now, or may have it.
[[nodiscard]] bool is_in_use(const LogMarker& marker);

}  // namespace penstock::file
