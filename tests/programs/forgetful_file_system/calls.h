// The calls of FUSE on a Disk. One thread serves them in turn.
#pragma once

#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>

#include <unordered_map>

#include "forgetful_file_system/disk.h"

namespace penstock::forgetful {

// A mounted disk, and which of its nodes the kernel knows by number.
struct Mounted {
    explicit Mounted(Disk& of) : disk(of) { forget_all(); }

    Disk& disk;
    std::unordered_map<uint64_t, NodePointer> known;

    // After a loss of power. Calls on the nodes of before fail with ESTALE.
    void forget_all() {
        known.clear();
        known[FUSE_ROOT_ID] = disk.root();
    }
};

// Returns the calls; the session's user data is a Mounted.
fuse_lowlevel_ops calls();

}  // namespace penstock::forgetful
