"""Errors of safetensors files, which `except safetensors.SafetensorError` catches too.

The package safetensors is imported when the first such error is raised, and not before. Where it
is missing, the errors are Penstock's alone.
"""

from __future__ import annotations

import contextlib
import errno
from typing import Any, NoReturn

from penstock.errors import ClosedError, Error


class FormatError(Error, ValueError):
    """A file that is no safetensors file, or not a whole one: `FILE: what is wrong`."""


class MissingTensorError(KeyError):
    """The file holds no tensor of that name."""


_joined: dict[type[Exception], type[Exception]] = {}


def _with_theirs(kind: type[Exception]) -> type[Exception]:
    """Return a class of both `kind` and the SafetensorError of safetensors, if it is installed."""
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
    """Return an error that another process raised: the class of both has no name of its own."""
    error = _with_theirs(kind)(*arguments)
    if state:
        error.__dict__.update(state)
    return error


def theirs(error: Exception) -> Exception:
    """Turn `error` into one that is a SafetensorError of safetensors too."""
    if not hasattr(error, "is_theirs"):
        with contextlib.suppress(TypeError):  # a class that cannot be joined with theirs
            error.__class__ = _with_theirs(type(error))
    return error


def refuse(path: str, cause: str) -> NoReturn:
    """Raise FormatError."""
    raise theirs(FormatError(f"{path}: {cause}")) from None


def missing_tensor(path: str, name: str) -> Exception:
    """Return the error for a name that no tensor has."""
    return theirs(MissingTensorError(f"{path}: no tensor {name}"))


def closed_file(path: str) -> Exception:
    """Return the error for a file that was closed."""
    return theirs(ClosedError(errno.EBADF, "the file is closed", path))
