"""The axes of gmfs (seed 002): allocations, sizes of reads and writes, small writes."""

from __future__ import annotations

import shutil
from functools import partial

from penstock.benchmarks.file_cache.rows import KIB, MIB, Bench, Program, write_file
from penstock.benchmarks.file_cache.writes import expected_of, run_through, writer_words
from penstock.benchmarks.harness import file_caches, programs, slow_storage
from penstock.benchmarks.harness.report import Row

PIECES = {f"{size}k": size * KIB for size in (4, 16, 64, 256)} | {"1m": MIB}
PIECES_BYTES, PIECES_BYTES_SMOKE = 64 * MIB, 2 * MIB  # allocated at the same time
SETS = {"4k": 4 * KIB, "64k": 64 * KIB, "1m": MIB, "16m": 16 * MIB, "256m": 256 * MIB}
SETS |= {"1g": 1024 * MIB}
SET_MAX, SET_SMOKE_MAX = 16 * MIB, MIB  # without --full
SET_BYTES = 64 * MIB  # that a run moves at least
PASSES_MAX = 4096
SMALL_SIZE, SMALL_SIZE_SMOKE = 32 * MIB, MIB
LINK_SIZE, LINK_SIZE_SMOKE = 256 * MIB, 32 * MIB
LINK_PASSES = 4


