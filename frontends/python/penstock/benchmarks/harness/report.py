"""Arguments of a benchmark, runs taken in turn, and the report as JSON.

The options and the JSON are those of bench/harness/report.h; CONTRIBUTING.md says what the fields
mean. The JSON has all raw pairs; its readers compute ratios from them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from penstock.errors import CommandError

PAIRS_MAX = 1000

Run = Callable[[], float]  # returns its figure


@dataclass
class Row:
    """One case against one baseline."""

    case: str
    against: str
    unit: str = "s"
    pairs: list[tuple[float, float]] = field(default_factory=list)  # in the order they ran
    bytes: int = 0  # that one run of the case moved
    verified: bool = False  # bytes and cache state were checked in these very runs
    simulated: bool = False
    cpu_seconds: float = 0.0  # of all runs of the case
    note: str = ""


def parse_arguments(question: str) -> argparse.Namespace:
    """Return the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=question)
    parser.add_argument("--smoke", action="store_true", help="smallest sizes, one pair")
    parser.add_argument("--full", action="store_true", help="the whole sweep, however long")
    parser.add_argument("--pairs", type=int, default=15, metavar="N", help="pairs kept (15)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases named so")
    parser.add_argument("--device", default="cpu", metavar="D", help="cpu, cpu:N or cuda:N (cpu)")
    parser.add_argument("--json", metavar="FILE", help="where the JSON goes (standard output)")
    arguments = parser.parse_args()
    if not 1 <= arguments.pairs <= PAIRS_MAX:
        parser.error(f"--pairs: must be 1 to {PAIRS_MAX}")
    if arguments.smoke:
        arguments.pairs = 1
    return arguments


def wanted(only: str, name: str) -> bool:
    """Return whether a case was requested."""
    return name == only[1:] if only.startswith("=") else only in name


def cpu_seconds() -> float:
    """Return the CPU time so far of this process and of the commands that it has waited for."""
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)


def take_rounds(count: int, *runs: Run) -> list[tuple[float, ...]]:
    """Run all in turn: one round to warm up, which is discarded, and `count` that are kept."""
    return [tuple(run() for run in runs) for _ in range(count + 1)][1:]


def take_pairs(count: int, run: Run, baseline: Run) -> list[tuple[float, float]]:
    """Run both in turn: one pair to warm up, which is discarded, and `count` that are kept."""
    return [(run(), baseline()) for _ in range(count + 1)][1:]


def _first_line_of(path: str, key: str) -> str:
    try:
        with Path(path).open() as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(key))
    except (OSError, StopIteration):
        return "unknown"


class Report:
    """The results of a benchmark; write() ends it."""

    def __init__(self, bench: str, question: str, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._rows: list[Row] = []
        self._head = {"bench": bench, "question": question}
        self.environment = {
            "kernel": platform.release(),
            "cpu": _first_line_of("/proc/cpuinfo", "model name"),
            "cpus": str(os.cpu_count()),
            "memory": _first_line_of("/proc/meminfo", "MemTotal"),
            "pairs": str(arguments.pairs),
            "smoke": "yes" if arguments.smoke else "no",
            "python": platform.python_version(),
        }

    def add(self, row: Row) -> None:
        """Keep a row, and print its median ratio."""
        larger = row.unit == "share" or row.unit.endswith("/s")
        ratios = [a / b if larger else b / a for a, b in row.pairs]
        print(
            f"{row.case:<28} against {row.against:<24} {statistics.median(ratios):6.3f} of "
            f"{len(ratios)} pairs{'' if row.verified else ' NOT VERIFIED'}  {row.note}",
            file=sys.stderr,
            flush=True,
        )
        self._rows.append(row)

    def write(self) -> None:
        """Write the JSON to the requested file or to standard output."""
        if self._arguments.only and not self._rows:
            told = f"no case of {self._head['bench']} that runs here has that in its name"
            raise CommandError(
                f"--only {self._arguments.only}",
                f"{told}; without --only all run, and tell their names",
            )
        whole = self._head | {
            "environment": self.environment,
            "rows": list(map(asdict, self._rows)),
        }
        text = json.dumps(whole, indent=1) + "\n"
        if self._arguments.json is None:
            sys.stdout.write(text)
        else:
            try:
                Path(self._arguments.json).write_text(text)
            except OSError as error:  # of a write Python does not say which file it was
                raise CommandError(self._arguments.json, error.strerror or str(error)) from None


def run_benchmark(
    bench: str, question: str, measure_all: Callable[[argparse.Namespace, Report], None]
) -> int:
    """Run a benchmark as its command line asks, and write its report; return the exit code."""
    arguments = parse_arguments(question)
    for variable in ("PENSTOCK_ROUTE", "PENSTOCK_STRICT"):
        os.environ.pop(variable, None)
    report = Report(bench, question, arguments)
    try:
        measure_all(arguments, report)
        report.write()
    except (CommandError, OSError) as error:
        print(f"penstock-bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("penstock-bench: interrupted", file=sys.stderr)
        return 130
    return 0
