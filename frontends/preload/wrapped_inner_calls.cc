// Wrappers of libc's functions that read or write files, or tell their sizes, by inner calls, which
// no wrapper sees: what a cache has of the files must be in them before.
//
// dlopen() looks at where it is called from, for the folders that the calling library names. So its
// wrappers must end in a jump, and this file is always compiled with optimization. So must that of
// swapcontext(): the frame of a call would be gone when the context goes on.
#include <aio.h>
#include <dlfcn.h>
#include <fts.h>
#include <ftw.h>
#include <nl_types.h>
#include <string.h>

#include "cached_files.h"
#include "cached_writes.h"
#include "raw_calls.h"
#include "wrap.h"

namespace penstock::preload {
namespace {

// Prepares for a call that opens a file to read it: by path, or by a name that it looks for.
void before_loading(const char* name) {
    flush_before_program();
    if (name != nullptr && strchr(name, '/') != nullptr) flush_cached_path(name);
}

}  // namespace

WRAP(void*, dlopen, (const char* name, int flags)) {
    const Next* libc = next();
    before_loading(name);
    return libc->dlopen(name, flags);
}

WRAP(void*, dlmopen, (Lmid_t space, const char* name, int flags)) {
    const Next* libc = next();
    before_loading(name);
    return libc->dlmopen(space, name, flags);
}

// Such a context would go on with SIGSYS blocked.
static void before_context(const ucontext_t* to) {
    if (sigismember(&to->uc_sigmask, SIGSYS) == 1) lose_sight();
}
WRAP(int, setcontext, (const ucontext_t* to)) {
    const Next* libc = next();
    before_context(to);
    return libc->setcontext(to);
}
WRAP(int, swapcontext, (ucontext_t * from, const ucontext_t* to)) {
    const Next* libc = next();
    before_context(to);
    return libc->swapcontext(from, to);
}

WRAP(nl_catd, catopen, (const char* name, int flags)) {
    const Next* libc = next();
    before_loading(name);
    return libc->catopen(name, flags);
}

// Gives the program's function of a walk what readers see of a file. The function may walk too.
#define WALK(name, Stat, Function, parameters, arguments, its_parameters, its_arguments) \
    static __thread Function name##_function;                                            \
    static int name##_corrected its_parameters {                                         \
        Stat seen = *status;                                                             \
        corrected(0, &seen);                                                             \
        return name##_function its_arguments;                                            \
    }                                                                                    \
    WRAP(int, name, parameters) {                                                        \
        const Next* libc = next();                                                       \
        if (!internal::writing_back || function == nullptr) return libc->name arguments; \
        const Function before = name##_function;                                         \
        name##_function = function;                                                      \
        function = name##_corrected;                                                     \
        const int result = libc->name arguments;                                         \
        name##_function = before;                                                        \
        return result;                                                                   \
    }
WALK(ftw, struct stat, __ftw_func_t, (const char* path, __ftw_func_t function, int descriptors),
     (path, function, descriptors), (const char* path, const struct stat* status, int kind),
     (path, &seen, kind))
WALK(ftw64, struct stat64, __ftw64_func_t,
     (const char* path, __ftw64_func_t function, int descriptors), (path, function, descriptors),
     (const char* path, const struct stat64* status, int kind), (path, &seen, kind))
WALK(nftw, struct stat, __nftw_func_t,
     (const char* path, __nftw_func_t function, int descriptors, int flags),
     (path, function, descriptors, flags),
     (const char* path, const struct stat* status, int kind, FTW* place),
     (path, &seen, kind, place))
WALK(nftw64, struct stat64, __nftw64_func_t,
     (const char* path, __nftw64_func_t function, int descriptors, int flags),
     (path, function, descriptors, flags),
     (const char* path, const struct stat64* status, int kind, FTW* place),
     (path, &seen, kind, place))

#define FTS(read, children, Tree, Entry)                                                  \
    WRAP(Entry*, read, (Tree * tree)) {                                                   \
        Entry* entry = next()->read(tree);                                                \
        if (entry != nullptr && entry->fts_info == FTS_F) corrected(0, entry->fts_statp); \
        return entry;                                                                     \
    }                                                                                     \
    WRAP(Entry*, children, (Tree * tree, int names)) {                                    \
        Entry* first = next()->children(tree, names);                                     \
        for (Entry* entry = first; entry != nullptr; entry = entry->fts_link)             \
            if (entry->fts_info == FTS_F && names == 0) corrected(0, entry->fts_statp);   \
        return first;                                                                     \
    }
FTS(fts_read, fts_children, FTS, FTSENT)
FTS(fts64_read, fts64_children, FTS64, FTSENT64)

// A thread of libc makes the transfer, later.
#define AIO(suffix, Block)                                                                   \
    WRAP(int, aio_read##suffix, (Block * block)) {                                           \
        lose_sight_of(&block->aio_sigevent);                                                 \
        flush_cached(block->aio_fildes);                                                     \
        return next()->aio_read##suffix(block);                                              \
    }                                                                                        \
    WRAP(int, aio_write##suffix, (Block * block)) {                                          \
        lose_sight_of(&block->aio_sigevent);                                                 \
        if (!pass_cached(block->aio_fildes, true)) return -1;                                \
        return next()->aio_write##suffix(block);                                             \
    }                                                                                        \
    WRAP(int, aio_fsync##suffix, (int kind, Block* block)) {                                 \
        lose_sight_of(&block->aio_sigevent);                                                 \
        flush_cached(block->aio_fildes);                                                     \
        return next()->aio_fsync##suffix(kind, block);                                       \
    }                                                                                        \
    WRAP(int, lio_listio##suffix,                                                            \
         (int mode, Block* const* blocks, int count, struct sigevent* event)) {              \
        lose_sight_of(event);                                                                \
        for (int i = 0; i < count; ++i) {                                                    \
            const Block* block = blocks[i];                                                  \
            if (block == nullptr) continue;                                                  \
            lose_sight_of(&block->aio_sigevent);                                             \
            if (block->aio_lio_opcode == LIO_READ) flush_cached(block->aio_fildes);          \
            if (block->aio_lio_opcode == LIO_WRITE && !pass_cached(block->aio_fildes, true)) \
                return -1;                                                                   \
        }                                                                                    \
        return next()->lio_listio##suffix(mode, blocks, count, event);                       \
    }
AIO(, struct aiocb)
AIO(64, struct aiocb64)

// A range may be given from the descriptor's position on.
#define LOCKF(name)                                      \
    WRAP(int, name, (int fd, int command, off_t size)) { \
        give_position(fd);                               \
        return next()->name(fd, command, size);          \
    }
LOCKF(lockf)
LOCKF(lockf64)

}  // namespace penstock::preload
