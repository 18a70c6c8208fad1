"""Goal: an error of a write-back is told to each descriptor that was open, and to each once."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from pathlib import Path

from caching import PENSTOCK, Cache, making, needs_cache
from mounting import needs_mounts, penstock, serving

# Opens a file several times, in two processes, and writes by one descriptor. Once the write-back
# has failed, and the disk works again, each descriptor syncs twice. Prints how often each failed.
PROGRAM = """
import errno, os, sys
path = sys.argv[1]
def failures(call):
    try:
        call()
    except OSError as error:
        assert error.errno == errno.EFBIG, error
        return 1
    return 0
def syncs(fd):
    return failures(lambda: os.fsync(fd)), failures(lambda: os.fdatasync(fd))
ready, go = os.pipe()
child = os.fork()
if child == 0:
    os.close(go)
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, b"child", 100)
    print("open", flush=True)
    os.read(ready, 1)
    print("child", *syncs(fd), flush=True)
    os._exit(0)
os.close(ready)
writer = os.open(path, os.O_RDWR)
others = [os.open(path, how) for how in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY)]
closed, copied = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
copy = os.dup(copied)
os.pwrite(closed, b"closed", 200)
os.pwrite(writer, b"kept", 2 << 20)
print("open", flush=True)
sys.stdin.readline()
print("writer", *syncs(writer))
print("others", *(syncs(fd) for fd in others))
print("close", failures(lambda: os.close(closed)))
print("copies", syncs(copied), syncs(copy))
print("later", *syncs(os.open(path, os.O_RDWR)), flush=True)
os.close(go)
os.waitpid(child, 0)
"""
TOLD = [
    "writer 1 0",
    "others (1, 0) (1, 0) (1, 0)",
    "close 1",
    "copies (1, 0) (1, 0)",
    "later 0 0",
    "child 1 0",
]


def told_by(
    process: subprocess.Popen[str], service: int, flush: list[str], below: Path
) -> list[str]:
    """Let a write-back fail, and then not; return what the program prints."""
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["open\n", "open\n"]
    limits = resource.prlimit(service, resource.RLIMIT_FSIZE)
    resource.prlimit(service, resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    failed = subprocess.run(flush, capture_output=True, text=True, check=False, timeout=60)
    assert failed.returncode == 1, failed
    assert "too large" in failed.stderr
    resource.prlimit(service, resource.RLIMIT_FSIZE, limits)
    subprocess.run(flush, capture_output=True, check=True, timeout=60)
    assert below.read_bytes()[2 << 20 :] == b"kept"
    return process.communicate("\n", timeout=60)[0].splitlines()


@needs_cache
def test_each_descriptor_of_programs_is_told_once(tmp_path: Path) -> None:
    with making(tmp_path, "cpu") as cache:
        path = cache.folder / "a"
        path.write_bytes(b"x" * 1000)
        service = cache.serve()
        words = [*PENSTOCK, "run", "--cache", str(cache.folder), "--write-back", "--"]
        with subprocess.Popen(
            [*words, "python3", "-c", PROGRAM, str(path)],
            env=cache.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            flush = [*PENSTOCK, "serve", "--cache", str(cache.folder), "--flush"]
            told = told_by(process, service, ["env", *environment_of(cache), *flush], path)
        assert told == TOLD, told


def environment_of(cache: Cache) -> list[str]:
    """Return what commands need to find a cache, as words of env(1)."""
    names = ("XDG_RUNTIME_DIR", "PENSTOCK_DEVICE")
    return [f"{name}={cache.environment[name]}" for name in names]


@needs_mounts
def test_each_descriptor_of_a_mount_is_told_once(tmp_path: Path) -> None:
    below, shown = tmp_path / "below", tmp_path / "shown"
    below.mkdir()
    shown.mkdir()
    with serving(below, shown) as service:
        (shown / "a").write_bytes(b"x" * 1000)
        with subprocess.Popen(
            ["python3", "-c", PROGRAM, str(shown / "a")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            flush = [*PENSTOCK, "serve", "--cache", str(below), "--flush"]
            told = told_by(process, service, flush, below / "a")
        # The kernel knows that copies are one.
        assert told == [
            line.replace("copies (1, 0) (1, 0)", "copies (1, 0) (0, 0)") for line in TOLD
        ]
        assert penstock("umount", shown).returncode == 0


# Writes far behind what storage takes, by files of its own, until it is told to end. First one that
# it fills sparsely. Prints which errors it got.
ATTACKER = """
import errno, os, sys
folder, errors, ended = sys.argv[1], set(), []
def attack(fd, data, offset):
    try:
        os.pwrite(fd, data, offset)
    except OSError as error:
        errors.add(errno.errorcode[error.errno])
