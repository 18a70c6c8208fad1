"""Goal: what broke other preload libraries does not break this one. A test is named by the symptom.

Each program runs alone, under `penstock run` and under `penstock trace`, and has to do the same.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from preloading import ALLOCATING, LIBRARY, Trace, compiled, same_alone_and_preloaded

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="built without the preload library")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(bytes(i % 251 for i in range(100_000)))
    return path


def run_c(folder: Path, text: str, *words: object, code: int = 0) -> Trace:
    """Compile a program and compare its runs."""
    path = compiled(folder, "program", text)
    return same_alone_and_preloaded(folder, path, *map(str, words), code=code)


def test_a_call_that_is_not_wrapped_finds_no_descriptor(tmp_path: Path, data: Path) -> None:
    text = """
int main(int count, char** words) {
    char b[100];
    struct stat s;
    int waiting, fd = open(words[1], O_RDONLY);
    CHECK(fd == 3 && syscall(SYS_read, fd, b, 10) == 10 && b[9] == 9);
    CHECK(syscall(SYS_fstat, fd, &s) == 0 && s.st_size == 100000);
    CHECK(ioctl(fd, FIONREAD, &waiting) == 0 && waiting == 99990);
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL) == 0 && lseek(fd, 5, SEEK_CUR) == 15);
    int again = open("/proc/self/fd/3", O_RDONLY);
    CHECK(again == 4 && read(again, b, 7) == 7);
    FILE* file = fdopen(dup(fd), "r");
    CHECK(fgetc(file) == 15 && fread(b, 1, 20, file) == 20);
    dup2(fd, 0);
    lseek(0, 99990, SEEK_SET);
    CHECK(fflush(stdout) == 0);
    execl("/bin/cat", "cat", (char*)0);
    return 1;
}
"""
    trace = run_c(tmp_path, text, data)
    assert ("r", 0, 7) in trace.of(data)
    assert ("r", 99990, 10) in trace.of(data)  # by cat


def test_a_call_that_must_fail_succeeds(tmp_path: Path, data: Path) -> None:
    text = """
