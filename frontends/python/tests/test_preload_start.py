"""Goal: nothing that can allocate, lock or fail happens before a program's own start is over.

Libraries that are initialized before the preload library call its wrappers. Such a library may be
the program's allocator, which reads files while it initializes itself, or while it holds its lock.
"""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from caching import Cache, needs_cache, write
from preloading import ALLOCATING, LIBRARY, compiled, same_alone_and_preloaded

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="built without the preload library")

ALLOCATORS = ["jemalloc", "tcmalloc_minimal", "mimalloc"]


# An allocator that ends the program when it is called again while it reads, maps or initializes: it
# holds a lock that cannot be taken twice. It never frees.
STRICT = """
static int locked, initialized;
static char *begin, *end;
static __thread int owns __attribute__((tls_model("initial-exec")));
static void* take(size_t size) {
    if (owns) {
        write(2, "called again\\n", 13);
        _exit(98);
    }
    while (__atomic_exchange_n(&locked, 1, __ATOMIC_ACQUIRE)) sched_yield();
    owns = 1;
    if (!initialized) {
        char text[64];
        struct stat status;
        int fd = open("/proc/self/status", O_RDONLY), other = openat(AT_FDCWD, "/etc/passwd", 0);
        if (fd >= 0) read(fd, text, sizeof text), pread(fd, text, 10, 5), lseek(fd, 0, 0);
        if (other >= 0) fstat(other, &status), read(other, text, 10);
        for (int i = 0; i < 40 && other >= 0; ++i) pread(other, text, 1, 5000 * i);
        mmap(0, 4096, PROT_READ, MAP_PRIVATE, other, 0);
        stat("/proc/sys/vm/overcommit_memory", &status);
        fcntl(fd, F_GETFD), close(fd), close(other);
        initialized = 1;
    }
    size = (size + 31) / 16 * 16;
    if (end - begin < (ssize_t)size) {
        size_t more = size > 1 << 20 ? size : 1 << 20;
        begin = mmap(0, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        end = begin + more;
        munmap(mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    }
    size_t* made = (size_t*)begin;
    begin += size;
    *made = size - 16;
    owns = 0;
    __atomic_store_n(&locked, 0, __ATOMIC_RELEASE);
    return made + 2;
}
__attribute__((constructor)) static void early(void) { take(1); }
void* malloc(size_t size) { return take(size); }
void* calloc(size_t count, size_t size) { return memset(take(count * size), 0, count * size); }
void free(void* at) {}
void* realloc(void* at, size_t size) {
    void* made = take(size);
    size_t old = at == 0 ? 0 : ((size_t*)at)[-2];
    return at == 0 ? made : memcpy(made, at, old < size ? old : size);
}
static void* aligned(size_t alignment, size_t size) {
    return (void*)(((size_t)take(size + alignment) + alignment - 1) / alignment * alignment);
}
void* memalign(size_t alignment, size_t size) { return aligned(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return aligned(alignment, size); }
int posix_memalign(void** out, size_t alignment, size_t size) {
    return (*out = aligned(alignment, size)) == 0;
}
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(bytes(i % 251 for i in range(100_000)))
    return path


def all_ways(folder: Path, data: Path, allocator: str, *linked: str) -> None:
    """Run a program with an allocator linked, and preloaded before and behind our library."""
    program = compiled(folder, "program", ALLOCATING)
    with_it = compiled(folder, "linked", ALLOCATING, "-Wl,--no-as-needed", *linked)
    reads = 5 * 200
    trace = same_alone_and_preloaded(folder, with_it, str(data))
    assert len(trace.of(data)) == reads
    behind = {**os.environ, "LD_PRELOAD": allocator}  # our library goes first
    trace = same_alone_and_preloaded(folder, program, str(data), env=behind)
    assert len(trace.of(data)) == reads
    before = ["env", f"LD_PRELOAD={allocator}:{LIBRARY}", "PENSTOCK_FEED=1", program, str(data)]
    trace = same_alone_and_preloaded(folder, *before)
    assert len(trace.of(data)) == reads


@pytest.mark.parametrize("name", ALLOCATORS)
def test_a_program_with_an_allocator_of_its_own_hangs(
    tmp_path: Path, data: Path, name: str
) -> None:
    library = ctypes.util.find_library(name) or pytest.skip(f"no {name}")
    all_ways(tmp_path, data, library, f"-l:{library}")
    environment = {**os.environ, "LD_PRELOAD": library}
    code = "import os; print(os.waitpid(os.fork() or os._exit(3), 0)[1])"
    same_alone_and_preloaded(tmp_path, sys.executable, "-c", code, env=environment)


def test_an_allocator_is_called_while_it_initializes_itself(tmp_path: Path, data: Path) -> None:
    allocator = compiled(tmp_path, "liballocator.so", STRICT)
    all_ways(tmp_path, data, allocator, f"-L{tmp_path}", "-lallocator", f"-Wl,-rpath,{tmp_path}")


def test_a_constructor_forks_before_the_start(tmp_path: Path, data: Path) -> None:
    text = """
