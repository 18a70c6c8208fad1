"""Random writes, appends, truncations and syncs of a few files, for tests of crashes.

    crash_workload.py FOLDER SEED VERSION OPERATIONS [--refusing]

With --refusing storage may refuse what it takes a moment later, so a write may be made in parts.

Each byte that is written follows from file, offset and version; VERSION is that of the first write,
and each write has the next one. Standard output tells each call before it begins, and `done` when
it has returned:

    open FILE SIZE CRC          what the file was at the start: its size, and its CRC-32
    create FILE
    write FILE OFFSET SIZE VERSION
    truncate FILE SIZE
    sync FILE
    replace FILE SIZE VERSION   a new file is written, synced and renamed to the old one's name
    names FILE                  the folder is synced
    failed ERRNO                the call before failed; the program ends
    wrong TEXT                  bytes that were read are not those that were written; the end

FOLDER is the working directory: when a mount there ends, no path leads to the folder below it.
A whole run of OPERATIONS up to 5000 fits into a pipe, so that no reader is needed meanwhile.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import sys
import zlib

FILES = 4
FILE_SIZE_MAX = 256 << 10
WRITE_SIZE_MAX = 20_000
PAGE = 4096
PIPE_SIZE = 1 << 20
_TABLE_SIZE = 1 << 20
_TABLE = random.Random(33).randbytes(_TABLE_SIZE) * 2


def pattern(file: int, version: int, offset: int, size: int) -> bytes:
    """Return the bytes that a version of a file has at an offset; `size` is at most 1 MiB."""
    start = (version * 654_435_761 + file * 81_799 + offset) % _TABLE_SIZE
    return _TABLE[start : start + size]


def name_of(file: int) -> str:
    """Return the name of a file in the folder."""
    return f"file-{file}"


def tell(text: str) -> None:
    """Write a line to the log, in one piece."""
    os.write(1, (text + "\n").encode())


class WrongBytesError(Exception):
    """A read returned other bytes than were written."""


class File:
    """One open file, and what it should contain."""

    def __init__(self, number: int, seed: random.Random, *, refusing: bool = False) -> None:
        self.refusing = refusing
        self.path = name_of(number)
        self.number = number
        self.random = seed
        self.content = bytearray()
        self.descriptor = self.appending = -1

    def open(self) -> None:
        """Open the file for the first time, and tell what it has."""
        if not os.path.exists(self.path):
            tell(f"create {self.number}")
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644))
            tell("done")
        self._open()
        self.content[:] = os.pread(self.descriptor, 2 * FILE_SIZE_MAX, 0)
        tell(f"open {self.number} {len(self.content)} {zlib.crc32(self.content)}")

    def _open(self) -> None:
        self.descriptor = os.open(self.path, os.O_RDWR)
        self.appending = os.open(self.path, os.O_WRONLY | os.O_APPEND)

    def _close(self) -> None:
        os.close(self.descriptor)
        os.close(self.appending)

    def reopen(self, _: int) -> None:
        """Close the file and open it again."""
        self._close()
        self._open()

    def _place(self) -> tuple[int, int]:
        offset = self.random.randrange(min(len(self.content) + PAGE, FILE_SIZE_MAX))
        size = self.random.randrange(1, WRITE_SIZE_MAX)
        if self.random.random() < 0.3:  # whole pages
            offset, size = offset // PAGE * PAGE, -(-size // PAGE) * PAGE
        return offset, size

    def _written(self, done: int, offset: int, data: bytes) -> None:
        while self.refusing and done < len(data):
            done += os.pwrite(self.descriptor, data[done:], offset + done)
        if done != len(data):
            # It met an error, which the rest meets too. Otherwise the write is wrong.
            os.pwrite(self.descriptor, data[done:], offset + done)
            raise WrongBytesError(f"a write of {len(data)} bytes at {offset} returned {done}")
        self.content.extend(bytes(max(0, offset - len(self.content))))
        self.content[offset : offset + len(data)] = data
        tell("done")

    def write(self, version: int) -> None:
        """Write at a random place."""
        offset, size = self._place()
        tell(f"write {self.number} {offset} {size} {version}")
        data = pattern(self.number, version, offset, size)
        self._written(os.pwrite(self.descriptor, data, offset), offset, data)

    def write_mapped(self, version: int) -> None:
        """Write to a part of the file in memory; what is mapped is written by msync()."""
        offset, size = self._place()
        size = min(size, len(self.content) - offset)
        if size <= 0:
            return
        self._check_size()
        tell(f"write {self.number} {offset} {size} {version}")
        data = pattern(self.number, version, offset, size)
        with mmap.mmap(self.descriptor, len(self.content)) as mapped:
            mapped[offset : offset + size] = data
            mapped.flush()
        self._written(size, offset, data)

    def append(self, version: int) -> None:
        """Write at the end; a large file is cut off instead."""
        offset = len(self.content)
        if offset > FILE_SIZE_MAX:
            self.truncate(version)
            return
        size = self.random.randrange(1, PAGE)
        tell(f"write {self.number} {offset} {size} {version}")
        data = pattern(self.number, version, offset, size)
        self._written(os.write(self.appending, data), offset, data)

    def truncate(self, _: int) -> None:
        """Set a random size."""
        size = self.random.randrange(FILE_SIZE_MAX)
        if self.random.random() < 0.5:
            size = min(size, len(self.content))
        tell(f"truncate {self.number} {size}")
        os.ftruncate(self.descriptor, size)
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))
        tell("done")

    def sync(self, version: int) -> None:
        """Make the file durable."""
        tell(f"sync {self.number}")
        if version % 4 == 0:  # also what was written through descriptors that are closed
            self._close()
            reading = os.open(self.path, os.O_RDONLY)
            os.fsync(reading)
            os.close(reading)
            self._open()
        elif version % 4 == 1:
            os.fdatasync(self.descriptor)
        else:
            os.fsync(self.descriptor if version % 4 == 2 else self.appending)
        tell("done")

    def replace(self, version: int) -> None:
        """Write a new file, make it durable, and give it the name of the old one."""
        size = self.random.randrange(FILE_SIZE_MAX)
        tell(f"replace {self.number} {size} {version}")
        self.content[:] = pattern(self.number, version, 0, size)
        new = os.open(self.path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        done = os.write(new, self.content)
        while self.refusing and done < size:
            done += os.write(new, self.content[done:])
        if done != size:
            raise WrongBytesError(f"file {self.number}: a new file was written in part")
        os.fsync(new)
        os.close(new)
        os.rename(self.path + ".new", self.path)
        tell("done")
        self.reopen(version)

    def sync_names(self, _: int) -> None:
        """Make the names in the folder durable."""
        tell(f"names {self.number}")
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(folder)
        os.close(folder)
        tell("done")

    def _difference(self, found: bytes, offset: int) -> str:
        """Tell where bytes are wrong, and whether they also are beside the kernel's page cache."""
        right = self.content[offset : offset + len(found)]
        wrong = [i for i, (a, b) in enumerate(zip(found, right, strict=False)) if a != b]
        ends = f"{offset + wrong[0]} to {offset + wrong[-1]}" if wrong else "none"
        direct = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        again = os.pread(direct, len(found), offset)
        size = os.fstat(direct).st_size
        os.close(direct)
        zeros = not any(found[i] for i in wrong)
        return (
            f"file {self.number}: read {len(found)} bytes at {offset} of {len(self.content)}, "
            f"wrong: {len(wrong)}, {ends}, {'zeros' if zeros else 'no zeros'}; size {size}; "
            f"a direct read is {'right' if again == right else 'wrong'}"
        )

    def read(self, _: int) -> None:
        """Compare a part, and the size."""
        offset, size = self._place()
        found = os.pread(self.descriptor, size, offset)
        if found != self.content[offset : offset + size]:
            # Where what was written is lost with the process of a cache, a sync tells.
            os.fsync(self.descriptor)
            raise WrongBytesError(self._difference(found, offset))
        self._check_size()

    def _check_size(self) -> None:
        if os.fstat(self.descriptor).st_size != len(self.content):
            os.fsync(self.descriptor)  # as in read()
            raise WrongBytesError(f"file {self.number}: its size should be {len(self.content)}")


def run(seed: int, version: int, operations: int, *, refusing: bool) -> None:
    """Do the operations, each on a random file."""
    source = random.Random(seed)
    files = [File(number, source, refusing=refusing) for number in range(FILES)]
    for file in files:
        file.open()
    kinds = ["write"] * 20 + ["append"] * 8 + ["sync"] * 6 + ["read"] * 4
    kinds += ["truncate", "truncate", "reopen", "reopen", "replace", "sync_names", "write_mapped"]
    for number in range(operations):
        getattr(source.choice(files), source.choice(kinds))(version + number)


def main(words: list[str]) -> int:
    """Run the workload of a command line."""
    fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    try:
        os.chdir(words[0])
        run(*map(int, words[1:4]), refusing="--refusing" in words)
    except OSError as error:
        tell(f"failed {error.errno}")
    except WrongBytesError as error:
        tell(f"wrong {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
