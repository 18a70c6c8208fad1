"""Brings a file into the OS page cache or evicts it, and returns what the cache holds.

It uses mincore, which is exact for the owner of a file.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Collection
from pathlib import Path

_READ, _SHARED = 1, 1  # PROT_READ, MAP_SHARED
_PIECE = 1 << 20
_TRIES = 10
_PATIENCE_S, _PAUSE_S = 2, 0.001

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


def cached_map(path: Path) -> bytes:
    """Return a byte for each page of a file: 1 if the page is cached."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        # The map is never touched, since pages that page tables hold cannot be evicted.
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
    return out.raw[:pages]


def cached_pages(path: Path) -> tuple[int, int]:
    """Return how many of a file's pages are cached, and how many it has."""
    there = cached_map(path)
    return there.count(1), len(there)


def evict(path: Path) -> bool:
    """Evict a file from the page cache; return whether nothing of it is left."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        # The kernel keeps pages that a thread has just filled until that thread has run again.
        end = time.monotonic() + _PATIENCE_S
        while True:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            if cached_pages(path)[0] == 0:
                return True
            if time.monotonic() > end:
                return False
            time.sleep(_PAUSE_S)
    finally:
        os.close(descriptor)


def warm(path: Path) -> bool:
    """Read a file from start to end; return whether all of it is cached then."""
    piece = bytearray(_PIECE)
    # Some virtual machines return idle pages to their host, every few seconds.
    for _ in range(_TRIES):
        with path.open("rb", buffering=0) as file:
            while file.readinto(piece):
                pass
        cached, pages = cached_pages(path)
        if cached == pages:
            return True
    return False


def hold(path: Path, run_bytes: int, runs: Collection[int]) -> bool:
    """Cache the runs of a file with these numbers, and nothing else; return whether that worked.

    `run_bytes` is a multiple of a page.
    """
    gone = evict(path)
    piece = bytearray(run_bytes)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no readahead beyond
        for run in runs:
            os.preadv(descriptor, [piece], run * run_bytes)
    finally:
        os.close(descriptor)
    pages = run_bytes // mmap.PAGESIZE
    there = cached_map(path)
    return gone and all(
        set(there[first : first + pages]) == {first // pages in runs}
        for first in range(0, len(there), pages)
    )
