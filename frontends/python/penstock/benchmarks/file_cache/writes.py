"""Rows that write through the cache: through a mount, and by the preload library."""

from __future__ import annotations

import zlib
from functools import partial
from pathlib import Path

from penstock.benchmarks.file_cache.rows import MIB, STEPS, Bench, Program
from penstock.benchmarks.harness import file_caches, programs, slow_storage
from penstock.benchmarks.harness.report import Row
from penstock.errors import CommandError

SYNC_SIZE, SYNC_SIZE_SMOKE = 128 * MIB, 8 * MIB
BACK_SIZE, BACK_SIZE_SMOKE = 64 * MIB, 4 * MIB
BACK_BYTES = 512 * MIB  # of all timed passes of a run
ABOVE, BELOW = 4, 2  # the set is so many times the dirty limit, or the limit so many times the set


def checksum_of(path: Path) -> str:
    """Return the checksum of a file's bytes as programs print it."""
    total = 1
    with path.open("rb") as file:
        while part := file.read(MIB):
            total = zlib.adler32(part, total)
    return str(total)


def writer_words(path: Path, size: int, step: int, passes: int, *more: str) -> list[str | Path]:
    """Return the command that writes a file."""
    [writer] = programs.find_all("file_writer")
    return [writer, path, str(size), str(step), str(passes), *more]


def expected_of(bench: Bench, size: int, step: int, passes: int) -> str:
    """Return what a writer prints, from a run of it in memory."""
    path = bench.memory / "expected"
    told = programs.run(writer_words(path, size, step, passes))[1]
    path.unlink()
    return told


def run_through(
    cache: file_caches.Cache, program: Program, below: Path, command: programs.Words | None = None
) -> float:
    """Run a writer, and check that its bytes went by the cache to the file below."""
    before = cache.statistics()
    seconds = program.run(command)
    after = cache.statistics()
    size = below.stat().st_size
    passed = after["bytes_written"] - before["bytes_written"] + after["dirty_size"]
    if passed < size or after["write_errors"] > before["write_errors"]:
        raise file_caches.NotServedError(str(below), f"{passed} of {size} bytes passed its cache")
    return seconds


def measure_mounted_writes(bench: Bench) -> None:
    """Measure `write-fsync-*` and `write-below-limit-*`, through a mount."""
    all_names = ["write-fsync-64k", "write-64k"]
    all_names += ["write-fsync-below-limit-64k", "write-below-limit-64k"]
    names = bench.select(all_names, "write-fsync-64k")
    if not names:
        return
    if cause := slow_storage.why_not():
        bench.leave_out("write-fsync-64k", cause)
        return
    size = bench.size(SYNC_SIZE, SYNC_SIZE_SMOKE)
    expected = expected_of(bench, size, STEPS["64k"], 1)
    for name in names:
        below_limit = "below-limit" in name
        more = ("fsync",) if "fsync" in name else ()
        folder, mount, plain = (bench.place / f"{name}-{what}" for what in ("of", "at", "plain"))
        folder.mkdir()
        plain.mkdir()
        limit = BELOW * size if below_limit else size // ABOVE
        with file_caches.running(
            folder, bench.arguments.device, 8 * size, mount=mount, dirty_size_max=limit
        ) as cache:
            words = (
                writer_words(one / "file", size, STEPS["64k"], 1, *more) for one in (mount, plain)
            )
            through, alone = (Program(tuple(one), expected) for one in words)
            note = f"mount, {size // MIB} MiB, dirty limit {limit // MIB} MiB"
            case = partial(run_synced, cache, through, folder / "file", bool(more))
            row = Row(name, "", bytes=size, note=note)
            bench.compare(row, case, {"file-system-below": alone.run})
        (folder / "file").unlink(missing_ok=True)
        (plain / "file").unlink(missing_ok=True)


def run_synced(cache: file_caches.Cache, program: Program, below: Path, synced: bool) -> float:
    """Run a writer through the mount. What it synced must be in the file below."""
    seconds = run_through(cache, program, below)
    if synced and checksum_of(below) != program.expected:
        raise CommandError(str(below), "has not the bytes that were synced")
    return seconds


def can_write_back() -> bool:
    """Return whether `penstock run` can keep a program's writes in the cache."""
    told = programs.run(programs.under_penstock("--help"))
    return any("--write-back" in word for word in told)


def measure_write_back(bench: Bench) -> None:
    """Measure `write-back-*`, by the preload library."""
    names = {f"write-back-{name}": step for name, step in STEPS.items()}
    if not bench.wanted(*names):
        return
    if not can_write_back():
        bench.leave_out("write-back-*", "this `penstock run` has no --write-back")
        return
    size = bench.size(BACK_SIZE, BACK_SIZE_SMOKE)
    passes = max(2, bench.size(BACK_BYTES, 0) // size)
    folder = bench.place / "back"
    folder.mkdir()
    limit = BELOW * size
    with file_caches.running(
        folder, bench.arguments.device, 8 * size, dirty_size_max=limit
    ) as cache:
        for name, step in names.items():
            if not bench.wanted(name):
                continue
            expected = expected_of(bench, size, step, passes)
            words = (
                writer_words(one / "file", size, step, passes) for one in (folder, bench.memory)
            )
            back, alone = (Program(tuple(one), expected) for one in words)
            options: programs.Words = ("--cache", folder, "--write-back", "--")
            command = programs.under_penstock(*back.words, options=options)
            case = partial(run_through, cache, back, folder / "file", command)
            note = f"{size // MIB} MiB, dirty limit {limit // MIB} MiB"
            row = Row(name, "", bytes=passes * size, note=note)
            bench.compare(row, case, {"tmpfs": alone.run})
    (bench.memory / "file").unlink(missing_ok=True)


MEASURES = (measure_mounted_writes, measure_write_back)
