"""Loaders of a file into a device's memory: by this library, and by plain loops.

Each worker process runs one loader. `libraries.py` has the loaders that use other libraries.
"""

# ruff: noqa: D102 (what each method does is said in Loader)

from __future__ import annotations

import ctypes
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock.benchmarks.cuda.contest.memory import Memory
from penstock.benchmarks.harness.model_file import ModelFile

Settings = dict[str, Any]

_SECTOR = 4096  # direct reads need sizes and offsets that are multiples of it


class Placed(NamedTuple):
    """Bytes of the file that are in the device's memory."""

    offset: int  # in the file
    size: int
    address: int


class Loader(Protocol):
    """A way to load. It is created once; `open` may be called again, with other settings."""

    def __init__(self, memory: Memory, device: str) -> None: ...

    def version(self) -> str:
        """Return the version of the library; empty if the loader uses none."""

    def open(self, model: ModelFile, settings: Settings) -> Path:
        """Do the work that a program does once, and return the file that `read` reads."""

    def read(self) -> None:
        """Read the bytes. This call is timed, with a wait for the device after it."""

    def placed(self) -> list[Placed]:
        """Return the places of the bytes, which stay there until `drop`."""

    def drop(self) -> None:
        """Free the memory that `read` took; this is not timed."""


def view_of(address: int, size: int) -> memoryview:
    """Return memory of the host as a buffer."""
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def read_fully(descriptor: int, to: memoryview, offset: int) -> None:
    """Read a range of a file. Raises EOFError if the file ends before."""
    done = 0
    while done < len(to):
        got = os.preadv(descriptor, [to[done:]], offset + done)
        if got == 0:
            raise EOFError(f"the file ends at {offset + done}")
        done += got


class Arena:
    """Memory of the device for the bytes of a whole file; later reads reuse it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.address = 0
        self.size = 0

    def reserve(self, size: int) -> None:
        """Make room for `size` bytes."""
        if size != self.size:
            if self.size:
                self._memory.free(self.address)
            self.address, self.size = self._memory.allocate(size), size

    def whole(self) -> list[Placed]:
        """Return the place of bytes that were read from start to end."""
        return [Placed(0, self.size, self.address)]


class InPlace:
    """The common part of loaders that read into the same memory each time."""

    def version(self) -> str:
        return ""

    def drop(self) -> None:
        """Do nothing: the next read goes to the same memory."""


class Penstock(InPlace):
    """A file by one pread at the library's defaults, into existing memory."""

    def __init__(self, memory: Memory, device: str) -> None:
        import penstock

        self._library = penstock
        self._device = device

    def version(self) -> str:
        return self._library.__version__

    def open(self, model: ModelFile, settings: Settings) -> Path:
        self._memory = self._library.empty(model.file_size, self._device)
        self._file = self._library.open(model.path)
        return model.path

    def read(self) -> None:
        self._file.pread(self._memory).result()

    def placed(self) -> list[Placed]:
        return [Placed(0, self._memory.nbytes, self._memory.address)]


class PenstockTensors:
    """The tensors of a file by `load_file`, into existing memory."""

    def __init__(self, memory: Memory, device: str) -> None:
        import penstock
        from penstock import safetensors

        self._library = penstock
        self._safetensors = safetensors
        self._device = device
        self._tensors: dict[str, Any] = {}

    def version(self) -> str:
        return self._library.__version__

    def open(self, model: ModelFile, settings: Settings) -> Path:
        self._model = model
        with self._safetensors.safe_open(model.path, device=self._device) as opened:
            size = opened.memory_size()
        self._memory = self._library.empty(size, self._device)
        return model.path

    def read(self) -> None:
        path = self._model.path
        self._tensors = self._safetensors.load_file(path, self._device, memory=self._memory)

    def drop(self) -> None:
        self._tensors = {}

    def placed(self) -> list[Placed]:
        model = self._model
        return [
            Placed(model.data_offset + span.begin, span.size, self._tensors[name].address)
            for name, span in model.spans.items()
        ]


class PinnedCopy(InPlace):
    """One copy of as many bytes out of pinned memory, without a read: the limit of the link."""

    def __init__(self, memory: Memory, device: str) -> None:
        self._memory = memory
        self._arena = Arena(memory)

    def open(self, model: ModelFile, settings: Settings) -> Path:
        self._arena.reserve(model.file_size)
        self._source = self._memory.pinned(model.file_size)
        with model.path.open("rb", buffering=0) as file:
            read_fully(file.fileno(), view_of(self._source, model.file_size), 0)
        return model.path

    def read(self) -> None:
        self._memory.copy_in(self._arena.address, self._source, self._arena.size)

    def placed(self) -> list[Placed]:
        return self._arena.whole()


class ReadThreads(InPlace):
    """A plain loop: threads that read pieces into pinned memory and copy them.

    Each thread has two buffers, each with a stream: it reads into one while the other is copied.
    Settings: threads, piece_mib, direct.
    """

    def __init__(self, memory: Memory, device: str) -> None:
        self._memory = memory
        self._arena = Arena(memory)
        self._slots: list[tuple[int, int]] = []  # pinned memory and stream, two for each thread
        self._pool: ThreadPoolExecutor | None = None
        self._descriptor = -1

    def open(self, model: ModelFile, settings: Settings) -> Path:
        threads, self._piece = int(settings["threads"]), int(settings["piece_mib"]) << 20
        direct = bool(settings.get("direct"))
        if direct and model.file_size % _SECTOR:
            raise ValueError("direct reads want whole sectors")
        self._end()
        self._arena.reserve(model.file_size)
        flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
        self._descriptor = os.open(model.path, flags)
        self._slots = [
            (self._memory.pinned(self._piece), self._memory.stream()) for _ in range(2 * threads)
        ]
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, initializer=self._memory.use)
        return model.path

    def _end(self) -> None:
        """Free what an earlier setting took."""
        if self._pool is not None:
            self._pool.shutdown()
            os.close(self._descriptor)
        for pinned, stream in self._slots:
            self._memory.free_pinned(pinned)
            self._memory.end_stream(stream)

    def _run(self, index: int, turns: Any) -> None:
        slots = self._slots[2 * index : 2 * index + 2]
        for pinned, stream in itertools.cycle(slots):
            at = next(turns) * self._piece
            if at >= self._arena.size:
                break
            size = min(self._piece, self._arena.size - at)
            self._memory.wait(stream)
            read_fully(self._descriptor, view_of(pinned, size), at)
            self._memory.enqueue(self._arena.address + at, pinned, size, stream)
        for _, stream in slots:
            self._memory.wait(stream)

    def read(self) -> None:
        if self._pool is None:
            raise RuntimeError("not open")
        turns = itertools.count()
        for done in [self._pool.submit(self._run, i, turns) for i in range(self._threads)]:
            done.result()

    def placed(self) -> list[Placed]:
        return self._arena.whole()
