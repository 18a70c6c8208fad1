"""Errors of the package, and errors that end a command with one line: `penstock: FILE: cause`.

A read or write fails with a `penstock.Error`: an OSError that also names offset and route. If
Python has a class for the errno, the error is an instance of that class too.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import IO

TYPE_CHECKING = False  # typing's; loading that takes longer than all of this
if TYPE_CHECKING:
    import inspect
    from typing import Any


class Error(OSError, RuntimeError):
    """A file could not be opened, read or written.

    It is a RuntimeError too, for programs that were written for KvikIO.

    Attributes
    ----------
    errno, strerror, filename
        As in any OSError.
    offset : int or None
        Offset in the file, in bytes, at which the first failed extent begins.
    route : str or None
        The route of that extent: cached, direct or peer.
    """

    offset: int | None = None
    route: str | None = None

    def __str__(self) -> str:
        text = super().__str__()
        if self.offset is not None:
            text += f" at offset {self.offset}"
        return text if self.route is None else f"{text} (route {self.route})"


class ClosedError(Error, ValueError):
    """The file was closed. It is a ValueError too, as from Python's own files."""


class ModeError(Error, ValueError):
    """The mode of the file forbids the call. It is a ValueError too, as from Python's own files."""


class FallbackError(Error):
    """A range cannot take its route, or stay out of the OS page cache, and `strict` is set."""


class MissingFileError(Error, FileNotFoundError):
    """The file does not exist."""


class ExistsError(Error, FileExistsError):
    """The file exists already."""


class ForbiddenError(Error, PermissionError):
    """Access to the file, or a system call, is not permitted."""


class DirectoryError(Error, IsADirectoryError):
    """The path names a directory."""


class NoDirectoryError(Error, NotADirectoryError):
    """A part of the path is no directory."""


class TimedOutError(Error, TimeoutError):
    """The storage or the device took too long."""


_BY_ERRNO: dict[int, type[Error]] = {
    errno.EBADF: ClosedError,
    errno.EOPNOTSUPP: FallbackError,
    errno.ENOENT: MissingFileError,
    errno.EEXIST: ExistsError,
    errno.EACCES: ForbiddenError,
    errno.EPERM: ForbiddenError,
    errno.EISDIR: DirectoryError,
    errno.ENOTDIR: NoDirectoryError,
    errno.ETIMEDOUT: TimedOutError,
}

# For these errnos the system's own text is enough.
_SAID_BY_ERRNO = {errno.ENOENT, errno.EEXIST, errno.EACCES, errno.EISDIR, errno.ENOTDIR}


def error_of(
    error_number: int,
    text: str,
    filename: str | bytes | int | None,
    offset: int | None = None,
    route: str | None = None,
) -> Error:
    """Return the error for an errno; `text`, if not empty, says what it means to the caller."""
    cause = os.strerror(error_number)
    if text and error_number not in _SAID_BY_ERRNO:
        cause += f": {text}"
    named = () if filename is None else (filename,)
    kind = _BY_ERRNO.get(error_number, Error)
    made = kind(error_number, cause, *named)
    made.offset, made.route = offset, route
    return made


def mode_error(mode: str, filename: str | bytes | int) -> Error:
    """Return the error for a call that the mode of its file forbids."""
    direction = "reading" if mode == "r" else "writing"
    # KvikIO's tests look for the words "Operation not permitted".
    cause = f"{os.strerror(errno.EBADF)}: Operation not permitted by mode {mode!r}"
    cause += f", opened for {direction} only"
    return ModeError(errno.EBADF, cause, filename)


def _parameters(function: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function of `_core`, with their types as annotations."""
    import ast
    import inspect
    import re

    # The signature numbers its defaults, as in `size: int = \\0`.
    text = re.sub(r"= \\\d+", "= None", function.__nb_signature__[0][0])
    head = ast.parse(text.rpartition(" -> ")[0] + ": ...").body[0]
    assert isinstance(head, ast.FunctionDef)
    given = head.args
    places = len(given.args) - len(given.defaults)
    kinds = inspect.Parameter
    made = []
    for kind, among in (
        (kinds.POSITIONAL_OR_KEYWORD, enumerate(given.args)),
        (kinds.KEYWORD_ONLY, enumerate(given.kwonlyargs, places)),
    ):
        for i, one in among:
            default = None if i >= places else kinds.empty
            annotation = ast.unparse(one.annotation) if one.annotation else ""
            made.append(kinds(one.arg, kind, default=default, annotation=annotation))
    return made


def misuse(
    function: Any, places: list[Any], named: dict[str, Any], name: str | None = None
) -> TypeError | ValueError:
    """Return the error, with one line of text, for arguments that a `_core` function refuses."""
    import inspect

    parameters = {one.name: one for one in _parameters(function)}
    name = f"{name or function.__name__}()"
    unknown = next((key for key in named if key not in parameters), None)
    if unknown is not None:
        takes = ", ".join(key for key in parameters if key != "self") or "none"
        return TypeError(f"{name} got an unexpected keyword argument {unknown!r}; it takes {takes}")
    try:
        bound = inspect.Signature([*parameters.values()]).bind(*places, **named)
    except TypeError as error:
        return TypeError(f"{name} {error}")
    for key, value in bound.arguments.items():
        kind = parameters[key].annotation
        if value is None and key != "self" and "None" not in kind:
            return TypeError(f"{name}: {key} must not be None")
        if kind == "int" and isinstance(value, int):
            if not 0 <= value < 1 << 64:
                problem = "negative" if value < 0 else "too large"
                return ValueError(f"{name}: {key} is {problem}: {value}")
        elif kind in {"int", "bool", "str", "float"} and type(value).__name__ != kind:
            return TypeError(f"{name}: {key} is of type {kind}, not {type(value).__name__}")
    told = ", ".join(type(value).__name__ for value in bound.arguments.values())
    return TypeError(f"{name} does not take these types: {told}")


STANDARD_OUTPUT = "standard output"  # the name of it in errors
STANDARD_INPUT = "standard input"


def standard_input() -> IO[bytes]:
    """Return the standard input as bytes; raise CommandError if it is closed."""
    if sys.stdin is None:
        raise CommandError(STANDARD_INPUT, "is closed")
    return sys.stdin.buffer


class CommandError(Exception):
    """A command failed: exit code 1. `subject` names the file or object, `cause` what happened."""

    exit_code = 1

    def __init__(self, subject: str, cause: str) -> None:
        super().__init__(f"{subject}: {cause}" if subject else cause)
        self.subject, self.cause = subject, cause


class ProgramError(CommandError):
    """A program could not be started: exit code 127 or 126, as of a shell."""

    def __init__(self, subject: str, cause: str, *, found: bool) -> None:
        super().__init__(subject, cause)
        self.exit_code = 126 if found else 127


class UsageError(CommandError):
    """The command line is wrong: exit code 2."""

    exit_code = 2


NOT_REGULAR = "not a regular file"


def require_regular(path: str) -> None:
    """Raise CommandError if `path` is a FIFO, socket or device. Opening a FIFO would wait."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise CommandError(path, NOT_REGULAR)
