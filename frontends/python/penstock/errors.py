"""Errors of the package, and those that end a command with one line: `penstock: FILE: cause`.

What a read or write can fail with is a `penstock.Error`: an OSError that also names offset and
route. Where Python has a class of its own for an errno, the error is of that class too.
"""

from __future__ import annotations

import errno
import os


class Error(OSError):
    """A file could not be opened, read or written.

    Attributes
    ----------
    errno, strerror, filename
        As of any OSError.
    offset : int or None
        Where in the file the first extent that failed begins.
    route : str or None
        The route that it took: cached, direct or peer.
    """

    offset: int | None = None
    route: str | None = None

    def __str__(self) -> str:
        text = super().__str__()
        if self.offset is not None:
            text += f" at offset {self.offset}"
        return text if self.route is None else f"{text} (route {self.route})"


class ClosedError(Error, ValueError):
    """The file was closed; a ValueError too, as from Python's own files."""


class ModeError(Error, ValueError):
    """The mode that the file was opened with forbids it; a ValueError too, as Python's own."""


class FallbackError(Error):
    """A range cannot take the route, or be kept out of the OS page cache, as `strict` wants."""


class MissingFileError(Error, FileNotFoundError):
    """There is no such file."""


class ExistsError(Error, FileExistsError):
    """There is such a file."""


class ForbiddenError(Error, PermissionError):
    """The file, or what was asked of the kernel, is not permitted."""


class DirectoryError(Error, IsADirectoryError):
    """It is a directory."""


class NoDirectoryError(Error, NotADirectoryError):
    """What the path leads through is no directory."""


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

# Of these the system's own words say all.
_SAID_BY_ERRNO = {errno.ENOENT, errno.EEXIST, errno.EACCES, errno.EISDIR, errno.ENOTDIR}


def error_of(
    error_number: int,
    text: str,
    filename: str | bytes | int | None,
    offset: int | None = None,
    route: str | None = None,
) -> Error:
    """Return the error for an errno; `text` says what it means to the caller, or is empty."""
    cause = os.strerror(error_number)
    if text and error_number not in _SAID_BY_ERRNO:
        cause += f": {text}"
    named = () if filename is None else (filename,)
    kind = _BY_ERRNO.get(error_number, Error)
    made = kind(error_number, cause, *named)
    made.offset, made.route = offset, route
    return made


def mode_error(mode: str, filename: str | bytes | int) -> Error:
    """Return the error for a file that was opened with another mode than it takes."""
    direction = "reading" if mode == "r" else "writing"
    cause = f"{os.strerror(errno.EBADF)}: opened for {direction} only, mode {mode!r}"
    return ModeError(errno.EBADF, cause, filename)


STANDARD_OUTPUT = "standard output"  # what errors of it name


class CommandError(Exception):
    """A command failed: exit code 1. `subject` is the file or thing, `cause` what happened."""

    exit_code = 1

    def __init__(self, subject: str, cause: str) -> None:
        super().__init__(f"{subject}: {cause}" if subject else cause)


class UsageError(CommandError):
    """The command line makes no sense: exit code 2."""

    exit_code = 2
