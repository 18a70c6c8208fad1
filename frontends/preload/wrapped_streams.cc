// Wrappers of stdio's calls that open and close streams, and of those for which a stream that is
// served from a file cache must become an ordinary one before (cached_streams.h).
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <wchar.h>

#include "cached_files.h"
#include "cached_streams.h"
#include "cached_writes.h"
#include "descriptors.h"
#include "device_memory.h"
#include "wrap.h"

namespace penstock::preload {
namespace {

FILE* opened(FILE* file, const char* mode) {
    if (file == nullptr) return file;
    const int fd = fileno_unlocked(file);
    forget(fd);
    cached_opened(fd, true);
    pass_cached(fd, true);  // its own reads and writes are not wrapped
    if (mode != nullptr && *mode == 'w') truncate_passed(fd);
    return file;
}

// A buffer that is shorter than this one makes many short reads, which only the kernel should see:
// libc's fread() passes such a buffer over, but not that of a stream of fopencookie().
constexpr size_t kBufferMin = 4096;

void before_buffer(FILE* file, const char* buffer, size_t size) {
    if (buffer == nullptr || size < kBufferMin) make_ordinary(file);
}

}  // namespace

#define FOPEN(name)                                                            \
    WRAP(FILE*, name, (const char* path, const char* mode)) {                  \
        const Next* libc = next();                                             \
        const Passed passed(mode != nullptr && *mode == 'w' ? path : nullptr); \
        if (passed.refuses()) return nullptr;                                  \
        if (!may_serve(path, mode)) [[likely]]                                 \
            return opened(libc->name(path, mode), mode);                       \
        bool served = false;                                                   \
        FILE* file = open_stream(path, mode, &served);                         \
        return served ? file : opened(file, mode);                             \
    }
FOPEN(fopen)
FOPEN(fopen64)

WRAP(FILE*, fdopen, (int fd, const char* mode)) {
    const Next* libc = next();
    if (FILE* file = served_stream(fd, mode)) return file;
    pass_cached(fd, true);
    give_position(fd, true);  // libc's own reads are not wrapped
    return libc->fdopen(fd, mode);
}

#define FREOPEN(name)                                                          \
    WRAP(FILE*, name, (const char* path, const char* mode, FILE* file)) {      \
        const Next* libc = next();                                             \
        if (!make_ordinary(file)) return nullptr;                              \
        release_device_file(fileno_unlocked(file));                            \
        const Passed passed(mode != nullptr && *mode == 'w' ? path : nullptr); \
        if (passed.refuses()) return nullptr;                                  \
        return opened(libc->name(path, mode, file), mode);                     \
    }
FREOPEN(freopen)
FREOPEN(freopen64)

#define FCLOSE(name)                                         \
    WRAP(int, name, (FILE * file)) {                         \
        const Next* libc = next();                           \
        if (is_served_stream(file)) return libc->name(file); \
        Stream* stream = forget_stream(file);                \
        const int fd = fileno_unlocked(file);                \
        release_device_file(fd);                             \
        forget(fd);                                          \
        const int result = libc->name(file);                 \
        free_stream(stream);                                 \
        return result;                                       \
    }
FCLOSE(fclose)
FCLOSE(pclose)  // it closes any stream

// As fopen(3) and fclose(3) by inner calls.
WRAP(FILE*, setmntent, (const char* path, const char* mode)) {
    const Passed passed(mode != nullptr && *mode == 'w' ? path : nullptr);
    if (passed.refuses()) return nullptr;
    return opened(next()->setmntent(path, mode), mode);
}
WRAP(int, endmntent, (FILE * file)) {
    if (file != nullptr) wrap_fclose(file);
    return 1;
}

WRAP(int, setvbuf, (FILE * file, char* buffer, int mode, size_t size)) {
    const Next* libc = next();
    if (mode == _IONBF || (buffer != nullptr && size < kBufferMin)) make_ordinary(file);
    return libc->setvbuf(file, buffer, mode, size);
}

WRAP(void, setbuf, (FILE * file, char* buffer)) {
    const Next* libc = next();
    before_buffer(file, buffer, BUFSIZ);
    libc->setbuf(file, buffer);
}

WRAP(void, setbuffer, (FILE * file, char* buffer, size_t size)) {
    const Next* libc = next();
    before_buffer(file, buffer, size);
    libc->setbuffer(file, buffer, size);
}

#define FREAD(name, locks)                                                  \
    WRAP(size_t, name, (void* to, size_t size, size_t count, FILE* file)) { \
        const Next* libc = next();                                          \
        const size_t done = read_long(file, to, size, count, locks);        \
        if (done != static_cast<size_t>(kNotCached)) return done;           \
        return libc->name(to, size, count, file);                           \
    }
FREAD(fread, true)
FREAD(fread_unlocked, false)
// libc ends the program where `room` is too short.
#define FREAD_CHECKED(name, locks)                                                       \
    WRAP(size_t, name, (void* to, size_t room, size_t size, size_t count, FILE* file)) { \
        const Next* libc = next();                                                       \
        const bool fits = size == 0 || count <= room / size;                             \
        const size_t done = fits ? read_long(file, to, size, count, locks)               \
                                 : static_cast<size_t>(kNotCached);                      \
        if (done != static_cast<size_t>(kNotCached)) return done;                        \
        return libc->name(to, room, size, count, file);                                  \
    }
FREAD_CHECKED(__fread_chk, true)
FREAD_CHECKED(__fread_unlocked_chk, false)

WRAP(int, fwide, (FILE * file, int mode)) {
    const Next* libc = next();
    int found = 0;
    return knows_orientation(file, mode, &found) ? found : libc->fwide(file, mode);
}

// Wraps a call that reads wide characters from `file`.
#define WIDE(result, name, parameters, arguments, file, failed) \
    WRAP(result, name, parameters) {                            \
        const Next* libc = next();                              \
        make_ordinary(file);                                    \
        return libc->name arguments;                            \
    }

WIDE(wint_t, fgetwc, (FILE * file), (file), file, WEOF)
WIDE(wint_t, getwc, (FILE * file), (file), file, WEOF)
WIDE(wint_t, fgetwc_unlocked, (FILE * file), (file), file, WEOF)
WIDE(wint_t, getwc_unlocked, (FILE * file), (file), file, WEOF)
WIDE(wint_t, getwchar, (), (), stdin, WEOF)
WIDE(wint_t, getwchar_unlocked, (), (), stdin, WEOF)
WIDE(wint_t, ungetwc, (wint_t character, FILE* file), (character, file), file, WEOF)
WIDE(wchar_t*, fgetws, (wchar_t * to, int count, FILE* file), (to, count, file), file, nullptr)
WIDE(wchar_t*, fgetws_unlocked, (wchar_t * to, int count, FILE* file), (to, count, file), file,
     nullptr)
WIDE(wchar_t*, __fgetws_chk, (wchar_t * to, size_t room, int count, FILE* file),
     (to, room, count, file), file, nullptr)
WIDE(wchar_t*, __fgetws_unlocked_chk, (wchar_t * to, size_t room, int count, FILE* file),
     (to, room, count, file), file, nullptr)

#define SCAN(prefix)                                                                              \
    WIDE(int, prefix##vfwscanf, (FILE * file, const wchar_t* format, va_list list),               \
         (file, format, list), file, EOF)                                                         \
    WIDE(int, prefix##vwscanf, (const wchar_t* format, va_list list), (format, list), stdin, EOF) \
    WRAP(int, prefix##fwscanf, (FILE * file, const wchar_t* format, ...)) {                       \
        va_list list;                                                                             \
        va_start(list, format);                                                                   \
        const int result = wrap_##prefix##vfwscanf(file, format, list);                           \
        va_end(list);                                                                             \
        return result;                                                                            \
    }                                                                                             \
    WRAP(int, prefix##wscanf, (const wchar_t* format, ...)) {                                     \
        va_list list;                                                                             \
        va_start(list, format);                                                                   \
        const int result = wrap_##prefix##vwscanf(format, list);                                  \
        va_end(list);                                                                             \
        return result;                                                                            \
    }
SCAN()
SCAN(__isoc99_)
SCAN(__isoc23_)

}  // namespace penstock::preload
