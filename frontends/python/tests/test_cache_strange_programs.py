"""Goal: programs that use libc in unusual ways find and leave what they find and leave alone."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest
from caching import Cache, needs_cache
from preloading import compiled

pytestmark = needs_cache

CASES = """
static int other, fd;
static void* none(void* unused) { return NULL; }
static int in_clone(void* unused) {
    CHECK(pwrite(fd, "CLONE", 5, 100) == 5);
    return 0;
}
static long raw(long number) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number) : "rcx", "r11", "memory");
    return result;
}
static long raw_getppid(void) { return raw(SYS_getppid); }
static long raw_fork(void) { return raw(SYS_fork); }
static void in_context(void) { printf("%d\\n", raw_getppid() == getppid()); }
static sigjmp_buf jump;
static void leap(int number) { siglongjmp(jump, 1); }
int main(int count, char** words) {
    const char *path = words[1], *how = words[2];
    if (!strcmp(how, "stdio on 1")) {
        int kept = dup(1);
        close(1);
        CHECK(open(path, O_RDWR) == 1);
        write(1, "A\\n", 2);
        printf("B\\n");
        fflush(stdout);
        write(1, "C\\n", 2);
        printf("D\\n");
        fflush(stdout);
        return 0;
    }
    fd = open(path, O_RDWR);
    CHECK(fd > 2 && pwrite(fd, "x", 1, 4000) == 1);
    if (!strcmp(how, "vfork")) {
        int again = open(path, O_RDWR);
        if (vfork() == 0) {
            write(again, "CHILD", 5);
            _exit(0);
        }
        wait(NULL);
        CHECK(pwrite(fd, "B", 1, 39) == 1);
    }
    if (!strcmp(how, "clone")) {
        CHECK(clone(in_clone, malloc(1 << 16) + (1 << 16), SIGCHLD, NULL) > 0);
        wait(NULL);
        CHECK(pwrite(fd, "B", 1, 139) == 1);
    }
    if (!strcmp(how, "dlsym")) {
        int (*hidden)(int) = dlsym(dlopen("libc.so.6", RTLD_LAZY), "close");
        int pair[2];
        CHECK(hidden(fd) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        CHECK(write(pair[0], "HELLO", 5) == 5);
        char got[6] = {0};
        printf("%zd %s\\n", recv(pair[1], got, 5, MSG_DONTWAIT), got);
    }
    if (!strcmp(how, "limit")) {
        struct rlimit limit = {1 << 20, RLIM_INFINITY};
        signal(SIGXFSZ, SIG_IGN);
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        int result = ftruncate(fd, 10 << 20);
        printf("%d %d\\n", result, errno);
    }
    if (!strcmp(how, "leap")) {
        struct sigaction action = {.sa_handler = leap};
        CHECK(sigaction(SIGALRM, &action, NULL) == 0);
        struct itimerval soon = {{0, 0}, {0, 300}};
        for (int i = 0; i < 1000; ++i) {
            setitimer(ITIMER_REAL, &soon, NULL);
            if (sigsetjmp(jump, 1) == 0) {
                for (;;) {
                    pwrite(fd, "leap", 4, i * 10);
                    fsync(fd);
                }
            }
        }
        soon.it_value.tv_usec = 0;
        setitimer(ITIMER_REAL, &soon, NULL);
        CHECK(fsync(fd) == 0 && pwrite(fd, "end", 3, 20000) == 3);
    }
    if (!strcmp(how, "contexts")) {
        static ucontext_t here, there;
        static char stack[1 << 16];
        CHECK(getcontext(&there) == 0);
        there.uc_stack.ss_sp = stack;
        there.uc_stack.ss_size = sizeof stack;
        there.uc_link = &here;
        sigfillset(&there.uc_sigmask);
        makecontext(&there, in_context, 0);
        CHECK(swapcontext(&here, &there) == 0);
        CHECK(pwrite(fd, "after", 5, 50) == 5);
    }
    if (!strcmp(how, "old masks")) {
        sigsetmask(~0);
        sighold(SIGSYS);
        printf("%d\\n", raw_getppid() == getppid());
    }
    if (!strcmp(how, "a short mask")) {
        char* pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(pages + 4096, 4096);
        struct timespec none = {0, 0};
        printf("%d\\n", ppoll(NULL, 0, &none, (sigset_t*)(pages + 4096 - 8)));
        printf("%d %d\\n", ppoll(NULL, 0, &none, (sigset_t*)8), errno);
    }
    if (!strcmp(how, "raw fork")) {
        long child = raw_fork();
        if (child == 0) {
            for (int i = 0; i < 200; ++i) CHECK(pwrite(fd, "CHILD", 5, 10 + 20 * i) == 5);
            _exit(0);
        }
        for (int i = 0; i < 200; ++i) CHECK(pwrite(fd, "MOTHER", 6, 20 * i) == 6);
        waitpid(child, NULL, 0);
    }
    if (!strcmp(how, "execveat")) {
        char* environment[] = {NULL};
        char* arguments[] = {"sh", "-c", "cat <&3", NULL};
        CHECK(dup2(fd, 3) == 3 && pwrite(3, "0123456789", 10, 0) == 10);
        ftruncate(3, 10);
        lseek(3, 4, SEEK_SET);
        execveat(AT_FDCWD, "/bin/sh", arguments, environment, 0);
    }
    return 0;
}
"""
HOWS = ["stdio on 1", "vfork", "clone", "dlsym", "limit", "leap", "execveat"]
RAW = ["contexts", "old masks", "a short mask", "raw fork"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its instructions are x86's")
@pytest.mark.parametrize("how", HOWS + RAW)
def test_a_strange_program_does_what_it_does_alone(tmp_path: Path, cache: Cache, how: str) -> None:
    headers = "".join(
        f"#include <{name}.h>\n"
        for name in ("poll", "setjmp", "sys/resource", "sys/socket", "ucontext")
    )
    program = compiled(tmp_path, "strange", headers + CASES)
    path = cache.folder / "f"
    path.write_bytes(bytes(5000))
    alone = subprocess.run([program, path, how], capture_output=True, text=True, check=False)
    assert alone.returncode == 0, alone
    left = path.read_bytes()
    path.write_bytes(bytes(5000))
    cache.serve()
    cached = cache.run(program, path, how, write_back=True, check=False)
    assert (cached.returncode, cached.stdout) == (0, alone.stdout), cached
    if how == "leap":  # what was interrupted may be there or not
        assert path.read_bytes()[-3:] == left[-3:]
    else:
        assert path.read_bytes() == left
