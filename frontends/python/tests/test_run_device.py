"""Goal: under `penstock run` the kernel's calls on files take and fill device memory.

The device is the stand-in driver's, whose memory the host cannot address.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import _core

LIBRARY = Path(_core.__file__).parent / "libpenstock-preload.so"
DRIVER = Path(_core.__file__).parents[2] / "driver_fake.so"
SIZE = (3 << 20) + 777

pytestmark = [
    pytest.mark.skipif(not LIBRARY.exists(), reason="built without the preload library"),
    pytest.mark.skipif(not DRIVER.exists(), reason="the stand-in driver is not built"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
]

# What each program begins with: device memory of the driver, and copies out of it and into it.
BEGIN = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
typedef unsigned long long device_t;
static void* driver;
#define CALL(name, ...) ((int (*)())dlsym(driver, #name))(__VA_ARGS__)
static char* device(size_t size) {
    device_t at = 0;
    if (CALL(cuMemAlloc_v2, &at, size) != 0) exit(90);
    return (char*)at;
}
static void copy(void* to, const void* from, size_t size) {
    if (CALL(cuMemcpyAsync, (device_t)to, (device_t)from, size, (void*)1) != 0) exit(91);
}
static void expect(long got, long wanted, int line) {
    if (got == wanted) return;
    fprintf(stderr, "line %d: %ld, not %ld (%s)\n", line, got, wanted, strerror(errno));
    exit(1);
}
#define EXPECT(got, wanted) expect((long)(got), (long)(wanted), __LINE__)
#define SIZE ((3 << 20) + 777)
static char *there, *host, *file;
static void begin(const char* path) {
    void* context = NULL;
    driver = dlopen(getenv("PENSTOCK_LIBCUDA"), RTLD_NOW);
    if (driver == NULL) exit(92);
    ((void (*)())dlsym(driver, "penstock_fake_hide_memory"))();
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
    there = device(SIZE + 4096);
    host = malloc(SIZE);
    file = malloc(SIZE);
    FILE* data = fopen(path, "rb");
    if (fread(file, 1, SIZE, data) != SIZE) exit(93);
    fclose(data);
}
"""
MAIN = r"""
int main(int count, char** words) {
    const char *path = words[1], *other = words[2];
    begin(path);
#line 1
"""

