"""Memory of a device, and copies to and from it, for the baselines and the checks.

It calls the CUDA driver's C interface, so that only the driver is needed, in the primary context,
which every library uses. `HostMemory` has the same calls without a GPU, to test the code of the
benchmarks. This module does not know penstock.
"""

# ruff: noqa: D102 (what each method does is said in Memory)

from __future__ import annotations

import ctypes
import mmap
from ctypes import c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Protocol

from penstock.errors import CommandError

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: not ordered with the default stream
_ARGUMENTS = {
    "cuInit": [c_uint],
    "cuDeviceGet": [c_void_p, c_int],
    "cuDevicePrimaryCtxRetain": [c_void_p, c_int],
    "cuCtxSetCurrent": [c_void_p],
    "cuCtxSynchronize": [],
    "cuMemAlloc_v2": [c_void_p, c_size_t],
    "cuMemFree_v2": [c_uint64],
    "cuMemHostAlloc": [c_void_p, c_size_t, c_uint],
    "cuMemFreeHost": [c_void_p],
    "cuMemcpyHtoD_v2": [c_uint64, c_void_p, c_size_t],
    "cuMemcpyHtoDAsync_v2": [c_uint64, c_void_p, c_size_t, c_void_p],
    "cuMemcpyDtoH_v2": [c_void_p, c_uint64, c_size_t],
    "cuMemsetD8_v2": [c_uint64, c_ubyte, c_size_t],
    "cuStreamCreate": [c_void_p, c_uint],
    "cuStreamSynchronize": [c_void_p],
    "cuStreamDestroy_v2": [c_void_p],
}


class Memory(Protocol):
    """A device's memory; addresses are numbers. Any thread that has called `use` may use it."""

    def use(self) -> None:
        """Make the device this thread's."""

    def allocate(self, size: int) -> int:
        """Return memory of the device."""

    def free(self, address: int) -> None:
        """Free memory of the device."""

    def pinned(self, size: int) -> int:
        """Return pinned memory of the host, from which the device copies without the CPU."""

    def free_pinned(self, address: int) -> None:
        """Free pinned memory."""

    def stream(self) -> int:
        """Return a queue of copies."""

    def end_stream(self, stream: int) -> None:
        """End a queue."""

    def wait(self, stream: int) -> None:
        """Wait until a queue is empty."""

    def copy_in(self, to: int, source: int, size: int) -> None:
        """Copy from the host to the device; the bytes are there when it returns."""

    def enqueue(self, to: int, source: int, size: int, stream: int) -> None:
        """Queue a copy from pinned memory to the device, and return at once."""

    def copy_out(self, to: int, source: int, size: int) -> None:
        """Copy from the device to the host."""

    def fill(self, address: int, size: int) -> None:
        """Overwrite memory of the device."""

    def synchronize(self) -> None:
        """Wait for all work of the device."""


class CudaMemory:
    """A CUDA device's memory."""

    def __init__(self, index: int) -> None:
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise CommandError(f"cuda:{index}", "no CUDA driver (libcuda.so.1) here") from None
        for name, arguments in _ARGUMENTS.items():
            getattr(self._driver, name).argtypes = arguments
        self._call("cuInit", 0)
        device = c_int()
        self._call("cuDeviceGet", ctypes.byref(device), index)
        self._context = c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.use()

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code == 0:
            return
        text = ctypes.c_char_p()
        self._driver.cuGetErrorString(code, ctypes.byref(text))
        cause = text.value.decode() if text.value else f"error {code}"
        raise CommandError(name, cause)

    def use(self) -> None:
        self._call("cuCtxSetCurrent", self._context)

    def allocate(self, size: int) -> int:
        address = c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), size)
        return address.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", address)

    def pinned(self, size: int) -> int:
        address = c_void_p()
        self._call("cuMemHostAlloc", ctypes.byref(address), size, 0)
        return address.value or 0

    def free_pinned(self, address: int) -> None:
        self._call("cuMemFreeHost", address)

    def stream(self) -> int:
        stream = c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        return stream.value or 0

    def end_stream(self, stream: int) -> None:
        self._call("cuStreamDestroy_v2", stream)

    def wait(self, stream: int) -> None:
        self._call("cuStreamSynchronize", stream)

    def copy_in(self, to: int, source: int, size: int) -> None:
        self._call("cuMemcpyHtoD_v2", to, source, size)

    def enqueue(self, to: int, source: int, size: int, stream: int) -> None:
        self._call("cuMemcpyHtoDAsync_v2", to, source, size, stream)

    def copy_out(self, to: int, source: int, size: int) -> None:
        self._call("cuMemcpyDtoH_v2", to, source, size)

    def fill(self, address: int, size: int) -> None:
        self._call("cuMemsetD8_v2", address, 0xA5, size)

    def synchronize(self) -> None:
        self._call("cuCtxSynchronize")


class HostMemory:
    """The same calls on memory of the host."""

    def __init__(self) -> None:
        self._maps: dict[int, mmap.mmap] = {}

    def use(self) -> None:
        """Do nothing: every thread can use host memory."""

    def allocate(self, size: int) -> int:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._maps[address] = memory
        return address

    def free(self, address: int) -> None:
        del self._maps[address]

    pinned = allocate
    free_pinned = free

    def stream(self) -> int:
        return 0

    def end_stream(self, stream: int) -> None:
        """Nothing to do: copies are done at once."""

    wait = end_stream

    def copy_in(self, to: int, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)

    def enqueue(self, to: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(to, source, size)

    copy_out = copy_in

    def fill(self, address: int, size: int) -> None:
        ctypes.memset(address, 0xA5, size)

    def synchronize(self) -> None:
        """Nothing to do: copies are done at once."""


def memory_of(device: str) -> Memory:
    """Return a device's memory: cuda:N, or cpu, which stands in for a device."""
    if device == "cpu":
        return HostMemory()
    kind, _, index = device.partition(":")
    if kind != "cuda" or not (index or "0").isdigit():
        raise CommandError(device, "these rows are for cuda:N")
    return CudaMemory(int(index or "0"))
