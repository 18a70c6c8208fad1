"""Brings a file into the OS page cache, or out of it, and says what is there.

mincore tells, which is right for the owner of a file.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

_READ, _SHARED = 1, 1  # PROT_READ, MAP_SHARED
_PIECE = 1 << 20
_TRIES = 10

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def cached_pages(path: Path) -> tuple[int, int]:
    """Return how many of a file's pages are cached, and how many it has."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        # Never touched: what page tables hold cannot be evicted.
        place = _libc.mmap(None, size, _READ, _SHARED, descriptor, 0)
    finally:
        os.close(descriptor)
    if place in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap", str(path))
    pages = -(-size // mmap.PAGESIZE)
    out = ctypes.create_string_buffer(pages)
    failed = _libc.mincore(place, size, out)
    error = ctypes.get_errno()
    _libc.munmap(place, size)
    if failed:
        raise OSError(error, "mincore", str(path))
    return out.raw[:pages].count(1), pages


def evict(path: Path) -> bool:
    """Take a file out of the page cache; whether nothing of it is left."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        # Pages that somebody has just read may stay the first time.
        for _ in range(_TRIES):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            if cached_pages(path)[0] == 0:
                return True
    finally:
        os.close(descriptor)
    return False


def warm(path: Path) -> bool:
    """Read a file as somebody who reads it from start to end; whether all of it is cached then."""
    piece = bytearray(_PIECE)
    with path.open("rb", buffering=0) as file:
        while file.readinto(piece):
            pass
    cached, pages = cached_pages(path)
    return cached == pages
