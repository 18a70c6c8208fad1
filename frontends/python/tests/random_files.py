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
        name, other = chance.choice(_NAMES), chance.choice(_NAMES)
        offset, size = chance.randrange(_SIZE_MAX), chance.randrange(1, 80_000)
        small = chance.randrange(4) > 0
        size = size % 5_000 + 1 if small else size
        data = chance.randbytes(size)
        flags, mode = chance.choice(_FLAGS), chance.choice([0o600, 0o644, 0o755])
        which, kind = chance.randrange(1 << 30), chance.randrange(100)
        descriptor = self.open[which % len(self.open)] if self.open else -1
        times = (chance.randrange(10**18), chance.randrange(10**18))
        try:
            if kind < 70:
                return self._on_file(kind, name, flags, mode, descriptor, offset, data, times)
            return self._on_name(kind, name, other, mode, offset, times)
        except OSError as error:
            return errno.errorcode[error.errno or 0]

    def _on_file(  # noqa: PLR0911, PLR0913
        self,
        kind: int,
        name: str,
        flags: int,
        mode: int,
        descriptor: int,
        offset: int,
        data: bytes,
        times: tuple[int, int],
    ) -> Any:
        if kind < 16:
            if len(self.open) >= _OPEN_MAX:
                return None
            self.open.append(os.open(self.path(name), flags, mode))
            return "opened"
        if descriptor < 0:
            return None
        if kind < 32:
            return os.pwrite(descriptor, data, offset)
        if kind < 38:
            return os.write(descriptor, data)
        if kind < 50:
            return os.pread(descriptor, len(data), offset)
        if kind < 54:
            return os.read(descriptor, len(data))
        if kind < 58:
            os.ftruncate(descriptor, offset)
            return os.fstat(descriptor).st_size
        if kind < 60:
            os.fsync(descriptor)
            return None
        if kind < 63:
            self.open.remove(descriptor)
            return os.close(descriptor)
        if kind < 65 and not stat.S_ISDIR(os.fstat(descriptor).st_mode):  # these have no end
            return os.lseek(descriptor, offset, os.SEEK_SET), os.lseek(descriptor, 0, os.SEEK_END)
        if kind < 66:
            return os.posix_fallocate(descriptor, offset, len(data))
        if kind < 67:
            os.utime(descriptor, ns=times)
            return os.fstat(descriptor).st_mtime_ns
        return _seen(os.fstat(descriptor))

    def _on_name(  # noqa: PLR0911
        self, kind: int, name: str, other: str, mode: int, size: int, times: tuple[int, int]
    ) -> Any:
        path = self.path(name)
        if kind < 76:
            return os.rename(path, self.path(other))
        if kind < 80:
            return os.unlink(path)
        if kind < 83:
            return os.link(path, self.path(other))
        if kind < 85:
            return os.symlink("a", path), os.readlink(path)
        if kind < 87:
            os.chmod(path, mode)
            return _seen(os.stat(path))
        if kind < 90:
            os.utime(path, ns=times)
            return os.stat(path).st_mtime_ns
        if kind < 92:
            os.truncate(path, size)
        if kind < 94:
            return sorted(os.listdir(self.root)), sorted(os.listdir(self.root / "sub"))
        if kind < 96:
            return os.mkdir(path, mode) if kind < 95 else os.rmdir(path)
        if kind < 98:
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
