"""Goal: system calls that pass libc leave no wrong byte in a program whose files are cached."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from caching import Cache, needs_cache, write
from preloading import compiled

pytestmark = needs_cache
needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="its instructions are x86's")

# call() makes a system call by an instruction of the program's own.
RAW = """
static long call(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#define RAW(number, ...) call(number, (long[6]){__VA_ARGS__}[0], (long[6]){__VA_ARGS__}[1], \\
    (long[6]){__VA_ARGS__}[2], (long[6]){__VA_ARGS__}[3], (long[6]){__VA_ARGS__}[4], \\
    (long[6]){__VA_ARGS__}[5])
"""

# Random calls on four files, each by libc, by syscall(3) or by an instruction, on one of three
# threads. Prints what each returned.
RANDOM = (
    RAW
    + """
#define DESCRIPTORS 8
static const char* folder;
static int fds[DESCRIPTORS];
static unsigned long state;
static unsigned pick(unsigned limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % limit;
}
static int writes;
static long negative(long result) { return result < 0 ? -errno : result; }
static long make(int way, long number, long a, long b, long c, long d) {
    if (way == 1) return negative(syscall(number, a, b, c, d));
    if (way == 2) return call(number, a, b, c, d, 0, 0);
    switch (number) {
        case SYS_read: return negative(read(a, (void*)b, c));
        case SYS_pread64: return negative(pread(a, (void*)b, c, d));
        case SYS_write: return negative(write(a, (void*)b, c));
        case SYS_pwrite64: return negative(pwrite(a, (void*)b, c, d));
        case SYS_openat: return negative(openat(a, (void*)b, c, d));
        case SYS_close: return negative(close(a));
        case SYS_dup2: return negative(dup2(a, b));
        case SYS_dup: return negative(dup(a));
        case SYS_lseek: return negative(lseek(a, b, c));
        case SYS_ftruncate: return negative(ftruncate(a, b));
        case SYS_fsync: return negative(fsync(a));
    }
    abort();
}
static char buffer[100000];
static unsigned sum(long size) {
    unsigned all = 1;
    for (long i = 0; i < size; ++i) all = all * 31 + (unsigned char)buffer[i];
    return all;
}
static void step(int number) {
    int which = pick(DESCRIPTORS), other = pick(DESCRIPTORS), way = pick(3), op = pick(20);
    int sizes[] = {1, 100, 4096, 65536, 100000}, size = sizes[pick(5)], at = pick(300000);
    int file = pick(4);
    char path[300];
    sprintf(path, "%s/f%d", folder, file);
    if (fds[which] < 0) {
        int flags = writes && pick(2) ? O_RDWR : O_RDONLY;
        fds[which] = make(way, SYS_openat, AT_FDCWD, (long)path, flags, 0);
        printf("%d: open %d way %d: %d\\n", number, file, way, fds[which] >= 0);
        return;
    }
    int fd = fds[which];
    long done = 0;
    if (op < 5) {
        done = make(way, SYS_read, fd, (long)buffer, size, 0);
        printf("%d: read: %ld %u\\n", number, done, sum(done));
    } else if (op < 8) {
        done = make(way, SYS_pread64, fd, (long)buffer, size, at);
        printf("%d: pread: %ld %u\\n", number, done, sum(done));
    } else if (op < 11) {
        done = make(way, SYS_close, fd, 0, 0, 0);
        fds[which] = -1;
        printf("%d: close: %ld\\n", number, done);
    } else if (op == 11 && fds[other] >= 0) {
        done = make(way, SYS_dup2, fd, fds[other], 0, 0);
        printf("%d: dup2: %d\\n", number, done == fds[other]);
    } else if (op == 12 && fds[other] < 0) {
        fds[other] = make(way, SYS_dup, fd, 0, 0, 0);
        printf("%d: dup: %d\\n", number, fds[other] >= 0);
    } else if (op == 13) {
        done = make(way, SYS_lseek, fd, at, SEEK_SET, 0);
        printf("%d: seek: %ld\\n", number, done);
    } else if (op == 14) {
        done = make(way, SYS_lseek, fd, 0, SEEK_CUR, 0);
        printf("%d: at: %ld\\n", number, done);
    } else if (writes && op < 18) {
        memset(buffer, number, size);
        done = op == 15 ? make(way, SYS_write, fd, (long)buffer, size, 0)
                        : make(way, SYS_pwrite64, fd, (long)buffer, size, at);
        printf("%d: write: %ld\\n", number, done);
    } else if (writes && op == 18) {
        done = make(way, SYS_ftruncate, fd, at, 0, 0);
        printf("%d: cut: %ld\\n", number, done);
    } else if (op == 19) {
        done = make(way, SYS_fsync, fd, 0, 0, 0);
        printf("%d: sync: %ld\\n", number, done);
    }
}
static sem_t turns[3], ended;
static int now;
static void* work(void* number) {
    for (;;) {
        sem_wait(&turns[(long)number]);
        if (now < 0) return NULL;
        step(now);
        sem_post(&ended);
    }
}
int main(int count, char** words) {
    folder = words[1];
    state = atoi(words[2]);
    writes = atoi(words[3]);
    for (int i = 0; i < DESCRIPTORS; ++i) fds[i] = -1;
    pthread_t threads[3];
    sem_init(&ended, 0, 0);
    for (long i = 0; i < 3; ++i) {
        sem_init(&turns[i], 0, 0);
        pthread_create(&threads[i], NULL, work, (void*)i);
    }
    for (now = 1; now < 400; ++now) {
        sem_post(&turns[pick(3)]);
        sem_wait(&ended);
    }
    now = -1;
    for (int i = 0; i < 3; ++i) {
        sem_post(&turns[i]);
        pthread_join(threads[i], NULL);
    }
    return 0;
}
"""
)


def random_files(folder: Path) -> None:
    """Make the files of a random program as they are at its start."""
    for number in range(4):
        write(folder / f"f{number}", 200_000 + 1000 * number, number)


@needs_x86
@pytest.mark.parametrize("writes", [0, 1])
def test_random_calls_past_libc_find_what_they_find_alone(
    tmp_path: Path, cache: Cache, writes: int
) -> None:
    program = compiled(tmp_path, "random", RANDOM)
    cache.serve()
    for seed in range(1, 9):
        words = [program, str(cache.folder), str(seed), str(writes)]
        random_files(cache.folder)
        alone = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        left = [(cache.folder / f"f{i}").read_bytes() for i in range(4)]
        random_files(cache.folder)
        assert cache.run(*words, write_back=writes == 1).stdout == alone, f"seed {seed}"
        assert [(cache.folder / f"f{i}").read_bytes() for i in range(4)] == left, f"seed {seed}"


# Each case reads a file, goes round libc in its own way, and reads again by the same number.
CASES = (
    RAW
    + """
