"""Goal: what broke other preload libraries does not break this one: calls, workers and neighbours.

A test is named by the symptom. Each program runs alone, under `penstock run` and under
`penstock trace`, and has to do the same.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from preloading import LIBRARY, Trace, compiled, same_alone_and_preloaded

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="built without the preload library")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(bytes(i % 251 for i in range(100_000)))
    return path


def run_c(folder: Path, text: str, *words: object, options: tuple[str, ...] = ()) -> Trace:
    """Compile a program and compare its runs."""
    path = compiled(folder, "program", text, *options)
    return same_alone_and_preloaded(folder, path, *map(str, words))


def test_posix_spawn_edits_environ(tmp_path: Path, data: Path) -> None:
    text = """
static void spawn(char* path, char** environment) {
    char *next[] = {"head", "-c5", path, 0};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    CHECK(posix_spawn(&child, "/usr/bin/head", &actions, 0, next, environment) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(posix_spawnp(&child, "head", &actions, 0, next, environment) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}
int main(int count, char** words) {
    char *own[] = {"A=1", "LD_PRELOAD=", "B=2", 0}, *copy[1000], **before = environ;
    int size = 0;
    for (; environ[size] != 0; ++size) copy[size] = environ[size];
    copy[size] = 0;
    for (int i = 0; i < 10; ++i) spawn(words[1], i % 2 ? environ : own);
    CHECK(before == environ && memcmp(copy, environ, (size + 1) * sizeof *copy) == 0);
    CHECK(!strcmp(own[0], "A=1") && !strcmp(own[1], "LD_PRELOAD=") && !strcmp(own[2], "B=2"));
    for (int i = 0; i < 10; ++i) {
        CHECK(setenv("C", i % 2 ? "3" : "a longer value", 1) == 0);
        spawn(words[1], environ);
    }
    CHECK(clearenv() == 0);
    spawn(words[1], environ);
    return 0;
}
"""
    found = run_c(tmp_path, text, data).of(data)
    assert len(found) == 42


def test_workers_that_leave_by_exit_lose_their_accesses(tmp_path: Path, data: Path) -> None:
    code = f"""
import multiprocessing, os
def work(i):
    fd = os.open({str(data)!r}, os.O_RDONLY)
    os.pread(fd, 7, 100 * i)
    if i == 3:
        os.write(1, b"leaving\\n")
        os._exit(5)
if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    workers = [multiprocessing.Process(target=work, args=(i,)) for i in range(6)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    print([w.exitcode for w in workers])
    with multiprocessing.Pool(2) as pool:  # which ends its workers by SIGTERM
        pool.map(work, [10, 11, 12, 13])
"""
    trace = same_alone_and_preloaded(tmp_path, sys.executable, "-c", code)
    assert sorted(trace.of(data)) == [("r", 100 * i, 7) for i in (0, 1, 2, 3, 4, 5, 10, 11, 12, 13)]


@pytest.mark.parametrize("options", [(), ("-D_FORTIFY_SOURCE=2",), ("-D_FILE_OFFSET_BITS=64",)])
def test_fortified_and_large_file_forms_are_missed(
    tmp_path: Path, data: Path, options: tuple[str, ...]
) -> None:
    text = """
int main(int count, char** words) {
    char b[100];
    int flags = count > 5 ? O_RDWR : O_RDONLY, size = atoi(words[2]), fds[4];
    fds[0] = open(words[1], flags);
    fds[1] = open64(words[1], flags);
    fds[2] = openat(AT_FDCWD, words[1], flags);
    fds[3] = openat64(AT_FDCWD, words[1], flags);
    for (int i = 0; i < 4; ++i) {
        CHECK(read(fds[i], b, size) == size && pread(fds[i], b, size, 50) == size);
        CHECK(pread64(fds[i], b, size, 60) == size && close(fds[i]) == 0);
    }
    int fd = creat64(words[3], 0600);
    CHECK(write(fd, b, size) == size && pwrite64(fd, b, size, 80) == size);
    return 0;
}
"""
    out = tmp_path / "out"
    trace = run_c(tmp_path, text, data, 20, out, options=options)
    assert trace.of(data) == [("r", 0, 20), ("r", 50, 20), ("r", 60, 20)] * 4
    assert trace.of(out) == [("w", 0, 20), ("w", 80, 20)]


def test_stat_in_its_old_and_new_forms_answers_otherwise(tmp_path: Path, data: Path) -> None:
    text = """
int main(int count, char** words) {
    struct stat s;
    struct statx x;
    int fd = open(words[1], O_RDONLY);
    int (*old)(int, const char*, struct stat*) = dlsym(RTLD_DEFAULT, "__xstat");
    int (*old_fd)(int, int, struct stat*) = dlsym(RTLD_DEFAULT, "__fxstat");
#define TELL(call) \\
    do { \\
        memset(&s, 0, sizeof s); \\
        int result = call; \\
        printf("%s: %d %ld %ld\\n", #call, result, (long)s.st_size, (long)s.st_ino); \\
    } while (0)
    TELL(stat(words[1], &s));
    TELL(lstat(words[1], &s));
    TELL(fstat(fd, &s));
    TELL(fstatat(AT_FDCWD, words[1], &s, 0));
    TELL(stat64(words[1], (struct stat64*)&s));
    TELL(old == 0 ? 0 : old(1, words[1], &s));
    TELL(old_fd == 0 ? 0 : old_fd(1, fd, &s));
    TELL(stat("/nowhere", &s));
    CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &x) == 0);
    printf("%ld\\n", (long)x.stx_size);
    return 0;
}
"""
    assert run_c(tmp_path, text, data).of(data) == []


def test_fromfile_of_numpy_reads_at_another_position(tmp_path: Path, data: Path) -> None:
    pytest.importorskip("numpy")
    code = f"""
import numpy
with open({str(data)!r}, "rb", buffering=0) as file:
    print(file.read(3))
    print(numpy.fromfile(file, dtype=numpy.uint8, count=10), file.tell())
    print(numpy.fromfile(file, dtype="<u4", count=2, offset=5), file.tell())
    print(file.read(4))
    for i in range(50):
        numpy.fromfile(file, dtype=numpy.uint8, count=100)
    print(file.tell(), file.read(1))
with open({str(tmp_path / "out")!r}, "wb") as file:
    numpy.arange(1000).tofile(file)
print(numpy.fromfile({str(tmp_path / "out")!r}, dtype=numpy.int64).sum())
print(numpy.memmap({str(data)!r}, mode="r")[100:105])
"""
    found = same_alone_and_preloaded(tmp_path, sys.executable, "-c", code).of(data)
    # The file's own reads are recorded where they were, among those of stdio for fromfile.
    own = [("r", 0, 3), ("r", 26, 4), ("r", 5030, 1)]
    assert found[0] == own[0]
    assert [access for access in found if access in own[1:]] == own[1:]


# Reads through the kernel's two rings. Where the kernel or a container refuses, it says so.
_RINGS = """
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
static void aio(int fd) {
    aio_context_t context = 0;
    char b[10];
    struct iocb one = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = fd,
                       .aio_buf = (long)b, .aio_nbytes = 10, .aio_offset = 70};
    struct iocb* list[] = {&one};
    struct io_event event;
    if (syscall(SYS_io_setup, 8, &context) != 0) return (void)printf("no aio: %d\\n", errno);
    CHECK(syscall(SYS_io_submit, context, 1, list) == 1);
    CHECK(syscall(SYS_io_getevents, context, 1, 1, &event, 0) == 1);
    printf("aio %ld %d\\n", (long)event.res, b[0]);
    CHECK(syscall(SYS_io_destroy, context) == 0);
}
static void uring(int fd) {
    struct io_uring_params p = {0};
    char b[10];
    int ring = syscall(SYS_io_uring_setup, 4, &p);
    if (ring < 0) return (void)printf("no io_uring: %d\\n", errno);
    char* sq = mmap(0, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED,
                    ring, IORING_OFF_SQ_RING);
    char* cq = mmap(0, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
                    PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe* entry = mmap(0, p.sq_entries * sizeof *entry, PROT_READ | PROT_WRITE,
                                      MAP_SHARED, ring, IORING_OFF_SQES);
    CHECK(sq != MAP_FAILED && cq != MAP_FAILED && entry != MAP_FAILED);
    struct iovec piece = {b, 10};
    *entry = (struct io_uring_sqe){.opcode = IORING_OP_READV, .fd = fd, .addr = (long)&piece,
                                   .len = 1, .off = 90};
    ((unsigned*)(sq + p.sq_off.array))[0] = 0;
    __atomic_store_n((unsigned*)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1);
    printf("uring %d %d\\n", ((struct io_uring_cqe*)(cq + p.cq_off.cqes))->res, b[0]);
    close(ring);
}
int main(int count, char** words) {
    char b[10];
    int fd = open(words[1], O_RDONLY);
    aio(fd);
    uring(fd);
    CHECK(read(fd, b, 10) == 10 && b[9] == 9);
    return 0;
}
"""


def test_a_program_with_its_own_rings_fails(tmp_path: Path, data: Path) -> None:
    assert run_c(tmp_path, _RINGS, data).of(data) == [("r", 0, 10)]


def test_a_program_that_cannot_be_preloaded_crashes_its_parent(tmp_path: Path, data: Path) -> None:
    text = """
int main(int count, char** words) {
    char b[10];
    int fd = open(words[1], O_RDONLY);
    CHECK(read(fd, b, 10) == 10);
    printf("static %d\\n", b[9]);
    return 3;
}
"""
    program = compiled(tmp_path, "static", text, "-static")
    code = f"""
import subprocess
for i in range(3):
    print(subprocess.run([{program!r}, {str(data)!r}], capture_output=True))
    with open({str(data)!r}, "rb", buffering=0) as file:
        file.read(5)
"""
    trace = same_alone_and_preloaded(tmp_path, sys.executable, "-c", code)
    assert trace.of(data) == [("r", 0, 5)] * 3


def test_appends_land_at_a_position_of_the_library(tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = """
int main(int count, char** words) {
    char b[10];
    int status, fd = open(words[1], O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
    for (int i = 0; i < 20; ++i) {
        CHECK(write(fd, "parent\\n", 7) == 7);
        if (fork() == 0) {
            int own = open(words[1], O_WRONLY | O_APPEND);
            CHECK(write(own, "child\\n", 6) == 6);
            _exit(0);
        }
        CHECK(wait(&status) > 0 && status == 0);
        CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, b, 6) == 6 && memcmp(b, "parent", 6) == 0);
    }
    CHECK(fcntl(fd, F_SETFL, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    CHECK(write(fd, "PARENT", 6) == 6);
    return 0;
}
"""
    found = run_c(tmp_path, text, out).of(out)
    assert out.read_text() == "PARENT\nchild\n" + "parent\nchild\n" * 19
    turns = [[("w", 13 * i, 7), ("w", 13 * i + 7, 6), ("r", 0, 6)] for i in range(20)]
    assert found == [*(one for turn in turns for one in turn), ("w", 0, 6)]


def test_fork_and_exec_inside_threads_deadlock(tmp_path: Path, data: Path) -> None:
    text = """
static volatile int ending;
void* start(void* path) {
    char* next[] = {"true", 0};
    int status;
    pid_t child;
    for (int i = 0; i < 60; ++i) {
        switch (i % 3) {
            case 0: child = fork(); break;
            case 1: child = vfork(); break;
            case 2: CHECK(posix_spawnp(&child, "true", 0, 0, next, environ) == 0);
        }
        if (child == 0) {
            execve("/nowhere", next, environ);
            execvp("true", next);
            _exit(1);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    return 0;
}
void* use(void* path) {
    char b[10];
    while (!ending) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(read(fd, b, 10) == 10);
        void* at = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        CHECK(at != MAP_FAILED && munmap(at, 4096) == 0 && close(fd) == 0);
    }
    return 0;
}
int main(int count, char** words) {
    pthread_t starters[3], users[2];
    for (int i = 0; i < 2; ++i) pthread_create(users + i, 0, use, words[1]);
    for (int i = 0; i < 3; ++i) pthread_create(starters + i, 0, start, words[1]);
    for (int i = 0; i < 3; ++i) pthread_join(starters[i], 0);
    ending = 1;
    for (int i = 0; i < 2; ++i) pthread_join(users[i], 0);
    return 0;
}
"""
    assert set(run_c(tmp_path, text, data).of(data)) == {("r", 0, 10)}


_NEIGHBOUR = """
static int calls;
#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, #name))
int open(const char* path, int flags, ...) {
    ++calls;
    return NEXT(int (*)(const char*, int, int), open)(path, flags, 0600);
}
ssize_t read(int fd, void* to, size_t size) {
    ++calls;
    return NEXT(ssize_t (*)(int, void*, size_t), read)(fd, to, size);
}
int close(int fd) {
    ++calls;
    return NEXT(int (*)(int), close)(fd);
}
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
    ++calls;
    return NEXT(void* (*)(void*, size_t, int, int, int, off_t), mmap)(at, size, protection, flags,
                                                                      fd, offset);
}
int execve(const char* path, char* const* words, char* const* environment) {
    return NEXT(int (*)(const char*, char* const*, char* const*), execve)(path, words, environment);
}
int neighbour_calls(void) { return calls; }
"""


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_another_preloaded_library_misses_calls(tmp_path: Path, data: Path, first: str) -> None:
    neighbour = compiled(tmp_path, "neighbour.so", _NEIGHBOUR)
    text = """
int main(int count, char** words) {
    char b[10];
    int (*calls)(void) = dlsym(RTLD_DEFAULT, "neighbour_calls");
    CHECK(calls != 0);
    int before = calls(), fd = open(words[1], O_RDONLY);
    CHECK(read(fd, b, 10) == 10 && mmap(0, 10, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED);
    CHECK(close(fd) == 0);
    printf("%s %d\\n", words[2], calls() - before >= 4);
    fflush(stdout);
    char* next[] = {words[0], words[1], "again", 0};
    return words[2][0] == 'o' ? execve(words[0], next, environ) : 0;
}
"""
    program = compiled(tmp_path, "program", text)
    preloads = f"{neighbour}:{LIBRARY}" if first == "theirs" else neighbour
    words = ["env", f"LD_PRELOAD={preloads}"] if first == "theirs" else []
    environment = {**os.environ, "LD_PRELOAD": preloads}
    trace = same_alone_and_preloaded(tmp_path, *words, program, str(data), "once", env=environment)
    assert trace.of(data) == [("r", 0, 10)] * 2


def test_descriptors_that_were_closed_in_a_range_keep_their_names(
    tmp_path: Path, data: Path
) -> None:
    text = """
int main(int count, char** words) {
    char b[100];
    for (int turn = 0; turn < 4; ++turn) {
        for (int i = 0; i < 30; ++i) {
            int fd = open(words[1 + turn % 2], O_RDONLY);
            CHECK(fd == 3 + i && read(fd, b, 1 + turn) == 1 + turn);
            CHECK(b[0] == (turn % 2 ? 'x' : 0));
        }
        if (turn < 2) closefrom(3);
        else CHECK(close_range(3, turn == 2 ? 32 : ~0u, 0) == 0);
        CHECK(read(3, b, 1) == -1 && errno == EBADF);
    }
    int fd = open(words[1], O_RDONLY);
    CHECK(close_range(3, 3, CLOSE_RANGE_CLOEXEC) == 0 && read(fd, b, 9) == 9);
    return 0;
}
"""
    other = tmp_path / "other"
    other.write_bytes(b"x" * 100)
    options = ("-include", "linux/close_range.h")
    trace = run_c(tmp_path, text, data, other, options=options)
    assert trace.of(data) == [("r", 0, 1)] * 30 + [("r", 0, 3)] * 30 + [("r", 0, 9)]
    assert trace.of(other) == [("r", 0, 2)] * 30 + [("r", 0, 4)] * 30


@pytest.mark.parametrize(
    "words",
    [
        ["bash", "-c", "exec 3<DATA; read -r -n 5 a <&3; (cat <&3) | md5sum; exec 3<&-; echo $?"],
        ["sh", "-c", "tac DATA | tail -c 100 | md5sum; find / -maxdepth 1 | wc -l; exit 0"],
        ["tar", "--sort=name", "--mtime=@0", "-cf", "-", "-C", "FOLDER", "data"],
        ["dd", "if=DATA", "bs=999", "skip=3", "count=7", "status=none", "conv=swab"],
    ],
)
def test_everyday_programs_do_otherwise(tmp_path: Path, data: Path, words: list[str]) -> None:
    places = {"DATA": str(data), "FOLDER": str(tmp_path)}
    for name, path in places.items():
        words = [word.replace(name, path) for word in words]
    assert same_alone_and_preloaded(tmp_path, *words).of(data)


def test_a_program_without_standard_streams_fails(tmp_path: Path, data: Path) -> None:
    out = tmp_path / "out"
    # The shell itself has lost its streams, so its exit code is all that it can say.
    script = f"exec <&- >&- 2>&-; cat {data} > {out}; exit $(($? + 4))"
    trace = same_alone_and_preloaded(tmp_path, "sh", "-c", script, code=4)
    assert trace.of(data)
    assert out.read_bytes() == data.read_bytes()
