"""Question: how fast do the tensors of a safetensors file come into device memory.

Workload: a file like that of a language model, with half-precision floats in 300 tensors, of 2 GiB
or a quarter of the memory. It is in the page cache as after a read from start to end (hot), or not
at all (cold). Each run opens the file and ends when every byte of every tensor is in memory of the
device. All runs use the same memory, which was touched before. Then all tensors are compared with
the written bytes, and the memory is wiped. Tensors begin at multiples of 64 bytes in memory, but
not in the file, as in most files.

Baselines. `safetensors`: the reference implementation with its default backend, and a copy of each
array into device memory. It loads all tensors and then copies them, or one after the other; a trial
picks the faster form, and a note names it. `safetensors-pread`: the same with its other backend.
`mmap-copy`: a map of the file copied into place. `readinto`: one read of the whole file, without
moving tensors. If they are installed, `fastsafetensors` and `runai-model-streamer` at their
defaults, and a copy of each tensor. The report says which version of each rival ran, or why it did
not. Not measured: files on other file systems, several files, memory that was not touched before.
"""

from __future__ import annotations

import ctypes
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from time import perf_counter
from typing import Any

from penstock.benchmarks.harness import page_cache, rivals
from penstock.benchmarks.harness.model_file import ALIGNMENT, ModelFile, written
from penstock.benchmarks.harness.report import (
    Report,
    Row,
    cpu_seconds,
    run_benchmark,
    take_pairs,
    wanted,
)
from penstock.errors import CommandError
from penstock.safetensors.memory import HOST

QUESTION = "how fast do the tensors of a safetensors file come into device memory?"
SIZE_MAX = 2 << 30
SMOKE_SIZE = 24 << 20
TRIALS = 3  # of each form of the reference

Places = dict[str, int]  # of each tensor in the device's memory
Loader = Callable[[], Places]  # opens the file; returns when all bytes are in place


class Arena:
    """Memory of the device that all loaders fill; it is allocated and touched once."""

    def __init__(self, size: int, device: str) -> None:
        import numpy as np

        import penstock

        self.memory = penstock.empty(size, device)
        if self.memory.__dlpack_device__()[0] != HOST:
            raise CommandError(device, "what is compared here loads into memory of the host")
        self.bytes = np.frombuffer(memoryview(self.memory), np.uint8)
        self.wipe()

    def wipe(self) -> None:
        """Overwrite all bytes, so that no run finds the bytes of an earlier one."""
        ctypes.memset(self.memory.address, 0xA5, self.memory.nbytes)


