"""fio, the common program to measure disks, as a baseline: bench/harness/fio.h in Python."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

_SECONDS_MAX = 300
_BLOCK_SIZES = (256 << 10, 1 << 20, 4 << 20)
# Of the terse output, version 3: semicolons between them.
_ERROR, _READ_KIB, _READ_KIB_PER_SECOND = 4, 5, 6


class Job(NamedTuple):
    """Direct reads of one thread, with buffers on huge pages."""

    engine: str = "psync"
    depth: int = 1
    block_size: int = 1 << 20

    def __str__(self) -> str:
        depth = f", depth {self.depth}" if self.depth > 1 else ""
        return f"{self.engine}{depth}, {self.block_size >> 10} KiB, direct"


def sweep(*, smoke: bool) -> list[Job]:
    """Return every engine with every depth and block size."""
    if smoke:
        return [Job("io_uring", 16)]
    jobs = []
    for block_size in _BLOCK_SIZES:
        for engine in ("io_uring", "libaio"):
            jobs += [Job(engine, depth, block_size) for depth in (4, 16, 32)]
        jobs.append(Job("psync", 1, block_size))
    return jobs


def why_not() -> str:
    """Return why fio cannot be run; empty if it can."""
    try:
        subprocess.run(["fio", "--version"], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return "fio is not installed (setup/install.sh test installs it)"
    return ""


def run(job: Job, path: Path, size: int) -> float | None:
    """Return the seconds that fio reads a file once, in order, without its own start and end.

    None means that this fio cannot do the job here.
    """
    command = [
        "fio",
        "--name=read",
        f"--filename={path}",
        "--readonly",
        "--rw=read",
        f"--size={size}",
        f"--bs={job.block_size}",
        f"--ioengine={job.engine}",
        f"--iodepth={job.depth}",
        "--direct=1",
        "--thread",
        "--invalidate=0",  # the caller has set the state of the cache
        "--iomem=malloc",  # its default
        "--output-format=terse",
        "--terse-version=3",
    ]
    environment = os.environ | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return None
    fields = done.stdout.partition("\n")[0].split(";")
    if done.returncode or len(fields) <= _READ_KIB_PER_SECOND or fields[_ERROR] != "0":
        return None
    if int(fields[_READ_KIB]) << 10 != size:
        return None
    return size / (float(fields[_READ_KIB_PER_SECOND]) * 1024)
