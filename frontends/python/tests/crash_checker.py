"""Which bytes files may have after a crash, by the log of the workload that wrote them.

What was synced and not written since must be there. What was written since is old or new, byte by
byte: any of the versions since the last sync, and zeros where the file was extended or cut off. A
file that was replaced is the new one or the old one until it, or its folder, is synced. A
size is one that the file had since the last sync, or would have had with a part of the calls; as
storage may keep some pages of a write, each multiple of 4 KiB between the smallest and the largest
of these sizes is right too.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
from crash_workload import FILES, PAGE, pattern


@dataclass
class State:
    """A durable content, None where there is no file, and the changes since."""

    durable: bytes | None
    writes: list[tuple[int, int, int]] = field(default_factory=list)  # offset, size, version
    truncations: list[int] = field(default_factory=list)

    def check(self, number: int, found: bytes | None, kept: list[bytes]) -> list[str]:
        """Return what is wrong with the content after a crash; None: there is no file.

        What is in `kept` need not be in the file.
        """
        if found is None or self.durable is None:
            same = found is None and self.durable is None
            return [] if same else [f"is {'missing' if found is None else 'there'}"]
        if not kept:
            return [*self._check_size(len(found)), *self._check_bytes(number, [found])]
        size = max(len(found), len(self.durable))
        return self._check_bytes(number, [one.ljust(size, b"\0")[:size] for one in (found, *kept)])

    def _check_size(self, size: int) -> list[str]:
        old = len(self.durable or b"")
        sizes = {old, *self.truncations, *(offset + length for offset, length, _ in self.writes)}
        smallest = min([old, *self.truncations])
        part = size % PAGE == 0 and size <= max(sizes)
        if size >= smallest and (size in sizes or part):
            return []
        told = ", ".join(map(str, sorted(one for one in sizes if one >= smallest)))
        return [f"size {size}, allowed: {told}"]

    def _check_bytes(self, number: int, contents: list[bytes]) -> list[str]:
        """Check that one of some contents of equal size has the right byte, at each place."""
        found = contents[0]
        wrong = np.flatnonzero(~np.any([self._right(number, one) for one in contents], axis=0))
        if len(wrong) == 0:
            return []
        old = self.durable or b""
        first, last = int(wrong[0]), int(wrong[-1])
        written = [one for one in self.writes if one[0] <= first < one[0] + one[1]]
        return [
            f"{len(wrong)} bytes from {first} to {last} are wrong; "
            f"there {found[first : first + 4].hex()}, durable {old[first : first + 4].hex()}, "
            f"written there since {written}; size {len(found)}, durable {len(old)}, "
            f"truncations since {self.truncations}"
        ]

    def _right(self, number: int, found: bytes) -> np.ndarray:
        """Return which bytes may be so."""
        old = self.durable or b""
        actual = np.frombuffer(found, np.uint8)
        kept = min(len(old), len(found))
        right = np.zeros(len(found), bool)
        right[:kept] = actual[:kept] == np.frombuffer(old, np.uint8)[:kept]
        cut = min([len(old), *self.truncations])
        right[cut:] |= actual[cut:] == 0
        for offset, size, version in self.writes:
            new = np.frombuffer(pattern(number, version, offset, size), np.uint8)
            part = actual[offset : offset + size]
            right[offset : offset + size] |= part == new[: len(part)]
        return right


class File:
    """What a file may be after a crash.

    It is in one of some states: the last is that of the file as programs see it, and those before
    are of files that had its name until it was created or replaced, which is not durable yet.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.states = [State(None)]
        self.current = bytearray()
        self.exists = False  # as programs see it

    def begin(self, call: str, numbers: list[int]) -> None:
        """Note a change that may be there from now on."""
        if call == "write":
            offset, size, version = numbers
            self.states[-1].writes.append((offset, size, version))
        elif call == "truncate":
            self.states[-1].truncations.append(numbers[0])
        elif call == "create":
            self.states.append(State(b""))
        elif call == "replace":
            size, version = numbers
            self.states.append(State(pattern(self.number, version, 0, size)))

    def done(self, call: str, numbers: list[int]) -> None:
        """Note that a call has returned."""
        content = self.current
        if call == "write":
            offset, size, version = numbers
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + size] = pattern(self.number, version, offset, size)
        elif call == "truncate":
            del content[numbers[0] :]
            content.extend(bytes(numbers[0] - len(content)))
        elif call == "replace":
            content[:] = pattern(self.number, numbers[1], 0, numbers[0])
        elif call == "sync":
            self.settle(bytes(content))
        self.exists = True

    def settle(self, content: bytes | None) -> None:
        """Begin anew from a durable content."""
        self.states = [State(content)]
        self.current = bytearray(content or b"")
        self.exists = content is not None

    def complete(self) -> None:
        """Note that all is there whose call has returned."""
        self.settle(bytes(self.current) if self.exists else None)

    def settle_name(self) -> None:
        """Note that the file as programs see it has its name durably."""
        del self.states[:-1]

    def check(self, found: bytes | None, kept: list[bytes] | None = None) -> list[str]:
        """Return what is wrong with the content after a crash; None: there is no file."""
        problems = [state.check(self.number, found, kept or []) for state in self.states]
        if not all(problems):
            return []
        return [
            f"file {self.number}: {problem} (state {i + 1} of {len(problems)})"
            for i, told in enumerate(problems)
            for problem in told
        ]


@dataclass
class Log:
    """What a log told, beside the changes of files."""

    problems: list[str] = field(default_factory=list)
    calls: int = 0
    syncs: int = 0  # that returned
    cut_off: bool = False  # a call had not returned, or had failed
    failed: int = 0  # errno


def replay(log: str, files: list[File], *, complete: bool = False) -> Log:
    """Take the calls of a log over into `files`; an incomplete last line is no call.

    If `complete`, all that has returned must be there, and not only what was synced.
    """
    told = Log()
    under_way: tuple[str, list[int]] | None = None
    for line in log.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        call, *words = line.split()
        if call == "wrong":
            told.problems.append(line.strip())
        elif call == "failed":
            told.failed = int(words[0])
        elif call == "open":
            number, size, check = map(int, words)
            content = files[number].current
            if (size, check) != (len(content), zlib.crc32(content)):
                told.problems.append(f"file {number} was not what it should be before: {size}")
        elif call == "done":
            assert under_way is not None, "a call has returned that had not begun"
            files[under_way[1][0]].done(under_way[0], under_way[1][1:])
            for file in files if under_way[0] == "names" else []:
                file.settle_name()
            told.calls += 1
            told.syncs += under_way[0] == "sync"
            under_way = None
        else:
            under_way = call, [int(word) for word in words]
            files[under_way[1][0]].begin(call, under_way[1][1:])
    told.cut_off = under_way is not None
    for file in files if complete else []:
        file.complete()
    if complete and under_way is not None:
        files[under_way[1][0]].begin(under_way[0], under_way[1][1:])
    return told


def make_files() -> list[File]:
    """Return the files of a workload, none of which exists."""
    return [File(number) for number in range(FILES)]
