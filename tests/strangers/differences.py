"""Compares the outcomes of tests alone and under us, and knows which differences are expected."""

from __future__ import annotations

import fnmatch
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .suite import ABSENT, FAILED, HUNG, PASSED, SKIPPED, WHOLE, Outcomes, word_of

EXPECTED = Path(__file__).parent / "expected.txt"


@dataclass(frozen=True)
class Expected:
    """A line of the file of expected differences. Words are patterns as those of a shell.

    `test` may be several patterns with commas between them. They are compared with the name of a
    test, and with the name, a space and the outcome under us.
    """

    suite: str
    way: str
    test: str
    reason: str

    def covers(self, suite: str, way: str, test: str, under: str = "") -> bool:
        """Return whether the line is about this test."""
        return (
            fnmatch.fnmatchcase(suite, self.suite)
            and fnmatch.fnmatchcase(way, self.way)
            and any(
                fnmatch.fnmatchcase(name, pattern)
                for name in (test, f"{test} {under}")
                for pattern in self.test.split(",")
            )
        )


def read_expected(path: Path) -> list[Expected]:
    """Read `SUITE WAY TEST: REASON` lines; a line that is indented goes on with the reason."""
    lines: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith(" "):
            lines[-1] += " " + line.strip()
        elif line.strip() and not line.startswith("#"):
            lines.append(line)
    found = []
    for line in lines:
        words, colon, reason = line.partition(": ")
        parts = words.split(maxsplit=2)
        if not colon or not reason.strip() or len(parts) != 3:
            raise ValueError(f"{path.name}: not SUITE WAY TEST: REASON: {line}")
        found.append(Expected(parts[0], parts[1], parts[2], reason.strip()))
    return found


@dataclass(frozen=True)
class Difference:
    """A test whose outcome under us is not that alone."""

    suite: str
    way: str
    test: str
    alone: str
    under: str
    reason: str = ""  # empty: not expected

    def __str__(self) -> str:
        text = f"{self.suite} {self.way} {self.test}: {self.alone} alone, {self.under} under us"
        return f"{text} ({self.reason})" if self.reason else text


def compare(alone: Outcomes, under: Outcomes) -> dict[str, tuple[str, str]]:
    """Return the tests with two outcomes; one for all if either run hung or was skipped."""
    if any(HUNG in run.values() or WHOLE in run for run in (alone, under)):
        first, second = worst(alone), worst(under)
        return {"": (first, second)} if first != second else {}
    found = {}
    for test in sorted(alone.keys() | under.keys()):
        pair = alone.get(test, ABSENT), under.get(test, ABSENT)
        if word_of(pair[0]) != word_of(pair[1]):
            found[test] = pair
    return found


def worst(outcomes: Outcomes) -> str:
    """Return the outcome of a case as one word."""
    order = (HUNG, FAILED, ABSENT, PASSED, SKIPPED)
    seen = {word_of(outcome) for outcome in outcomes.values()}
    return next((word for word in order if word in seen), PASSED)


@dataclass
class Row:
    """The counts of a suite in one way, beside those alone."""

    suite: str
    way: str
    alone: Counter[str] = field(default_factory=Counter)
    under: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    programs: int = 0  # that ran, of so many that the suite has
    programs_known: int = 0
    seconds_alone: float = 0
    seconds_under: float = 0
    broken: str = ""  # why the way itself failed: a mount that did not end

    @property
    def unexpected(self) -> int:
        """Differences without a reason."""
        return sum(not one.reason for one in self.differences) + bool(self.broken)

    def as_json(self) -> dict[str, object]:
        """Return the row as it is printed with --json."""
        return {
            "suite": self.suite,
            "way": self.way,
            "programs": self.programs,
            "programs_known": self.programs_known,
            "alone": dict(self.alone),
            "under": dict(self.under),
            "seconds_alone": round(self.seconds_alone, 1),
            "seconds_under": round(self.seconds_under, 1),
            "broken": self.broken,
            "differences": [vars(one) for one in self.differences],
        }


COUNTED = (PASSED, FAILED, SKIPPED, HUNG)


def table(rows: list[Row]) -> str:
    """Return the rows as a table of Markdown."""
    lines = [
        "| suite | way | programs | passed | failed | skipped | hung | differ | without a reason |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        counts = [f"{_count(row.alone, what)} / {_count(row.under, what)}" for what in COUNTED]
        numbers = f"{len(row.differences)} | {row.unexpected}"
        of = "" if row.programs == row.programs_known else f" of {row.programs_known}"
        first = f"{row.suite} | {row.way} | {row.programs}{of}"
        lines.append(f"| {first} | {' | '.join(counts)} | {numbers} |")
    return "\n".join(lines)


def _count(counts: Counter[str], what: str) -> int:
    return counts[what] + (counts[ABSENT] if what == FAILED else 0)
