"""Where the processes that own file caches are found, and how they are asked.

A process is known by the folder whose files it caches. It has a lock file and a socket in a folder
of this user. While it lives it holds the lock, so a lock file that can be locked is an old one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import itertools
import json
import os
import select
import shlex
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from penstock.errors import CommandError

VERSION = 1  # of the protocol: include/penstock/abi/cache_protocol.h
_STATISTICS, _STOP, _FLUSH, _GIVE_BACK, _GROW = 4, 5, 8, 12, 13
REPLY = struct.Struct("<iIQQQ")
_ANSWER_SECONDS = 5.0  # that a process may take to tell its statistics, or a path to be found
_SHOW_SECONDS = 0.2
_RESIZE_SECONDS = 10.0
_ANSWER_BYTES = 1 << 20
_END_SECONDS = 600.0  # without progress
_ENDING_SECONDS = 30.0  # for which a start waits for the end of a process without its mount
NOT_WRITTEN = "some of it could not be written: "
_LOG_BYTES = 1 << 20
_LOG_NAME_BYTES = 200
_PEER = struct.Struct("<iII")  # of SO_PEERCRED: process, user, group

Found = TypeVar("Found")


@dataclass
class Place:
    """The files of one process. `lock` is a descriptor, or -1; `mountpoint` may be empty."""

    path: str
    socket: str
    mountpoint: str = ""
    lock: int = -1


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _require_owner(path: Path, status: os.stat_result) -> None:
    """Raise CommandError if a folder is another user's, whose programs may need it."""
    if status.st_uid != os.geteuid():
        cause = f"belongs to user {_user(status.st_uid)}, and this is user {_user(os.geteuid())}"
        raise CommandError(str(path), f"{cause} (set XDG_RUNTIME_DIR to a folder of your own)")


def folder() -> Path:
    """Return the folder of lock files and sockets, which is made; only this user may use it."""
    run = os.environ.get("XDG_RUNTIME_DIR", "")
    made = Path(run) / "penstock" if run else Path("/tmp") / f"penstock-{os.geteuid()}"
    if run and not os.path.lexists(made):
        status = os.stat(run)
        if not status.st_mode & stat.S_IWOTH:  # as /tmp
            _require_owner(Path(run), status)  # root would make a folder that its owner cannot use
    with contextlib.suppress(FileExistsError):
        made.mkdir(mode=0o700)
    status = made.lstat()
    _require_owner(made, status)
    if not stat.S_ISDIR(status.st_mode):
        raise CommandError(str(made), "is not a folder (set XDG_RUNTIME_DIR to another one)")
    if status.st_mode & 0o077:
        raise CommandError(
            str(made), f"other users may use it (try: chmod 700 {shlex.quote(str(made))})"
        )
    return made


def log_file(path: str) -> str:
    """Return the file for the lines of a detached process; empty if none can be made.

    It is named after the folder that is cached. One that has grown large gets `.old` at its end.
    """
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    name = path.strip("/").replace("/", "-") or "root"
    if len(os.fsencode(name)) > _LOG_NAME_BYTES:
        name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    parents: tuple[Callable[[], Path], ...] = (lambda: Path(state) / "penstock", folder)
    for parent in parents:
        with contextlib.suppress(OSError, CommandError):
            made = parent()
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = made / f"{name}.log"
            with open(file, "ab"):  # it can be written
                pass
            if file.stat().st_size > _LOG_BYTES:
                file.replace(made / f"{name}.log.old")
            return str(file)
    return ""


