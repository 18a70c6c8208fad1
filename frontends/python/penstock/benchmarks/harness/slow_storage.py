"""Slow storage: a FUSE file system that shows a folder with a latency and a bandwidth."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from penstock.benchmarks.harness import interruptions, programs
from penstock.errors import CommandError

LATENCY_US = 2000
MEGABYTES_PER_S = 500
_PROGRAM = "slow_file_system"
_START_S = 10  # to mount it, and to unmount it


def why_not() -> str:
    """Return why there is no slow storage here; empty if it may be tried."""
    if programs.find(_PROGRAM) is None:
        return f"{_PROGRAM} is not built: it needs pkg-config and libfuse3-dev (3.12 or newer)"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse that this user may open"
    if shutil.which("fusermount3") is None:
        return "there is no fusermount3 (apt-get install fuse3)"
    return ""


def _wait_for(server: subprocess.Popen[str], place: Path) -> None:
    limit = time.monotonic() + _START_S
    while not os.path.ismount(place):
        if server.poll() is not None:
            told = (server.communicate()[1].strip().splitlines() or ["it said nothing"])[-1]
            raise CommandError(str(place), f"cannot be mounted: {told}")
        if time.monotonic() > limit:
            raise CommandError(str(place), f"was not mounted within {_START_S} s")
        time.sleep(0.01)


@contextmanager
def shown(place: Path, program: str, *words: str | Path) -> Iterator[None]:
    """Let a program show files below `place`, which is made; it is unmounted at the end."""
    place.mkdir(exist_ok=True)
    [found] = programs.find_all(program)
    with ExitStack() as stack:
        with interruptions.deferred():
            command = [str(one) for one in (found, *words)]
            server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            stack.callback(_end, server, place)
        _wait_for(server, place)
        yield


def _end(server: subprocess.Popen[str], place: Path) -> None:
    server.terminate()
    try:
        server.communicate(timeout=_START_S)
    except subprocess.TimeoutExpired:  # a file is still open
        server.kill()
        server.communicate()
    if os.path.ismount(place):
        subprocess.run(["fusermount3", "-u", "-z", place], check=False)


@contextmanager
def mounted(folder: Path, place: Path) -> Iterator[None]:
    """Show the files of `folder` below `place` as slow storage does."""
    with shown(place, _PROGRAM, folder, place, str(LATENCY_US), str(MEGABYTES_PER_S)):
        yield
