"""System calls that Python has no name for. A failed call raises OSError with its errno."""

from __future__ import annotations

import ctypes
import mmap
import os

# The number is the same on x86-64 and on every architecture with the generic table.
_IO_URING_SETUP = 425
_CACHESTAT = 451

_STATX_DIOALIGN = 0x2000
_AT_EMPTY_PATH = 0x1000

_libc = ctypes.CDLL(None, use_errno=True)


class _CachestatRange(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _Cachestat(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    ]


def _check(result: int, name: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def io_uring_setup() -> None:
    """Set up a ring of 2 entries and close it again."""
    parameters = ctypes.create_string_buffer(120)  # struct io_uring_params, all zero
    ring = _libc.syscall(ctypes.c_long(_IO_URING_SETUP), ctypes.c_uint(2), ctypes.byref(parameters))
    os.close(_check(ring, "io_uring_setup"))


def cachestat(descriptor: int, size: int) -> int:
    """Return how many pages of the first `size` bytes the page cache holds, by cachestat(2)."""
    asked = _CachestatRange(0, size)
    answer = _Cachestat()
    result = _libc.syscall(
        ctypes.c_long(_CACHESTAT),
        ctypes.c_uint(descriptor),
        ctypes.byref(asked),
        ctypes.byref(answer),
        ctypes.c_uint(0),
    )
    _check(result, "cachestat")
    return int(answer.cached)


def mincore(descriptor: int, size: int) -> int:
    """Return how many pages of the first `size` bytes are resident, by mincore(2) on a mapping."""
    address = _libc_mmap(size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor)
    try:
        pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        resident = (ctypes.c_ubyte * pages)()
        result = _libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), resident)
        _check(result, "mincore")
        return sum(byte & 1 for byte in resident)
    finally:
        _libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))


def _libc_mmap(size: int, protection: int, flags: int, descriptor: int) -> int:
    _libc.mmap.restype = ctypes.c_void_p
    address = _libc.mmap(
        None,
        ctypes.c_size_t(size),
        ctypes.c_int(protection),
        ctypes.c_int(flags),
        ctypes.c_int(descriptor),
        ctypes.c_long(0),
    )
    if address is None or address == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, f"mmap: {os.strerror(number)}")
    return int(address)


def direct_io_alignment(descriptor: int) -> tuple[int, int] | None:
    """Return direct I/O's (memory, offset) alignment in bytes, by statx(2); None if unknown."""
    answer = (ctypes.c_uint32 * 64)()  # struct statx: 256 bytes
    result = _libc.statx(
        ctypes.c_int(descriptor),
        b"",
        ctypes.c_int(_AT_EMPTY_PATH),
        ctypes.c_uint(_STATX_DIOALIGN),
        ctypes.byref(answer),
    )
    _check(result, "statx")
    if not answer[0] & _STATX_DIOALIGN:  # stx_mask
        return None
    return int(answer[38]), int(answer[39])  # bytes 152 and 156: stx_dio_mem_align, _offset_align
