"""Goal: storage that does not answer holds up its own files alone, and a user learns which.

A forgetful disk below the folder of a cache, whose process is stopped, stands for a server that is
away. Where the machine can freeze a file system, that does too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cache_mounts import CacheFront, CacheMount, CacheProcess, needs_mount
from forgetting import ForgetfulDisk
from mounting import penstock, serving

pytestmark = needs_mount

SECONDS_MAX = 30.0
PROMPT_S = 15.0  # 5 s until a write-back is due, 5 s until a hang is seen
FILES = 40
SIZE = 64 << 10


def wait_for(done: Callable[[], bool], seconds: float = SECONDS_MAX) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a folder whose path is short."""
    path = Path(tempfile.mkdtemp(prefix="ps", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


class Stopped:
    """A disk whose process is stopped for a while."""

    def __init__(self, place: Path, folder: Path) -> None:
        (place / "other").mkdir()
        self.disk = ForgetfulDisk(place / "other", folder, 1)

    def hang(self) -> None:
        """Answer nothing."""
        os.kill(self.disk.server.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Answer again."""
        os.kill(self.disk.server.pid, signal.SIGCONT)

    def end(self) -> None:
        """Go away."""
        self.go_on()
        self.disk.stop()


class Frozen:
    """An ext4 in a file, which is frozen for a while."""

    def __init__(self, place: Path, folder: Path) -> None:
        self.folder = folder
        image = place / "image"
        with image.open("wb") as file:
            file.truncate(256 << 20)
        made = subprocess.run(["mkfs.ext4", "-q", image], check=False, capture_output=True)
        if made.returncode == 0:
            made = subprocess.run(["mount", "-o", "loop", image, folder], check=False)
        if made.returncode != 0:
            pytest.skip("this user can mount no ext4 in a file")

    def hang(self) -> None:
        """Take no change."""
        subprocess.run(["fsfreeze", "-f", self.folder], check=True)

    def go_on(self) -> None:
        """Take changes again."""
        subprocess.run(["fsfreeze", "-u", self.folder], check=False, capture_output=True)

    def end(self) -> None:
        """Go away."""
        self.go_on()
        subprocess.run(["umount", "-l", self.folder], check=False)


def statistics(path: Path) -> dict[str, Any]:
    """Return what a mount tells of its files."""
    told = penstock("stats", path, "--json")
    assert told.returncode == 0, told.stderr
    return dict(json.loads(told.stdout)["caches"][0])


def write_files(folder: Path, name: str) -> None:
    """Write files that are more than may be dirty."""
    for i in range(FILES):
        (folder / f"{name}{i}").write_bytes(bytes([i]) * SIZE)


def all_there(folder: Path, name: str) -> bool:
    """Return whether they are in storage."""
    with contextlib.suppress(OSError):
        return all((folder / f"{name}{i}").read_bytes() == bytes([i]) * SIZE for i in range(FILES))
    return False


@pytest.mark.parametrize("kind", [Stopped, Frozen])
def test_a_mount_goes_on_beside_storage_that_hangs(
    place: Path, kind: type[Stopped | Frozen], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    below, shown, errors = place / "below", place / "shown", place / "errors"
    (below / "hangs").mkdir(parents=True)
    shown.mkdir()
    other = kind(place, below / "hangs")
    cache: CacheProcess | None = None
    try:
        with errors.open("wb") as told:
            cache = CacheMount(below, shown, errors=told, cache_size=64 << 20, dirty_limit=1 << 20)
        flags = os.O_RDWR | os.O_CREAT
        held = [os.open(shown / "hangs" / f"a{i}", flags) for i in range(3)]
        for file in held:
            os.write(file, b"1" * 100_000)
        other.hang()
        begin = time.monotonic()
        write_files(shown, "b")  # which makes room, and so meets what hangs
        wait_for(lambda: all_there(below, "b"), PROMPT_S)
        assert time.monotonic() - begin < PROMPT_S
        (shown / "c").write_bytes(b"2")
        with open(shown / "c", "rb") as reading:
            os.fsync(reading.fileno())
        assert (below / "c").read_bytes() == b"2"
        wait_for(lambda: b"storage does not answer" in errors.read_bytes())
        assert str(below / "hangs").encode() in errors.read_bytes()
        other.go_on()
        for file in held:
            os.fsync(file)
            os.close(file)
        assert b"is written again" in errors.read_bytes()
        assert cache.stop() == 0
        for i in range(3):
            assert (below / "hangs" / f"a{i}").read_bytes() == b"1" * 100_000
    finally:
        other.go_on()
        if cache is not None:
            cache.kill()
            cache.clear()
        other.end()


# Writes a file and holds it; says so, and ends when it is told to.
HOLDS = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(file, b"1" * 100_000)
print("written", flush=True)
sys.stdin.read()
os.fsync(file)
"""
WRITES = """
import os, sys
for i in range(int(sys.argv[2])):
    file = os.open(f"{sys.argv[1]}/b{i}", os.O_RDWR | os.O_CREAT)
    os.write(file, bytes([i]) * int(sys.argv[3]))
    os.close(file)
"""


def hold(path: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    """Have a program write a file and hold it: a close would wait for storage."""
    holder = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", HOLDS, path],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "written\n"
    return holder


def test_stats_names_the_file_that_storage_does_not_answer_for(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(place))
    below, shown = place / "below", place / "shown"
    (below / "hangs").mkdir(parents=True)
    shown.mkdir()
    other = Stopped(place, below / "hangs")
    try:
        with serving(below, shown):
            holder = hold(shown / "hangs" / "a", {})
            other.hang()
            wait_for(lambda: statistics(below)["failing_count"] == 1)
            (told,) = statistics(below)["failing"]
            assert told["path"] == str(below / "hangs" / "a")
            assert told["error"].startswith("storage has not answered for ")
            assert told["dirty_age_ms"] >= 5000
            assert "has not answered for" in penstock("stats", below, "--once").stdout
            other.go_on()
            holder.communicate("", timeout=SECONDS_MAX)
            wait_for(lambda: statistics(below)["failing_count"] == 0)
            assert penstock("umount", shown).returncode == 0
        assert (below / "hangs" / "a").read_bytes() == b"1" * 100_000
    finally:
        other.end()


def test_preloaded_programs_go_on_beside_storage_that_hangs(place: Path) -> None:
    below = place / "below"
    (below / "hangs").mkdir(parents=True)
    other = Stopped(place, below / "hangs")
    cache = None
    try:
        cache = CacheFront(below, place / "socket", cache_size=64 << 20, dirty_limit=1 << 20)
        environment = {**os.environ, **cache.environment}
        holder = hold(below / "hangs" / "a", cache.environment)
        other.hang()
        words = ["-I", "-S", "-c", WRITES, str(below), str(FILES), str(SIZE)]
        environment = {**os.environ, **cache.environment}
        subprocess.run([sys.executable, *words], env=environment, check=True, timeout=SECONDS_MAX)
        wait_for(lambda: all_there(below, "b"), PROMPT_S)
        other.go_on()
        holder.communicate("", timeout=SECONDS_MAX)
        assert holder.returncode == 0
        assert cache.stop() == 0
        assert (below / "hangs" / "a").read_bytes() == b"1" * 100_000
    finally:
        other.go_on()
        if cache is not None:
            cache.kill()
        other.end()