def _process_of(connection: socket.socket) -> int:
    """Return the process that listens at the other end; 0 if this one cannot see it."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(told)[0])


def _silence(path: str, process: int) -> CommandError:
    """Return the error for a cache that does not answer, with what to do about its process."""
    cause = "its cache does not answer"
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(") ")[2][:1]
        if state in {"T", "t"}:
            cause += f": process {process} is stopped (try: kill -CONT {process})"
        else:
            cause += f": process {process} hangs (kill -KILL {process} loses what it has to write)"
    return CommandError(path, cause)


def touched(path: str, touch: Callable[[], Found]) -> Found:
    """Return what `touch` returns, which looks at `path`.

    Raise CommandError if it does not return: below a mount it waits for the mount's process.
    """
    found: list[Found] = []
    failed: list[OSError] = []

    def look() -> None:
        try:
            found.append(touch())
        except OSError as error:
            failed.append(error)

    # A thread that hangs in the kernel holds up neither this one nor the end of the process.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    if found:
        return found[0]
    if failed:
        raise failed[0]
    for place in living():
        if place.mountpoint and is_below(os.path.abspath(path), place.mountpoint):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.settimeout(_ANSWER_SECONDS)
                with contextlib.suppress(OSError):
                    connection.connect(place.socket)
                    raise _silence(path, _process_of(connection))
    raise CommandError(path, "its file system does not answer")


def resolved(path: str) -> str:
    """Return the path without links; raise CommandError if a mount at it does not answer."""

    def resolve() -> str:
        found = os.path.realpath(path)
        with contextlib.suppress(OSError):
            os.statvfs(found)  # the kernel does not answer this for a mount, as it does a stat
        return found

    return touched(path, resolve)


def require_alive(path: str) -> None:
    """Raise CommandError, with what to do, if `path` is in a mount whose process was killed."""
    dead = ""
    while True:
        try:
            os.stat(path)
            break
        except OSError as error:
            if error.errno != errno.ENOTCONN or path == "/":
                break
            dead, path = path, os.path.dirname(path)
    if dead:
        raise CommandError(
            dead, f"its mount's process was killed (try: penstock umount {shlex.quote(dead)})"
        )


def is_below(path: str, parent: str) -> bool:
    """Return whether `path` is `parent` or lies in it."""
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


def of_process(pid: int) -> Place | None:
    """Return the place of a process, also of one that was started with another environment."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        path, name = (words[words.index(option) + 1] for option in (b"--path", b"--socket"))
    except (OSError, ValueError, IndexError):
        return None
    mountpoint = words[words.index(b"--mount") + 1] if b"--mount" in words[:-1] else b""
    return Place(os.fsdecode(path), os.fsdecode(name), os.fsdecode(mountpoint))


def _elsewhere() -> Iterator[Place]:
    """Return the places of this user's processes that were started with another environment.

    A mount that was made at the start of the machine is one, for a user who has logged in.
    """
    for folder_of_process in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder_of_process / "comm").read_bytes()
            mine = folder_of_process.stat().st_uid == os.geteuid()
        except OSError:  # it has ended meanwhile
            continue
        place = of_process(int(folder_of_process.name)) if name == b"penstock-cache\n" else None
        if mine and place is not None and os.path.exists(place.socket):
            yield place


def _is_mounted(mountpoint: str) -> bool:
    found = os.fsencode(mountpoint).replace(b"\\", rb"\134")
    for character in b" \t\n":
        found = found.replace(bytes([character]), b"\\%03o" % character)
    lines = Path("/proc/self/mounts").read_bytes().splitlines()
    return any(line.split(b" ")[1] == found for line in lines)


def wait_for_end_of_mount(path: str) -> None:
    """Wait until a process over the same files has ended whose mount is gone.

    It writes back what is left after umount(8), which does not wait for it.
    """
    path = resolved(path)
    deadline = time.monotonic() + _ENDING_SECONDS
    while time.monotonic() < deadline:
        over = [one for one in living() if is_below(path, one.path) or is_below(one.path, path)]
        if not any(one.mountpoint and not _is_mounted(one.mountpoint) for one in over):
            return
        time.sleep(0.02)


