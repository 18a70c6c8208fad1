"""A process that runs one loader, on requests in lines of JSON on its standard input.

    {"do": "open", "path": ..., "settings": {...}}   -> {"path": the file that read() reads}
    {"do": "read"}    -> {"seconds": ..., "cpu_seconds": ..., "right": every byte was as written}

First it prints {"version": ...}. If a request fails it prints {"error": ...}. It times the call and
the wait for the device after it. Then it compares all bytes in the device's memory with the written
bytes, and overwrites them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from typing import IO, Any

from penstock.benchmarks.cuda.contest.loaders import Loader, Placed
from penstock.benchmarks.cuda.contest.memory import Memory, memory_of
from penstock.benchmarks.harness.model_file import ModelFile

_PIECE = 16 << 20  # compared at once by a thread
_THREADS_MAX = 8  # that compare
_CAUSE_MAX = 300  # characters of an error


def covers(placed: Iterable[Placed], begin: int, end: int) -> bool:
    """Return whether pieces hold every byte of [begin, end)."""
    at = begin
    for piece in sorted(placed):
        if at >= end or piece.offset > at:
            break
        at = max(at, piece.offset + piece.size)
    return at >= end


class Worker:
    """One loader, and the file that it reads."""

    def __init__(self, loader: Loader, memory: Memory) -> None:
        self._loader = loader
        self._memory = memory
        self._model: ModelFile | None = None
        self._scratch = threading.local()
        threads = min(_THREADS_MAX, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(threads, initializer=self._begin_thread)

    def _begin_thread(self) -> None:
        self._memory.use()
        self._scratch.address = self._memory.pinned(_PIECE)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out a request, and return the answer."""
        if request["do"] == "open":
            self._model = ModelFile(Path(request["path"]))
            return {"path": str(self._loader.open(self._model, request["settings"]))}
        return self._read()

    def _read(self) -> dict[str, Any]:
        cpu, start = process_time(), perf_counter()
        self._loader.read()
        self._memory.synchronize()
        seconds, cpu = perf_counter() - start, process_time() - cpu
        placed = self._loader.placed()
        right = self._is_right(placed)
        for piece in placed:
            self._memory.fill(piece.address, piece.size)
        self._memory.synchronize()
        self._loader.drop()
        return {"seconds": seconds, "cpu_seconds": cpu, "right": right}

    def _is_right(self, placed: list[Placed]) -> bool:
        model = self._model
        if model is None or not covers(placed, model.data_offset, model.file_size):
            return False
        parts = (
            Placed(piece.offset + done, min(_PIECE, piece.size - done), piece.address + done)
            for piece in placed
            for done in range(0, piece.size, _PIECE)
        )
        return all(self._pool.map(partial(self._holds, model), parts))

    def _holds(self, model: ModelFile, part: Placed) -> bool:
        scratch = self._scratch.address
        self._memory.copy_out(scratch, part.address, part.size)
        return model.holds(part.offset, part.size, scratch)


def described(error: BaseException) -> str:
    """Return an error in one line."""
    lines = f"{type(error).__name__}: {error}".splitlines()
    return lines[0][:_CAUSE_MAX]


def main() -> int:
    """Serve until standard input ends. Arguments: module:class of the loader, device."""
    # Output of libraries goes to standard error; answers have their own descriptor.
    replies: IO[str] = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(reply: dict[str, Any]) -> None:
        replies.write(json.dumps(reply) + "\n")

    module, _, name = sys.argv[1].partition(":")
    try:
        memory = memory_of(sys.argv[2])
        loader = getattr(import_module(module), name)(memory, sys.argv[2])
        worker = Worker(loader, memory)
        say({"version": loader.version()})
    except Exception as error:  # another library may raise any error
        say({"error": described(error)})
        return 1
    for line in sys.stdin:
        try:
            say(worker.answer(json.loads(line)))
        except Exception as error:
            say({"error": described(error)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
