"""Finds why a buffer was refused: the slow path of frontends/python/target.cc."""

from __future__ import annotations

from typing import Any, NoReturn

_SUPPORTED = {1, 2, 3, 13}  # DLPack's numbers of host, CUDA, pinned host and managed memory


def _refuse_objects(name: str) -> NoReturn:
    raise TypeError(f"{name} holds references to Python objects: bytes cannot take their place")


def _refuse_scattered(name: str, written: bool) -> NoReturn:
    advice = "write a contiguous copy" if written else "read into a contiguous array and copy"
    raise BufferError(f"{name} is not contiguous: {advice}")


def _refuse_view(view: memoryview, name: str, written: bool) -> NoReturn:
    if view.readonly and not written:
        raise BufferError(f"{name} is read-only: nothing can be read into it")
    if view.contiguous:
        _refuse_objects(name)
    _refuse_scattered(name, written)


def _refuse_tensor(tensor: Any, name: str, written: bool) -> NoReturn:
    kind, number = tensor.__dlpack_device__()
    if int(kind) not in _SUPPORTED:
        raise BufferError(f"{name} is on DLPack device ({int(kind)}, {number}): not host, not CUDA")
    try:
        tensor.__dlpack__()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        verb = "read" if written else "written to"
        raise BufferError(f"{name} cannot be {verb}: {error}") from None
    raise BufferError(f"{name} is {'' if written else 'read-only or '}not contiguous")


def _refuse_interface(interface: Any, name: str, written: bool) -> NoReturn:
    if interface.get("typestr", "")[1:2] == "O":
        _refuse_objects(name)
    if interface.get("data", (0, False))[1] and not written:
        raise BufferError(f"{name} is read-only: nothing can be read into it")
    _refuse_scattered(name, written)


def refuse(buffer: object, written: bool) -> NoReturn:
    """Raise the error that says why `buffer` cannot be read into, or `written` to a file."""
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
        _refuse_view(view, name, written)
    if hasattr(buffer, "__dlpack__"):
        _refuse_tensor(buffer, name, written)
    interface = getattr(buffer, "__cuda_array_interface__", None)
    if isinstance(interface, dict):
        _refuse_interface(interface, name, written)
    raise TypeError(
        f"{name} gives no memory: it has neither the buffer protocol, nor __dlpack__,"
        " nor __cuda_array_interface__"
    )
