"""Goal: under `penstock run --cache --write-back` programs start as alone.

Also those whose files other programs have just written. They cost the program that starts them no
descriptor.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import pytest
from caching import PENSTOCK, Cache, needs_cache

pytestmark = needs_cache

# Writes files of the arguments, and ends.
WRITER = """
import os, sys
for path, text in zip(sys.argv[1::2], sys.argv[2::2]):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o755)
    os.write(fd, text.encode())
    os.close(fd)
"""
# Has another program write `new`, and starts it in several ways.
STARTER = """
import os, subprocess, sys
writer, python = sys.argv[1:]
os.environ["PATH"] = os.getcwd() + ":" + os.environ["PATH"]
def write(*files): subprocess.run([python, "-c", writer, *files], check=True)
def spawned(pid): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def forked(name):
    pid = os.fork()
    if pid == 0:
        os.execvp(name, [name])
    return spawned(pid)
ways = {
    "subprocess": lambda: subprocess.call("./new"),
    "descriptors kept": lambda: subprocess.call("./new", close_fds=False),
    "posix_spawn": lambda: spawned(os.posix_spawn("./new", ["new"], os.environ)),
    "posix_spawnp": lambda: spawned(os.posix_spawnp("new", ["new"], os.environ)),
    "exec": lambda: forked("./new"),
    "exec by PATH": lambda: forked("new"),
    "shell": lambda: spawned(os.posix_spawn("/bin/sh", ["sh", "-c", "./new"], os.environ)),
}
for code, (name, start) in enumerate(ways.items(), 1):
    for more in ("", "#" * 100_000):
        write("new", f"#!/bin/sh\\nexit {code}\\n{more}")
        assert start() == code, name
"""


def test_a_program_that_another_one_has_just_written_starts(cache: Cache) -> None:
    cache.serve()
    cache.run(
        *("sh", "-c", 'cd "$0" && exec "$@"', cache.folder),
        *(sys.executable, "-c", STARTER, WRITER, sys.executable),
        write_back=True,
    )


def test_a_program_that_a_program_has_unpacked_starts(cache: Cache) -> None:
    cache.serve()
    script = 'cd "$0" && tar cf - -C /bin true dash | tar xf - && ./true && ./dash -c "exit 7"'
    shell = cache.run("sh", "-c", script, cache.folder, write_back=True, check=False)
    assert (shell.returncode, shell.stderr) == (7, "")


def test_programs_outside_start_what_was_written_back(cache: Cache) -> None:
    script = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o755)
os.write(fd, b"#!/bin/sh\\nexit 7\\n")
os.close(fd)
print("written", flush=True)
sys.stdin.read()
"""
    cache.serve()
    path = cache.folder / "new"
    words = ["run", "--cache", cache.folder, "--write-back", "--", sys.executable, "-c", script]
    with subprocess.Popen(
        [*PENSTOCK, *map(str, words), str(path)],
        env=cache.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"written\n"
        for _ in range(150):
            with contextlib.suppress(OSError):  # the file is empty, or open for writing
                if subprocess.call([path]) == 7:
                    break
            time.sleep(0.1)
        else:
            pytest.fail("it is open for writing")
        program.communicate()


def test_programs_that_are_started_cost_no_descriptor(cache: Cache) -> None:
    script = """
import os, subprocess, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
counts = []
for i in range(20):
    os.pwrite(fd, b"text", 4 * i)
    subprocess.run(["true"], close_fds=i % 2 == 0)
    counts.append(len(os.listdir("/proc/self/fd")))
print(counts[0], counts[-1])
"""
    cache.serve()
    path = cache.folder / "a"
    first, last = cache.run(sys.executable, "-c", script, path, write_back=True).stdout.split()
    assert int(last) <= int(first) + 1  # a thread may have needed another connection


@pytest.mark.parametrize("limit", [29, 100, 700])
def test_a_connection_has_a_number_behind_those_of_the_program(cache: Cache, limit: int) -> None:
    script = """
import os, sys
open(sys.argv[1]).read()
print(*sorted(map(int, os.listdir("/proc/self/fd")))[-2:])
"""
    cache.serve()
    path = cache.folder / "a"
    path.write_text("text")
    limited = f'ulimit -S -n {limit}; exec "$0" "$@"'
    words = ("sh", "-c", limited, sys.executable, "-c", script, path)
    numbers = cache.run(*words, write_back=True).stdout.split()
    assert int(numbers[0]) < limit
    assert int(numbers[1]) >= max(limit, 512)
