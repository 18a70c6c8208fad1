// Files that programs make without a name (O_TMPFILE), by which they may get one later (linkat).
//
// The kernel's request has the form of one that makes a file by the name kNoName. libfuse before
// 3.17 does not know it, so it is read as such a request.
#pragma once

#include <cstring>

#include "served.h"

namespace penstock::cache_service {

inline constexpr char kNoName[] = "/";  // no file can have it

inline bool is_no_name(const char* name) { return std::strcmp(name, kNoName) == 0; }

// Reads requests of a session that is mounted and not served yet. Without this, and where libfuse
// is older than 3.13, programs get EOPNOTSUPP.
void take_nameless_requests(fuse_session* session);

// Enters a file that was made so, and describes it for the kernel. Returns false with errno set.
bool enter_nameless(fuse_req_t request, int descriptor, fuse_entry_param* entry);

}  // namespace penstock::cache_service
