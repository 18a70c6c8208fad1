"""Runs each case of a suite alone and in each way, in turn, and repeats what differs once.

No suite can hang a run: each case has a limit of time, after which its processes are killed and the
case is named as hung.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from . import processes, ways
from .differences import Difference, Expected, Row, compare
from .suite import ALONE, HUNG, Case, Finished, Outcomes, Place, Suite, word_of

# Alone the limit of a case is what its suite says; under us it may take so many times as long.
SLOWER = 3.0
Say = Callable[[str], None]


class Log:
    """A folder that keeps the output of each run whose outcome differs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, suite: str, case: str, way: str, output: str) -> None:
        """Write the output of the last run of a case."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{suite}.{case}.{way}".replace("/", "_")[:200]
        (self.folder / name).write_text(output)


def run_case(
    case: Case, place: Place, environment: dict[str, str], patience: float = 1
) -> tuple[Outcomes, str, float]:
    """Run a case in a place; return the outcomes of its tests, the output, and the time."""
    if case.folder:
        folder = place.folder / case.folder
    else:
        folder = Path(tempfile.mkdtemp(prefix="case-", dir=place.folder))
        folder.chmod(0o755)
    words = tuple(_filled(word, place, folder) for word in case.command)
    own = {name: _filled(text, place, folder) for name, text in case.environment.items()}
    variables = {**environment, **own}
    limit = case.seconds_max * patience * (1 if place.way == ALONE else SLOWER)
    done = processes.run((*place.prefix, *words), folder, limit, variables)
    try:
        outcomes = {"": HUNG} if done.hung else case.read(Finished(done.code, done.output, folder))
    finally:
        if not case.folder:
            shutil.rmtree(folder, ignore_errors=True)
    return outcomes, done.output, done.seconds


def _filled(text: str, place: Place, folder: Path) -> str:
    for name, value in (("folder", folder), ("way", place.way), ("penstock", place.penstock)):
        text = text.replace(f"{{{name}}}", str(value))
    return text


class SuiteRun:
    """The run of one suite in some ways."""

    def __init__(
        self, suite: Suite, copies: Path, work: Path, expected: Sequence[Expected], say: Say
    ) -> None:
        self.suite = suite
        self.copies = copies
        self.expected = expected
        self.say = say
        self.seconds_max = float("inf")  # of a way, after which no further program begins
        self.patience = 1.0  # times the limits of the cases: what is busy is not what hangs
        self.rows: list[Row] = []  # complete while the run goes on
        self.ways = ways.Ways(work)
        self.log = Log(work / "logs")
        # A case sees neither a user's settings nor another run's library.
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "LD_PRELOAD", "PENSTOCK_"))
        }
        self.environment["LC_ALL"] = "C.UTF-8"
        self.alone: dict[str, tuple[Outcomes, str, float]] = {}  # of each case, the last run

    def run(self, chosen: Sequence[str], only_case: str = "*") -> list[Row]:
        """Run the suite in the chosen ways; return a row for each."""
        every = self.suite.cases(self.copies)
        cases = [case for case in every if fnmatchcase(case.name, only_case)]
        for way in (way for way in self.suite.ways if way in chosen):
            row = Row(self.suite.name, way, programs_known=len(cases))
            self.rows.append(row)
            begun = time.monotonic()
            try:
                self._run_way(row, cases)
            except (ways.WayError, OSError) as error:
                row.broken = str(error) or type(error).__name__
                self.say(f"{self.suite.name} {way}: {row.broken}")
            self.say(
                f"{self.suite.name} {way}: {sum(row.under.values())} tests of"
                f" {row.programs} programs in {time.monotonic() - begun:.0f} s,"
                f" {row.unexpected} without a reason"
            )
        return self.rows

    def _run_way(self, row: Row, cases: Sequence[Case]) -> None:
        with contextlib.ExitStack() as stack:
            places = []
            for way in (ALONE, row.way):
                place = stack.enter_context(self.ways.place(way, self.suite))
                self.suite.prepare(self.copies, place)
                places.append(place)
            begun = time.monotonic()
            for case in cases:
                if time.monotonic() - begun > self.seconds_max:
                    break
                self._compare(row, case, places[0], places[1])
                row.programs += 1

    def _compare(self, row: Row, case: Case, alone: Place, under: Place) -> None:
        for last in (False, True):
            if last or case.name not in self.alone:
                self.alone[case.name] = run_case(case, alone, self.environment, self.patience)
            first, first_output, first_seconds = self.alone[case.name]
            second, second_output, second_seconds = run_case(
                case, under, self.environment, self.patience
            )
            found = compare(first, second)
            if (
                last
                or not found
                or all(self._reason(row.way, case, test, pair[1]) for test, pair in found.items())
            ):
                break
        row.alone.update(map(word_of, first.values()))
        row.under.update(map(word_of, second.values()))
        row.seconds_alone += first_seconds
        row.seconds_under += second_seconds
        if found:
            self.log.keep(self.suite.name, case.name, ALONE, first_output)
            self.log.keep(self.suite.name, case.name, row.way, second_output)
        for test, (was, now) in found.items():
            reason = self._reason(row.way, case, test, now)
            name = _full_name(case, test)
            difference = Difference(self.suite.name, row.way, name, was, now, reason)
            row.differences.append(difference)
            if not reason:
                self.say(str(difference))

    def _reason(self, way: str, case: Case, test: str, under: str) -> str:
        name = _full_name(case, test)
        for line in self.expected:
            if line.covers(self.suite.name, way, name, under):
                return line.reason
        return ""


def _full_name(case: Case, test: str) -> str:
    return f"{case.name}:{test}" if test else case.name
