"""Goal: a read into memory that cannot be written is the kernel's to answer, as is such a write.

A program reads into a buffer that is fine, changes it, and reads again. It prints what each call
returned, alone and with its file in the cache.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from caching import Cache, needs_cache, write
from preloading import compiled

pytestmark = needs_cache

# Each change leaves a buffer of 24 pages whose middle cannot be used, or whose end.
PROGRAM = r"""
#define PAGE 4096
static int fd, file, writes;
static char* buffer;
static void tell(const char* what, char* at, size_t size) {
    static const off_t places[] = {0, 1000, 65536 - 300};
    for (int i = 0; i < 3; ++i) {
        errno = 0;
        long done = writes ? pwrite(fd, at, size, places[i]) : pread(fd, at, size, places[i]);
        printf("%s %zu at %ld: %ld %d\n", what, size, (long)places[i], done, errno);
    }
}
static void all(const char* what) {
    static const size_t sizes[] = {1, 7, 8, 9, 100, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 5 * PAGE,
                                   20 * PAGE};
    for (int i = 0; i < 11; ++i) {
        size_t size = sizes[i];
        tell(what, buffer + 12 * PAGE - size / 2, size);
        tell(what, buffer + 12 * PAGE, size < 12 * PAGE ? size : 12 * PAGE);
        tell(what, buffer + 12 * PAGE + 1, size < 11 * PAGE ? size : 11 * PAGE);
        if (size <= 12 * PAGE) tell(what, buffer + 12 * PAGE - size, size);
        if (size <= 12 * PAGE) tell(what, buffer + 24 * PAGE - size, size);
    }
}
static void* take(int flags, int fd) {
    char* at = mmap(0, 24 * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
    CHECK(at != MAP_FAILED);
    for (int i = 0; i < 24; ++i) at[i * PAGE] = i;
    return at;
}
static char* plain(void) { return take(MAP_PRIVATE | MAP_ANONYMOUS, -1); }
static void* forbid(void* at) {
    CHECK(mprotect(at, 12 * PAGE, PROT_NONE) == 0);
    return 0;
}
static void truncate_by_other(const char* path) {
    pid_t child;
    int status;
    char* words[] = {"truncate", "-s", "49152", (char*)path, 0};
    CHECK(posix_spawnp(&child, words[0], 0, 0, words, environ) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}
int main(int count, char** words) {
    pthread_t thread;
    char* name = words[1];
    writes = words[3][0] == 'w';
    fd = open(name, O_RDWR * writes);
    file = open(words[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && file >= 0 && ftruncate(file, 24 * PAGE) == 0);
    buffer = plain();
    all("plain");
    mprotect(buffer + 12 * PAGE, 12 * PAGE, PROT_NONE), all("protected behind");
    mprotect(buffer, 24 * PAGE, PROT_READ), all("read only");
    mprotect(buffer, 24 * PAGE, PROT_READ | PROT_WRITE), all("allowed again");
    forbid(buffer), all("protected before");
    buffer = plain();
    all("plain");
    pthread_create(&thread, 0, forbid, buffer), pthread_join(thread, 0);
    all("protected by a thread");
    buffer = plain();
    all("plain");
    char* to = mmap(0, 24 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mremap(buffer, 12 * PAGE, 12 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    all("moved");
    buffer = plain();
    all("plain");
    mmap(buffer, 12 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    all("replaced");
    buffer = plain();
    all("plain");
    munmap(buffer + 12 * PAGE, 12 * PAGE), all("unmapped");
    buffer = plain();
    all("plain");
    syscall(SYS_munmap, buffer, 12 * PAGE), all("unmapped without libc");
    buffer = take(MAP_SHARED, file);
    all("mapped file");
    truncate_by_other(words[2]), all("cut by another program");
    CHECK(ftruncate(file, 24 * PAGE) == 0);
    all("longer again");
    if (!writes) {
        buffer = take(MAP_PRIVATE, file);
        all("private file");
        CHECK(ftruncate(file, 12 * PAGE) == 0);
        all("cut");
    }
    buffer = (char*)(((size_t)sbrk(26 * PAGE) + PAGE - 1) & -PAGE);
    for (int i = 0; i < 24; ++i) buffer[i * PAGE] = i;
    all("heap");
    CHECK(brk(buffer + 12 * PAGE) == 0);
    all("heap cut");
    buffer = plain();
    all("plain");
    if (madvise(buffer, 12 * PAGE, 102) == 0) all("guarded");  // MADV_GUARD_INSTALL
    buffer = 0, tell("null", 0, 10);
    tell("the kernel's", (char*)0xffffffff80000000, 100), tell("the end", (char*)-PAGE, 100);
    tell("around", (char*)-50, 100);
    return 0;
}
"""


@pytest.mark.parametrize("way", ["reads", "writes"])
def test_a_buffer_that_has_changed_is_the_kernels_to_refuse(
    cache: Cache, tmp_path: Path, way: str
) -> None:
    program = compiled(tmp_path, "program", PROGRAM)
    data = write(cache.folder / "a", 300_000)
    plain = tmp_path / "plain"
    plain.write_bytes(data)
    mapped = tmp_path / "mapped"
    words = [program, str(plain), str(mapped), way]
    alone = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    cache.serve()
    cache.run("cksum", cache.folder / "a")
    words[1] = str(cache.folder / "a")
    done = cache.run(*words, write_back=way == "writes", check=False)
    assert done.returncode == 0, done
    lines = list(zip(done.stdout.splitlines(), alone.splitlines(), strict=True))
    assert [pair for pair in lines if pair[0] != pair[1]] == []
    assert (cache.folder / "a").read_bytes() == plain.read_bytes()


def test_a_test_of_the_buffer_writes_beside_it(cache: Cache, tmp_path: Path) -> None:
    text = r"""
int main(int count, char** words) {
    int fd = open(words[1], O_RDONLY);
    char* pages = mmap(0, 40 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mprotect(pages, 4096, PROT_NONE) == 0);
    CHECK(mprotect(pages + 39 * 4096, 4096, PROT_NONE) == 0);
    char *begin = pages + 4096, *end = pages + 39 * 4096;
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 100, 4095, 4096, 4097, 8191, 8193, 16384,
                                16390, 70000, 100000};
    for (int i = 0; i < 18; ++i) {
        for (int shift = 0; shift < 12; ++shift) {
            int size = sizes[i];
            char* places[] = {begin + shift, end - size - shift, begin + 4096 * 3 - shift,
                              begin + 4096 * 3 - size + shift};
            for (int k = 0; k < 4; ++k) {
                memset(begin, 'x', end - begin);
                char* at = places[k] < begin ? begin : places[k];
                CHECK(pread(fd, at, size, 60000) == size);
                for (char* p = begin; p < end; ++p)
                    CHECK(*p == (p < at || p >= at + size ? 'x' : 'd'));
            }
        }
    }
    return 0;
}
"""
    program = compiled(tmp_path, "program", text)
    (cache.folder / "a").write_bytes(b"d" * 300_000)
    cache.serve()
    done = cache.run(program, cache.folder / "a", check=False)
    assert done.returncode == 0, done
    assert cache.statistics()["bytes_served"] > 1_000_000
