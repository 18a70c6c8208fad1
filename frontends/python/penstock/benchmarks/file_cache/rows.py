"""What the rows of a benchmark of the file cache share."""

from __future__ import annotations

import os
import sys
import zlib
from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.benchmarks.harness import programs
from penstock.benchmarks.harness.report import Report, Row, Run, cpu_seconds, take_rounds, wanted
from penstock.errors import CommandError

KIB, MIB = 1 << 10, 1 << 20
EXTRA_PAIRS_MAX = 15  # with more, and without --full, there is no time for the lesser rows
STEPS = {"4k": 4 * KIB, "64k": 64 * KIB, "1m": MIB}


def write_file(path: Path, size: int) -> str:
    """Write a file, and return the checksum of its bytes as programs print it."""
    total = 1
    with path.open("wb") as file:
        for at in range(0, size, MIB):
            part = os.urandom(min(MIB, size - at))
            total = zlib.adler32(part, total)
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    return str(total)


@dataclass
class Program:
    """A command, and what it has to print behind its seconds."""

    words: tuple[str | Path, ...]
    expected: str

    def run(self, command: programs.Words | None = None) -> float:
        """Run it, alone or by another command, and return the seconds that it tells."""
        seconds, *told = programs.run(command or self.words)
        if told != [self.expected]:
            raise CommandError(str(self.words[0]), f"told {told}, expected {self.expected}")
        return float(seconds)


class Bench:
    """What the rows share: where files lie, and the report."""

    def __init__(self, arguments: Namespace, report: Report, place: Path, memory: Path) -> None:
        self.arguments = arguments
        self.report = report
        self.place = place
        self.memory = memory  # a folder of a tmpfs
        self.failed: list[str] = []

    def wanted(self, *names: str) -> bool:
        """Return whether one of these rows was requested."""
        return any(wanted(self.arguments.only, name) for name in names)

    def select(self, names: Iterable[str], always: str = "") -> list[str]:
        """Return which of these rows to run. A run of many pairs has time for `always` alone."""
        found = [name for name in names if self.wanted(name)]
        if not self.is_long():
            return found
        if left := [name for name in found if name != always]:
            cause = f"more than {EXTRA_PAIRS_MAX} pairs, without --full"
            self.leave_out(", ".join(left), cause)
        return [name for name in found if name == always]

    def size(self, most: int, smoke: int) -> int:
        """Return a size, which is small in a smoke run."""
        return smoke if self.arguments.smoke else most

    def is_long(self) -> bool:
        """Return whether the lesser rows would take the run beyond 25 minutes."""
        return self.arguments.pairs > EXTRA_PAIRS_MAX and not self.arguments.full

    def memory_size(self) -> int:
        """Return how much memory the machine has."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def leave_out(self, name: str, cause: str) -> None:
        """Report why rows do not run."""
        self.report.environment[f"left out: {name}"] = cause
        print(f"{name}: left out: {cause}", file=sys.stderr, flush=True)

    def fail(self, name: str, error: CommandError) -> None:
        """Report that a row went wrong; the benchmark then ends with an error."""
        self.failed.append(name)
        self.report.environment[f"failed: {name}"] = str(error)
        print(f"{name}: failed: {error}", file=sys.stderr, flush=True)

    def compare(self, row: Row, case: Run, others: Mapping[str, Run]) -> Row | None:
        """Report a row for each baseline, and return the last; all are run in turn with one case.

        Return None if something went wrong.
        """
        spent: list[float] = []

        def measured() -> float:
            before = cpu_seconds()
            seconds = case()
            spent.append(cpu_seconds() - before)
            return seconds

        try:
            rounds = take_rounds(self.arguments.pairs, measured, *others.values())
        except CommandError as error:
            self.fail(row.case, error)
            return None
        for i, against in enumerate(others):
            pairs = [(one[0], one[1 + i]) for one in rounds]
            row = replace(row, against=against, pairs=pairs, verified=True)
            row.cpu_seconds = sum(spent[1:])
            self.report.add(row)
        return row