@contextlib.contextmanager
def claimed(path: str, mountpoint: str) -> Iterator[Place]:
    """Lock the place of a new process, which inherits the lock.

    Raise CommandError if a process has a cache over the same files.
    """
    path = resolved(path)
    mountpoint = mountpoint and resolved(mountpoint)
    base = folder() / hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    # One claim at a time: so two that overlap see each other.
    with open(folder() / "claims", "ab") as claims:
        fcntl.flock(claims, fcntl.LOCK_EX)
        for other in living():
            if is_below(path, other.path) or is_below(other.path, path):
                over = "has a cache already" if other.path == path else "overlaps with that cache"
                told = path if other.path == path else f"{path}, {other.path}"
                raise CommandError(told, f"{over} (try: penstock stats {shlex.quote(other.path)})")
        lock = os.open(f"{base}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.ftruncate(lock, 0)
        os.pwrite(lock, os.fsencode(f"{path}\0{mountpoint}"), 0)
    try:
        yield Place(path, f"{base}.socket", mountpoint, lock)
    finally:
        os.close(lock)


def find_resolved(path: str) -> Place | None:
    """Return the place of the process that caches the files of `path`, which has no links."""
    for place in itertools.chain(living(), _elsewhere()):
        if is_below(path, place.path) or (place.mountpoint and is_below(path, place.mountpoint)):
            return place
    return None


def find(path: str) -> Place | None:
    """Return the place of the process that caches the files of `path`."""
    return find_resolved(resolved(path))


def _ask(
    place: Place,
    kind: int,
    size: int = 0,
    seconds: float = _ANSWER_SECONDS,
    show: Callable[[dict[str, Any]], None] | None = None,
) -> bytes:
    request = struct.pack("<IIIIQQQQ", kind, VERSION, 0, 0, 0, 0, 0, size)
    end, written = time.monotonic() + seconds, -1
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(min(seconds, _ANSWER_SECONDS if show is None else _SHOW_SECONDS))
        try:
            connection.connect(place.socket)
            connection.send(request)
            while True:
                try:
                    return connection.recv(_ANSWER_BYTES)
                except TimeoutError:
                    if seconds <= _ANSWER_SECONDS:
                        raise
                told = statistics(place)  # a process that is at work answers this meanwhile
                if show is not None:
                    show(told)
                if told["bytes_written"] != written:
                    written, end = told["bytes_written"], time.monotonic() + seconds
                if time.monotonic() >= end:
                    left = f"{told['dirty_size']} bytes are to be written (try again)"
                    raise CommandError(place.path, f"its cache is still at work, {left}")
        except TimeoutError:
            raise _silence(place.path, _process_of(connection)) from None
        except OSError as error:
            raise CommandError(place.path, f"its cache cannot be asked: {error.strerror}") from None


def statistics(place: Place, seconds: float = _ANSWER_SECONDS) -> dict[str, Any]:
    """Return what a process tells of its cache."""
    answer = _ask(place, _STATISTICS, seconds=seconds)
    if not answer:
        raise CommandError(place.path, "its cache has ended")
    told: dict[str, Any] = json.loads(answer)
    return told


def all_statistics(
    places: list[Place], seconds: float
) -> tuple[list[dict[str, Any]], list[CommandError]]:
    """Ask several processes at the same time; return what they tell, and why some tell nothing."""
    answers: dict[int, dict[str, Any] | CommandError] = {}

    def ask(number: int) -> None:
        try:
            answers[number] = statistics(places[number], seconds)
        except CommandError as error:
            answers[number] = error

    threads = [threading.Thread(target=ask, args=(i,), daemon=True) for i in range(len(places))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ordered = [answers[number] for number in sorted(answers)]
    return (
        [one for one in ordered if not isinstance(one, CommandError)],
        [one for one in ordered if isinstance(one, CommandError)],
    )


def flush(place: Place, show: Callable[[dict[str, Any]], None] | None = None) -> None:
    """Wait until a process has written back what is dirty; raise CommandError if it cannot.

    `show` is called with its statistics a few times a second.
    """
    answer = _ask(place, _FLUSH, seconds=_END_SECONDS, show=show)
    error = struct.unpack_from("<i", answer)[0] if answer else errno.ECONNRESET
    if error:
        raise CommandError(place.path, NOT_WRITTEN + os.strerror(error))


def _resize(place: Place, kind: int, size: int) -> int:
    answer = _ask(place, kind, size, _RESIZE_SECONDS)
    if len(answer) != REPLY.size:
        raise CommandError(place.path, "its cache has ended")
    error, _, _, _, changed = REPLY.unpack(answer)
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
