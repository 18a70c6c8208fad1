// Names of the folder below that programs do not see in its mount: files of the cache itself.
#pragma once

#include <cstring>

#include "served.h"

namespace penstock::cache_service {

// Returns whether a name in a folder is one of these. It stands for nothing, and cannot be made.
// FileCacheOptions::tier_root says what the file is for.
inline bool is_hidden(fuse_ino_t folder, const char* name) {
    constexpr char kBegin[] = ".penstock-log";
    if (folder != FUSE_ROOT_ID || std::strncmp(name, kBegin, sizeof kBegin - 1) != 0) return false;
    const char* const rest = name + sizeof kBegin - 1;
    return *rest == '\0' || std::strcmp(rest, ".new") == 0;
}

}  // namespace penstock::cache_service
