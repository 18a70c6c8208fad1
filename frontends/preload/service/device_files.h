// The files that a program reads into, or writes from, device memory.
//
// A file is opened a second time: transfers then have their own flags, and never use the position
// of the program's descriptor. What was opened is closed when the program closes its descriptor:
// POSIX drops the record locks of a process when it closes any descriptor of the file.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "penstock/file.h"

namespace penstock::preload {

class DeviceFiles {
public:
    // Returns the file behind the program's descriptor, opened for transfers with `device`.
    // `status` and `flags` are the descriptor's. Errors: those of open(2): the program may use the
    // file, but may not open it.
    Result<std::shared_ptr<File>> find(int fd, const struct stat& status, int flags,
                                       const Device& device);
    // Closes the files of these descriptors, unless another thread is in a call.
    void forget(unsigned first, unsigned last);

private:
    struct Entry {
        dev_t volume = 0;
        ino_t number = 0;
        int flags = 0;
        std::string device;
        int own = -1;  // the descriptor that `file` has
        std::shared_ptr<File> file;

        // Returns whether `own` is still a descriptor of the file. A program that closes all
        // descriptors closes this one too, and its number may be another file's by now.
        [[nodiscard]] bool owns() const;
        // Closes the file. If `own` is another file's by now, the File is never destroyed: it would
        // close the program's descriptor.
        void close();
        // Returns whether the entry is that of the file with this status, and still usable.
        [[nodiscard]] bool is_of(const struct stat& status, int its_flags,
                                 const std::string& its_device) const;
    };
    std::mutex mutex_;
    std::unordered_multimap<int, Entry> entries_;  // by the program's descriptor
};

}  // namespace penstock::preload