#define TELL(call) (errno = 0, printf("%s: %ld %d\\n", #call, (long)(call), errno))
int main(int count, char** words) {
    char b[10];
    int ends[2], r = open(words[1], O_RDONLY), w = open(words[1], O_WRONLY);
    pipe(ends);
    TELL(open("/nowhere", O_RDONLY));
    TELL(open("/", O_WRONLY));
    TELL(creat(words[1], 0) < 0);
    TELL(read(w, b, 10));
    TELL(write(r, b, 10));
    TELL(pread(ends[0], b, 1, 0));
    TELL(pread(r, b, 10, -5));
    TELL(read(r, (void*)8, 10));
    TELL(read(77, b, 10));
    TELL(dup2(77, 5));
    TELL(dup3(r, r, 0));
    TELL(fcntl(77, F_DUPFD, 0));
    TELL(fcntl(r, F_DUPFD, 1 << 30));
    TELL(mmap(0, 10, PROT_READ, MAP_PRIVATE, 77, 0) == MAP_FAILED);
    TELL(mmap(0, 10, PROT_READ, MAP_PRIVATE, r, 1) == MAP_FAILED);
    TELL(fopen("/nowhere", "r") == 0);
    TELL(copy_file_range(w, 0, r, 0, 10, 0));
    TELL(sendfile(r, r, 0, 10));
    TELL(close_range(9, 8, 0));
    TELL(close(r));
    TELL(close(r));
    TELL(read(r, b, 1));
    return 0;
}
"""
    assert run_c(tmp_path, text, data).of(data) == []


# An allocator in which each malloc takes pages of its own, and which reads a file at the first one,
# as jemalloc does to learn of huge pages.
_ALLOCATOR = """
static size_t* pages(size_t size) {
    static int known;
    if (!known) {
        char b[64];
        known = 1;
        int fd = open("/proc/self/status", O_RDONLY);
        if (fd >= 0) read(fd, b, sizeof b), close(fd);
    }
    size += 4096;
    size_t* made = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return 0;
    *made = size;
    return made + 512;
}
void* malloc(size_t size) { return pages(size); }
void* calloc(size_t count, size_t size) { return pages(count * size); }
void free(void* at) {
    if (at != 0) munmap((size_t*)at - 512, ((size_t*)at)[-512]);
}
void* realloc(void* at, size_t size) {
    void* made = pages(size);
    size_t old = at == 0 ? 0 : ((size_t*)at)[-512] - 4096;
    if (at != 0) memcpy(made, at, old < size ? old : size);
    free(at);
    return made;
}
void* memalign(size_t alignment, size_t size) { return pages(size); }
void* aligned_alloc(size_t alignment, size_t size) { return pages(size); }
int posix_memalign(void** out, size_t alignment, size_t size) { return (*out = pages(size)) == 0; }
"""


@pytest.mark.parametrize("order", ["ours first", "theirs first"])
def test_an_allocator_that_maps_deadlocks_at_the_look_up_of_mmap(
    tmp_path: Path, data: Path, order: str
) -> None:
    program = compiled(tmp_path, "program", ALLOCATING)
    allocator = compiled(tmp_path, "allocator.so", _ALLOCATOR)
    preloads = allocator if order == "ours first" else f"{allocator}:{LIBRARY}"
    environment = {**os.environ, "LD_PRELOAD": preloads, "PENSTOCK_FEED": "1"}
    words = [program, str(data)]
    if order == "theirs first":
        words = ["env", f"LD_PRELOAD={preloads}", *words]
    trace = same_alone_and_preloaded(tmp_path, *words, env=environment)
    assert len(trace.of(data)) == 1000  # of four threads and a child


_PART = """
__attribute__((constructor)) static void begin(void) {
    char b[100];
    int fd = open(getenv("DATA"), O_RDONLY);
    CHECK(read(fd, b, SIZE) == SIZE && close(fd) == 0);
}
__attribute__((destructor)) static void end(void) {
    char b[100];
    int fd = open(getenv("DATA"), O_RDONLY);
    CHECK(pread(fd, b, SIZE, 1000) == SIZE && close(fd) == 0);
}
int needed(void) { return SIZE; }
"""


def test_initialisation_inside_constructors_and_dlopen_is_missed(
    tmp_path: Path, data: Path
) -> None:
    compiled(tmp_path, "libneeded.so", _PART, "-DSIZE=10")
    plugin = compiled(tmp_path, "plugin.so", _PART, "-DSIZE=20")
    text = (
        _PART
        + """
void* load(void* path) { return dlopen(path, RTLD_NOW); }
int main(int count, char** words) {
    void* library;
    pthread_t thread;
    CHECK(needed() == 30);
    pthread_create(&thread, 0, load, words[1]);
    pthread_join(thread, &library);
    CHECK(library != 0 && ((int (*)(void))dlsym(library, "needed"))() == 20);
    CHECK(dlclose(library) == 0);
    return 0;
}
"""
    )
    libraries = ("-Wl,--no-as-needed", f"-L{tmp_path}", "-lneeded", f"-Wl,-rpath,{tmp_path}")
    program = compiled(tmp_path, "program", text, "-DSIZE=30", *libraries)
    environment = {**os.environ, "DATA": str(data)}
    trace = same_alone_and_preloaded(tmp_path, program, plugin, env=environment)
    begins = [("r", 0, size) for size in (10, 30, 20)]
    assert trace.of(data) == [*begins, *(("r", 1000, size) for size in (20, 30, 10))]


def test_the_position_of_duplicates_is_not_shared_or_used_after_close(
    tmp_path: Path, data: Path
) -> None:
    text = """
