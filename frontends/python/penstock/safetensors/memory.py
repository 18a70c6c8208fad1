"""Memory for tensors: memory of a device, or plain host memory."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from typing import Any, Protocol

from penstock import _core

HOST, CUDA = 1, 2  # DLPack's device types for memory of the host and of a CUDA device
HUGE_PAGE = 2 << 20


class Memory(Protocol):
    """Bytes with an address: penstock.DeviceMemory, or HostMemory."""

    @property
    def address(self) -> int:
        """Where it begins."""
        ...

    @property
    def nbytes(self) -> int:
        """How much it is."""
        ...

    @property
    def device(self) -> str:
        """Whose it is; "host": no device's."""
        ...

    def __getitem__(self, part: slice, /) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


class HostMemory:
    """Zeroed host memory that begins at a page, and is on huge pages if it is large.

    Reading straight into huge pages is 2.5 times faster than into small ones, and NumPy's own
    arrays begin 16 bytes behind a page, where the kernel copies at half the speed.
    """

    device = "host"

    def __init__(self, size: int) -> None:
        self.nbytes = size
        large = size >= HUGE_PAGE
        # Shared memory, Python's default, would be that of a forked child too, and gets no huge
        # pages.
        self._map = mmap.mmap(
            -1,
            max(size, 1) + (HUGE_PAGE if large else 0),
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
        )
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._start = -begin % HUGE_PAGE if large else 0
        self.address = begin + self._start
        if large and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without them
                self._map.madvise(mmap.MADV_HUGEPAGE)

    def __getitem__(self, part: slice) -> memoryview:
        start, stop, _ = part.indices(self.nbytes)
        return memoryview(self._map)[self._start + start : self._start + stop]

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST, 0


def allocate(size: int, device: str | None) -> Memory:
    """Return memory of a device, or of the host if `device` is None. Raises penstock.Error."""
    return HostMemory(size) if device is None else _core.empty(size, device)


def host_addressable(memory: Memory) -> bool:
    """Return whether the host may load from and store to the memory."""
    return memory.__dlpack_device__()[0] == HOST
