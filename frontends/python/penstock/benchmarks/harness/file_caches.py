"""File caches that a benchmark starts, with or without a mount, and what they tell of their use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from penstock import cache_places
from penstock.benchmarks.harness import interruptions
from penstock.cache_service import Service, start
from penstock.errors import CommandError

SIZE_MIN = 64 << 20  # of a cache with the usual chunks
_END_S = 120  # to write back what is dirty


class NotServedError(CommandError):
    """A program did not get its bytes from where it should."""


class Cache:
    """A running cache of the files below `path`; programs use it at `shown`."""

    def __init__(self, place: cache_places.Place, shown: Path) -> None:
        self._place = place
        self.path = Path(place.path)
        self.shown = shown

    def statistics(self) -> dict[str, Any]:
        """Return what `penstock stats --json` tells of it."""
        return cache_places.statistics(self._place)

    def run_served(self, run: Callable[[], float], size: int, *, from_storage: int = 0) -> float:
        """Run a program, and raise NotServedError if it was not served as the row says.

        The cache must serve `size` bytes or more, none of them past its memory. It must read
        `from_storage` bytes or more for that, and none if that is 0.
        """
        before = self.statistics()
        figure = run()
        after = self.statistics()
        names = ("bytes_served", "bytes_read", "bytes_bypassed")
        served, read, bypassed = (after[name] - before[name] for name in names)
        if served < size or bypassed > 0:
            told = f"served {served} of {size} bytes, and {bypassed} past its memory"
            raise NotServedError(str(self.shown), f"its cache {told}")
        if read < from_storage or (from_storage == 0 and read > 0):
            told = f"read {read} bytes from storage, expected {from_storage or 'none'}"
            raise NotServedError(str(self.shown), f"its cache {told}")
        return figure


def _unmount(mount: Path) -> None:
    if os.path.ismount(mount):
        subprocess.run(["fusermount3", "-u", "-z", mount], check=False)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def running(
    path: Path, device: str, size: int, *, mount: Path | None = None, dirty_size_max: int = 0
) -> Iterator[Cache]:
    """Start a cache of the files below `path`, and end it with the block."""
    service = Service(
        path=str(path),
        mountpoint=str(mount or ""),
        device=device,
        cache_size=max(size, SIZE_MIN),
        dirty_size_max=dirty_size_max,
    )
    with ExitStack() as stack:
        with interruptions.deferred():
            if mount is not None:
                mount.mkdir(exist_ok=True)
                stack.callback(_unmount, mount)
            stack.callback(_end, start(service))
        place = cache_places.find(str(path))
        if place is None:
            raise CommandError(str(path), "its cache has ended")
        yield Cache(place, mount or path)
