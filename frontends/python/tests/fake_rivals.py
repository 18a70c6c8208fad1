"""Loaders for tests of the contest: right ones, and such as fail in every way that a rival may.

Settings: slow_s, how long a read takes at least; and of which read on, counted from 1 in the life
of the process, it brings a wrong byte (wrong), raises (raises), ends the process (dies), or comes
to no end (hangs). maps: it keeps the file mapped.
"""

# ruff: noqa: D102 (what each method does is said in Loader)

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time
from pathlib import Path

from penstock.benchmarks.cuda.contest.loaders import Arena, InPlace, Placed, Settings
from penstock.benchmarks.cuda.contest.memory import Memory
from penstock.benchmarks.harness.model_file import ModelFile


class Fake(InPlace):
    """Reads the file, mostly."""

    def __init__(self, memory: Memory, device: str) -> None:
        print("libraries print what they like")
        self._memory = memory
        self._arena = Arena(memory)
        self._reads = 0
        self._map: mmap.mmap | None = None

    def version(self) -> str:
        return "1.2"

    def open(self, model: ModelFile, settings: Settings) -> Path:
        if settings.get("no_such_setting"):
            raise TypeError("no_such_setting\nis no setting")
        self._model, self._settings = model, settings
        self._arena.reserve(model.file_size)
        return model.path

    def _due(self, what: str) -> bool:
        return bool(self._reads >= self._settings.get(what, sys.maxsize))

    def read(self) -> None:
        self._reads += 1
        time.sleep(self._settings.get("slow_s", 0))
        if self._due("hangs"):
            time.sleep(1000)
        if self._due("dies"):
            print("out of luck", file=sys.stderr, flush=True)
            os._exit(3)
        if self._due("raises"):
            raise RuntimeError("it is Friday")
        data = bytearray(self._model.path.read_bytes())
        if self._settings.get("maps") and self._map is None:
            self._map = mmap.mmap(os.open(self._model.path, os.O_RDONLY), 0, prot=mmap.PROT_READ)
            sum(self._map[::4096])  # pages that a table holds cannot be evicted
        data[-1] ^= self._due("wrong")
        held = (ctypes.c_char * len(data)).from_buffer(data)
        self._memory.copy_in(self._arena.address, ctypes.addressof(held), len(data))

    def placed(self) -> list[Placed]:
        whole = self._arena.whole()
        if self._settings.get("leaves_out_a_byte"):
            return [Placed(0, whole[0].size - 1, whole[0].address)]
        return whole


class Missing(Fake):
    """A library that is not installed."""

    def __init__(self, memory: Memory, device: str) -> None:
        raise ModuleNotFoundError("No module named 'nowhere'")


class NeverLoads(Fake):
    """A library that hangs when it is loaded."""

    def __init__(self, memory: Memory, device: str) -> None:
        time.sleep(1000)


class DiesLoading(Fake):
    """A library that takes the process with it when it is loaded."""

    def __init__(self, memory: Memory, device: str) -> None:
        os.abort()
