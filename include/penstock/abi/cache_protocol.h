// What a program says to the service process of a file cache, over a Unix socket of the type
// SOCK_SEQPACKET: a CacheRequest, then the service answers with a CacheReply. A program may have
// several connections; each has at most one request outstanding.
//
// Only programs of the service's own user are answered. What they read they have opened
// themselves: a file is named by a descriptor of it.
#pragma once

#include <cstdint>

namespace penstock::cache_protocol {

inline constexpr uint32_t kVersion = 1;

// Commands in Python know those with a number (frontends/python/penstock/cache_places.py).
enum class Request : uint32_t {
    // -> descriptors of the table, the arena and the marks (abi/chunk_table.h), and the number of
    // the program as a writer. With `writes` the arena is writable.
    kHello,
    // With a descriptor of a file -> its slot, device and inode in the table. With `writes` it can
    // be written by grants.
    kOpen = 1,
    // Range of an opened file -> how many bytes from `offset` on are in the table now.
    kFetch = 2,
    // Range of an opened file that was used for the first time; has no reply.
    kUsed,
    // -> JSON, in place of a reply.
    kStatistics = 4,
    // Writes back, and ends the service.
    kStop = 5,
    // Range of a file opened with `writes` -> how many bytes from `offset` on are granted now.
    kGrant,
    // Writes back a file and makes it durable -> as `size`, the number of the last error of its
    // write-backs. `offset` is the number of the last one that the descriptor knows: it is told of
    // later ones, each once.
    kSync,
    // Writes back a file, or all files if `inode` is 0.
    kFlush = 8,
    // Writes back a file, and takes it out of the table: a call that is not served changes it.
    // `writes` is one of Passing. If the write-back fails, the file stays, and must not be changed.
    kPass,
    // The same for a file whose name is about to go. The program does not wait long.
    kClose = 10,
    // Of a file that a program closes after it has written it -> as kSync the error of its
    // write-backs. Writes back what storage has not promised to take.
    kError,
    // Gives `size` bytes of memory back -> how many it gave.
    kGiveBack = 12,
    // Takes as many again -> how many it took.
    kGrow = 13,
    // With a descriptor of a file: writes it back, and drops what is cached of it -> how many bytes
    // it dropped.
    kDrop = 14,
    // The call is over for which a file was passed with kPassHeld. Has no reply.
    kRelease = 15,
    // Cuts a file opened with `writes` off at `size`, or extends it with zeros. ESTALE: it is not
    // written by grants.
    kTruncate = 16,
};

// How long no chunk of a file that is passed is granted again.
enum Passing : uint32_t {
    kPassOnce = 0,
    kPassForGood = 1,  // while the service lives
    kPassHeld = 2,     // until the program says kRelease, or has ended
};

struct CacheRequest {
    Request kind = Request::kHello;
    uint32_t version = kVersion;
    uint32_t slot = 0;    // kFetch: what kOpen told, as device and inode
    uint32_t writes = 0;  // 1: the program writes; kPass: a Passing
    uint64_t device = 0, inode = 0;
    uint64_t offset = 0, size = 0;  // bytes
};

// Errors of kOpen: EAGAIN, the file is being changed, ask again later; any other, it is not cached.
// Of kFetch: ESTALE, open it again; any other is that of storage. Of kGiveBack: ETIMEDOUT, the
// memory is in use; any other is that of a write-back. Of kGrow: ENOMEM. Of
// kDrop: EBUSY, the file is being written all the time; any other is that of a write-back.
struct CacheReply {
    int32_t error = 0;  // or an errno
    uint32_t slot = 0;  // kHello: the number of the writer
    uint64_t device = 0, inode = 0;
    uint64_t size = 0;
};

inline constexpr uint32_t kHelloDescriptors = 3;

}  // namespace penstock::cache_protocol
