// Puts what a write log has into the files, after a process was killed or the machine lost power.
// Blocks. No other thread or process may use the log or the files meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "file/write_log.h"

namespace penstock::file {

struct LogRecovery {
    uint64_t records = 0, bytes = 0, files = 0;  // that are in their files now
    // One line for each file whose bytes could not be put there, which tells why and where they are
    // kept, or whose size could not be set.
    std::vector<std::string> kept;
};

// Replays the records of a log whose files lie below `root`, makes them durable and empties the
// log. Bytes of a file that is gone, or that cannot be written, are put into a new file in
// `folder`, at the offsets that they had. So are those of a log that is out of date: files may have
// newer ones. Errors: those of storage where even that fails, or where `root` or the log cannot be
// read; EROFS, `root` is read-only; then the log is as it was, and the other files have their
// bytes.
//   generation  that storage knows; 0: it knows of no log
//   tell_kept   is called with each line of LogRecovery::kept before the log forgets the bytes
Result<LogRecovery> recover_log(WriteLog& log, uint64_t generation, const std::string& folder,
                                const std::string& root,
                                const std::function<void(const std::string&)>& tell_kept = {});

}  // namespace penstock::file
