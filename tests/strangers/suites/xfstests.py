"""xfstests: its quick tests for any file system, alone on an ext4 in a file. Needs root.

https://github.com/kdave/xfstests, built in its folder with `make`; gawk, attr, acl and xfsprogs are
installed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..suite import FAILED, PASSED, SKIPPED, Case, Finished, Outcomes, Suite, missing_paths

SCRIPT = Path(__file__).parents[1] / "programs/xfstests.sh"
TESTS_A_CASE = 6
LINE = re.compile(r"^generic/(\d+)\s+(.*)$", re.MULTILINE)
# Tests that take minutes alone, or change what other processes of the machine find.
LEFT_OUT = {"027", "371", "551", "558"}


def _read(done: Finished) -> Outcomes:
    outcomes: Outcomes = {}
    for number, rest in LINE.findall(done.output):
        bad = "[failed" in rest or "output mismatch" in rest or "_check_" in rest
        _, not_run, reason = rest.partition("[not run] ")
        skipped = f"{SKIPPED} ({reason})" if not_run else PASSED
        outcomes[number] = FAILED if bad else skipped
    if not outcomes:
        outcomes["end"] = FAILED
    return outcomes


def _missing(copies: Path) -> str:
    if os.geteuid() != 0:
        return "it needs root"
    return missing_paths("xfstests/check", "xfstests/ltp/fsstress")(copies)


def _quick(copies: Path) -> list[str]:
    tests = sorted((copies / "xfstests/tests/generic").glob("[0-9][0-9][0-9]"))
    groups = {path.name: path.read_text(errors="replace") for path in tests}
    quick = re.compile(r"^_begin_fstest\b.*\bquick\b", re.MULTILINE)
    return [name for name, text in groups.items() if quick.search(text) and name not in LEFT_OUT]


def _cases(copies: Path) -> Sequence[Case]:
    names = _quick(copies)
    chunks = [names[at : at + TESTS_A_CASE] for at in range(0, len(names), TESTS_A_CASE)]
    return [
        Case(
            f"{chunk[0]}-{chunk[-1]}",
            [str(SCRIPT), "{way}", str(copies), "{penstock}", *(f"generic/{n}" for n in chunk)],
            seconds_max=240,
            read=_read,
        )
        for chunk in chunks
    ]


SUITE = Suite("xfstests", _cases, ways=("mount",), missing=_missing)
