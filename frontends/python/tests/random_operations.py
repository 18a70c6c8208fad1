"""Random operations of several processes on files, each done on a plain folder too, and compared.

    random_operations.py FOLDER ORACLE LOCK SEED INDEX OPERATIONS

A process has files of its own, and files that it shares with the others; INDEX is its number. It
does an operation on FOLDER, then on ORACLE, and compares result or errno. The operations on shared
files are done with the file LOCK locked, so both folders see them in the same order. The first
difference is told on standard output with the number of its operation, and ends the process with
code 1.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import random
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

OFFSET_MAX = 300_000
SIZE_MAX = 70_000
HANDLES_MAX = 10
NAMES = 4  # of each kind
SECONDS_MAX = 10.0  # beyond what the operations take


@dataclass
class Pair:
    """An open file below FOLDER and the same below ORACLE; `shared`: others may use it too."""

    descriptors: tuple[int, int]
    shared: bool


class DifferenceError(Exception):
    """The two folders gave different results."""


class Worker:
    """One process."""

    def __init__(self, roots: tuple[str, str], lock: str, seed: int, index: int) -> None:
        self.roots = roots
        self.random = random.Random(f"{seed} {index}")
        self.own = [f"own-{index}-{number}" for number in range(NAMES)]
        self.common = [f"shared-{number}" for number in range(NAMES)]
        self.lock = os.open(lock, os.O_RDWR | os.O_CREAT)
        self.pairs: list[Pair] = []

    def run(self, operations: int) -> None:
        """Do random operations."""
        for number in range(operations):
            shared = self.random.random() < 0.5
            step = self.random.choice([self.open, *[self.use] * 6, self.change_names])
            try:
                step(shared)
            except DifferenceError as error:
                raise DifferenceError(f"operation {number}: {error}") from None
        while self.pairs:
            self.close(self.pairs.pop())

    def _both(self, told: str, shared: bool, calls: Sequence[Callable[[], object]]) -> list[object]:
        """Return the results of the calls on both folders, an errno where one failed."""
        results: list[object] = []
        if shared:
            fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            for call in calls:
                try:
                    results.append(call())
                except OSError as error:
                    results.append(f"errno {error.errno}")
        finally:
            if shared:
                fcntl.flock(self.lock, fcntl.LOCK_UN)
        kinds = [isinstance(result, str) for result in results]
        if kinds[0] != kinds[1] or (kinds[0] and results[0] != results[1]):
            raise DifferenceError(f"{told}: {_shown(results[0])}, not {_shown(results[1])}")
        return results

    def _same(self, told: str, shared: bool, calls: Sequence[Callable[[], object]]) -> None:
        first, second = self._both(told, shared, calls)
        if first == second:
            return
        at = ""
        if isinstance(first, bytes) and isinstance(second, bytes):
            wrong = [i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b]
            begin, end = (wrong[0], wrong[-1]) if wrong else (0, 0)
            zeros = "zeros" if not any(first[i] for i in wrong) else "no zeros"
            at = f" ({len(wrong)} of them wrong, {begin} to {end}, {zeros})"
        raise DifferenceError(f"{told}: {_shown(first)}, not {_shown(second)}{at}")

    def _name(self, shared: bool) -> str:
        return self.random.choice(self.common if shared else self.own)

    def open(self, shared: bool) -> None:
        """Open a file with random flags."""
        if len(self.pairs) >= HANDLES_MAX:
            self.close(self.pairs.pop(self.random.randrange(len(self.pairs))))
        name = self._name(shared)
        flags = self.random.choice([os.O_RDWR, os.O_RDWR, os.O_RDONLY, os.O_WRONLY])
        chances = {os.O_CREAT: 0.8, os.O_EXCL: 0.1, os.O_TRUNC: 0.1, os.O_APPEND: 0.2}
        for flag, chance in chances.items():
            flags |= flag if self.random.random() < chance else 0
        calls = [
            lambda root=root: os.open(os.path.join(root, name), flags, 0o640) for root in self.roots
        ]
        first, second = self._both(f"open {name} {flags:o}", shared, calls)
        if isinstance(first, int) and isinstance(second, int):
            self.pairs.append(Pair((first, second), shared))

    def close(self, pair: Pair) -> None:
        """Close an open file."""
        calls = [lambda one=one: os.close(one) for one in pair.descriptors]
        self._same("close", pair.shared, calls)

    def use(self, shared: bool) -> None:
        """Make a random call on an open file."""
        pairs = [pair for pair in self.pairs if pair.shared == shared]
        if not pairs:
            self.open(shared)
            return
        pair = self.random.choice(pairs)
        offset = self.random.randrange(OFFSET_MAX)
        size = self.random.randrange(1, SIZE_MAX)
        if self.random.random() < 0.3:
            offset, size = offset // 4096 * 4096, -(-size // 4096) * 4096
        name, call = self.random.choices(CALLS, WEIGHTS)[0][:2]
        told = f"{name} at {offset}, {size} bytes{' of a shared file' if shared else ''}"
        data = self.random.randbytes(size)
        calls = [lambda one=one: call(one, offset, data) for one in pair.descriptors]
        self._same(told, shared, calls)

    def change_names(self, shared: bool) -> None:
        """Make a random call on names."""
        name, other = self._name(shared), self._name(shared)
        size = self.random.randrange(OFFSET_MAX)
        kinds: dict[str, Callable[[str], object]] = {
            "rename": lambda root: os.rename(os.path.join(root, name), os.path.join(root, other)),
            "unlink": lambda root: os.unlink(os.path.join(root, name)),
            "link": lambda root: os.link(os.path.join(root, name), os.path.join(root, other)),
            "truncate": lambda root: os.truncate(os.path.join(root, name), size),
            "stat": lambda root: _status(os.stat(os.path.join(root, name))),
            "chmod": lambda root: os.chmod(os.path.join(root, name), 0o600 | size % 64),
            "list": lambda root: sorted(one for one in os.listdir(root) if one.startswith(name)),
            "content": lambda root: Path(root, name).read_bytes(),
        }
        kind = self.random.choice([*kinds, "stat", "content"])
        calls = [lambda root=root: kinds[kind](root) for root in self.roots]
        self._same(f"{kind} {name} {other} {size}", shared, calls)


def _shown(result: object) -> str:
    return f"{len(result)} bytes" if isinstance(result, bytes) else repr(result)


def _status(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_nlink, stat.S_IMODE(status.st_mode)


def _map(descriptor: int, offset: int, data: bytes) -> bytes:
    size = os.fstat(descriptor).st_size
    if size == 0:
        return b""
    with mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
        return mapped[offset : offset + len(data)]


def _write_mapped(descriptor: int, offset: int, data: bytes) -> None:
    size = os.fstat(descriptor).st_size
    if offset >= size:
        return
    with mmap.mmap(descriptor, size, mmap.MAP_SHARED) as mapped:
        part = data[: size - offset]
        mapped[offset : offset + len(part)] = part
        mapped.flush()


def _copy(descriptor: int, offset: int, data: bytes) -> int:
    """Copy a part of a file to a place behind it, or onto itself: an error."""
    to = offset + len(data) + len(data) % 7 - 1
    return os.copy_file_range(descriptor, descriptor, len(data), offset, to)


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def _punch(descriptor: int, offset: int, data: bytes) -> None:
    keep_size, punch_hole = 1, 2
    if _LIBC.fallocate(descriptor, keep_size | punch_hole, offset, len(data)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


Call = Callable[[int, int, bytes], object]
CALLS: list[tuple[str, Call, int]] = [  # with how often
    ("pwrite", lambda one, offset, data: os.pwrite(one, data, offset), 30),
    ("small pwrite", lambda one, offset, data: os.pwrite(one, data[:100], offset), 10),
    ("write", lambda one, _, data: os.write(one, data), 10),
    ("pread", lambda one, offset, data: os.pread(one, len(data), offset), 30),
    ("read", lambda one, _, data: os.read(one, len(data)), 10),
    ("lseek", lambda one, offset, _: os.lseek(one, offset, os.SEEK_SET), 5),
    ("lseek to the end", lambda one, offset, _: os.lseek(one, -(offset % 9), os.SEEK_END), 5),
    ("ftruncate", lambda one, offset, _: os.ftruncate(one, offset), 4),
    ("fstat", lambda one, *_: _status(os.fstat(one)), 10),
    ("fsync", lambda one, *_: os.fsync(one), 3),
    ("fdatasync", lambda one, *_: os.fdatasync(one), 2),
    ("allocate", lambda one, offset, data: os.posix_fallocate(one, offset, len(data)), 2),
    ("punch", _punch, 2),
    ("copy", _copy, 3),
    ("mapped read", _map, 4),
    ("mapped write", _write_mapped, 3),
]
WEIGHTS = [weight for _, _, weight in CALLS]


# ---- What tests call


@dataclass
class Way:
    """A way to the files: their folder, and what stands before the command of a program."""

    folder: Path
    prefix: Sequence[str | Path] = field(default_factory=list)


def compare(
    ways: Sequence[Way], oracle: Path, seed: int, operations: int, seconds_max: float
) -> list[str]:
    """Run a process for each way, which share the operations; return the differences."""
    lock = oracle.with_suffix(".lock")
    workers = []
    for index, way in enumerate(ways):
        words = [way.folder, oracle, lock, seed, index, -(-operations // len(ways))]
        command = [*way.prefix, sys.executable, __file__, *words]
        workers.append(
            subprocess.Popen(
                [str(word) for word in command],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    timer = threading.Timer(seconds_max + SECONDS_MAX, _end_all, (workers,))
    timer.start()
    told = [worker.communicate()[0].strip() for worker in workers]
    timer.cancel()
    return [
        f"seed {seed}, process {index}, exit code {worker.returncode}: {text}"
        for index, (worker, text) in enumerate(zip(workers, told, strict=True))
        if worker.returncode != 0
    ]


def _end_all(workers: Sequence[subprocess.Popen[str]]) -> None:
    for worker in workers:
        worker.kill()


def main(words: list[str]) -> int:
    """Run the process of a command line."""
    seed, index, operations = map(int, words[3:])
    worker = Worker((words[0], words[1]), words[2], seed, index)
    try:
        worker.run(operations)
    except DifferenceError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
