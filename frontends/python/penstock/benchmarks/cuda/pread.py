"""Question: what does a plain read into a CUDA device's memory cost against what else there is.

Workload: one call reads a file of 1 GiB into memory of the device that was allocated before.
hot-defaults: the OS page cache holds the whole file. cold: it holds nothing. mixed: it holds 25, 50
or 75 %, in runs of 4 MiB that are drawn for each share. A pair of `mixed` is the geometric mean of
the three pairs of the same number, which are rows too. hot-8g: as hot-defaults with a file of
8 GiB, if the machine has the room; the fixed loss at the begin of a read does not grow with its
size. Every run ends when the device is idle. Then all bytes in its memory are compared with the
written bytes, and overwritten.

Baselines. pinned-h2d: one copy of as many bytes out of pinned memory. best-rival: the fastest in
this state of KvikIO, InstantTensor, flashpack's parallel reader, and a loop of threads that read
pieces into pinned memory and copy them. Each is tried at its defaults and tuned, in runs that do
not count; hot-8g tries the three fastest of hot-defaults, each at its best setting. The file is a
safetensors file with a header of one page, since InstantTensor reads no others; it alone does not
read the header. fio-best-huge-pages: fio at its fastest engine, depth and block size, which ends in
host memory. missing-part-cold: the library's time for the whole cold file, times the share that is
missing; at 1, a mixed read waits only for storage. Not measured: GPUDirect Storage, several
devices, parts of files.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from penstock.benchmarks.cuda.contest.contest import (
    Cast,
    Contest,
    Entry,
    Judged,
    Rival,
    State,
    cold,
    hot,
)
from penstock.benchmarks.cuda.contest.memory import memory_of
from penstock.benchmarks.cuda.contest.process import WorkerError
from penstock.benchmarks.harness import fio, page_cache
from penstock.benchmarks.harness.model_file import ModelFile, folder, write
from penstock.benchmarks.harness.report import Report, Row, run_benchmark, take_pairs, wanted
from penstock.errors import CommandError
from penstock.probes import system

QUESTION = "what does a plain read into a CUDA device's memory cost against what else there is?"
SIZE, SMOKE_SIZE = 1 << 30, 64 << 20
LONG_SIZE, LONG_SMOKE_SIZE = 8 << 30, 96 << 20
LONG_MEMORY = 4  # times its size: its pages, the baseline's copy, and room for all others
LONG_FINALISTS = 3
PAGE = 4096
TENSORS = 16
RUN_BYTES = 4 << 20
SHARES = (25, 50, 75)
SEED = 4
FIO_FINALISTS, FIO_RUNS = 4, 5

_OWN = "penstock.benchmarks.cuda.contest.loaders"
_LIBRARIES = "penstock.benchmarks.cuda.contest.libraries"
OURS = Rival("penstock", f"{_OWN}:Penstock")
PINNED = Rival("pinned-h2d", f"{_OWN}:PinnedCopy")


def rivals(*, smoke: bool) -> list[Rival]:
    """Return the rivals, with the settings that are tried."""
    cpus = os.cpu_count() or 1
    threads = sorted({max(1, cpus // 2), cpus})
    more = [cpus, 2 * cpus]
    mib = 1 << 20
    loop: list[dict[str, Any]] = [
        {"threads": count, "piece_mib": piece, "direct": direct}
        for direct, count, piece in product((False, True), threads, (1, 4, 16))
    ]
    kvikio: list[dict[str, Any]] = [
        {"num_threads": count, "task_size": piece * mib, "auto_direct_io_read": direct}
        for direct, count, piece in product((False, True), more, (4, 16))
    ]
    flashpack: list[dict[str, Any]] = [
        {"FLASHPACK_READ_THREADS": count, "FLASHPACK_READ_CHUNK_BYTES": piece * mib}
        for count, piece in product(more, (4, 16))
    ]
    instant: list[dict[str, Any]] = [
        {"backend": name} for name in ("URING", "AIO", "URING_BUFFERED", "AIO_BUFFERED", "MMAP")
    ]
    instant.append({"backend": "URING_BUFFERED", "chunk_size": 2 * mib, "io_depth": 4 * cpus})
    if smoke:
        loop, kvikio, flashpack, instant = loop[:1], kvikio[:1], flashpack[:1], instant[2:3]
    return [
        Rival("read-threads", f"{_OWN}:ReadThreads", loop),
        Rival("kvikio", f"{_LIBRARIES}:KvikIO", [{}, *kvikio]),
        Rival("flashpack", f"{_LIBRARIES}:FlashPackReader", [{}, *flashpack]),
        Rival("instanttensor", f"{_LIBRARIES}:InstantTensor", [{}, *instant]),
    ]


def mixed(share: int, size: int) -> State:
    """Return the state in which a share, in percent, of a file is cached in runs."""
    count = -(-size // RUN_BYTES)
    chosen = random.Random(SEED + share).sample(range(count), round(count * share / 100))
    return partial(page_cache.hold, run_bytes=RUN_BYTES, runs=frozenset(chosen))


class Bench:
    """The rows on one file."""

    def __init__(self, file: ModelFile, contest: Contest, report: Report, pairs: int) -> None:
        self._file = file
        self._contest = contest
        self._report = report
        self._pairs = pairs

    def _row(self, case: str, against: str, judged: Judged, note: str = "") -> Row:
        row = Row(case, against, pairs=judged.pairs, bytes=self._file.file_size)
        row.verified, row.cpu_seconds = judged.verified, judged.cpu_seconds
        row.note = note or str(judged.entry)
        return row

    def _judge(self, state: State, ranked: Sequence[Entry], case: str) -> Judged | None:
        judged = self._contest.judge(self._pairs, state, ranked)
        if judged is None:
            self._report.environment[case] = "left out: no rival runs here"
        return judged

    def measure_copy(self, case: str) -> None:
        """Add the row of a cached file against one copy of as many bytes."""
        judged = self._judge(hot, [Entry(PINNED, {})], case)
        if judged is not None:
            note = "one cuMemcpyHtoD out of pinned memory"
            self._report.add(self._row(case, PINNED.name, judged, note))

    def measure_hot(self, case: str, ranked: Sequence[Entry]) -> None:
        """Add the row of a cached file against the rivals `ranked`, fastest first."""
        judged = self._judge(hot, ranked, case)
        if judged is not None:
            self._report.add(self._row(case, "best-rival", judged))

    def measure_cold(self, *, smoke: bool, full: bool) -> None:
        """Add the rows of a file that is not cached; against rivals if all rows were requested."""
        self._measure_fio(smoke=smoke)
        if full:
            judged = self._judge(cold, self._contest.trial("cold", cold), "cold")
            if judged is not None:
                self._report.add(self._row("cold", "best-rival", judged))

    def _fio(self, job: fio.Job) -> float | None:
        path = self._file.path
        return fio.run(job, path, self._file.file_size) if self._contest.bring(cold, path) else None

    def _best_job(self, jobs: list[fio.Job]) -> fio.Job | None:
        """Run all once, after a warm-up, and the best few again. These runs do not count."""
        self._fio(jobs[0])
        taken = {job: [seconds] for job in jobs if (seconds := self._fio(job)) is not None}
        finalists = sorted(taken, key=lambda job: taken[job][0])[:FIO_FINALISTS]
        for _ in range(FIO_RUNS if len(jobs) > 1 else 0):
            for job in finalists:
                seconds = self._fio(job)
                taken[job] += [] if seconds is None else [seconds]
        return min(finalists, key=lambda job: median(taken[job]), default=None)

    def _measure_fio(self, *, smoke: bool) -> None:
        name = "fio-best-huge-pages"
        cause = fio.why_not()
        jobs = fio.sweep(smoke=smoke)
        job = None if cause else self._best_job(jobs)
        if job is None:
            told = f"left out: {cause or 'this fio can do no job of the sweep'}"
            self._report.environment[name] = told
            print(name, told, file=sys.stderr, flush=True)
            return
        row = Row("cold", name, bytes=self._file.file_size, verified=True)
        row.note = f"fio: {job}; best of {len(jobs)}; it ends in host memory"

        def other() -> float:
            seconds = self._fio(job)
            row.verified = row.verified and seconds is not None
            return seconds or 0.0

        row.pairs = take_pairs(self._pairs, partial(self._read, row, cold), other)
        self._report.add(row)

    def _read(self, row: Row, state: State) -> float:
        """Return the seconds that the library takes from a state, for a row."""
        try:
            found = self._contest.run(self._contest.ours, state)
        except WorkerError as error:
            raise CommandError("penstock", str(error)) from None
        row.verified = row.verified and found.right and found.ready
        row.cpu_seconds += found.cpu_seconds
        return found.seconds

    def measure_mixed(self) -> None:
        """Add the rows of a file that is cached in part."""
        size = self._file.file_size
        pool = self._contest.trial("mixed-50, all settings", mixed(50, size))
        beside_rivals, beside_cold = [], []
        for share in SHARES:
            state = mixed(share, size)
            ranked = self._contest.trial(f"mixed-{share}", state, pool)
            judged = self._judge(state, ranked, f"mixed-{share}")
            if judged is None:
                return
            beside_rivals.append(self._row(f"mixed-{share}", "best-rival", judged))
            self._report.add(beside_rivals[-1])
            beside_cold.append(self._beside_cold(share, state))
        self._report.add(mean_of(beside_rivals))
        self._report.add(mean_of(beside_cold))

    def _beside_cold(self, share: int, state: State) -> Row:
        """Add the row of a mixed read against a cold read of as many bytes as it misses."""
        missing = 1 - share / 100
        row = Row(f"mixed-{share}", "missing-part-cold", bytes=self._file.file_size, verified=True)
        row.note = f"the library's own cold read of all, times {missing:g}"
        row.pairs = take_pairs(
            self._pairs,
            partial(self._read, row, state),
            lambda: missing * self._read(row, cold),
        )
        self._report.add(row)
        return row


def mean_of(rows: list[Row]) -> Row:
    """Return the row of the geometric means of the pairs of the same number."""
    mean = Row("mixed", rows[0].against, bytes=rows[0].bytes)
    mean.pairs = [
        (math.prod(own) ** (1 / len(own)), math.prod(other) ** (1 / len(other)))
        for own, other in (
            zip(*three, strict=True) for three in zip(*(row.pairs for row in rows), strict=True)
        )
    ]
    mean.verified = all(row.verified for row in rows)
    mean.cpu_seconds = sum(row.cpu_seconds for row in rows)
    mean.note = f"geometric means of the pairs at {', '.join(map(str, SHARES))} % cached"
    return mean


def write_file(place: Path, size: int) -> ModelFile:
    """Write the file and sync it, so that the disk writes nothing while it is read."""
    shapes = {f"part.{i}": (size // TENSORS,) for i in range(TENSORS)}
    shapes["last"] = (shapes.popitem()[1][0] - PAGE,)  # fio reads whole blocks only
    file = write(place / "file.safetensors", shapes, "U8", 1, page=PAGE)
    with file.path.open("rb") as written:
        os.fsync(written.fileno())
    return file


def why_no_room(size: int, place: Path) -> str:
    """Return why the long file cannot be measured here; empty if it can."""
    mib = 1 << 20
    free = shutil.disk_usage(place).free
    if free < 2 * size:
        return f"{free // mib} MiB are free in {place}, {2 * size // mib} are wanted"
    memory = system.memory()
    free = min(memory.available, memory.limit or memory.available)
    if free < LONG_MEMORY * size:
        return f"{free // mib} MiB of memory are to be had, {LONG_MEMORY * size // mib} wanted"
    return ""


def measure_long(arguments: Namespace, report: Report, pool: Sequence[Entry]) -> None:
    """Add the rows of a long cached file, if there is room; `pool`: the rivals that are tried."""
    size = LONG_SMOKE_SIZE if arguments.smoke else LONG_SIZE
    own = Report("pread", QUESTION, arguments)
    with folder() as place:
        cause = why_no_room(size, place)
        if not cause:
            file = write_file(place, size)
            cast = Cast(OURS, list({one.rival.name: one.rival for one in pool}.values()), [PINNED])
            try:  # if the device has no room for it, the earlier rows are kept
                with Contest(cast, file.path, arguments.device, own) as contest:
                    bench = Bench(file, contest, report, arguments.pairs)
                    bench.measure_copy("hot-8g")
                    bench.measure_hot("hot-8g", contest.trial("hot-8g", hot, pool))
            except CommandError as error:
                cause = str(error)
    for name, told in own.environment.items():
        if report.environment.get(name) != told:
            report.environment[name if name.startswith("trial") else f"hot-8g, {name}"] = told
    if cause:
        report.environment["hot-8g"] = f"left out: {cause}"
        print(f"hot-8g left out: {cause}", file=sys.stderr, flush=True)


def measure_all(arguments: Namespace, report: Report) -> None:
    """Measure every requested row."""
    memory_of(arguments.device)  # without a device, it fails before anything is written
    pool: list[Entry] = []
    hot_wanted, long_wanted = (wanted(arguments.only, name) for name in ("hot-defaults", "hot-8g"))
    with folder() as place:
        file = write_file(place, SMOKE_SIZE if arguments.smoke else SIZE)
        report.environment |= {"file": f"{file.file_size} bytes", "device": arguments.device}
        cast = Cast(OURS, rivals(smoke=arguments.smoke), [PINNED])
        with Contest(cast, file.path, arguments.device, report) as contest:
            bench = Bench(file, contest, report, arguments.pairs)
            if hot_wanted:
                bench.measure_copy("hot-defaults")
            if hot_wanted or long_wanted:
                ranked = contest.trial("hot", hot)
                pool = ranked[:LONG_FINALISTS]
                pool += [one for one in contest.best if not any(map(one.is_as, pool))]
            if hot_wanted:
                bench.measure_hot("hot-defaults", ranked)
            if wanted(arguments.only, "cold"):
                bench.measure_cold(smoke=arguments.smoke, full=arguments.full)
            if wanted(arguments.only, "mixed"):
                bench.measure_mixed()
    if long_wanted:
        measure_long(arguments, report, pool)


def main() -> int:
    """Run the benchmark."""
    return run_benchmark("pread", QUESTION, measure_all)


if __name__ == "__main__":
    sys.exit(main())
