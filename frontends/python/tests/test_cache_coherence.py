"""Goal: readers find what writers have written, whatever becomes of names, maps and the process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from caching import Cache, needs_cache, settled
from mounting import mounted, needs_mounts

pytestmark = needs_cache


# Replaces a file again and again while it reads it. Prints the reads that were not one whole file.
REPLACE = """
import os, sys
os.chdir(sys.argv[1])
text = lambda i: b"%08d" % i * 400
def write(i):
    with open("new", "wb") as file:
        file.write(text(i))
    os.rename("new", "file")
write(0)
child = os.fork()
if child == 0:
    for i in range(1, 600):
        write(i)
    os._exit(0)
bad, last = [], 0
while os.waitpid(child, os.WNOHANG)[0] == 0:
    with open("file", "rb", 0) as file:
        got = file.read(1600) + file.read(3200)
    if len(got) != 3200 or got != text(int(got[:8])) or int(got[:8]) < last:
        bad.append(got[:8])
    else:
        last = int(got[:8])
print(bad)
"""


@needs_mounts
def test_a_file_that_is_replaced_is_read_whole_in_a_mount(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    with mounted(tmp_path / "below") as top:
        command = [sys.executable, "-c", REPLACE, str(top)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_a_file_that_is_replaced_is_read_whole_with_write_back(cache: Cache) -> None:
    cache.serve()
    told = cache.run(sys.executable, "-c", REPLACE, str(cache.folder), write_back=True).stdout
    assert told == "[]\n"


# Writes a file by a map and by calls in turn.
MAP = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, 1 << 16)
with mmap.mmap(fd, 1 << 16) as memory:
    for i in range(20):
        at, text = i * 1000, b"%05d" % i
        memory[at : at + 5] = text
        other = os.open(sys.argv[1], os.O_RDONLY)
        print(os.pread(other, 5, at) == text, end=" ")
        os.close(other)
        os.pwrite(fd, text, at + 100)
        print(memory[at + 100 : at + 105] == text, end=" ")
        os.fsync(fd)
        print(memory[at : at + 5] == text, memory[at + 100 : at + 105] == text)
"""


@pytest.mark.parametrize("write_back", [False, True])
def test_maps_and_calls_see_each_other(cache: Cache, write_back: bool) -> None:
    cache.serve()
    command = [sys.executable, "-c", MAP, str(cache.folder / "a")]
    assert cache.run(*command, write_back=write_back).stdout == "True True True True\n" * 20


@needs_mounts
def test_maps_and_calls_see_each_other_over_a_mount(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    with mounted(tmp_path / "below") as top:
        command = [sys.executable, "-m", "penstock", "run", "--cache", str(top), "--"]
        command += [sys.executable, "-c", MAP, str(top / "a")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True True True True\n" * 20


def test_more_written_files_than_the_process_keeps_open(cache: Cache) -> None:
    count = 300
    script = f"""
import os, sys
for i in range({count}):
    with open(f"{{sys.argv[1]}}/{{i}}", "wb") as file:
        file.write(b"x" * 100)
print({{os.stat(f"{{sys.argv[1]}}/{{i}}").st_size for i in range({count})}})
"""
    command = ["prlimit", f"--nofile={count}", sys.executable, "-m", "penstock", "serve"]
    command += ["--cache", str(cache.folder), "--cache-size", "64M", "--detach"]
    subprocess.run(command, env=cache.environment, timeout=60, check=True, capture_output=True)
    told = cache.run(sys.executable, "-c", script, cache.folder, write_back=True).stdout
    cache.command("serve", "--cache", cache.folder, "--stop")
    assert told == "{100}\n"


def test_a_read_does_not_hide_that_the_process_was_killed(cache: Cache) -> None:
    script = """
import os, signal, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b"x" * 100_000)
os.kill(int(sys.argv[2]), signal.SIGKILL)
os.pread(fd, 200_000, 0)
os.fsync(fd)
"""
    process = cache.serve()
    path = cache.folder / "a"
    command = [sys.executable, "-c", script, str(path), str(process)]
    done = cache.run(*command, write_back=True, check=False)
    assert "Input/output error" in done.stderr
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def test_names_that_go_are_told_and_no_program_waits(cache: Cache) -> None:
    for name in ("a", "b", "c", "d"):
        (cache.folder / name).write_bytes(b"x" * 10_000)
    settled()
    process = cache.serve()
    script = """
import os, signal, sys, time
folder, process = sys.argv[1], int(sys.argv[2])
opened = lambda: os.popen(f"ls -l /proc/{process}/fd").read()
for name in "abcd":
    with open(f"{folder}/{name}", "rb", buffering=0) as file:
        file.read()
print(all(f"{folder}/{name}\\n" in opened() for name in "abcd"))
os.unlink(f"{folder}/a")
os.rename(f"{folder}/c", f"{folder}/b")
print(f"{folder}/a" in opened(), f"{folder}/b (deleted)" in opened())
os.kill(process, signal.SIGSTOP)
begin = time.monotonic()
os.unlink(f"{folder}/d")
os.unlink(f"{folder}/b")
print(time.monotonic() - begin < 60)
os.kill(process, signal.SIGCONT)
"""
    told = cache.run(sys.executable, "-c", script, cache.folder, str(process)).stdout
    assert told == "True\nFalse False\nTrue\n"
    assert not list(cache.folder.iterdir())