static char a[4096], b[4096];
static const char* other;
static int fd;
static void first(char** words) {
    fd = open(words[1], O_RDONLY);
    other = words[2];
    CHECK(fd >= 0 && pread(fd, a, 4096, 0) == 4096 && pread(fd, a, 4096, 4096) == 4096);
}
// Gives the number another file's meaning by instructions alone.
static void replace(void) {
    CHECK(RAW(SYS_close, fd, 0, 0, 0, 0, 0) == 0);
    CHECK(RAW(SYS_openat, AT_FDCWD, (long)other, O_RDONLY, 0, 0, 0) == fd);
}
static void tell(void) {
    CHECK(pread(fd, b, 4096, 4096) == 4096);
    printf("%s\\n", memcmp(a, b, 4096) == 0 ? "the first file" : "another file");
    fflush(stdout);
}
static void on_signal(int number) { replace(); }
static void* in_thread(void* unused) { replace(); return NULL; }
static int in_clone(void* unused) { replace(); return 0; }
static void caught(int number) { puts("caught"); }
int main(int count, char** words) {
    const char* how = words[3];
    first(words);
    sigset_t all;
    sigfillset(&all);
    if (!strcmp(how, "plain")) replace();
    if (!strcmp(how, "masked")) {
        CHECK(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
        replace();
    }
    if (!strcmp(how, "masked by number")) {
        unsigned long mask = ~0ul;
        CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &mask, NULL, 8) == 0);
        replace();
    }
    if (!strcmp(how, "masked by instruction")) {
        unsigned long mask = ~0ul;
        CHECK(RAW(SYS_rt_sigprocmask, SIG_BLOCK, (long)&mask, 0, 8, 0, 0) == 0);
        tell();
        replace();
    }
    if (!strcmp(how, "handler")) {
        struct sigaction action = {.sa_handler = on_signal, .sa_mask = all};
        CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
        raise(SIGUSR1);
    }
    if (!strcmp(how, "suspended")) {
        struct sigaction action = {.sa_handler = on_signal, .sa_mask = all};
        CHECK(sigaction(SIGALRM, &action, NULL) == 0);
        alarm(1);
        sigdelset(&all, SIGALRM);
        sigsuspend(&all);
    }
    if (!strcmp(how, "thread") || !strcmp(how, "masked thread")) {
        pthread_t thread;
        if (how[0] == 'm') pthread_sigmask(SIG_BLOCK, &all, NULL);
        CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0);
        pthread_join(thread, NULL);
    }
    if (!strcmp(how, "clone")) {
        int flags = CLONE_VM | CLONE_FILES | CLONE_FS | SIGCHLD;
        CHECK(clone(in_clone, malloc(1 << 16) + (1 << 16), flags, NULL) > 0);
        wait(NULL);
    }
    if (!strcmp(how, "fork")) {
        if (RAW(SYS_fork, 0, 0, 0, 0, 0, 0) == 0) {
            replace();
            tell();
            _exit(0);
        }
        wait(NULL);
    }
    if (!strcmp(how, "fork by number")) {
        if (syscall(SYS_fork) == 0) {
            replace();
            tell();
            _exit(0);
        }
        wait(NULL);
    }
    if (!strcmp(how, "SIGSYS")) {
        struct sigaction before, action = {.sa_handler = caught};
        CHECK(sigaction(SIGSYS, NULL, &before) == 0);
        printf("%d\\n", before.sa_handler == SIG_DFL);
        CHECK(sigaction(SIGSYS, &action, &before) == 0);
        printf("%d\\n", before.sa_handler == SIG_DFL);
        raise(SIGSYS);
        replace();
    }
    if (!strcmp(how, "the position")) {
        CHECK(read(fd, b, 100) == 100);
        printf("%ld\\n", RAW(SYS_lseek, fd, 0, SEEK_CUR, 0, 0, 0));
        CHECK(RAW(SYS_read, fd, (long)b, 50, 0, 0, 0) == 50 && read(fd, b, 7) == 7);
        int copy = RAW(SYS_dup, fd, 0, 0, 0, 0, 0);
        CHECK(read(fd, b, 100) == 100 && read(copy, b, 1) == 1);
        printf("%ld %ld\\n", lseek(fd, 0, SEEK_CUR), lseek(copy, 0, SEEK_CUR));
        return 0;
    }
    if (!strcmp(how, "many")) {
        for (int i = 0; i < 40000; ++i) CHECK(RAW(SYS_getppid, 0, 0, 0, 0, 0, 0) == getppid());
        replace();
    }
    if (!strcmp(how, "io_uring")) {
        char parameters[120] = {0};
        long ring = RAW(SYS_io_uring_setup, 1, (long)parameters, 0, 0, 0, 0);
        tell();
        replace();
    }
    if (!strcmp(how, "exec")) {
        replace();
        if (words[4] == NULL)
            execl("/proc/self/exe", words[0], words[1], words[2], how, "again", NULL);
    }
    if (!strcmp(how, "a number of libc's")) {
        RAW(SYS_close, fd, 0, 0, 0, 0, 0);
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pair[0] == fd);
        CHECK(write(pair[1], "socket", 6) == 6);
        printf("%ld %.6s\\n", (long)read(fd, b, 100), b);
        return 0;
    }
    tell();
    return 0;
}
"""
)
HOWS = [
    "plain",
    "masked",
    "masked by number",
    "masked by instruction",
    "handler",
    "suspended",
    "thread",
    "masked thread",
    "clone",
    "fork",
    "fork by number",
    "SIGSYS",
    "the position",
    "many",
    "io_uring",
    "exec",
    "a number of libc's",
]


@needs_x86
@pytest.mark.parametrize("write_back", [False, True])
def test_a_number_that_changes_its_meaning_unseen_is_not_served(
    tmp_path: Path, cache: Cache, write_back: bool
) -> None:
    program = compiled(tmp_path, "cases", "#include <sys/socket.h>\n" + CASES)
    one, two = cache.folder / "one", cache.folder / "two"
    write(one, 100_000, 1)
    write(two, 100_000, 2)
    cache.serve()
    for how in HOWS:
        words = [program, str(one), str(two), how]
        alone = subprocess.run(words, capture_output=True, text=True, check=False)
        assert alone.returncode == 0, alone
        cached = cache.run(*words, write_back=write_back, check=False)
        assert (cached.returncode, cached.stdout) == (0, alone.stdout), (how, cached)


@needs_x86
def test_hits_stay_hits_beside_raw_calls(tmp_path: Path, cache: Cache) -> None:
    text = (
        RAW
        + """
    static char a[4096];
    int main(int count, char** words) {
        int fd = open(words[1], O_RDONLY);
        for (int i = 0; i < 1000; ++i) {
            CHECK(pread(fd, a, 4096, i % 20 * 4096) == 4096);
            CHECK(RAW(SYS_getppid, 0, 0, 0, 0, 0, 0) == getppid());
        }
    }
    """
    )
    path = cache.folder / "f"
    write(path, 100_000)
    cache.serve()
    cache.run(compiled(tmp_path, "reader", text), str(path))
    assert cache.statistics()["bytes_served"] >= 900 * 4096


NODE = """
const fs = require("fs"), net = require("net"), path = require("path");
const folder = process.argv[2], size = 200000;
const texts = [];
for (let i = 0; i < 40; ++i) {
    texts.push(Buffer.alloc(size, String.fromCharCode(65 + i % 26)));
    fs.writeFileSync(path.join(folder, "n" + i), texts[i]);
}
const server = net.createServer((socket) => socket.on("data", (got) => socket.write(got)));
server.listen(0, "127.0.0.1", async () => {
    let left = 12, bad = 0;
    for (let client = 0; client < 12; ++client) {
        (async () => {
            for (let round = 0; round < 10; ++round) {
                await new Promise((done) => {
                    const socket = net.connect(server.address().port, "127.0.0.1");
                    const sent = "hello " + client + " " + round;
                    socket.on("data", (got) => {
                        if (got.toString() !== sent) ++bad;
                        socket.destroy();
                    });
                    socket.on("close", done);
                    socket.write(sent);
                });
                const i = (client * 10 + round) % 40, name = path.join(folder, "n" + i);
                const got = await fs.promises.readFile(name);
                if (!got.equals(texts[i])) ++bad;
                const file = await fs.promises.open(name, "r+");
                await file.write(texts[i], 0, 1000, 5000);
                await file.close();
            }
            if (--left === 0) {
                for (let i = 0; i < 40; ++i)
                    if (!fs.readFileSync(path.join(folder, "n" + i)).equals(texts[i])) ++bad;
                console.log("bad: " + bad);
                server.close();
            }
        })();
    }
});
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node here")
@pytest.mark.parametrize("write_back", [False, True])
def test_sockets_of_node_are_not_files(tmp_path: Path, cache: Cache, write_back: bool) -> None:
    script = tmp_path / "clients.js"
    script.write_text(NODE)
    cache.serve()
    done = cache.run("node", script, cache.folder, write_back=write_back)
    assert done.stdout == "bad: 0\n"


