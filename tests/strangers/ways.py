"""The ways a program runs: alone, with the preload library, in a mount.

A way gives a `Place` for as long as a suite takes. Caches and mounts are this process's own: their
sockets lie in a runtime folder of the run.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .suite import ALONE, Place, Suite

ROOT = Path(__file__).resolve().parents[2]
BUILT = os.environ.get("PYTHONPATH") or str(ROOT / "build/release/python")
COMMAND_SECONDS_MAX = 120.0
UNMOUNT_SECONDS_MAX = 20.0  # a program that was killed may hold a mount for a moment
CACHE_SIZE = "256M"

# The command of the build tree, which is found without PYTHONPATH: programs would inherit that.
COMMAND = """#!{python}
import sys
sys.path[:0] = {paths!r}
from penstock.cli import main
sys.exit(main())
"""


class WayError(Exception):
    """A cache or a mount could not be started, or did not end."""


class Ways:
    """The ways below a working folder, and the command that makes them."""

    def __init__(self, work: Path) -> None:
        self.work = work
        work.mkdir(parents=True, exist_ok=True)
        # Not below `work`: the path of a socket may have 107 bytes.
        runtime = tempfile.mkdtemp(prefix="strangers-")
        atexit.register(shutil.rmtree, runtime, ignore_errors=True)
        os.environ["XDG_RUNTIME_DIR"] = runtime
        self.command = work / "penstock"
        self.command.write_text(COMMAND.format(python=sys.executable, paths=BUILT.split(":")))
        self.command.chmod(0o755)
        self.penstock("run", "true")  # or nothing below can be believed

    def penstock(self, *words: str | Path) -> str:
        """Run the command, which succeeds or is a WayError; return its output."""
        done = subprocess.run(
            [self.command, *words],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=COMMAND_SECONDS_MAX,
        )
        if done.returncode != 0:
            raise WayError((done.stdout + done.stderr).strip())
        return done.stdout

    def _cleared(self, folder: Path) -> Path:
        shown = folder / "shown"
        if os.path.ismount(shown):  # of a run that was killed
            self.penstock("umount", "--force", shown)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        folder.chmod(0o755)
        return folder

    @contextlib.contextmanager
    def place(self, way: str, suite: Suite) -> Iterator[Place]:
        """Give the place of a way, and take it away again."""
        folder = self._cleared(self.work / suite.name / way)
        run = (str(self.command), "run")
        if way == ALONE:
            yield Place(way, folder, self.command)
        elif way == "run":
            yield Place(way, folder, self.command, run)
        elif way == "trace":
            recorded = folder.parent / "recorded"
            yield Place(way, folder, self.command, (*run, "--trace", str(recorded)))
            recorded.unlink(missing_ok=True)
        elif way in ("cache", "write-back"):
            options = ["--write-back"] if way == "write-back" else []
            with self._cached(folder):
                yield Place(way, folder, self.command, (*run, "--cache", str(folder), *options))
        elif way == "mount":
            below, shown = self._cleared(folder / "below"), self._cleared(folder / "shown")
            with self._mounted(below, shown, suite.mount_options):
                yield Place(way, shown, self.command)
        else:
            raise ValueError(f"there is no way {way!r}")

    @contextlib.contextmanager
    def _cached(self, folder: Path) -> Iterator[None]:
        size = ("--cache-size", CACHE_SIZE, "--device", "cpu:1")
        self.penstock("serve", "--cache", folder, *size, "--detach")
        try:
            yield
        finally:
            self.penstock("serve", "--cache", folder, "--stop")

    @contextlib.contextmanager
    def _mounted(self, below: Path, shown: Path, options: Sequence[str]) -> Iterator[None]:
        size = ("--cache-size", CACHE_SIZE, "--device", "cpu:1")
        self.penstock("mount", below, shown, *size, *options)
        try:
            yield
        finally:
            self._unmount(shown)

    def _unmount(self, shown: Path) -> None:
        deadline = time.monotonic() + UNMOUNT_SECONDS_MAX
        while True:
            try:
                self.penstock("umount", shown)
                return
            except WayError:
                if time.monotonic() > deadline:
                    with contextlib.suppress(WayError):
                        self.penstock("umount", "--force", shown)
                    raise
            time.sleep(0.5)
