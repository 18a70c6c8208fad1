"""Rows whose storage is slow or larger than the cache: epochs of a data loader, long reads."""

from __future__ import annotations

import os
import statistics
import time
import zlib
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from penstock.benchmarks.file_cache.rows import KIB, MIB, Bench, Program, write_file
from penstock.benchmarks.harness import file_caches, page_cache, programs, slow_storage
from penstock.benchmarks.harness.report import Row, cpu_seconds
from penstock.errors import CommandError

SAMPLES, SAMPLES_SMOKE = 1000, 100
SAMPLE_SIZE = 64 * KIB
THREADS = 8  # of the data loader
NAMES_VALID_S = 1.1  # the kernel and libfuse trust names and attributes for a second
CACHE_SIZE = 128 * MIB


@dataclass
class Samples:
    """Small files in a folder, and what the data loader prints of them."""

    folder: Path
    count: int
    expected: str

    def epoch(self, shown: Path, seed: int) -> Program:
        """Return the program that reads all of them in an order."""
        [loader] = programs.find_all("data_loader")
        words = (loader, shown, str(self.count), str(seed), str(THREADS))
        return Program(words, self.expected)


def write_samples(bench: Bench, folder: Path) -> Samples:
    """Write the small files."""
    folder.mkdir()
    count = bench.size(SAMPLES, SAMPLES_SMOKE)
    total = 0
    for number in range(count):
        data = os.urandom(SAMPLE_SIZE)
        total += zlib.adler32(data)
        (folder / str(number)).write_bytes(data)
    return Samples(folder, count, str(total))


def run_epochs(bench: Bench, samples: Samples, by_mount: bool, seed: int) -> tuple[float, float]:
    """Return the seconds of the second epoch and of the first, over storage that is cold."""
    slow, mount = bench.place / "slow", bench.place / "mounted"
    size = samples.count * SAMPLE_SIZE
    with ExitStack() as stack:
        stack.enter_context(slow_storage.mounted(samples.folder, slow))
        cache = stack.enter_context(
            file_caches.running(
                slow, bench.arguments.device, 2 * size, mount=mount if by_mount else None
            )
        )

        def run(seed: int) -> float:
            epoch = samples.epoch(cache.shown, seed)
            if by_mount:
                return epoch.run()
            options: programs.Words = ("--cache", cache.path)
            return epoch.run(programs.under_penstock(*epoch.words, options=options))

        first = cache.run_served(partial(run, seed), size, from_storage=size)
        time.sleep(NAMES_VALID_S)
        return cache.run_served(partial(run, seed + 1), size), first


def measure_epochs(bench: Bench) -> None:
    """Measure `second-epoch`, and the two rows of which it is the worse."""
    ways = wanted_ways(bench, "second-epoch")
    if not ways:
        return
    if cause := slow_storage.why_not():
        bench.leave_out("second-epoch", cause)
        return
    samples = write_samples(bench, bench.place / "samples")
    size = samples.count * SAMPLE_SIZE
    rows = []
    for name in ways:
        before = cpu_seconds()
        try:
            pairs = [
                run_epochs(bench, samples, name.endswith("mount"), 2 * i)
                for i in range(bench.arguments.pairs + 1)
            ][1:]
        except CommandError as error:
            bench.fail(name, error)
            return
        note = f"{samples.count} files of {SAMPLE_SIZE // KIB} KiB, {THREADS} threads"
        spent = cpu_seconds() - before
        row = Row(name, "first-epoch", "s", pairs, size, True, cpu_seconds=spent, note=note)
        bench.report.add(row)
        rows.append(row)
    add_worse(bench, rows, "second-epoch")


def wanted_ways(bench: Bench, name: str) -> list[str]:
    """Return the rows to measure for a row that is the worse of two: both if it is wanted."""
    ways = [f"{name}-preload", f"{name}-mount"]
    return ways if bench.wanted(name) else [way for way in ways if bench.wanted(way)]


def add_worse(bench: Bench, rows: list[Row], name: str) -> None:
    """Report the row that falls short most under a name, if both ways were measured."""
    if len(rows) < 2:
        return
    found = min(rows, key=lambda row: statistics.median(b / a for a, b in row.pairs))
    bench.report.add(replace(found, case=name, note=f"{found.case}: {found.note}"))


def measure_twice(bench: Bench) -> None:
    """Measure `twice-the-cache`, and the two rows of which it is the worse."""
    rows = []
    for name in wanted_ways(bench, "twice-the-cache"):
        by_mount = name.endswith("mount")
        if by_mount and (cause := slow_storage.why_not()):
            bench.leave_out("twice-the-cache", cause)
            return
        row = measure_twice_by(bench, name, by_mount)
        if row is None:
            return
        rows.append(row)
    add_worse(bench, rows, "twice-the-cache")


def measure_twice_by(bench: Bench, name: str, by_mount: bool) -> Row | None:
    """Measure one way of `twice-the-cache`."""
    [reader] = programs.find_all("file_reader")
    folder, mount = bench.place / name, bench.place / f"{name}-at"
    folder.mkdir()
    cache_size = bench.size(CACHE_SIZE, file_caches.SIZE_MIN)
    size = 2 * cache_size
    below = folder / "file"
    expected = write_file(below, size)
    direct = Program((reader, below, str(MIB), "1", "direct"), expected)
    with file_caches.running(
        folder, bench.arguments.device, cache_size, mount=mount if by_mount else None
    ) as cache:
        through = Program((reader, cache.shown / "file", str(MIB), "1", "once"), expected)
        command = None
        if not by_mount:
            command = programs.under_penstock(*through.words, options=["--cache", folder])

        def run() -> float:
            page_cache.evict(cache.shown / "file")
            page_cache.evict(below)
            # Half of the file may still be in the cache.
            return cache.run_served(partial(through.run, command), size, from_storage=size // 2)

        row = Row(name, "", bytes=size, note=f"{size // MIB} MiB, 1 MiB a call, cold")
        found = bench.compare(row, run, {"file-system-below": direct.run})
    below.unlink()
    return found


MEASURES = (measure_epochs, measure_twice)
