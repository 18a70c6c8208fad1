"""Goal: calls that move one position at once each get bytes of their own."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from caching import making, needs_cache, settled
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
            words = [program, path, str(RECORDS), sharing, *ways.split()]
            done = cache.run(*words, check=False)
            assert done.stdout == "0 twice, 0 lost\n", done
