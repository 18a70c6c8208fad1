"""Question: what does a file cache in memory of a device cost a program, and what does it win.

Workload: programs that know nothing of Penstock. Each measures its own work, so the start of Python
and of the command is not in the figures. Bytes are compared outside of the timing, and what the
cache tells of its use shows that it served them; a row that it did not serve is not reported.
`read-4k`, `read-64k`, `read-1m`: sequential reads of 128 MiB in steps of that size, all hits, under
`penstock run --cache`.

Baselines. `tmpfs`: the same program alone, on a file in memory.
Not measured: real network file systems, several programs at once.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zlib
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from penstock.benchmarks.harness import file_caches, interruptions, model_file, programs
from penstock.benchmarks.harness.report import (
    Report,
    Row,
    Run,
    cpu_seconds,
    run_benchmark,
    take_rounds,
    wanted,
)
from penstock.errors import CommandError

QUESTION = "what does a file cache in device memory cost a program, and what does it win?"
KIB, MIB = 1 << 10, 1 << 20
READ_SIZE, READ_SIZE_SMOKE = 128 * MIB, 4 * MIB
READ_BYTES = 512 * MIB  # of all timed passes of a run
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
        self.failed = False

    def wanted(self, *names: str) -> bool:
        """Return whether one of these rows was requested."""
        return any(wanted(self.arguments.only, name) for name in names)

    def size(self, most: int, smoke: int) -> int:
        """Return a size, which is small in a smoke run."""
        return smoke if self.arguments.smoke else most

    def leave_out(self, name: str, cause: str) -> None:
        """Report why rows do not run."""
        self.report.environment[f"left out: {name}"] = cause
        print(f"{name}: left out: {cause}", file=sys.stderr, flush=True)

    def fail(self, name: str, error: CommandError) -> None:
        """Report that a row went wrong; the benchmark then ends with an error."""
        self.failed = True
        self.report.environment[f"failed: {name}"] = str(error)
        print(f"{name}: failed: {error}", file=sys.stderr, flush=True)

    def compare(self, row: Row, case: Run, others: Mapping[str, Run]) -> None:
        """Report a row for each baseline; all are run in turn with the same case."""
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
            return
        for i, against in enumerate(others):
            pairs = [(one[0], one[1 + i]) for one in rounds]
            self.report.add(
                replace(
                    row, against=against, pairs=pairs, verified=True, cpu_seconds=sum(spent[1:])
                )
            )


def measure_reads(bench: Bench) -> None:
    """Measure the rows that read what is cached, by the preload library."""
    names = {f"read-{name}": step for name, step in STEPS.items()}
    if not bench.wanted(*names):
        return
    [reader] = programs.find_all("file_reader")
    size = bench.size(READ_SIZE, READ_SIZE_SMOKE)
    passes = max(2, bench.size(READ_BYTES, 0) // size)
    folder = bench.place / "reads"
    folder.mkdir()
    expected = write_file(folder / "file", size)
    shutil.copyfile(folder / "file", bench.memory / "file")
    device = bench.arguments.device
    with file_caches.running(folder, device, 2 * size) as cache:
        for name, step in names.items():
            if not bench.wanted(name):
                continue
            how = (str(step), str(passes), "hot")
            cached = Program((reader, folder / "file", *how), expected)
            alone = Program((reader, bench.memory / "file", *how), expected)
            command = programs.under_penstock(*cached.words, options=["--cache", folder])
            run = partial(cached.run, command)
            run()  # brings the file into the cache
            case = partial(cache.run_served, run, passes * size)
            row = Row(name, "", bytes=passes * size, note=f"hits, {size // MIB} MiB")
            bench.compare(row, case, {"tmpfs": alone.run})
    (bench.memory / "file").unlink()


def measure_all(arguments: Namespace, report: Report) -> None:
    """Measure every requested row."""
    with ExitStack() as stack:
        stack.enter_context(interruptions.caught())
        place = stack.enter_context(model_file.folder()).resolve()
        memory = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="penstock-bench-", dir="/dev/shm")
            )
        )
        # No cache of this user is in the way, and none is left to be found.
        (place / "run").mkdir()
        os.environ["XDG_RUNTIME_DIR"] = str(place / "run")
        bench = Bench(arguments, report, place, memory)
        measures: list[Callable[[Bench], None]] = [measure_reads]
        for measure in measures:
            measure(bench)
    if bench.failed:
        report.write()
        raise CommandError("gmfs", "rows failed")


def main() -> int:
    """Run the benchmark."""
    return run_benchmark("gmfs", QUESTION, measure_all)


if __name__ == "__main__":
    sys.exit(main())
