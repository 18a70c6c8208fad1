"""What the tests of full disks share: a small file system of its own, and programs that fill it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SECONDS_MAX = 60

# Makes each kind of file system in an image. None of these is made without a tool of that name.
MAKERS = {
    "ext4": ["mkfs.ext4", "-q", "-m", "0"],
    "ext2": ["mkfs.ext2", "-q", "-m", "0"],
    "xfs": ["mkfs.xfs", "-q"],
}


def why_not(kind: str) -> str:
    """Return why this machine can mount no such file system; empty if it can."""
    if os.geteuid() != 0:
        return "only root can mount a file system"
    if kind != "tmpfs" and shutil.which(MAKERS[kind][0]) is None:
        return f"{MAKERS[kind][0]} is not installed"
    return ""


@contextlib.contextmanager
def small_disk(folder: Path, kind: str = "ext4", size: str = "8M") -> Iterator[Path]:
    """Make a file system of this size, mount it at a new folder, and take it away at the end."""
    if reason := why_not(kind):
        pytest.skip(reason)
    disk = folder / f"disk-{kind}"
    disk.mkdir()
    if kind == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "penstock-test", str(disk)]
    else:
        image = folder / f"image-{kind}"
        with image.open("wb") as file:
            file.truncate(int(size[:-1]) << 20)
        subprocess.run([*MAKERS[kind], image], check=True, timeout=SECONDS_MAX)
        command = ["mount", "-o", "loop", str(image), str(disk)]
    mounted = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )
    if mounted.returncode != 0:
        pytest.skip(f"this machine cannot mount {kind}: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        if subprocess.run(["umount", disk], check=False, timeout=SECONDS_MAX).returncode != 0:
            subprocess.run(["umount", "-l", disk], check=False, timeout=SECONDS_MAX)


def free_of(disk: Path) -> int:
    """Return how many bytes a program may write to a file system."""
    told = os.statvfs(disk)
    return told.f_bavail * told.f_frsize


PERIOD = 65521  # of the bytes that FILL writes: no multiple of a block


def stream(seed: int, size: int) -> bytes:
    """Return the first bytes of what FILL writes."""
    pattern = random.Random(seed).randbytes(PERIOD)
    return (pattern * (size // PERIOD + 1))[:size]


# Writes a file by calls of random sizes until one fails. Prints how many bytes were acknowledged,
# and the errors of the write and of the close.
FILL = f"""
import errno, os, random, sys
path, seed, most, size_max = sys.argv[1], *map(int, sys.argv[2:])
r = random.Random(seed)
pattern = random.Random(seed).randbytes({PERIOD})
fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
done, failure, closed = 0, "-", "-"
while done < most:
    size = min(r.randint(1, size_max), most - done)
    at = done % {PERIOD}
    try:
        done += os.write(fd, (pattern * (size // {PERIOD} + 2))[at : at + size])
    except OSError as error:
        failure = errno.errorcode[error.errno]
        break
try:
    os.close(fd)
except OSError as error:
    closed = errno.errorcode[error.errno]
print(done, failure, closed, flush=True)
"""


def fill_command(path: Path, seed: int, most: int, size_max: int) -> list[str]:
    """Return the command of a program that writes at most so many bytes, which `seed` decides."""
    return [sys.executable, "-c", FILL, str(path), str(seed), str(most), str(size_max)]
