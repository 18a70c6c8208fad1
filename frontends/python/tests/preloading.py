"""What tests of the preload library share: C programs, and runs with and without the library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import _core

LIBRARY = Path(_core.__file__).parent / "libpenstock-preload.so"

_HEADERS = (
    "assert dlfcn errno fcntl limits pthread semaphore signal spawn stdarg stdint stdio stdlib"
    " string sys/ioctl sys/mman sys/stat sys/syscall sys/time sys/uio sys/wait unistd"
)
PRELUDE = (
    "#define _GNU_SOURCE\n"
    + "".join(f"#include <{name}.h>\n" for name in _HEADERS.split())
    + """
extern char** environ;
#define CHECK(condition) \\
    do { \\
        if (!(condition)) { \\
            printf("line %d: %s: errno %d\\n", __LINE__, #condition, errno); \\
            exit(99); \\
        } \\
    } while (0)
#line 1
"""
)


def compiled(folder: Path, name: str, text: str, *options: str) -> str:
    """Compile a C program, or a library if `name` ends with .so; return its path."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    source = folder / f"{name}.c"
    source.write_text(PRELUDE + text)
    shared = ["-shared", "-fPIC"] if name.endswith(".so") else []
    command = [compiler, "-O2", "-w", *shared, "-o", str(folder / name), str(source), *options]
    subprocess.run([*command, "-pthread"], check=True)
    return str(folder / name)


# Threads that allocate and read, and a child.
ALLOCATING = """
void* work(void* path) {
    for (int i = 0; i < 200; ++i) {
        char* b = malloc(1000 + i);
        int fd = open(path, O_RDONLY);
        CHECK(b != 0 && read(fd, b, 1000 + i) == 1000 + i);
        free(b);
        close(fd);
    }
    return 0;
}
int main(int count, char** words) {
    int status;
    pthread_t threads[4];
    for (int i = 0; i < 4; ++i) pthread_create(threads + i, 0, work, words[1]);
    for (int i = 0; i < 4; ++i) pthread_join(threads[i], 0);
    fflush(stdout);
    if (fork() == 0) {
        work(words[1]);
        _exit(0);
    }
    CHECK(wait(&status) > 0 && status == 0);
    puts("done");
    return 0;
}
"""

Accesses = list[tuple[str, int, int]]


class Trace:
    """What a run recorded, by file, in the order of the calls."""

    def __init__(self, path: Path) -> None:
        self.threads: dict[str, list[int]] = {}
        self.files: dict[str, Accesses] = {}
        lines = path.read_text().splitlines()
        assert lines[0] == "penstock-trace 1"
        for line in lines[1:]:
            _, thread, operation, name, offset, size = line.split(" ")
            self.files.setdefault(name, []).append((operation, int(offset), int(size)))
            self.threads.setdefault(name, []).append(int(thread))

    def of(self, path: Path) -> Accesses:
        """Return operation, offset and size of each access to a file."""
        return self.files.get(str(path), [])


def _run(words: list[str], env: dict[str, str] | None) -> tuple[int, bytes, bytes]:
    done = subprocess.run(words, capture_output=True, check=False, timeout=120, env=env)
    return done.returncode, done.stdout, done.stderr


def same_alone_and_preloaded(
    folder: Path, *words: str, env: dict[str, str] | None = None, code: int = 0
) -> Trace:
    """Run a program alone, under `penstock run` and `penstock trace`; return the trace.

    The exit code, standard output and standard error have to be the same; `code` is the first.
    """
    alone = _run(list(words), env)
    assert alone[0] == code, alone
    penstock = [sys.executable, "-m", "penstock"]
    assert _run([*penstock, "run", "--", *words], env) == alone
    trace = folder / "t"
    traced = _run([*penstock, "trace", "-o", str(trace), "--", *words], env)
    report = traced[2].splitlines()[-1]
    assert report.startswith(b"penstock: " + os.fsencode(trace) + b": "), traced
    assert (*traced[:2], traced[2].removesuffix(report + b"\n")) == alone
    return Trace(trace)
