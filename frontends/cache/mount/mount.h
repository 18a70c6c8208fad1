// A mount: a folder whose files any program reads and writes through the file cache.
//
// Names, owners and times are those of the folder below; bytes of regular files go through the
// cache. It is a file system of FUSE, in the manner of libfuse's passthrough_hp. Locks of files are
// the kernel's. Any thread may call stop(); the other calls are for the thread that starts it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "penstock/file_cache.h"

namespace penstock::cache_service {

// Files that the process keeps open for programs that do not read them by the mount's requests. Any
// thread calls these.
struct OtherFiles {
    std::function<void(dev_t device, ino_t number)> close = [](dev_t, ino_t) {};  // its name goes
    std::function<void()> close_all = [] {};  // descriptors are short
};

struct MountOptions {
    unsigned threads_max = 16;  // that serve requests
    std::string report;  // what a program reads as the attribute kReportAttribute of the root
    OtherFiles others;
    bool read_only = false;  // requests that change something fail with EROFS
    bool suid = false;       // set-ID bits of programs there count; only for root
    bool dev = false;        // device files there are devices; only for root
};

// An extended attribute of the root that tells how to reach the process behind the mount.
inline constexpr char kReportAttribute[] = "user.penstock.service";

// A folder that this process alone shows, from before its cache looks at the files there.
struct ShownFolder {
    int root = -1;  // O_PATH
    int lock = -1;
};

class Mount {
public:
    // Takes the folder to show. A mount that a killed process has left over it is removed: the
    // files below are found only then. On false `error` has one line that names what failed.
    static bool take(const std::string& path, ShownFolder* folder, std::string* error);
    // Shows `folder`, which is at `path`, at `mountpoint`, which may be `path` itself, and closes
    // it in the end. A mount that a killed process has left there is removed. `error` gets one line
    // that names what failed. Null: it failed.
    static std::unique_ptr<Mount> start(const FileCache& cache, const std::string& path,
                                        const ShownFolder& folder, const std::string& mountpoint,
                                        const MountOptions& options, std::string* error);
    virtual ~Mount() = default;

    // Returns a descriptor that is readable once the mount has ended: unmounted or stopped.
    [[nodiscard]] virtual int ended() const = 0;
    // Once it has ended: returns why, if it was neither unmounted nor stopped. Then it is
    // unmounted.
    [[nodiscard]] virtual std::string failure() const = 0;
    // Unmounts, though programs may use it; they get errors. Waits until no request is served.
    virtual void stop() = 0;
};

}  // namespace penstock::cache_service
