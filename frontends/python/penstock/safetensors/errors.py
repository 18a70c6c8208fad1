"""Errors of safetensors files, which `except safetensors.SafetensorError` catches too.

The package safetensors is imported when the first such error is raised, and not before. If it is
not installed, the errors are only Penstock's.
"""

from __future__ import annotations

import contextlib
import errno
from typing import Any, NoReturn

from penstock.errors import ClosedError, Error


class FormatError(Error, ValueError):
    """The file is no safetensors file, or is incomplete: `FILE: what is wrong`."""


class MissingTensorError(KeyError):
    """The file holds no tensor of that name."""


_joined: dict[type[Exception], type[Exception]] = {}


def _with_theirs(kind: type[Exception]) -> type[Exception]:
    """Return a class derived from `kind` and, if safetensors is installed, its SafetensorError."""
    if kind in _joined:
        return _joined[kind]
    try:
        from safetensors import SafetensorError
    except ImportError:
        return kind

    def reduced(self: Exception) -> tuple[Any, ...]:
        return _again, (kind, *BaseException.__reduce__(self)[1:])

    both = (kind, SafetensorError)
    body: dict[str, Any] = {"__module__": kind.__module__, "__doc__": kind.__doc__}
    body |= {"__reduce__": reduced, "is_theirs": True}
    return _joined.setdefault(kind, type(kind.__name__, both, body))


def _again(kind: type[Exception], arguments: tuple[Any, ...], state: Any = None) -> Exception:
    """Rebuild an error that another process raised: a class derived from both has no name."""
    error = _with_theirs(kind)(*arguments)
    if state:
        error.__dict__.update(state)
    return error


def theirs(error: Exception) -> Exception:
    """Make `error` a SafetensorError of safetensors too, and return it."""
    if not hasattr(error, "is_theirs"):
        with contextlib.suppress(TypeError):  # no class can derive from both
            error.__class__ = _with_theirs(type(error))
    return error


def refuse(path: str, cause: str) -> NoReturn:
    """Raise FormatError."""
    raise theirs(FormatError(f"{path}: {cause}")) from None


def missing_tensor(path: str, name: str) -> Exception:
    """Return the error for a name that is not in the file."""
    return theirs(MissingTensorError(f"{path}: no tensor {name}"))


def closed_file(path: str) -> Exception:
    """Return the error for a closed file."""
    return theirs(ClosedError(errno.EBADF, "the file is closed", path))
