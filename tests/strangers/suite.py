"""What a suite is: cases that are programs, and how the outcome of each test is read from a case.

A module of `suites/` makes one `Suite`. It knows where the copy of its suite lies and how a test of
it is run; it does not know whether the test runs alone or under Penstock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PASSED, FAILED, SKIPPED, HUNG, ABSENT = "passed", "failed", "skipped", "hung", "absent"
# Of each test, by its name within the case. What stands behind the word in brackets is the suite's
# own reason: `skipped (no disk)`.
Outcomes = dict[str, str]
WHOLE = "all"  # the name of all tests of a case that was skipped

# How programs are run. `alone` is what the others are compared with.
ALONE = "alone"
PRELOADED = ("run", "cache", "write-back", "trace")
MOUNTED = ("mount",)
WAYS = (ALONE, *PRELOADED, *MOUNTED)


@dataclass(frozen=True)
class Place:
    """Where and how the cases of a suite run in one way."""

    way: str
    folder: Path  # programs work below it; in a mount if the way is one
    penstock: Path  # the command `penstock`
    prefix: tuple[str, ...] = ()  # words before each command


@dataclass(frozen=True)
class Finished:
    """What a case left."""

    code: int  # negative: the signal that ended it
    output: str
    folder: Path  # in which it ran


Reader = Callable[[Finished], Outcomes]


def by_exit_code(done: Finished) -> Outcomes:
    """Read a case that is one test."""
    return {"": PASSED if done.code == 0 else FAILED}


@dataclass(frozen=True)
class Case:
    """A program with tests of a suite.

    In its words `{folder}` stands for the folder it runs in, `{way}` for the way, and `{penstock}`
    for the command.
    """

    name: str
    command: Sequence[str]
    seconds_max: float = 60
    read: Reader = by_exit_code
    folder: str = ""  # below the place's; empty: a new one for each run
    environment: Mapping[str, str] = field(default_factory=dict)


def word_of(outcome: str) -> str:
    """Return an outcome without its reason."""
    return outcome.partition(" (")[0]


def words(text: str) -> list[str]:
    """Return a list that is easier to read as a text."""
    return text.split()


def nothing_is_missing(_copies: Path) -> str:
    """Return that a suite needs no copy."""
    return ""


def nothing_to_do(_copies: Path, _place: Place) -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class Suite:
    """Tests that others wrote."""

    name: str
    cases: Callable[[Path], Sequence[Case]]  # of the folder of copies
    ways: Sequence[str] = (*PRELOADED, *MOUNTED)
    missing: Callable[[Path], str] = nothing_is_missing  # why it cannot run; empty: it can
    prepare: Callable[[Path, Place], None] = nothing_to_do  # called once for each place
    mount_options: Sequence[str] = ()


TAP_LINE = re.compile(r"^\s*(not )?ok\b(?: (\d+))?([^\n]*)$", re.MULTILINE)
TAP_PLAN = re.compile(r"^1\.\.(\d+)([^\n]*)$", re.MULTILINE)


def tap(done: Finished) -> Outcomes:
    """Read the Test Anything Protocol. A planned test that did not run is absent."""
    outcomes: Outcomes = {}
    for index, (bad, number, rest) in enumerate(_tap_lines(done.output), 1):
        lower = rest.lower()
        skipped = "# skip" in lower or "# todo" in lower
        outcomes[number or str(index)] = SKIPPED if skipped else FAILED if bad else PASSED
    plan = TAP_PLAN.search(done.output)
    if plan:
        for planned in range(1, int(plan[1]) + 1):
            outcomes.setdefault(str(planned), ABSENT)
        if plan[1] == "0":
            outcomes[WHOLE] = SKIPPED
    if done.code != 0:
        outcomes["end"] = FAILED
    elif not outcomes:
        outcomes["end"] = ABSENT
    return outcomes


def _tap_lines(text: str) -> Iterator[tuple[str, str, str]]:
    for line in TAP_LINE.finditer(text):
        yield line[1] or "", line[2] or "", line[3]


def missing_paths(*names: str) -> Callable[[Path], str]:
    """Return a check that these files are below the folder of copies."""

    def missing(copies: Path) -> str:
        absent = [name for name in names if not (copies / name).exists()]
        return f"there is no {copies / absent[0]}" if absent else ""

    return missing
