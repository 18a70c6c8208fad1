"""Where the processes that own file caches are found, and how they are asked.

A process is known by the folder whose files it caches. It has a lock file and a socket in a folder
of this user. While it lives it holds the lock, so a lock file that can be locked is an old one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import select
import socket
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import CommandError

_VERSION = 1  # of the protocol: include/penstock/abi/cache_protocol.h
_STATISTICS, _STOP, _FLUSH, _GIVE_BACK, _GROW = 4, 5, 8, 11, 12
_REPLY = struct.Struct("<iIQQQ")
_ANSWER_SECONDS = 10.0
_ANSWER_BYTES = 1 << 20
_END_SECONDS = 600.0


@dataclass
class Place:
    """The files of one process. `lock` is a descriptor, or -1; `mountpoint` may be empty."""

    path: str
    socket: str
    mountpoint: str = ""
    lock: int = -1


def folder() -> Path:
    """Return the folder of lock files and sockets, which is made; only this user may use it."""
    run = os.environ.get("XDG_RUNTIME_DIR", "")
    made = Path(run) / "penstock" if run else Path("/tmp") / f"penstock-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        made.mkdir(mode=0o700)
    status = made.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise CommandError(str(made), "is not a folder of this user alone (remove it)")
    return made


def _is_below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent.rstrip("/") + "/")


def _locked(name: Path) -> tuple[str, str] | None:
    """Return folder and mount point of a process that lives; None if none has the lock."""
    try:
        descriptor = os.open(name, os.O_RDWR)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            path, _, mountpoint = os.fsdecode(file.read()).partition("\0")
            return path, mountpoint
    return None


def living() -> list[Place]:
    """Return the places of all processes of this user that live."""
    found = []
    for name in sorted(folder().glob("*.lock")):
        told = _locked(name)
        if told and told[0]:
            found.append(Place(told[0], str(name.with_suffix(".socket")), told[1]))
    return found


@contextlib.contextmanager
def claimed(path: str, mountpoint: str) -> Iterator[Place]:
    """Lock the place of a new process, which inherits the lock.

    Raise CommandError if a process has a cache over the same files.
    """
    path = os.path.realpath(path)
    base = folder() / hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    # One claim at a time: so two that overlap see each other.
    with open(folder() / "claims", "ab") as claims:
        fcntl.flock(claims, fcntl.LOCK_EX)
        for other in living():
            if _is_below(path, other.path) or _is_below(other.path, path):
                over = "has a cache already" if other.path == path else "overlaps with that cache"
                told = path if other.path == path else f"{path}, {other.path}"
                raise CommandError(told, f"{over} (try: penstock stats {other.path})")
        lock = os.open(f"{base}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.ftruncate(lock, 0)
        os.pwrite(lock, os.fsencode(f"{path}\0{mountpoint}"), 0)
    try:
        yield Place(path, f"{base}.socket", mountpoint, lock)
    finally:
        os.close(lock)


def find(path: str) -> Place | None:
    """Return the place of the process that caches the files of `path`."""
    path = os.path.realpath(path)
    for place in living():
        if _is_below(path, place.path) or (
            place.mountpoint and _is_below(path, os.path.realpath(place.mountpoint))
        ):
            return place
    return None


def _ask(place: Place, kind: int, size: int = 0, seconds: float = _ANSWER_SECONDS) -> bytes:
    request = struct.pack("<IIIIQQQQ", kind, _VERSION, 0, 0, 0, 0, 0, size)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(place.socket)
            connection.send(request)
            return connection.recv(_ANSWER_BYTES)
        except TimeoutError:
            raise CommandError(place.path, "its cache does not answer") from None
        except OSError as error:
            raise CommandError(place.path, f"its cache cannot be asked: {error.strerror}") from None


def statistics(place: Place) -> dict[str, Any]:
    """Return what a process tells of its cache."""
    answer = _ask(place, _STATISTICS)
    if not answer:
        raise CommandError(place.path, "its cache has ended")
    told: dict[str, Any] = json.loads(answer)
    return told


def flush(place: Place) -> None:
    """Wait until a process has written back what is dirty; raise CommandError if it cannot."""
    answer = _ask(place, _FLUSH, seconds=_END_SECONDS)
    error = struct.unpack_from("<i", answer)[0] if answer else errno.ECONNRESET
    if error:
        raise CommandError(place.path, f"some of it could not be written: {os.strerror(error)}")


def _resize(place: Place, kind: int, size: int) -> int:
    answer = _ask(place, kind, size)
    if len(answer) != _REPLY.size:
        raise CommandError(place.path, "its cache has ended")
    error, _, _, _, changed = _REPLY.unpack(answer)
    if error == errno.ETIMEDOUT:
        raise CommandError(place.path, "the memory of its cache is still in use (try again)")
    if error:
        raise CommandError(place.path, f"its cache keeps its size: {os.strerror(error)}")
    return int(changed)


def give_back(place: Place, size: int) -> int:
    """Let a cache give so many bytes of memory to other programs; return how many it gave."""
    return _resize(place, _GIVE_BACK, size)


def grow(place: Place, size: int) -> int:
    """Let a cache take memory again that it gave back; return how many bytes it took."""
    return _resize(place, _GROW, size)


def stop(place: Place) -> None:
    """Ask a process to write back what is dirty and to end, and wait for that."""
    process = os.pidfd_open(int(statistics(place)["pid"]))
    try:
        _ask(place, _STOP)
        if not select.select([process], [], [], _END_SECONDS)[0]:
            raise CommandError(place.path, "its cache is still writing back")
    finally:
        os.close(process)
