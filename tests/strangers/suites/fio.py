"""fio: writes with a checksum in each block, read again and compared."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from ..suite import Case, Suite

ENGINES = ("sync", "psync", "pvsync2", "mmap", "libaio", "posixaio", "io_uring")
SHAPES = {
    "random-4k": ["--rw=randwrite", "--bs=4k", "--size=8m"],
    "random-mixed": ["--rw=randrw", "--bsrange=512-64k", "--size=8m", "--norandommap=0"],
    "sequential-1m": ["--rw=write", "--bs=1m", "--size=32m"],
    "two-jobs-fsync": ["--rw=randwrite", "--bs=16k", "--size=8m", "--numjobs=2", "--fsync=32"],
}
MORE = {
    "direct-4k": ["--rw=randwrite", "--bs=4k", "--size=8m", "--direct=1", "--ioengine=libaio"],
    "direct-64k": ["--rw=randwrite", "--bs=64k", "--size=16m", "--direct=1", "--ioengine=psync"],
    "append": ["--rw=write", "--bs=4k", "--size=4m", "--file_append=1", "--ioengine=psync"],
    "truncated": ["--rw=randwrite", "--bs=4k", "--size=8m", "--ioengine=psync", "--fallocate=none"],
    "depth-16": ["--rw=randwrite", "--bs=4k", "--size=8m", "--iodepth=16", "--ioengine=libaio"],
    "trim-mixed": ["--rw=randwrite", "--bs=4k", "--size=4m", "--ioengine=sync", "--zero_buffers"],
}
VERIFY = ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_state_save=0"]


def _case(name: str, options: Sequence[str]) -> Case:
    job = ["--name=job", "--directory={folder}", "--group_reporting", "--randseed=7"]
    return Case(name, ["fio", *job, *options, *VERIFY], seconds_max=60)


def _cases(_copies: Path) -> Sequence[Case]:
    cases = [
        _case(f"{engine}-{name}", [*options, f"--ioengine={engine}"])
        for engine, (name, options) in product(ENGINES, SHAPES.items())
    ]
    return cases + [_case(name, options) for name, options in MORE.items()]


def _missing(_copies: Path) -> str:
    return "" if shutil.which("fio") else "fio is not installed"


SUITE = Suite("fio", _cases, missing=_missing)
