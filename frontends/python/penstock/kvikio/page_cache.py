"""KvikIO's calls that ask what the OS page cache holds of a file, and drop it."""

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
    """Yield a descriptor of a path, of a descriptor, or of a Python file."""
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
        In bytes; a length of 0 extends to the end of the file. Every page that the range touches
        counts.

    Raises
    ------
    Error
        The file cannot be opened, or the OS does not tell, as for a file of another user.
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
    """Ask the OS to drop the whole cached pages of a range.

    Parameters
    ----------
    file : path, int, or file object
    offset, length : int
        In bytes; a length of 0 extends to the end of the file.
    sync_first : bool
        First write dirty pages to storage: the OS drops only clean pages.
    """
    with _descriptor(file) as descriptor:
        if sync_first:
            os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)
