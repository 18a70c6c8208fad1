"""Random operations on files of a folder, with everything that a program sees of them.

`penstock mount` is tested with the results of the same operations on a plain folder.
"""

import contextlib
import errno
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NAMES = ["a", "b", "c", "d", "sub/a", "sub/b", "missing/a", "new\nline"]
_FLAGS = [
    os.O_RDONLY,
    os.O_WRONLY,
    os.O_RDWR,
    os.O_RDWR | os.O_CREAT,
    os.O_WRONLY | os.O_CREAT,
    os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    os.O_RDWR | os.O_CREAT | os.O_EXCL,
    os.O_WRONLY | os.O_APPEND | os.O_CREAT,
    os.O_RDWR | os.O_APPEND,
    os.O_RDONLY | os.O_NOFOLLOW,
]
_SIZE_MAX = 300_000
_OPEN_MAX = 12


def _seen(state: os.stat_result) -> tuple[Any, ...]:
    size = 0 if stat.S_ISDIR(state.st_mode) else state.st_size
    return state.st_mode, state.st_nlink, state.st_uid, state.st_gid, size


class Call:
    """Arguments for any operation."""

    def __init__(self, chance: random.Random) -> None:
        self.name, self.other = chance.choice(_NAMES), chance.choice(_NAMES)
        self.offset = chance.randrange(_SIZE_MAX)
        self.data = chance.randbytes(
            chance.randrange(1, 80_000 if chance.random() < 0.2 else 5_000)
        )
        self.flags, self.mode = chance.choice(_FLAGS), chance.choice([0o600, 0o644, 0o755])
        self.which = chance.randrange(1 << 30)
        self.times = (chance.randrange(10**18), chance.randrange(10**18))


class Folder:
    """A folder, its open files, and the operations on them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.open: list[int] = []
        (root / "sub").mkdir()

    def path(self, name: str) -> str:
        """Return the path of a name."""
        return str(self.root / name)

    def close_all(self) -> None:
        """Close what is open."""
        for descriptor in self.open:
            os.close(descriptor)
        self.open = []

    def do(self, chance: random.Random) -> Any:
        """Do one operation and return what a program sees of it."""
        call = Call(chance)
        kind = chance.randrange(100)
        try:
            if kind < 16:
                return self._open(call)
            if kind < 67:
                descriptor = self.open[call.which % len(self.open)] if self.open else -1
                return None if descriptor < 0 else self._on_file(kind, descriptor, call)
            return self._on_name(kind, call)
        except OSError as error:
            return errno.errorcode[error.errno or 0]

    def _open(self, call: Call) -> Any:
        if len(self.open) < _OPEN_MAX:
            self.open.append(os.open(self.path(call.name), call.flags, call.mode))
        return len(self.open)

    def _on_file(self, kind: int, descriptor: int, call: Call) -> Any:  # noqa: PLR0911
        data, offset = call.data, call.offset
        if kind < 30:
            return os.pwrite(descriptor, data, offset)
        if kind < 36:
            return os.write(descriptor, data)
        if kind < 48:
            return os.pread(descriptor, len(data), offset)
        if kind < 52:
            return os.read(descriptor, len(data))
        if kind < 56:
            os.ftruncate(descriptor, offset)
        elif kind < 58:
            os.fsync(descriptor)
        elif kind < 61:
            self.open.remove(descriptor)
            return os.close(descriptor)
        elif kind < 63 and not stat.S_ISDIR(os.fstat(descriptor).st_mode):  # these have no end
            return os.lseek(descriptor, offset, os.SEEK_SET), os.lseek(descriptor, 0, os.SEEK_END)
        elif kind < 64:
            return os.posix_fallocate(descriptor, offset, len(data))
        elif kind < 65:
            os.utime(descriptor, ns=call.times)
            return os.fstat(descriptor).st_mtime_ns
        return _seen(os.fstat(descriptor))

    def _on_name(self, kind: int, call: Call) -> Any:  # noqa: PLR0911
        path, other = self.path(call.name), self.path(call.other)
        if kind < 74:
            return os.rename(path, other)
        if kind < 78:
            return os.unlink(path)
        if kind < 81:
            return os.link(path, other)
        if kind < 83:
            os.symlink("a", path)
            return os.readlink(path)
        if kind < 86:
            os.chmod(path, call.mode)
        elif kind < 89:
            os.utime(path, ns=call.times)
            return os.stat(path).st_mtime_ns
        elif kind < 91:
            os.truncate(path, call.offset)
        elif kind < 93:
            return sorted(os.listdir(self.root)), sorted(os.listdir(self.root / "sub"))
        elif kind < 94:
            return os.mkdir(path, call.mode)
        elif kind < 95:
            return os.rmdir(path)
        elif kind < 98:
            with open(path, "rb") as file:
                return file.read()
        return _seen(os.lstat(path))

    def contents(self) -> Iterator[tuple[str, tuple[Any, ...], bytes]]:
        """Return all that is in the folder."""
        for path in sorted(self.root.rglob("*")):
            with contextlib.suppress(IsADirectoryError):
                what = os.readlink(path).encode() if path.is_symlink() else b""
                if path.is_file() and not path.is_symlink():
                    what = path.read_bytes()
                yield str(path.relative_to(self.root)), _seen(path.lstat()), what
