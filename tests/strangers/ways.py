"""The ways a program runs: alone, with the preload library, in a mount.

A way gives a `Place` for as long as a suite takes. Caches and mounts are this process's own: their
sockets lie in a runtime folder of the run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .suite import ALONE, Place, Suite

ROOT = Path(__file__).resolve().parents[2]
BUILT = os.environ.get("PYTHONPATH") or str(ROOT / "build/release/python")
COMMAND_SECONDS_MAX = 120.0
CACHE_SIZE = "256M"

# The package is imported without PYTHONPATH, which programs under us would inherit.
_MAIN = "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); sys.argv[0] = 'penstock'; "
_MAIN += "from penstock.cli import main; sys.exit(main())"
PENSTOCK = (sys.executable, "-c", _MAIN, BUILT)


def penstock(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command of the build tree."""
    return subprocess.run(
        [*PENSTOCK, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=COMMAND_SECONDS_MAX,
    )


class WayError(Exception):
    """A cache or a mount could not be started, or did not end."""


def _must(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        raise WayError((done.stdout + done.stderr).strip())


def _cleared(folder: Path) -> Path:
    shown = folder / "shown"
    if os.path.ismount(shown):  # of a run that was killed
        _must(penstock("umount", "--force", shown))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    return folder


@contextlib.contextmanager
def place(way: str, suite: Suite, work: Path) -> Iterator[Place]:
    """Give the place of a way, and take it away again."""
    os.environ["XDG_RUNTIME_DIR"] = str(work / "runtime")
    (work / "runtime").mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = _cleared(work / suite.name / way)
    if way == ALONE:
        yield Place(way, folder)
    elif way == "run":
        yield Place(way, folder, (*PENSTOCK, "run"))
    elif way == "trace":
        yield Place(way, folder, (*PENSTOCK, "trace", "-o", str(folder.parent / "recorded")))
        (folder.parent / "recorded").unlink(missing_ok=True)
    elif way in ("cache", "write-back"):
        options = ["--write-back"] if way == "write-back" else []
        with _cached(folder):
            yield Place(way, folder, (*PENSTOCK, "run", "--cache", str(folder), *options))
    elif way == "mount":
        with _mounted(_cleared(folder / "below"), _cleared(folder / "shown"), suite.mount_options):
            yield Place(way, folder / "shown")
    else:
        raise ValueError(f"there is no way {way!r}")


@contextlib.contextmanager
def _cached(folder: Path) -> Iterator[None]:
    device = ("--device", "cpu:1")
    _must(penstock("serve", "--cache", folder, "--cache-size", CACHE_SIZE, *device, "--detach"))
    try:
        yield
    finally:
        _must(penstock("serve", "--cache", folder, "--stop"))


@contextlib.contextmanager
def _mounted(below: Path, shown: Path, options: Sequence[str]) -> Iterator[None]:
    device = ("--device", "cpu:1")
    _must(penstock("mount", below, shown, "--cache-size", CACHE_SIZE, *device, *options))
    try:
        yield
    finally:
        done = penstock("umount", shown)
        for _ in range(20):  # a process that was killed may hold the mount for a moment
            if done.returncode == 0:
                break
            time.sleep(0.5)
            done = penstock("umount", shown)
        if done.returncode != 0:
            penstock("umount", "--force", shown)
            raise WayError((done.stdout + done.stderr).strip())