PROGRAMS = {
    "reads at offsets and at the position": r"""
        int fd = open(path, O_RDONLY);
        EXPECT(pread(fd, there, SIZE, 0), SIZE);
        copy(host, there, SIZE);
        EXPECT(memcmp(host, file, SIZE), 0);
        EXPECT(lseek(fd, 0, SEEK_CUR), 0);
        EXPECT(read(fd, there + 5, 1000), 1000);
        EXPECT(read(fd, there + 1005, 70000), 70000);
        EXPECT(lseek(fd, 0, SEEK_CUR), 71000);
        copy(host, there + 5, 71000);
        EXPECT(memcmp(host, file, 71000), 0);
        lseek(fd, SIZE - 10, SEEK_SET);
        EXPECT(read(fd, there, 4096), 10);
        EXPECT(lseek(fd, 0, SEEK_CUR), SIZE);
        EXPECT(read(fd, there, 4096), 0);
        EXPECT(pread(fd, there, 4096, SIZE + 99), 0);
    """,
    "pieces in host and device memory": r"""
        int fd = open(path, O_RDONLY);
        struct iovec pieces[3] = {{there, 5000}, {host, 100}, {there + 5000, 3000}};
        EXPECT(preadv(fd, pieces, 3, 11), 8100);
        EXPECT(memcmp(host, file + 11 + 5000, 100), 0);
        copy(host, there, 8000);
        EXPECT(memcmp(host, file + 11, 5000), 0);
        EXPECT(memcmp(host + 5000, file + 11 + 5100, 3000), 0);
        EXPECT(readv(fd, pieces, 3), 8100);
        EXPECT(lseek(fd, 0, SEEK_CUR), 8100);
    """,
    "writes": r"""
        int fd = open(other, O_RDWR | O_CREAT, 0600);
        copy(there, file, SIZE);
        EXPECT(pwrite(fd, there, SIZE, 0), SIZE);
        EXPECT(write(fd, there + 100, 50), 50);
        EXPECT(lseek(fd, 0, SEEK_CUR), 50);
        EXPECT(pread(fd, host, SIZE, 0), SIZE);
        EXPECT(memcmp(host, file + 100, 50), 0);
        EXPECT(memcmp(host + 50, file + 50, SIZE - 50), 0);
        EXPECT(pwrite(fd, there, 10, SIZE + 5), 10);
        EXPECT(pread(fd, there, 4096, SIZE), 15);
        close(fd);
        fd = open(other, O_WRONLY | O_APPEND);
        EXPECT(write(fd, there, 7), 7);
        EXPECT(lseek(fd, 0, SEEK_END), SIZE + 22);
        fd = open(other, O_RDONLY);
        EXPECT(write(fd, there, 7), -1);
        EXPECT(errno, EBADF);
    """,
    "pipes, and files without a name": r"""
        int ends[2];
        EXPECT(pipe(ends), 0);
        EXPECT(write(ends[1], "hello", 5), 5);
        EXPECT(read(ends[0], there, 100), 5);
        EXPECT(write(ends[1], there, 5), 5);
        EXPECT(read(ends[0], host, 100), 5);
        EXPECT(memcmp(host, "hello", 5), 0);
        int fd = open(other, O_RDWR | O_CREAT, 0600);
        unlink(other);
        copy(there, file, 9000);
        EXPECT(write(fd, there, 9000), 9000);
        EXPECT(pread(fd, there + 9000, 9000, 0), 9000);
        copy(host, there + 9000, 9000);
        EXPECT(memcmp(host, file, 9000), 0);
    """,
    "descriptors that get another meaning": r"""
        int fd = open(path, O_RDONLY);
        EXPECT(pread(fd, there, 100, 0), 100);
        int twin = dup(fd);
        EXPECT(read(twin, there, 100), 100);
        EXPECT(lseek(fd, 0, SEEK_CUR), 100);
        int second = open(other, O_RDWR | O_CREAT, 0600);
        EXPECT(write(second, "other bytes", 11), 11);
        EXPECT(dup2(second, fd), fd);
        EXPECT(pread(fd, there, 100, 0), 11);
        copy(host, there, 11);
        EXPECT(memcmp(host, "other bytes", 11), 0);
        // Without libc's close(), and with what the library has open itself.
        for (int i = 3; i < 64; ++i) syscall(3, i);
        fd = open(path, O_RDONLY);
        second = open(other, O_RDONLY);
        EXPECT(pread(fd, there, 100, 0), 100);
        EXPECT(pread(second, there + 100, 100, 0), 11);
        copy(host, there, 111);
        EXPECT(memcmp(host, file, 100), 0);
        EXPECT(memcmp(host + 100, "other bytes", 11), 0);
        EXPECT(pread(second, host, 100, 0), 11);
    """,
    "memory that is nobody's, or no longer": r"""
        int fd = open(path, O_RDONLY);
        EXPECT(pread(fd, (void*)8, 100, 0), -1);
        EXPECT(errno, EFAULT);
        EXPECT(pread(fd, there, 100, 0), 100);
        char* gone = device(1 << 20);
        EXPECT(pread(fd, gone, 1 << 20, 0), 1 << 20);
        CALL(cuMemFree_v2, (device_t)gone);
        EXPECT(pread(fd, gone, 100, 0), -1);
        EXPECT(errno, EFAULT);
        EXPECT(pread(fd, host, 100, 0), 100);
    """,
    "a pipe gives what it has, and a datagram stays": r"""
        int pair[2];
        EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        const int room = 8 << 20;
        setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        const pid_t child = fork();
        if (child == 0) {
            for (int done = 0; done < 1 << 20;) done += write(pair[0], file, (1 << 20) - done);
            pause();
        }
        for (long all = 0, got; all < 1 << 20; all += got) {
            got = read(pair[1], there, 3 << 20);
            EXPECT(got > 0, 1);
        }
        EXPECT(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
        EXPECT(write(pair[0], "one", 3), 3);
        EXPECT(read(pair[1], there, 100), -1);
        EXPECT(errno, EFAULT);
        kill(child, SIGKILL);
    """,
    "record locks are held whatever becomes of the descriptor": r"""
        int fd = open(path, O_RDWR), also = open(path, O_RDWR), status = 0;
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        EXPECT(pread(fd, there, 100, 0), 100);
        EXPECT(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
        EXPECT(fcntl(also, F_SETLK, &lock), 0);
        EXPECT(pread(fd, there, 100, 0), 100);
        EXPECT(close_range(fd, fd, 4), 0);
        EXPECT(pread(fd, there, 100, 0), 100);
        if (fork() == 0) _exit(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? 0 : 2);
        wait(&status);
        EXPECT(status, 0);
    """,
    "a program without standard error does not write into its file": r"""
        int fd = open(path, O_RDWR), kept = dup(2);
        close(2);
        EXPECT(pread(fd, there, 100, 0), 100);
        EXPECT(write(2, "a message", 9), -1);
        EXPECT(dup2(kept, 2), 2);
        EXPECT(pread(fd, host, SIZE, 0), SIZE);
        EXPECT(memcmp(host, file, SIZE), 0);
    """,
    "flags, limits and odd descriptors": r"""
        int fd = open(other, O_RDWR | O_CREAT, 0600);
        EXPECT(write(fd, "0123456789", 10), 10);
        struct iovec piece = {there, 3};
        EXPECT(pwritev2(fd, &piece, 1, 0, 0x10), -1);  // RWF_APPEND
        EXPECT(errno, EFAULT);
        EXPECT(readv(fd, (void*)16, 1), -1);
        EXPECT(errno, EFAULT);
        EXPECT(pread(open(path, 010000000), there, 10, 0), -1);  // O_PATH
        EXPECT(errno, EBADF);
        struct rlimit limit = {1 << 20, 1 << 20};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        EXPECT(pwrite(fd, there, SIZE, 0), 1 << 20);
        errno = 77;
        EXPECT(pread(fd, there, 100, 0), 100);
        EXPECT(errno, 77);
    """,
    "many small reads open the device once": r"""
        int fd = open(path, O_RDONLY);
        EXPECT(pread(fd, there, 4096, 0), 4096);
        long* calls = ((long* (*)())dlsym(driver, "penstock_fake_cuda"))();
        const long before = *calls;  // its first word counts the calls
        for (int i = 0; i < 100; ++i) EXPECT(pread(fd, there + 4096 * i, 4096, 4096 * i), 4096);
        EXPECT(*calls - before < 5000, 1);
        copy(host, there, 409600);
        EXPECT(memcmp(host, file, 409600), 0);
    """,
    "a record lock outlives reads, and a fork's child gets EFAULT": r"""
        int fd = open(path, O_RDWR);
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        EXPECT(fcntl(fd, F_SETLK, &lock), 0);
        EXPECT(pread(fd, there, 100, 0), 100);
        EXPECT(pread(fd, there, SIZE, 0), SIZE);
        int status = 0;
        if (fork() == 0) {
            if (fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type != F_WRLCK) _exit(2);
            _exit(pread(fd, there, 100, 0) == -1 && errno == EFAULT ? 0 : 3);
        }
        wait(&status);
        EXPECT(status, 0);
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_device_memory(name: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(os.urandom(SIZE))
    source = tmp_path / "program.c"
    source.write_text(f"{BEGIN}{MAIN}{PROGRAMS[name]} return 0; }}")
    program = tmp_path / "program"
    subprocess.run(["cc", "-w", "-O1", "-o", program, source, "-ldl"], check=True)
    trace = tmp_path / "trace"
    command = [sys.executable, "-m", "penstock", "run", "--trace", str(trace), str(program)]
    done = subprocess.run(
        [*command, str(data), str(tmp_path / "other")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PENSTOCK_LIBCUDA": str(DRIVER)},
    )
    assert (done.returncode, done.stderr.replace("penstock: ", "", 1).split(":")[0]) == (
        0,
        str(trace),
    ), done.stderr