fd = os.open(f"{folder}/sparse", os.O_RDWR | os.O_CREAT)
for offset in (1 << 61, 1 << 62):
    attack(fd, b"x", offset)
for i in range(256):
    attack(fd, b"x", (2 << 20) + i * (1 << 20))
print("ready", flush=True)
for i in range(40):
    fd = os.open(f"{folder}/bad{i}", os.O_RDWR | os.O_CREAT)
    for k in range(16):
        attack(fd, bytes(65536), (2 << 20) + k * 65536)
    try:
        os.fsync(fd)
    except OSError as error:
        errors.add(errno.errorcode[error.errno])
print(*sorted(errors), flush=True)
"""

# Writes and reads files of its own meanwhile. Prints the longest time of a call in seconds.
BYSTANDER = """
import os, sys, time
longest = 0
for i in range(150):
    begin = time.monotonic()
    fd = os.open(f"{sys.argv[1]}/good{i}", os.O_RDWR | os.O_CREAT)
    data = os.urandom(5000)
    assert os.pwrite(fd, data, 0) == 5000 and os.pread(fd, 9000, 0) == data
    os.close(fd)
    longest = max(longest, time.monotonic() - begin)
print(longest)
"""


def is_unharmed(program: list[str], shown: Path, below: Path, environment: dict[str, str]) -> None:
    """Run attacker and bystander in a folder, whose cache can write no file beyond 1 MiB."""

    def start(text: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*program, "python3", "-c", text, str(shown)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    with start(ATTACKER) as attacker, start(BYSTANDER) as bystander:
        longest = float(bystander.communicate(timeout=100)[0])
        assert longest < 5  # a write-back that fails is tried again for seconds
        told = attacker.communicate(timeout=100)[0].splitlines()
        assert told == ["ready", "EFBIG"]
        with start(BYSTANDER) as after:
            assert float(after.communicate(timeout=100)[0]) < 5
    deadline = time.monotonic() + 30
    while any(len((below / f"good{i}").read_bytes()) != 5000 for i in range(150)):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@needs_mounts
def test_failing_files_of_a_mount_do_not_stop_others(tmp_path: Path) -> None:
    below, shown = tmp_path / "below", tmp_path / "shown"
    below.mkdir()
    shown.mkdir()
    with serving(below, shown) as service:
        limits = resource.prlimit(service, resource.RLIMIT_FSIZE)
        resource.prlimit(service, resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        is_unharmed([], shown, below, dict(os.environ))
        told = json.loads(penstock("stats", below, "--json").stdout)["caches"][0]
        assert told["failing_count"] > 0  # later ones are refused at once
        assert told["dirty_size"] <= told["size"] * 3 // 8
        assert "the mount is gone" in penstock("umount", "--force", shown).stderr


@needs_cache
def test_failing_files_of_a_program_do_not_stop_others(tmp_path: Path) -> None:
    with making(tmp_path, "cpu") as cache:
        service = cache.serve()
        limits = resource.prlimit(service, resource.RLIMIT_FSIZE)
        resource.prlimit(service, resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        program = [*PENSTOCK, "run", "--cache", str(cache.folder), "--write-back", "--"]
        is_unharmed(program, cache.folder, cache.folder, cache.environment)
        told = cache.statistics()
        assert told["dirty_size"] <= told["size"] * 3 // 8
