// Wrappers of the calls that start programs and processes.
#include <alloca.h>
#include <errno.h>
#include <stdarg.h>

#include "cached_files.h"
#include "cached_writes.h"
#include "descriptors.h"
#include "environment.h"
#include "start.h"
#include "wrap.h"

extern char** environ;

namespace penstock::preload {
// Calls after which another process may use the descriptors of this one.
#define PASSED_ON(result, name, parameters, arguments, failed) \
    WRAP(result, name, parameters) {                           \
        const Next* libc = next();                             \
        give_all_positions();                                  \
        flush_before_program();                                \
        return libc->name arguments;                           \
    }
PASSED_ON(int, system, (const char* command), (command), -1)
PASSED_ON(FILE*, popen, (const char* command, const char* mode), (command, mode), nullptr)

WRAP(pid_t, _Fork, ()) {
    const Next* libc = next();
    give_all_positions();
    flush_before_program();
    const pid_t child = libc->_Fork();
    if (child == 0) begin_child();  // no handlers of pthread_atfork run
    return child;
}

// Returns whether to start a program again, which failed because its file is open for writing. The
// service has it open after writes by grants; this has the service close it.
bool must_start_again(int result, int* attempts) {
    constexpr int kAttemptsMax = 3;
    const bool is_busy = result == ETXTBSY || (result == -1 && errno == ETXTBSY);
    if (!is_busy || !internal::writing_back || ++*attempts > kAttemptsMax) return false;
    flush_all_cached();
    return true;
}

// Wraps a call that starts a program. `environment` is completed on the caller's stack.
#define STARTED(name, parameters, arguments)                                          \
    WRAP(int, name, parameters) {                                                     \
        const Next* libc = next();                                                    \
        give_all_positions();                                                         \
        flush_before_program();                                                       \
        const Room room = room_for(environment);                                      \
        auto** pointers = static_cast<char**>(alloca(room.pointers * sizeof(char*))); \
        auto* text = static_cast<char*>(alloca(room.bytes));                          \
        environment = completed(environment, pointers, text);                         \
        int result, attempts = 0;                                                     \
        do {                                                                          \
            result = libc->name arguments;                                            \
        } while (must_start_again(result, &attempts));                                \
        return result;                                                                \
    }

STARTED(execve, (const char* path, char* const* words, char* const* environment),
        (path, words, environment))
STARTED(execvpe, (const char* file, char* const* words, char* const* environment),
        (file, words, environment))
STARTED(execveat,
        (int folder, const char* path, char* const* words, char* const* environment, int flags),
        (folder, path, words, environment, flags))
STARTED(fexecve, (int fd, char* const* words, char* const* environment), (fd, words, environment))
STARTED(posix_spawn,
        (pid_t * pid, const char* path, const posix_spawn_file_actions_t* actions,
         const posix_spawnattr_t* attributes, char* const* words, char* const* environment),
        (pid, path, actions, attributes, words, environment))
STARTED(posix_spawnp,
        (pid_t * pid, const char* file, const posix_spawn_file_actions_t* actions,
         const posix_spawnattr_t* attributes, char* const* words, char* const* environment),
        (pid, file, actions, attributes, words, environment))

WRAP(int, execv, (const char* path, char* const* words)) {
    return wrap_execve(path, words, environ);
}
WRAP(int, execvp, (const char* file, char* const* words)) {
    return wrap_execvpe(file, words, environ);
}

// Collects the words of a call with an ellipsis, up to its null pointer, on the stack.
#define COLLECT(words, first)                                                \
    va_list list;                                                            \
    va_start(list, first);                                                   \
    size_t count = 0;                                                        \
    for (const char* each = first; each != nullptr; ++count) {               \
        each = va_arg(list, const char*);                                    \
    }                                                                        \
    va_end(list);                                                            \
    auto** words = static_cast<char**>(alloca((count + 1) * sizeof(char*))); \
    va_start(list, first);                                                   \
    words[0] = const_cast<char*>(first);                                     \
    for (size_t i = 1; i <= count; ++i) words[i] = va_arg(list, char*);

WRAP(int, execl, (const char* path, const char* word, ...)) {
    COLLECT(words, word)
    va_end(list);
    return wrap_execve(path, words, environ);
}
WRAP(int, execlp, (const char* file, const char* word, ...)) {
    COLLECT(words, word)
    va_end(list);
    return wrap_execvpe(file, words, environ);
}
WRAP(int, execle, (const char* path, const char* word, ...)) {
    COLLECT(words, word)
    char* const* environment = va_arg(list, char* const*);
    va_end(list);
    return wrap_execve(path, words, environment);
}

}  // namespace penstock::preload