static int child;
static void use(int size) {
    char b[100];
    int fd = open(getenv("DATA"), O_RDONLY);
    CHECK(read(fd, b, size) == size && lseek(fd, 0, SEEK_CUR) == size && close(fd) == 0);
}
__attribute__((constructor)) static void begin(void) {
    int status, fd = open(getenv("DATA"), O_RDONLY);
    char b[5];
    use(10);
    child = fork();
    if (child != 0) CHECK(wait(&status) == child && status == 0);
    CHECK(read(fd, b, 5) == 5 && b[0] == (child == 0 ? 0 : 5));
    close(fd);
}
int is_child(void) { return child == 0; }
void use_again(void) { use(30); }
"""
    compiled(tmp_path, "libforking.so", text)
    libraries = ("-Wl,--no-as-needed", f"-L{tmp_path}", "-lforking", f"-Wl,-rpath,{tmp_path}")
    main = 'int main(void) { use_again(); return is_child() ? 0 : puts("parent") < 0; }'
    program = compiled(tmp_path, "program", main, *libraries)
    environment = {**os.environ, "DATA": str(data)}
    trace = same_alone_and_preloaded(tmp_path, program, env=environment)
    reads = [("r", 0, 10), ("r", 0, 5), ("r", 0, 30), ("r", 5, 5), ("r", 0, 30)]
    assert trace.of(data) == reads
    threads = trace.threads[str(data)]
    assert threads[1] == threads[2] != threads[0] == threads[3] == threads[4]


@pytest.mark.parametrize("hash_style", ["gnu", "sysv"])
def test_the_wrong_version_of_a_function_is_called(
    tmp_path: Path, data: Path, hash_style: str
) -> None:
    # Between the preload library and libc: as dlsym(), the default version is called.
    text = """
long old_read(int fd, void* to, size_t size) { return -5; }
__asm__(".symver old_read, read@VERSION_1");
long new_read(int fd, void* to, size_t size) {
    long got = syscall(SYS_read, fd, to, size);
    if (got > 0) memset(to, 'n', got);
    return got;
}
__asm__(".symver new_read, read@@VERSION_2");
__attribute__((visibility("hidden"))) int close(int fd) { return -6; }
"""
    versions = tmp_path / "versions"
    versions.write_text("VERSION_1 { local: close; }; VERSION_2 { } VERSION_1;\n")
    options = (f"-Wl,--version-script={versions}", f"-Wl,--hash-style={hash_style}")
    library = compiled(tmp_path, "between.so", text, *options)
    text = """
int main(int count, char** words) {
    char b[10];
    int fd = open(words[1], O_RDONLY);
    CHECK(read(fd, b, 10) == 10 && b[9] == 'n' && close(fd) == 0);
    return 0;
}
"""
    program = compiled(tmp_path, "program", text)
    environment = {**os.environ, "LD_PRELOAD": f"{LIBRARY}:{library}"}
    done = subprocess.run([program, data], env=environment, check=False, timeout=60)
    assert done.returncode == 0


@needs_cache
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="has an instruction of x86-64")
def test_a_library_between_makes_calls_by_instructions(cache: Cache, tmp_path: Path) -> None:
    text = """
ssize_t read(int fd, void* to, size_t size) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(SYS_read), "D"(fd), "S"(to), "d"(size)
                     : "rcx", "r11", "memory");
    return result;
}
"""
    library = compiled(tmp_path, "between.so", text)
    cache.environment["LD_PRELOAD"] = library
    data = write(tmp_path / "elsewhere", 1000)
    cache.serve()
    assert cache.run("cat", tmp_path / "elsewhere", text=False).stdout == data


def test_a_program_whose_trace_cannot_be_made_says_so_once(tmp_path: Path, data: Path) -> None:
    environment = {
        **os.environ,
        "LD_PRELOAD": str(LIBRARY),
        "PENSTOCK_TRACE": str(tmp_path / "nowhere" / "t"),
    }
    done = subprocess.run(
        ["cat", str(data)], env=environment, capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, data.read_bytes())
    path = environment["PENSTOCK_TRACE"]
    assert done.stderr.decode() == (
        f"penstock: {path}: cannot be traced to: No such file or directory\n"
    )
