"""Processes of the file cache, for tests that kill them: without `penstock mount` or `serve`."""

from __future__ import annotations

import os
import select
import subprocess
from pathlib import Path
from typing import IO

import pytest
from forgetting import SECONDS_MAX, unmount, why_not

PACKAGE = Path(__file__).parents[3] / "build/release/python/penstock"
PROGRAM = PACKAGE / "penstock-cache"
PRELOAD = PACKAGE / "libpenstock-preload.so"
READY = b"ready\n"


def why_no_mount() -> str:
    """Return why there is no mount of the cache here; empty if it may be tried."""
    return why_not() if PROGRAM.exists() else "penstock-cache is not built"


class NotServedError(AssertionError):
    """The process of a cache has refused to start."""


needs_mount = pytest.mark.skipif(bool(why_no_mount()), reason=why_no_mount() or "it works")


class CacheProcess:
    """A service process of the cache of a folder."""

    folder: Path  # where programs find the files
    environment: dict[str, str]  # what programs need to be served

    def __init__(
        self,
        path: Path,
        *words: str,
        errors: IO[bytes] | None = None,
        patience: float = SECONDS_MAX,
        **options: int | str,
    ) -> None:
        """Start it; kill it and raise NotServedError if it does not serve within `patience` s."""
        self.environment = {}
        mine = self._start(["--path", str(path), "--device", "cpu", *words], errors, options)
        try:
            told = b""
            while not told.endswith(READY):
                ready, _, _ = select.select([mine], [], [], patience)
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
            raise NotServedError(told.decode())

    def _start(
        self, words: list[str], errors: IO[bytes] | None, options: dict[str, int | str]
    ) -> int:
        """Start the process; return what tells when it serves."""
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
        return mine

    def kill(self) -> None:
        """Kill the service with SIGKILL, and wait for its end."""
        self.server.kill()
        self.server.wait(timeout=SECONDS_MAX)

    def clear(self) -> None:
        """Take away what is left of a service that was killed."""

    def stop(self) -> int:
        """Let the service write everything back and end; return its exit code."""
        self.server.terminate()
        try:
            return self.server.wait(timeout=SECONDS_MAX)
        finally:
            self.kill()
            self.clear()


class CacheMount(CacheProcess):
    """A service process that shows the folder `path` through a cache at `folder`."""

    def __init__(
        self,
        path: Path,
        folder: Path,
        *,
        errors: IO[bytes] | None = None,
        patience: float = SECONDS_MAX,
        **options: int | str,
    ) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        super().__init__(path, "--mount", str(folder), errors=errors, patience=patience, **options)

    def clear(self) -> None:
        """Take the mount of a killed service away; no program may have written below it."""
        if os.path.ismount(self.folder) or not self._answers():
            unmount(self.folder)
        assert not any(self.folder.iterdir()), f"{self.folder} has files below the mount"

    def _answers(self) -> bool:
        try:
            os.stat(self.folder)
        except OSError:
            return False
        return True


class CacheFront(CacheProcess):
    """A service process for programs with the preload library, which write to the cache."""

    def __init__(
        self,
        path: Path,
        socket: Path,
        *,
        errors: IO[bytes] | None = None,
        patience: float = SECONDS_MAX,
        **options: int | str,
    ) -> None:
        self.folder = path
        super().__init__(path, "--socket", str(socket), errors=errors, patience=patience, **options)
        self.environment = {
            "LD_PRELOAD": str(PRELOAD),
            "PENSTOCK_CACHE": f"{socket}:{path}",
            "PENSTOCK_WRITE_BACK": "1",
        }