class Loaders:
    """The loaders of one file into one arena."""

    def __init__(self, file: ModelFile, arena: Arena, device: str) -> None:
        self._path = file.path
        self._file = file
        self._arena = arena
        self._device = device
        self._packed: Places = {}
        end = 0
        for name, (_, size) in file.spans.items():
            self._packed[name] = end
            end += -(-size // ALIGNMENT) * ALIGNMENT

    def penstock(self) -> Places:
        """Load with penstock."""
        from penstock.safetensors import load_file

        loaded = load_file(self._path, self._device, memory=self._arena.memory)
        return {
            name: tensor.address - self._arena.memory.address for name, tensor in loaded.items()
        }

    def _put(self, name: str, array: Any) -> None:
        import numpy as np

        flat = array.reshape(-1).view(np.uint8)
        self._arena.bytes[self._packed[name] : self._packed[name] + flat.size] = flat

    def reference_whole(self, backend: str) -> Places:
        """Load all with the reference, then copy all."""
        from safetensors.numpy import load_file

        for name, array in load_file(self._path, backend=backend).items():
            self._put(name, array)
        return self._packed

    def reference_each(self, backend: str) -> Places:
        """Load and copy one tensor after the other with the reference."""
        from safetensors import safe_open

        with safe_open(self._path, framework="np", backend=backend) as opened:
            for name in opened.offset_keys():
                self._put(name, opened.get_tensor(name))
        return self._packed

    def references(self, backend: str) -> dict[str, Loader]:
        """Return the forms in which the reference can be used."""
        return {
            "load_file": partial(self.reference_whole, backend),
            "get_tensor": partial(self.reference_each, backend),
        }

    def mmap_copy(self) -> Places:
        """Copy out of a map of the file."""
        import numpy as np

        mapped = np.memmap(self._path, np.uint8, "r", offset=0)[self._file.data_offset :]
        for name, (begin, size) in self._file.spans.items():
            self._put(name, mapped[begin : begin + size])
        return self._packed

    def rival(self, load: rivals.Load) -> Places:
        """Load with another library, and copy each tensor."""
        load(self._path, self._put)
        return self._packed

    def readinto(self) -> Places:
        """Read the file without moving its tensors."""
        view = memoryview(self._arena.memory)
        at = 0
        with self._path.open("rb", buffering=0) as opened:
            while count := opened.readinto(view[at:]):
                at += count
        start = self._file.data_offset
        return {name: start + begin for name, (begin, _) in self._file.spans.items()}


class Bench:
    """Runs loaders from a state of the page cache, and checks their results."""

    def __init__(self, file: ModelFile, arena: Arena, loaders: Loaders) -> None:
        self._file = file
        self._arena = arena
        self.loaders = loaders
        self.verified = True
        self.cpu_seconds = 0.0  # of the last loader

    def run(self, state: str, loader: Loader) -> float:
        """Return the seconds that a loader takes."""
        prepare = page_cache.warm if state == "hot" else page_cache.evict
        self.verified = prepare(self._file.path) and self.verified
        cpu, start = cpu_seconds(), perf_counter()
        places = loader()
        seconds = perf_counter() - start
        self.cpu_seconds = cpu_seconds() - cpu
        base = self._arena.memory.address
        arrived = all(self._file.is_at(n, base + places[n]) for n in self._file.spans)
        self.verified = self.verified and arrived
        self._arena.wipe()
        return seconds

    def fastest_reference(self, state: str, backend: str) -> tuple[str, Loader]:
        """Return the form of the reference that is fastest here."""
        forms = self.loaders.references(backend)
        seconds = {
            form: sorted(self.run(state, loader) for _ in range(TRIALS))[TRIALS // 2]
            for form, loader in forms.items()
        }
        form = min(seconds, key=lambda form: seconds[form])
        return form, forms[form]

    def measure(self, case: str, against: str, pairs: int, baseline: Loader) -> Row:
        """Take the pairs of a row; the case's name is the state of the page cache."""
        row = Row(case, against, bytes=self._file.size)
        self.verified = True
        spent = []

        def penstock() -> float:
            seconds = self.run(case, self.loaders.penstock)
            spent.append(self.cpu_seconds)
            return seconds

        row.pairs = take_pairs(pairs, penstock, lambda: self.run(case, baseline))
        row.verified = self.verified
        row.cpu_seconds = sum(spent[1:])
        return row


def usable_rivals(bench: Bench, report: Report) -> dict[str, Loader]:
    """Try each rival, and report which version runs or why it does not."""
    has_reference = find_spec("safetensors") is not None
    report.environment["rival safetensors"] = (
        rivals.version_of("safetensors") if has_reference else "not run: no module safetensors"
    )
    usable: dict[str, Loader] = {}
    for rival in rivals.RIVALS:
        cause = rivals.why_not(rival)
        if not cause and rival.load is not None:
            loader = partial(bench.loaders.rival, rival.load)
            try:
                bench.run("hot", loader)
                usable[rival.package] = loader
            except Exception as error:  # another library may raise any error
                cause = f"it raised {type(error).__name__}: {error}".splitlines()[0]
        told = f"not run: {cause}" if cause else rivals.version_of(rival.package)
        report.environment[f"rival {rival.package}"] = told
    for name, told in report.environment.items():
        if name.startswith("rival "):
            print(f"{name}: {told}", file=sys.stderr, flush=True)
    return usable


def measure_all(arguments: Namespace, report: Report) -> None:
    """Measure every requested row."""
    if find_spec("numpy") is None:
        raise CommandError("", "NumPy is missing: pip install 'penstock[bench]'")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    size = SMOKE_SIZE if arguments.smoke else min(SIZE_MAX, memory // 4)
    with written(size) as file:
        arena = Arena(file.data_offset + file.size + (16 << 20), arguments.device)
        bench = Bench(file, arena, Loaders(file, arena, arguments.device))
        report.environment |= {
            "file": f"{file.size} bytes in {len(file.spans)} tensors, which begin at "
            f"{file.data_offset % ALIGNMENT} modulo {ALIGNMENT}",
            "device": arena.memory.device,
        }
        others = usable_rivals(bench, report)
        for state in ("hot", "cold"):
            if not wanted(arguments.only, state):
                continue
            page_cache.evict(file.path)  # so that warm() brings it in as a reader would
            backends = {"safetensors": "mmap", "safetensors-pread": "pread"}
            for against, backend in backends.items() if find_spec("safetensors") else ():
                form, reference = bench.fastest_reference(state, backend)
                row = bench.measure(state, against, arguments.pairs, reference)
                row.note = form
                report.add(row)
            for against, baseline in (
                ("mmap-copy", bench.loaders.mmap_copy),
                ("readinto", bench.loaders.readinto),
                *others.items(),
            ):
                report.add(bench.measure(state, against, arguments.pairs, baseline))


def main() -> int:
    """Run the benchmark."""
    return run_benchmark("safetensors", QUESTION, measure_all)


if __name__ == "__main__":
    sys.exit(main())