# Opens files by C and by Go in turn, whose run-time makes its own system calls, and closes them by
# the other. Prints how many reads were wrong.
GO = """
package main

/*
#include <fcntl.h>
#include <unistd.h>
static int c_open(const char* p) { return open(p, O_RDWR); }
static long c_pread(int fd, void* b, long n, long at) { return pread(fd, b, n, at); }
static long c_pwrite(int fd, const void* b, long n, long at) { return pwrite(fd, b, n, at); }
*/
import "C"
import (
    "bytes"
    "fmt"
    "os"
    "sync"
    "syscall"
    "unsafe"
)

func main() {
    one, two := os.Args[1], os.Args[2]
    a, _ := os.ReadFile(one)
    b, _ := os.ReadFile(two)
    bad := 0
    var lock sync.Mutex
    var all sync.WaitGroup
    for g := 0; g < 20; g++ {
        all.Add(1)
        go func(g int) {
            defer all.Done()
            for i := 0; i < 50; i++ {
                lock.Lock()
                fd := C.c_open(C.CString(one))
                buf := make([]byte, 4096)
                C.c_pread(fd, unsafe.Pointer(&buf[0]), 4096, 0)
                if !bytes.Equal(buf, a[:4096]) { bad++ }
                syscall.Close(int(fd))
                again, _ := syscall.Open(two, os.O_RDONLY, 0)
                C.c_pread(C.int(again), unsafe.Pointer(&buf[0]), 4096, 4096)
                if again == int(fd) && !bytes.Equal(buf, b[4096:8192]) { bad++ }
                syscall.Close(again)
                file, _ := os.OpenFile(one, os.O_RDWR, 0)
                text := []byte(fmt.Sprintf("%08d", g*50+i))
                C.c_pwrite(C.int(file.Fd()), unsafe.Pointer(&text[0]), 8, C.long(100000+8*(g*50+i)))
                file.ReadAt(buf[:8], int64(100000+8*(g*50+i)))
                if !bytes.Equal(buf[:8], text) { bad++ }
                file.Close()
                lock.Unlock()
            }
        }(g)
    }
    all.Wait()
    fmt.Println("bad", bad)
}
"""


@pytest.mark.skipif(shutil.which("go") is None, reason="no Go here")
@pytest.mark.parametrize("write_back", [False, True])
def test_go_and_c_share_descriptors(tmp_path: Path, cache: Cache, write_back: bool) -> None:
    (tmp_path / "main.go").write_text(GO)
    environment = {**cache.environment, "GOCACHE": str(tmp_path / "go"), "CGO_ENABLED": "1"}
    command = ["go", "build", "-o", "shares", "main.go"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    one, two = cache.folder / "one", cache.folder / "two"
    write(one, 200_000, 1)
    write(two, 200_000, 2)
    cache.serve()
    done = cache.run(tmp_path / "shares", one, two, write_back=write_back)
    assert done.stdout == "bad 0\n"
    data = one.read_bytes()
    assert data[100_000:108_000] == b"".join(b"%08d" % i for i in range(1000))
