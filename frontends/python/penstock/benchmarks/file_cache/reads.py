"""Rows that read what is cached: by the preload library and through a mount."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from penstock.benchmarks.file_cache.rows import KIB, MIB, STEPS, Bench, Program, write_file
from penstock.benchmarks.harness import file_caches, page_cache, programs, slow_storage
from penstock.benchmarks.harness.report import Row

READ_SIZE, READ_SIZE_SMOKE = 128 * MIB, 4 * MIB
READ_BYTES = 512 * MIB  # of all timed passes of a run
READAHEAD = MIB  # of the pass-through, as of Penstock's mount


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


@contextmanager
def passed_through(folder: Path, place: Path) -> Iterator[None]:
    """Show a folder through the plain pass-through file system."""
    with slow_storage.shown(place, "pass_through", folder, place):
        if os.geteuid() == 0:
            device = place.stat().st_dev
            numbers = f"{os.major(device)}:{os.minor(device)}"
            Path(f"/sys/class/bdi/{numbers}/read_ahead_kb").write_text(str(READAHEAD // KIB))
        yield


def measure_mounted_reads(bench: Bench) -> None:
    """Measure `mount-read-*`."""
    steps = {f"mount-read-{name}": step for name, step in STEPS.items()}
    names = bench.select(steps, "mount-read-1m")
    if not names:
        return
    if cause := slow_storage.why_not():
        bench.leave_out("mount-read-*", cause)
        return
    [reader] = programs.find_all("file_reader")
    size = bench.size(READ_SIZE, READ_SIZE_SMOKE)
    passes = max(2, bench.size(READ_BYTES, 0) // size)
    folder, mount, through = (bench.place / name for name in ("below", "mount", "through"))
    folder.mkdir()
    expected = write_file(folder / "file", size)
    device = bench.arguments.device
    with (
        file_caches.running(folder, device, 2 * size, mount=mount) as cache,
        passed_through(folder, through),
    ):
        for name in names:
            how = (str(steps[name]), str(passes), "dropped")
            cached = Program((reader, mount / "file", *how), expected)
            plain = Program((reader, through / "file", *how), expected)
            cached.run()  # brings the file into the cache
            case = partial(cache.run_served, cached.run, (passes + 2) * size)

            def run_plain(plain: Program = plain) -> float:
                page_cache.warm(folder / "file")
                return plain.run()

            note = f"hits, {size // MIB} MiB, not in the kernel's page cache"
            row = Row(name, "", bytes=passes * size, note=note)
            bench.compare(row, case, {"passthrough-mount": run_plain})


MEASURES = (measure_reads, measure_mounted_reads)
