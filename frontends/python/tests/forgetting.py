"""A disk that forgets what was not synced, for tests: tests/programs/forgetful_file_system.cc."""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "build/release/penstock-test-forgetful_file_system"
SECONDS_MAX = 10.0  # to mount, to lose power, to unmount
MNT_DETACH = 2


def why_not() -> str:
    """Return why there is no such disk here; empty if it may be tried."""
    if not PROGRAM.exists():
        return "forgetful_file_system is not built: it needs libfuse3-dev (3.12 or newer)"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse that this user may open"
    if shutil.which("fusermount3") is None:
        return "there is no fusermount3 (apt-get install fuse3)"
    return ""


needs_fuse = pytest.mark.skipif(bool(why_not()), reason=why_not() or "FUSE works")


def unmount(place: Path) -> None:
    """Take a mount away at once, whatever uses it, and also where its server is dead."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(place), MNT_DETACH) != 0:
        subprocess.run(["fusermount3", "-u", "-z", "-q", place], check=False, timeout=SECONDS_MAX)


class ForgetfulDisk:
    """A forgetful disk that shows `folder` at `place`, until the end of a `with`."""

    def __init__(self, folder: Path, place: Path, seed: int, *options: str) -> None:
        self.folder = folder
        self.place = place
        folder.mkdir(exist_ok=True)
        place.mkdir(exist_ok=True)
        words = [str(one) for one in (PROGRAM, folder, place, seed, *options)]
        self.server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        limit = time.monotonic() + SECONDS_MAX
        while not os.path.ismount(place):
            assert self.server.poll() is None, "the forgetful disk could not be mounted"
            assert time.monotonic() < limit, "the forgetful disk was not mounted in time"
            time.sleep(0.005)

    def __enter__(self) -> ForgetfulDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def lose_power(self) -> dict[str, int]:
        """Lose what was not synced; return how many pages and names there were, and were lost."""
        self.server.send_signal(signal.SIGUSR1)
        # lost N of N pages, N of N names
        words = self._answer().split()
        counts = ("pages_lost", "pages", "names_lost", "names")
        return dict(zip(counts, (int(words[i]) for i in (1, 3, 5, 7)), strict=True))

    def be(self, mode: str) -> None:
        """Be `well`, `read-only` (until the power is lost), `full` or `broken` from now on.

        `durable` makes all durable.
        """
        assert self.server.stdin is not None
        self.server.stdin.write(mode.encode() + b"\n")
        self.server.stdin.flush()
        assert self._answer().strip() == mode

    def _answer(self) -> str:
        assert self.server.stdout is not None
        ready, _, _ = select.select([self.server.stdout], [], [], SECONDS_MAX)
        assert ready, "the forgetful disk did not answer in time"
        return self.server.stdout.readline().decode()

    def stop(self) -> None:
        """Unmount; everything becomes durable, unless the disk has been stopped before."""
        self.server.terminate()
        try:
            self.server.wait(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        for pipe in (self.server.stdin, self.server.stdout):
            if pipe is not None:
                pipe.close()
        # ismount does not see the mount of a server that was killed.
        if self.server.returncode != 0 or os.path.ismount(self.place):
            unmount(self.place)
