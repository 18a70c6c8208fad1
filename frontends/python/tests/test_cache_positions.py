"""Goal: calls that move one position at once each get bytes of their own."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from caching import making, needs_cache, settled, write
from preloading import compiled

pytestmark = needs_cache

RECORDS = 100_000

# Two threads, or a thread and a child, take records of 8 bytes in turn by calls of different kinds,
# until the file ends. Prints how many records were given twice and how many to none of them.
SHARED = """
static unsigned char* taken;
static int fds[2];
static const char* ways[2];
static void take(const char* memory, long size) {
    CHECK(size % 8 == 0);
    for (long i = 0; i < size; i += 8) {
        unsigned long record;
        memcpy(&record, memory + i, 8);
        __atomic_add_fetch(taken + record, 1, __ATOMIC_SEQ_CST);
    }
}
static void* work(void* of) {
    int who = (long)of, fd = fds[who];
    static __thread char memory[4096];
    for (int turn = 0;; ++turn) {
        long got = 0;
        if (!strcmp(ways[who], "read")) {
            got = read(fd, memory, 8 * (1 + turn % 3));
        } else if (!strcmp(ways[who], "readv")) {
            struct iovec pieces[2] = {{memory, 8}, {memory + 8, 8}};
            got = readv(fd, pieces, 2);
        } else {  // in turn, so that the position changes hands often
            struct iovec pieces[2] = {{memory, 8}, {memory + 8, 8}};
            got = turn & 1 ? readv(fd, pieces, 2) : read(fd, memory, 16);
        }
        CHECK(got >= 0);
        if (got == 0) return 0;
        take(memory, got);
    }
}
int main(int count, char** words) {
    long records = atol(words[2]);
    ways[0] = words[4], ways[1] = words[5];
    taken = mmap(0, records, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fds[0] = fds[1] = open(words[1], O_RDONLY);
    CHECK(fds[0] >= 0);
    char byte[8];
    CHECK(pread(fds[0], byte, 8, 0) == 8);
    if (!strcmp(words[3], "dup")) CHECK((fds[1] = dup(fds[0])) >= 0);
    if (!strcmp(words[3], "fork")) {
        pid_t child = fork();
        if (child == 0) {
            work((void*)1);
            _exit(0);
        }
        int status;
        work((void*)0);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    } else {
        pthread_t threads[2];
        for (long i = 0; i < 2; ++i) CHECK(pthread_create(threads + i, 0, work, (void*)i) == 0);
        for (int i = 0; i < 2; ++i) pthread_join(threads[i], 0);
    }
    long twice = 0, lost = 0;
    for (long i = 0; i < records; ++i) twice += taken[i] > 1, lost += taken[i] == 0;
    printf("%ld twice, %ld lost\\n", twice, lost);
    return 0;
}
"""


@pytest.mark.parametrize("ways", ["read readv", "both both", "read both"])
@pytest.mark.parametrize("sharing", ["threads", "dup", "fork"])
def test_no_bytes_are_given_twice(tmp_path: Path, sharing: str, ways: str) -> None:
    with making(tmp_path, "cpu") as cache:
        program = compiled(tmp_path, "shared", SHARED)
        path = cache.folder / "records"
        path.write_bytes(b"".join(struct.pack("Q", i) for i in range(RECORDS)))
        settled()
        cache.serve()
        for _ in range(3):
            words = [str(program), str(path), str(RECORDS), sharing, *ways.split()]
            done = cache.run(*words, check=False)
            assert done.stdout == "0 twice, 0 lost\n", done


# Descriptors that functions of libc close or replace by inner calls. Each is a cached file before.
CLOSED = """
#include <dirent.h>
#include <pty.h>
#include <utmp.h>
static char byte;
static int cached(const char* path) {
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && pread(fd, &byte, 1, 0) == 1 && pread(fd, &byte, 1, 1) == 1);
    return fd;
}
static int is_terminal(int fd) { return pread(fd, &byte, 1, 0) == -1 && errno == ESPIPE; }
int main(int count, char** words) {
    int status, pty, fd = cached(words[1]);
    FILE* file = fdopen(fd, "r");
    CHECK(file && setvbuf(file, 0, _IONBF, 0) == 0);
    pclose(file);
    DIR* folder = opendir("/");
    CHECK(folder && dirfd(folder) == fd);
    CHECK(pread(fd, &byte, 1, 0) == -1 && errno == EISDIR);
    close(0);
    CHECK(cached(words[1]) == 0);
    pid_t child = forkpty(&pty, 0, 0, 0);
    if (child == 0) _exit(is_terminal(0) ? 0 : 1);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(is_terminal(pty));
    int terminal;
    CHECK(openpty(&pty, &terminal, 0, 0, 0) == 0);
    child = fork();
    if (child == 0) {
        setsid();
        if (pread(0, &byte, 1, 0) != 1 || login_tty(terminal) != 0) _exit(1);
        _exit(is_terminal(0) ? 0 : 2);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(pread(0, &byte, 1, 0) == 1);
    puts("done");
    return 0;
}
"""


def test_what_libc_closes_by_inner_calls_is_forgotten(tmp_path: Path) -> None:
    with making(tmp_path, "cpu") as cache:
        program = compiled(tmp_path, "closed", CLOSED, "-lutil")
        write(cache.folder / "a", 100_000)
        cache.serve()
        done = cache.run(program, cache.folder / "a", check=False)
        assert done.stdout == "done\n", done
