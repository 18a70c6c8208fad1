"""Goal: what makes a file empty is seen by all, also while others open it for the first time."""

from __future__ import annotations

from pathlib import Path

import pytest
from caching import making, needs_cache
from preloading import compiled

pytestmark = needs_cache

SIZE = 5000
FILES = 400

# Two threads or processes come to each file at once: one opens it for the first time, and one makes
# it empty. Then its size is what was written after that.
RACE = """
static char bytes[5000];
static volatile int* turn;
static char path[300];
static void meet(int who) {
    __atomic_add_fetch(turn, 1, __ATOMIC_SEQ_CST);
    while (*turn < 2) if (who) sched_yield();
}
static void first_use(int number, int makes) {
    meet(1);
    for (volatile int i = 0; i < number % 40 * 200; ++i) continue;
    int fd = open(path, makes ? O_RDWR | O_CREAT : O_RDWR, 0600);
    CHECK(fd >= 0);
    char byte;
    if (makes) {
        CHECK(write(fd, bytes, sizeof bytes) == sizeof bytes);
    } else {
        CHECK(pread(fd, &byte, 1, 0) >= 0);
    }
    close(fd);
}
struct work { int number, makes; };
static void* in_thread(void* of) {
    struct work* work = of;
    first_use(work->number, work->makes);
    return 0;
}
static void empty(const char* how) {
    if (!strcmp(how, "open")) {
        int fd = open(path, O_WRONLY | O_TRUNC);
        CHECK(fd >= 0 && close(fd) == 0);
    } else if (!strcmp(how, "truncate")) {
        CHECK(truncate(path, 0) == 0);
    } else if (!strcmp(how, "fopen")) {
        FILE* file = fopen(path, "w");
        CHECK(file && fclose(file) == 0);
    } else if (!strcmp(how, "read")) {
        int fd = open(path, O_RDONLY | O_TRUNC);
        CHECK(fd >= 0 && close(fd) == 0);
    } else {
        int fd = creat(path, 0600);
        CHECK(fd >= 0 && close(fd) == 0);
    }
}
int main(int count, char** words) {
    int files = atoi(words[3]), processes = atoi(words[4]), wrong = 0;
    const char* how = words[2];
    int makes = !strcmp(how, "creat");
    turn = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < files; ++i) {
        *turn = 0;
        sprintf(path, "%s/f%d", words[1], i);
        pthread_t thread;
        struct work work = {i, makes};
        pid_t child = processes ? fork() : 0;
        if (processes && child == 0) {
            first_use(i, makes);
            _exit(0);
        }
        if (!processes) CHECK(pthread_create(&thread, 0, in_thread, &work) == 0);
        meet(!processes);
        empty(how);
        struct stat seen;
        int fd = open(path, O_RDWR);
        if (!makes) {
            char byte;
            CHECK(fd >= 0 && fstat(fd, &seen) == 0);
            wrong += seen.st_size != 0 || pread(fd, &byte, 1, 0) != 0;
        }
        if (processes) {
            int status;
            CHECK(waitpid(child, &status, 0) == child && status == 0);
        } else {
            pthread_join(thread, 0);
        }
        CHECK(fstat(fd, &seen) == 0);
        if (makes) {
            char all[6000];
            long got = pread(fd, all, sizeof all, 0);
            wrong += (seen.st_size != 0 && seen.st_size != sizeof bytes) || got != seen.st_size;
        } else {
            wrong += seen.st_size != 0;
        }
        close(fd);
    }
    printf("%d wrong\\n", wrong);
    return 0;
}
"""


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
@pytest.mark.parametrize("how", ["open", "truncate", "fopen", "read", "creat"])
def test_no_size_of_before_is_seen_beside_a_first_open(
    tmp_path: Path, how: str, processes: bool
) -> None:
    with making(tmp_path, "cpu") as cache:
        program = compiled(tmp_path, "race", RACE)
        for number in range(FILES if how != "creat" else 0):
            (cache.folder / f"f{number}").write_bytes(b"x" * SIZE)
        cache.serve()
        words = [str(program), str(cache.folder), how, str(FILES), str(int(processes))]
        done = cache.run(*words, write_back=True, check=False)
        assert done.stdout == "0 wrong\n", done
        if how != "creat":
            sizes = {path.stat().st_size for path in cache.folder.iterdir()}
            assert sizes == {0}
