"""pjdfstest: what system calls on names, modes and owners answer. Needs root.

https://github.com/pjd/pjdfstest, built in its folder: `autoreconf -ifs && ./configure && make`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..suite import SKIPPED, WHOLE, Case, Finished, Outcomes, Suite, missing_paths, tap


def _missing(copies: Path) -> str:
    if os.geteuid() != 0:
        return "it needs root"
    return missing_paths("pjdfstest/pjdfstest", "pjdfstest/tests")(copies)


def _read(done: Finished) -> Outcomes:
    """Read a file of tests. One that wants what the system lacks prints that it has one test."""
    return {WHOLE: SKIPPED} if done.output == "1..1\nok 1\n" else tap(done)


def _cases(copies: Path) -> Sequence[Case]:
    tests = copies / "pjdfstest/tests"
    return [
        Case(str(path.relative_to(tests)), ["sh", str(path)], seconds_max=120, read=_read)
        for path in sorted(tests.glob("*/*.t"))
    ]


SUITE = Suite("pjdfstest", _cases, ways=("mount", "write-back"), missing=_missing)
