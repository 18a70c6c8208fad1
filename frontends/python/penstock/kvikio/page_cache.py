"""What the OS page cache holds of a file, and dropping it; KvikIO's calls."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from typing import Any

from penstock import _core
from penstock.errors import error_of


@contextlib.contextmanager
def _descriptor(file: Any) -> Iterator[int]:
    """Give a descriptor of a path, a descriptor, or a file of Python's."""
    if isinstance(file, int):
        yield file
    elif isinstance(file, (str, bytes, os.PathLike)):
        try:
            opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raised = error_of(error.errno or errno.EIO, "", os.fsdecode(file))
            raised.strerror = f"Unable to open file: {raised.strerror}"
            raise raised from None
        try:
            yield opened
        finally:
            os.close(opened)
    elif isinstance(file, (io.IOBase, _core.File)):
        yield file.fileno()  # type: ignore[union-attr]
    else:
        raise ValueError(f"{type(file).__qualname__} object is no path, descriptor or file")


def get_page_cache_info(file: Any, offset: int = 0, length: int = 0) -> tuple[int, int]:
    """Return how many pages of a range the OS page cache holds, and how many the range has.

    Parameters
    ----------
    file : path, int, or file object
    offset, length : int
        Bytes; a length of 0 goes to the end of the file. Whole pages are counted that the range
        touches.

    Raises
    ------
    Error
        It cannot be opened, or the kernel does not tell: it is the file of another user.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    with _descriptor(file) as descriptor:
        size = os.fstat(descriptor).st_size
        end = size if length == 0 else min(size, offset + length)
        if offset >= end:
            return 0, 0
        begin = offset // page * page
        total = -(-(end - begin) // page)
        path = os.fsencode(f"/proc/self/fd/{descriptor}")
        seen = _core.residency(path, offset=begin, size=min(total * page, size - begin))
        if seen["bytes"]["unknown"]:
            raise error_of(errno.EPERM, "the kernel does not tell what is cached of it", path)
        return -(-seen["resident"] // page), total


def drop_file_page_cache(
    file: Any, offset: int = 0, length: int = 0, sync_first: bool = True
) -> None:
    """Have the kernel drop what it has cached of a range, as far as whole pages go.

    Parameters
    ----------
    file : path, int, or file object
    offset, length : int
        Bytes; a length of 0 goes to the end of the file.
    sync_first : bool
        Write to storage first what was written: nothing else of it can be dropped.
    """
    with _descriptor(file) as descriptor:
        if sync_first:
            os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)
