"""fsx: random reads, writes, mappings and truncations of one file, each byte compared.

https://github.com/kdave/xfstests, of which `ltp/fsx` is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..suite import Case, Suite, missing_paths

OPERATIONS = "2000"
SHAPES = {
    "plain": [],
    "small": ["-l", "70000", "-o", "9000"],
    "large": ["-l", "8000000", "-o", "300000"],
    "no-mappings": ["-R", "-W"],
    "no-collapse": ["-C", "-I", "-z"],
    "async": ["-A"],
    "direct": ["-Z", "-r", "4096", "-w", "4096", "-t", "4096"],
    "with-fsync": ["-y"],
    "reopened": ["-c", "20"],
    "uring": ["-U"],
}


def _cases(copies: Path) -> Sequence[Case]:
    program = str(copies / "xfstests/ltp/fsx")
    return [
        Case(
            f"{name}-{seed}",
            [program, "-q", "-N", OPERATIONS, "-S", str(seed), *options, "file"],
            seconds_max=120,
        )
        for name, options in SHAPES.items()
        for seed in (1, 2)
    ]


SUITE = Suite("fsx", _cases, missing=missing_paths("xfstests/ltp/fsx"))