def time_pieces(bench: Bench, size: int, total: int) -> tuple[float, float, float]:
    """Return the seconds of the copies, the allocations and the frees of pieces of memory."""
    [program] = programs.find_all("device_allocations")
    told = programs.run([program, bench.arguments.device, str(size), str(max(1, total // size))])
    copy, allocate, free = map(float, told)
    return copy, allocate, free


def measure_pieces(bench: Bench) -> None:
    """Measure `allocate-*` and `free-*`: what memory taken at the start saves."""
    total = bench.size(PIECES_BYTES, PIECES_BYTES_SMOKE)
    for name, size in PIECES.items():
        if not bench.select((f"allocate-{name}", f"free-{name}")):
            continue
        told = [time_pieces(bench, size, total) for _ in range(bench.arguments.pairs + 1)][1:]
        for case, index in ((f"allocate-{name}", 1), (f"free-{name}", 2)):
            pairs = [(one[index], one[0]) for one in told]
            note = f"{max(1, total // size)} pieces; the baseline copies as many bytes there"
            bench.report.add(Row(case, "copy", "s", pairs, total, True, note=note))


def sets_of(bench: Bench, prefix: str) -> dict[str, int]:
    """Return the names and sizes of the sets of requested rows."""
    most = bench.memory_size() // 16 if bench.arguments.full else SET_MAX
    if bench.arguments.smoke:
        most = SET_SMOKE_MAX
    sets = {f"{prefix}-{name}": size for name, size in SETS.items() if size <= most}
    return {name: sets[name] for name in bench.select(sets)}


def passes_for(bench: Bench, size: int) -> int:
    """Return how often a run goes through a set."""
    return min(PASSES_MAX, max(1, bench.size(SET_BYTES, 0) // size))


def measure_set_reads(bench: Bench) -> None:
    """Measure `set-read-*`: a call of read() for the whole set, all hits."""
    sets = sets_of(bench, "set-read")
    if not sets:
        return
    [reader] = programs.find_all("file_reader")
    folder = bench.place / "sets"
    folder.mkdir()
    with file_caches.running(folder, bench.arguments.device, 2 * max(sets.values())) as cache:
        for name, size in sets.items():
            path, plain, passes = folder / name, bench.memory / name, passes_for(bench, size)
            expected = write_file(path, size)
            shutil.copyfile(path, plain)
            how = (str(size), str(passes), "hot")
            cached, alone = (Program((reader, one, *how), expected) for one in (path, plain))
            command = programs.under_penstock(*cached.words, options=["--cache", folder])
            run = partial(cached.run, command)
            run()
            case = partial(cache.run_served, run, passes * size)
            row = Row(name, "", bytes=passes * size, note=f"hits, {passes} passes")
            bench.compare(row, case, {"tmpfs": alone.run})
            path.unlink()
            plain.unlink()


def measure_set_writes(bench: Bench) -> None:
    """Measure `set-write-*`: a call of write() for the whole set, which stays below the limit."""
    sets = sets_of(bench, "set-write")
    if not sets:
        return
    if cause := slow_storage.why_not():
        bench.leave_out("set-write-*", cause)
        return
    folder, mount, plain = (bench.place / f"sets-{what}" for what in ("of", "at", "plain"))
    folder.mkdir()
    plain.mkdir()
    most = max(sets.values())
    with file_caches.running(
        folder, bench.arguments.device, 2 * most, mount=mount, dirty_size_max=2 * most
    ) as cache:
        for name, size in sets.items():
            passes = passes_for(bench, size)
            expected = expected_of(bench, size, size, passes)
            words = (writer_words(one / name, size, size, passes) for one in (mount, plain))
            through, alone = (Program(tuple(one), expected) for one in words)
            case = partial(run_through, cache, through, folder / name)
            row = Row(name, "", bytes=passes * size, note=f"mount, {passes} passes")
            bench.compare(row, case, {"file-system-below": alone.run})
            (mount / name).unlink()
            (plain / name).unlink(missing_ok=True)


def measure_small_writes(bench: Bench) -> None:
    """Measure `small-write-*` against memory that is allocated for each write."""
    size = bench.size(SMALL_SIZE, SMALL_SIZE_SMOKE)
    against = {"allocate-copy-free": lambda: sum(time_pieces(bench, 4 * KIB, size))}
    limit = 2 * size
    for name in bench.select(("small-write-4k", "small-write-mount-4k"), "small-write-4k"):
        by_mount = "mount" in name
        if by_mount and (cause := slow_storage.why_not()):
            bench.leave_out(name, cause)
            continue
        folder, mount = bench.place / f"{name}-of", bench.place / f"{name}-at"
        folder.mkdir()
        expected = expected_of(bench, size, 4 * KIB, 1)
        with file_caches.running(
            folder,
            bench.arguments.device,
            8 * size,
            mount=mount if by_mount else None,
            dirty_size_max=limit,
        ) as cache:
            path = (mount if by_mount else folder) / "file"
            program = Program(tuple(writer_words(path, size, 4 * KIB, 1)), expected)
            options: programs.Words = ("--cache", folder, "--write-back", "--")
            command = None if by_mount else programs.under_penstock(*program.words, options=options)
            case = partial(run_through, cache, program, folder / "file", command)
            how = "mount" if by_mount else "run --write-back"
            bench.compare(
                Row(name, "", bytes=size, note=f"{how}, {size // MIB} MiB"), case, against
            )


def measure_link(bench: Bench) -> None:
    """Measure `write-64m` and `read-64m`: calls of FileCache with pinned memory."""
    names = ("write-64m", "read-64m")
    if not bench.select(names, names[0]) or not bench.wanted(*names):
        return
    size = bench.size(LINK_SIZE, LINK_SIZE_SMOKE)
    step, path = size // 4, bench.place / "link"
    [program] = programs.find_all("file_cache_calls")
    words = (program, bench.arguments.device, path, str(size), str(step), str(LINK_PASSES))
    told = [[float(word) for word in programs.run(words)] for _ in range(bench.arguments.pairs + 1)]
    path.unlink()
    for case, index in zip(names, (0, 1), strict=True):
        if bench.wanted(case):
            pairs = [(one[index], one[2 + index]) for one in told[1:]]
            note = f"FileCache, calls of {step // MIB} MiB, in the same direction"
            bytes_moved = LINK_PASSES * size
            bench.report.add(
                Row(case, "pinned-d2h-and-h2d", "s", pairs, bytes_moved, True, note=note)
            )


MEASURES = (
    measure_pieces,
    measure_set_reads,
    measure_set_writes,
    measure_small_writes,
    measure_link,
)
