"""What the tests of mounts share: a mount of a folder, as the command makes it."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SECONDS_MAX = 30  # that any command of these tests may take


def why_not() -> str:
    """Return why this machine can mount nothing; empty if it can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse that this user may open"
    built = subprocess.run(
        ["pkg-config", "--exists", "fuse3 >= 3.12"], check=False, capture_output=True
    )
    return "" if built.returncode == 0 else "libfuse3 3.12 is not installed"


needs_mounts = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can mount")


def penstock(*words: str | bytes | Path) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )


def run(*words: str | bytes | Path, cwd: Path | None = None) -> str:
    """Run a program that must succeed; return its output."""
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=SECONDS_MAX, cwd=cwd
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def mounted(path: Path, mountpoint: Path | None = None, *options: str) -> Iterator[Path]:
    """Mount a folder, by default over itself, and unmount it at the end."""
    where = mountpoint or path
    made = penstock("mount", path, where, "--device", "cpu:1", "--cache-size", "64M", *options)
    assert made.returncode == 0, made.stderr
    try:
        yield where
    except BaseException:
        subprocess.run(["umount", "-l", where], check=False)
        raise
    ended = penstock("umount", where)
    assert ended.returncode == 0, ended.stderr
