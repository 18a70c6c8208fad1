"""KvikIO's registration of memory and streams, which Penstock does not need."""

from __future__ import annotations

import sys
from typing import Any

from penstock import _core

CUDA, CUDA_MANAGED = 2, 13  # of DLPack's device types
LEGACY_STREAM = 1  # the default stream, as __cuda_array_interface__ names it


def _is_buffer(buf: Any) -> bool:
    if hasattr(buf, "__dlpack__") or hasattr(buf, "__cuda_array_interface__"):
        return True
    try:
        memoryview(buf).release()
    except TypeError:
        return False
    return True


def is_cuda(buf: Any) -> bool:
    """Return whether a buffer is in memory of a CUDA device."""
    if hasattr(buf, "__dlpack_device__"):
        return int(buf.__dlpack_device__()[0]) in (CUDA, CUDA_MANAGED)
    return hasattr(buf, "__cuda_array_interface__")


def _stream_of(buf: Any) -> int | None:
    """Return the stream that last used a buffer, as __cuda_array_interface__ has it; None: none."""
    if hasattr(buf, "is_cuda") and hasattr(buf, "data_ptr"):  # torch names none there
        torch: Any = sys.modules["torch"]
        return int(torch.cuda.current_stream(buf.device).cuda_stream) or LEGACY_STREAM
    interface = getattr(buf, "__cuda_array_interface__", {})
    stream = interface.get("stream")
    return None if stream is None else int(stream)


class Bytes:
    """Bytes of a CUDA device, from an address on; keeps what they belong to, and its stream."""

    def __init__(self, owner: Any, address: int, size: int) -> None:
        self._owner = owner
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
            "stream": _stream_of(owner),
        }


def cuda_part(buf: Any, offset: int) -> Any:
    """Return a CUDA buffer without its first `offset` bytes.

    Raises ValueError if the buffer is in host memory, as KvikIO does, or shorter than `offset`.
    """
    if not is_cuda(buf):
        raise ValueError("Non-CUDA buffers not supported: use read or write")
    if offset == 0:
        return buf
    if isinstance(buf, _core.DeviceMemory):
        size, address = buf.nbytes, buf.address
    else:
        size, address = int(buf.nbytes), int(buf.__cuda_array_interface__["data"][0])
        if buf.__cuda_array_interface__.get("strides") is not None and not _is_dense(buf):
            raise ValueError("the buffer is not contiguous")
    if not 0 <= offset <= size:
        raise ValueError(f"dev_offset {offset} is not within the buffer's {size} bytes")
    return Bytes(buf, address + offset, size - offset)


def _is_dense(buf: Any) -> bool:
    interface = buf.__cuda_array_interface__
    expected = int(interface["typestr"][2:])
    for size, stride in zip(
        reversed(interface["shape"]), reversed(interface["strides"]), strict=True
    ):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def memory_register(buf: Any) -> None:
    """Do nothing: memory needs no registration. Raises TypeError if `buf` is no buffer."""
    if not _is_buffer(buf):
        raise TypeError(f"{type(buf).__qualname__} object gives no memory")


def memory_deregister(buf: Any) -> None:
    """Do nothing, as memory_register."""
    memory_register(buf)


def bounce_buffer_free() -> int:
    """Free nothing, and return 0: the files' engine owns staging and frees it at its end."""
    return 0


def stream_register(_raw_stream: int, _flags: int) -> None:
    """Do nothing: streams need no registration."""


def stream_deregister(_raw_stream: int) -> None:
    """Do nothing, as stream_register."""
