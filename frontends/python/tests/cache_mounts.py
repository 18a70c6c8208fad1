"""Mounts of the file cache, for tests that kill them: the service without `penstock mount`."""

from __future__ import annotations

import os
import select
import subprocess
from pathlib import Path
from typing import IO

import pytest
from forgetting import SECONDS_MAX, unmount, why_not

PROGRAM = Path(__file__).parents[3] / "build/release/python/penstock/penstock-cache"
READY = b"ready\n"


def why_no_mount() -> str:
    """Return why there is no mount of the cache here; empty if it may be tried."""
    return why_not() if PROGRAM.exists() else "penstock-cache is not built"


needs_mount = pytest.mark.skipif(bool(why_no_mount()), reason=why_no_mount() or "it works")


class CacheMount:
    """A service process that shows the folder `path` through a cache at `folder`."""

    def __init__(
        self, path: Path, folder: Path, *, errors: IO[bytes] | None = None, **options: int | str
    ) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        words = ["--path", str(path), "--mount", str(folder), "--device", "cpu"]
        for name, value in options.items():
            words += ["--" + name.replace("_", "-"), str(value)]
        mine, its = os.pipe()
        try:
            self.server = subprocess.Popen(
                [PROGRAM, *words, "--ready-fd", str(its)],
                pass_fds=[its],
                stdin=subprocess.DEVNULL,
                stderr=errors,
            )
        finally:
            os.close(its)
        try:
            told = b""
            while not told.endswith(READY):
                ready, _, _ = select.select([mine], [], [], SECONDS_MAX)
                part = os.read(mine, 4096) if ready else b""
                told += part or b"was not ready in time"
                if not part:
                    break
        finally:
            os.close(mine)
        *self.notes, last = told.splitlines(keepends=True)
        if last != READY:
            self.kill()
            self.clear()
            raise AssertionError(f"the mount: {told.decode()}")

    def kill(self) -> None:
        """Kill the service with SIGKILL, and wait for its end."""
        self.server.kill()
        self.server.wait(timeout=SECONDS_MAX)

    def clear(self) -> None:
        """Take the mount of a killed service away."""
        if os.path.ismount(self.folder) or not self._answers():
            unmount(self.folder)

    def _answers(self) -> bool:
        try:
            os.stat(self.folder)
        except OSError:
            return False
        return True

    def stop(self) -> int:
        """Let the service write everything back and end; return its exit code."""
        self.server.terminate()
        try:
            return self.server.wait(timeout=SECONDS_MAX)
        finally:
            self.kill()
            self.clear()
