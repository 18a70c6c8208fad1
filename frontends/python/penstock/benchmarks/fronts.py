"""Question: what does the preload library cost a program, and what does it win where it helps.

Workload: programs that know nothing of Penstock, under `penstock run` and alone. Each measures its
own work, so the start of Python and of the command is not in the figures.
`foreign-fd-write`: 500,000 writes of 64 bytes to a file in memory. The library does nothing here.
`readahead-4k`: cold reads of 4 KiB from front to end into memory of a device.
`mmap-local-disk`: the package safetensors maps a file of up to 256 MiB on the local disk. The
program takes its tensors in the order of the file, and adds up the bytes of each. The file is cold
or hot, and the worse of both is the row.
`mmap-slow-storage`: the same with up to 1 GiB, cold, on a FUSE file system of 2 ms a request and
500 MB/s.
`replay-strided`: 1,500 reads of 4 KiB, 64 KiB apart, cold, on that file system, with the signature
of an earlier run. `replay-shuffled`: the same in a random order that repeats. `learned-strided`:
the first without a signature.

Baselines. `no-preload`: the same program alone. `pread+copy`: the program reads into pageable
memory, and copies from there. `parallel-read-first`: 16 threads read the whole file into the page
cache, and then the program runs alone. With more than 15 pairs, `replay-shuffled` and
`learned-strided` only run with --full.
Not measured: real network file systems, several programs at once, memory of a GPU.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import zlib
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

from penstock.benchmarks.harness import model_file, page_cache, programs, slow_storage
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

QUESTION = "what does the preload library cost a program, and what does it win where it helps?"
CALLS, CALLS_SMOKE = 500_000, 50_000
DEVICE_SIZE, DEVICE_SIZE_SMOKE = 128 << 20, 4 << 20
SLOW_SIZE, LOCAL_SIZE, MODEL_SIZE_SMOKE = 1 << 30, 256 << 20, 40 << 20
STRIDE, READ = 64 << 10, 4 << 10
READS, READS_SMOKE = 1500, 100
READ_THREADS = 16
READ_PIECE = 1 << 20
EXTRA_PAIRS_MAX = 15  # with more, and without --full, there is no time for the lesser rows
BLOCK = 1 << 20

# The mapped program. It prints its seconds and a sum that tells the tensors apart.
LOAD = """
import sys, time
import numpy as np
from safetensors import safe_open
begun = time.perf_counter()
tensors, sums = {}, {}
with safe_open(sys.argv[1], framework="numpy") as file:
    for name in file.offset_keys():
        tensors[name] = file.get_tensor(name)
        sums[name] = int(tensors[name].reshape(-1).view(np.uint64).sum())
seconds = time.perf_counter() - begun
print(seconds, sum((i + 1) * sums[name] for i, name in enumerate(sorted(sums))))
"""


def write_blocks(path: Path, size: int) -> bytes:
    """Write a file of whole blocks and return its bytes."""
    data = b"".join(os.urandom(BLOCK // 2) + bytes(BLOCK // 2) for _ in range(-(-size // BLOCK)))
    path.write_bytes(data[:size])
    return data[:size]


def sum_of_model(file: model_file.ModelFile) -> str:
    """Return what the mapped program prints for a file, from plain reads."""
    import numpy as np

    total = 0
    with file.path.open("rb") as opened:
        for i, (_, (begin, size)) in enumerate(sorted(file.spans.items())):
            opened.seek(file.data_offset + begin)
            numbers = np.frombuffer(opened.read(size), np.uint64)
            total += (i + 1) * int(numbers.sum())
    return str(total)


def read_in_parallel(path: Path) -> float:
    """Read a file by several threads, and return the seconds."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    pieces = iter(range(0, os.fstat(descriptor).st_size, READ_PIECE))

    def work() -> None:
        piece = bytearray(READ_PIECE)
        for offset in pieces:  # one thread at a time takes the next
            os.preadv(descriptor, [piece], offset)

    threads = [threading.Thread(target=work) for _ in range(READ_THREADS)]
    start = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = perf_counter() - start
    os.close(descriptor)
    return seconds


@dataclass
class Program:
    """A program on a file, and what it has to print beside its seconds."""

    words: tuple[str | Path, ...]
    path: Path
    expected: tuple[str, ...]
    prepare: Callable[[Path], bool]  # brings the cache into its state; false: it is not reached
    bytes: int

    def alone(self) -> list[str | Path]:
        """Return the command that runs it alone."""
        return list(self.words)


