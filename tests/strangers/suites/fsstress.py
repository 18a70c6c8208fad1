"""fsstress: random calls on a tree of files, by several processes at once.

https://github.com/kdave/xfstests, of which `ltp/fsstress` is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..suite import Case, Suite, missing_paths


def _cases(copies: Path) -> Sequence[Case]:
    program = str(copies / "xfstests/ltp/fsstress")
    return [
        Case(
            f"{processes}-processes-{seed}",
            [program, "-d", "{folder}/tree", "-n", "400", "-p", str(processes), "-s", str(seed)],
            seconds_max=120,
        )
        for processes in (1, 4)
        for seed in (1, 2, 3)
    ]


SUITE = Suite("fsstress", _cases, missing=missing_paths("xfstests/ltp/fsstress"))