int main(int count, char** words) {
    char b[10];
    int a = open(words[1], O_RDONLY);
    int all[] = {a, dup(a), fcntl(a, F_DUPFD, 100), fcntl(a, F_DUPFD_CLOEXEC, 900), dup2(a, 50),
                 dup3(a, 51, O_CLOEXEC)};
    for (int i = 0; i < 6; ++i) CHECK(read(all[i], b, 10) == 10 && b[0] == 10 * i);
    close(a);
    if (fork() == 0) _exit(read(all[1], b, 10) == 10 && b[0] == 60 ? 0 : 1);
    int status;
    CHECK(wait(&status) > 0 && status == 0);
    for (int i = 1; i < 6; ++i) {
        CHECK(read(all[i], b, 10) == 10 && b[0] == 60 + 10 * i);
        CHECK(close(all[i]) == 0 && read(all[i], b, 1) == -1 && errno == EBADF);
        int other = open(words[2], O_RDONLY);
        CHECK(dup2(other, all[i]) == all[i] && read(all[i], b, i) == i && b[0] == 'x');
        close(other);
    }
    return 0;
}
"""
    other = tmp_path / "other"
    other.write_bytes(b"x" * 100)
    trace = run_c(tmp_path, text, data, other)
    assert trace.of(data) == [("r", 10 * i, 10) for i in range(12)]
    assert trace.of(other) == [("r", 0, i) for i in range(1, 6)]


@pytest.mark.parametrize("environment", ["none", "null", "environ"])
@pytest.mark.parametrize("closed", [0, 3])
def test_exec_without_environment_or_low_descriptors_loses_the_library(
    tmp_path: Path, data: Path, environment: str, closed: int
) -> None:
    text = """
int main(int count, char** words) {
    char* none[] = {0};
    char* next[] = {"reader", words[2], words[3], 0};
    char** environment = words[4][0] == 'e' ? environ : none;
    if (strcmp(words[4], "null") == 0) environment = 0;
    for (int i = 0; i < atoi(words[5]); ++i) close(i);
    execve("/nowhere", next, environment);
    if (errno != ENOENT) return 1;
    execve(words[1], next, environment);
    return 2;
}
"""
    reader = compiled(
        tmp_path,
        "reader",
        """