class Bench:
    """Runs programs, checks what they print, and reports rows."""

    def __init__(self, arguments: Namespace, report: Report, place: Path) -> None:
        self.arguments = arguments
        self.report = report
        self.place = place
        self._verified = True
        self.memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def wanted(self, *names: str) -> bool:
        """Return whether one of these rows was requested."""
        return any(wanted(self.arguments.only, name) for name in names)

    def is_long(self) -> bool:
        """Return whether the lesser rows would take the run beyond 25 minutes."""
        return self.arguments.pairs > EXTRA_PAIRS_MAX and not self.arguments.full

    def size(self, most: int, smoke: int) -> int:
        """Return the size of a file, which depends on the machine's memory."""
        return smoke if self.arguments.smoke else min(most, self.memory // 8)

    def leave_out(self, name: str, cause: str) -> None:
        """Report why rows do not run."""
        self.report.environment[f"left out: {name}"] = cause
        print(f"{name}: left out: {cause}", file=sys.stderr, flush=True)

    def run(self, program: Program, command: programs.Words) -> float:
        """Prepare, run a command and return the seconds that the program tells."""
        prepared = program.prepare(program.path)
        seconds, *told = programs.run(command)
        self._verified = self._verified and prepared and tuple(told) == program.expected
        return float(seconds)

    def read_first(self, program: Program) -> float:
        """Read the file by several threads, run the program, and return the seconds of both."""
        prepared = program.prepare(program.path)
        before = read_in_parallel(program.path)
        ready = replace(program, prepare=lambda _: prepared)
        return before + self.run(ready, program.alone())

    def measure(
        self, row: Row, program: Program, case: programs.Words, others: Mapping[str, Run]
    ) -> list[Row]:
        """Take a row for each baseline; all are run in turn with the same case."""
        self._verified = True
        spent: list[float] = []

        def measured() -> float:
            before = cpu_seconds()
            seconds = self.run(program, case)
            spent.append(cpu_seconds() - before)
            return seconds

        rounds = take_rounds(self.arguments.pairs, measured, *others.values())
        return [
            replace(
                row,
                against=against,
                pairs=[(one[0], one[1 + i]) for one in rounds],
                bytes=program.bytes,
                verified=self._verified,
                cpu_seconds=sum(spent[1:]),
            )
            for i, against in enumerate(others)
        ]

    def compare(self, name: str, program: Program, note: str) -> Row:
        """Measure a program under `penstock run` against the same program alone."""
        against = {"no-preload": partial(self.run, program, program.alone())}
        case = programs.under_penstock(*program.words)
        return self.measure(Row(name, "", note=note), program, case, against)[0]


def measure_writes(bench: Bench) -> None:
    """Measure `foreign-fd-write`."""
    [writer] = programs.find_all("foreign_write")
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else bench.place
    path = place / f"penstock-bench-{os.getpid()}"
    calls = CALLS_SMOKE if bench.arguments.smoke else CALLS
    program = Program((writer, path, str(calls)), path, (), lambda _: True, calls * 64)
    try:
        bench.report.add(bench.compare("foreign-fd-write", program, f"{calls} calls, in {place}"))
    finally:
        path.unlink(missing_ok=True)


def measure_device(bench: Bench) -> None:
    """Measure `readahead-4k`."""
    if bench.arguments.device.startswith("cuda"):
        bench.leave_out("readahead-4k", "its baseline needs a device that the host can address")
        return
    [reader] = programs.find_all("device_reader")
    path = bench.place / "device"
    size = bench.size(DEVICE_SIZE, DEVICE_SIZE_SMOKE) // READ * READ
    expected = (str(zlib.adler32(write_blocks(path, size))),)
    words = (reader, path, bench.arguments.device)
    program = Program((*words, "direct"), path, expected, page_cache.evict, size)
    against = {"pread+copy": partial(bench.run, program, [*words, "copy"])}
    case = programs.under_penstock(*program.words)
    row = Row("readahead-4k", "", note=f"cold, {size >> 20} MiB")
    bench.report.add(bench.measure(row, program, case, against)[0])
    path.unlink()


def write_model(bench: Bench, most: int) -> tuple[model_file.ModelFile, tuple[str, ...]]:
    """Write a file like that of a language model; return it, and what its program has to print."""
    path = bench.place / "shown" / "model.safetensors"
    shapes = model_file.shapes_of(bench.size(most, MODEL_SIZE_SMOKE))
    file = model_file.write(path, shapes, "F16", 2)
    return file, (sum_of_model(file),)


def measure_local(bench: Bench) -> None:
    """Measure `mmap-local-disk`."""
    file, expected = write_model(bench, LOCAL_SIZE)
    rows = []
    for state, prepare in (("cold", page_cache.evict), ("hot", page_cache.warm)):
        words = (sys.executable, "-c", LOAD, file.path)
        program = Program(words, file.path, expected, prepare, file.size)
        note = f"{state}, {file.size >> 20} MiB"
        rows.append(bench.compare(f"mmap-local-disk-{state}", program, note))
        bench.report.add(rows[-1])
    worse = min(rows, key=lambda row: statistics.median(b / a for a, b in row.pairs))
    bench.report.add(replace(worse, case="mmap-local-disk"))
    file.path.unlink()


def measure_slow(bench: Bench, mount: Path) -> None:
    """Measure `mmap-slow-storage`; `mount` shows the folder of the file."""
    file, expected = write_model(bench, SLOW_SIZE)

    def prepare(path: Path) -> bool:
        cached, pages = page_cache.cached_pages(file.path)
        return (cached == pages or page_cache.warm(file.path)) and page_cache.evict(path)

    path = mount / file.path.name
    words = (sys.executable, "-c", LOAD, path)
    program = Program(words, path, expected, prepare, file.size)
    others = {
        "no-preload": partial(bench.run, program, program.alone()),
        "parallel-read-first": partial(bench.read_first, program),
    }
    row = Row("mmap-slow-storage", "", note=f"cold, {file.size >> 20} MiB")
    case = programs.under_penstock(*program.words)
    for each in bench.measure(row, program, case, others):
        bench.report.add(each)
    file.path.unlink()


def measure_strided(bench: Bench, mount: Path) -> None:
    """Measure `replay-strided`, `replay-shuffled` and `learned-strided`."""
    [reader] = programs.find_all("strided_reader")
    reads = READS_SMOKE if bench.arguments.smoke else READS
    data = write_blocks(bench.place / "shown" / "strided", reads * STRIDE)
    kept = b"".join(data[at : at + READ] for at in range(0, len(data), STRIDE))
    path = mount / "strided"
    for name, order, replays in (
        ("replay-strided", "strided", True),
        ("replay-shuffled", "shuffled", True),
        ("learned-strided", "strided", False),
    ):
        if not bench.wanted(name):
            continue
        if name != "replay-strided" and bench.is_long():
            bench.leave_out(name, f"more than {EXTRA_PAIRS_MAX} pairs, without --full")
            continue
        words = (reader, path, order)
        expected = (str(zlib.adler32(kept)),)
        program = Program(words, path, expected, page_cache.evict, reads * READ)
        options: list[str | Path] = []
        if replays:
            trace = bench.place / f"{order}.trace"
            programs.run(programs.under_penstock(*words, verb="trace", options=["-o", trace]))
            options = ["--signature", trace]
        case = programs.under_penstock(*words, options=options)
        against = {"no-preload": partial(bench.run, program, program.alone())}
        row = Row(name, "", note=f"cold, {reads} reads")
        bench.report.add(bench.measure(row, program, case, against)[0])


@contextmanager
def slow_mount(bench: Bench, name: str) -> Iterator[Path | None]:
    """Yield where slow storage shows the bench's files, or None where there is none."""
    mount = bench.place / "slow"
    cause = slow_storage.why_not()
    with ExitStack() as stack:
        if not cause:
            try:
                stack.enter_context(slow_storage.mounted(bench.place / "shown", mount))
            except CommandError as error:
                cause = str(error)
        if cause:
            bench.leave_out(name, cause)
        yield None if cause else mount


def measure_mappings(bench: Bench) -> None:
    """Measure the rows that map a file, as far as this machine has what they need."""
    local = ("mmap-local-disk", "mmap-local-disk-cold", "mmap-local-disk-hot")
    if not bench.wanted("mmap-slow-storage", *local):
        return
    if lacking := [name for name in ("numpy", "safetensors") if find_spec(name) is None]:
        bench.leave_out("mmap-*", f"no module {lacking[0]} (pip install 'penstock[bench]')")
        return
    if bench.wanted(*local):
        measure_local(bench)
    if bench.wanted("mmap-slow-storage"):
        with slow_mount(bench, "mmap-slow-storage") as mount:
            if mount is not None:
                measure_slow(bench, mount)


def measure_all(arguments: Namespace, report: Report) -> None:
    """Measure every requested row."""
    with model_file.folder() as place:
        (place / "shown").mkdir()
        bench = Bench(arguments, report, place.resolve())
        report.environment["slow storage"] = (
            f"FUSE, {slow_storage.LATENCY_US} us a request, {slow_storage.MEGABYTES_PER_S} MB/s"
        )
        if bench.wanted("foreign-fd-write"):
            measure_writes(bench)
        if bench.wanted("readahead-4k"):
            measure_device(bench)
        measure_mappings(bench)
        if bench.wanted("replay-strided", "replay-shuffled", "learned-strided"):
            with slow_mount(bench, "replay-strided") as mount:
                if mount is not None:
                    measure_strided(bench, mount)


def main() -> int:
    """Run the benchmark."""
    return run_benchmark("fronts", QUESTION, measure_all)


if __name__ == "__main__":
    sys.exit(main())
