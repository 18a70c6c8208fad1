"""Why a buffer was refused: the slow path of frontends/python/target.cc, which takes buffers."""

from __future__ import annotations

from typing import Any, NoReturn

_SUPPORTED = {1, 2, 3, 13}  # DLPack's numbers: host, CUDA, pinned host and managed memory


def _refuse_objects(name: str) -> NoReturn:
    raise TypeError(f"{name} holds references to Python objects: bytes cannot take their place")


def _refuse_view(view: memoryview, name: str) -> NoReturn:
    if view.readonly:
        raise BufferError(f"{name} is read-only: nothing can be read into it")
    if view.contiguous:
        _refuse_objects(name)
    raise BufferError(f"{name} is not contiguous: read into a contiguous array and copy")


def _refuse_tensor(tensor: Any, name: str) -> NoReturn:
    kind, number = tensor.__dlpack_device__()
    if int(kind) not in _SUPPORTED:
        raise BufferError(f"{name} is on DLPack device ({int(kind)}, {number}): not host, not CUDA")
    try:
        tensor.__dlpack__()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise BufferError(f"{name} cannot be written to: {error}") from None
    raise BufferError(f"{name} is read-only or not contiguous")


def _refuse_interface(interface: Any, name: str) -> NoReturn:
    if interface.get("typestr", "")[1:2] == "O":
        _refuse_objects(name)
    if interface.get("data", (0, False))[1]:
        raise BufferError(f"{name} is read-only: nothing can be read into it")
    raise BufferError(f"{name} is not contiguous: read into a contiguous array and copy")


def refuse(buffer: object) -> NoReturn:
    """Raise the TypeError or BufferError that says why `buffer` cannot be read into."""
    name = f"{type(buffer).__qualname__} object"
    if getattr(getattr(buffer, "dtype", None), "hasobject", False):
        _refuse_objects(name)
    try:
        view = memoryview(buffer)  # type: ignore[arg-type]
    except TypeError:
        pass
    except (BufferError, ValueError) as error:
        raise BufferError(f"{name}: {error}") from None
    else:
        _refuse_view(view, name)
    if hasattr(buffer, "__dlpack__"):
        _refuse_tensor(buffer, name)
    interface = getattr(buffer, "__cuda_array_interface__", None)
    if isinstance(interface, dict):
        _refuse_interface(interface, name)
    raise TypeError(
        f"{name} gives no memory: it has neither the buffer protocol, nor __dlpack__,"
        " nor __cuda_array_interface__"
    )