int main(int count, char** words) {
    char b[100];
    int in = open(words[1], O_RDONLY), out = open(words[2], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    snprintf(b, sizeof b, "%d %d %zd\\n", in, out, read(in, b, 30));
    return write(out, b, strlen(b)) == strlen(b) ? 0 : 1;
}
""",
    )
    out = tmp_path / "out"
    trace = run_c(tmp_path, text, reader, data, out, environment, closed)
    assert out.read_text() == f"{3 - closed} {4 - closed} 30\n"
    assert trace.of(data) == [("r", 0, 30)]


def test_a_failed_exec_leaves_a_changed_process(tmp_path: Path, data: Path) -> None:
    script, broken = tmp_path / "script", tmp_path / "broken"
    script.write_text("echo script $1\n")
    broken.write_text("#!/nowhere\n")
    script.chmod(0o700)
    broken.chmod(0o700)
    text = """
int main(int count, char** words) {
    char b[10], *next[] = {"x", "y", 0};
    char** before = environ;
    pid_t child = -5;
    int fd = open(words[1], O_RDONLY), size = 0, status;
    while (environ[size] != 0) ++size;
    for (int i = 0; i < 50; ++i) {
        CHECK(execvp("not-to-be-found", next) == -1 && errno == ENOENT);
        CHECK(execve("/", next, environ) == -1 && errno == EACCES);
        CHECK(execv(words[2], next) == -1 && errno == ENOEXEC);
        CHECK(execle(words[3], "x", (char*)0, environ) == -1 && errno == ENOENT);
        CHECK(fexecve(77, next, environ) == -1);
        CHECK(posix_spawn(&child, "/nowhere", 0, 0, next, environ) == ENOENT && child == -5);
        CHECK(posix_spawnp(&child, "nowhere", 0, 0, next, environ) == ENOENT && child == -5);
        CHECK(read(fd, b, 10) == 10);
    }
    CHECK(before == environ && environ[size] == 0);
    CHECK(execlp(words[2], "x", "works", (char*)0) == -1);
    return 1;
}
"""
    trace = run_c(tmp_path, text, data, script, broken)
    assert trace.of(data) == [("r", 10 * i, 10) for i in range(50)]


def test_a_signal_handler_that_reads_deadlocks_in_the_look_up(tmp_path: Path, data: Path) -> None:
    text = """
static const char* path;
static volatile int handled;
static void handle(int number) {
    char b[4];
    int error = errno, fd = open(path, O_RDONLY);
    CHECK(pread(fd, b, 4, 77) == 4 && b[0] == 77 && close(fd) == 0);
    ++handled;
    errno = error;
}
int main(int count, char** words) {
    char b[64];
    stack_t small = {malloc(MINSIGSTKSZ + 4096), 0, MINSIGSTKSZ + 4096};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART | SA_ONSTACK};
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    path = words[1];
    CHECK(sigaltstack(&small, 0) == 0 && sigaction(SIGALRM, &action, 0) == 0);
    setitimer(ITIMER_REAL, &often, 0);
    for (int i = 0; i < 2000 || handled < 200; ++i) {
        int fd = open(words[1], O_RDONLY);
        CHECK(read(fd, b, 64) == 64 && b[63] == 63 && close(fd) == 0);
    }
    setitimer(ITIMER_REAL, &never, 0);
    return 0;
}
"""
    found = run_c(tmp_path, text, data).of(data)
    assert found.count(("r", 0, 64)) >= 2000
    assert found.count(("r", 77, 4)) >= 200
    assert len(found) == found.count(("r", 0, 64)) + found.count(("r", 77, 4))


def test_a_child_of_vfork_changes_its_parent(tmp_path: Path, data: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * 100)
    text = """
int main(int count, char** words) {
    unsigned char b[40];
    int status, fd = open(words[1], O_RDONLY), fd2 = open(words[2], O_RDONLY);
    for (int i = 0; i < 20; ++i) {
        pid_t child = vfork();
        if (child == 0) {
            dup2(fd2, fd);
            close(fd2);
            _exit(pread(fd, b, 30, 0) == 30 && b[0] == 'x' ? 0 : 1);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(read(fd, b, 10) == 10 && b[0] == 10 * i);
        CHECK(pread(fd2, b, 20, 0) == 20);
    }
    return 0;
}
"""
    trace = run_c(tmp_path, text, data, other)
    assert trace.of(data) == [("r", 10 * i, 10) for i in range(20)]
    assert trace.of(other) == [("r", 0, 30), ("r", 0, 20)] * 20
    assert len(set(trace.threads[str(data)])) == 1
    assert trace.threads[str(data)][0] != trace.threads[str(other)][0]  # that is the child


def test_subprocess_of_python_loses_descriptors(tmp_path: Path, data: Path) -> None:
    code = f"""
import subprocess, sys, threading
def work(number):
    for i in range(8):
        with open({str(data)!r}, "rb", buffering=0) as file:
            file.seek(100 * number)
            done = subprocess.run(["head", "-c", "3"], stdin=file, capture_output=True,
                                  env={{}} if i % 2 else None, close_fds=i % 3 == 0)
            assert done.stdout == bytes(100 * number + i for i in range(3)), done
            file.seek(50)
            assert file.read(5) == bytes(range(50, 55))
threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
print(subprocess.run(["not-to-be-found"]) if len(sys.argv) > 1 else "done")
"""
    trace = same_alone_and_preloaded(tmp_path, sys.executable, "-c", code)
    found = trace.of(data)
    assert found.count(("r", 50, 5)) == 16
    assert sum(offset in (0, 100) for _, offset, _ in found) == 16
