"""Asks the process of a file cache about single files, for `penstock warm` and `penstock drop`."""

from __future__ import annotations

import errno
import os
import queue
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from penstock import cache_places
from penstock.cache_service import printable
from penstock.errors import CommandError

_OPEN, _FETCH, _CLOSE, _DROP = 1, 2, 10, 14  # include/penstock/abi/cache_protocol.h
_REQUEST = struct.Struct("<IIIIQQQQ")
_ANSWER_SECONDS = 120.0  # that storage may take for one piece
_PIECE_SIZE = 4 << 20
_QUEUE_MAX = 1024


@dataclass(frozen=True)
class Reply:
    """What a process answers."""

    error: int
    slot: int
    device: int
    inode: int
    size: int


class Connection:
    """A connection to the process of a cache. One request at a time."""

    def __init__(self, place: cache_places.Place) -> None:
        self._place = place
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_ANSWER_SECONDS)
        try:
            self._socket.connect(place.socket)
        except OSError as error:
            self._socket.close()
            cause = f"its cache cannot be asked: {error.strerror}"
            raise CommandError(place.path, cause) from None

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def _ask(self, kind: int, file: int = -1, of: Reply | None = None, *extent: int) -> Reply:
        """Ask about the file of a descriptor, or about that of an earlier reply."""
        slot, device, inode = (of.slot, of.device, of.inode) if of else (0, 0, 0)
        offset, size = extent or (0, 0)
        request = _REQUEST.pack(kind, cache_places.VERSION, slot, 0, device, inode, offset, size)
        try:
            socket.send_fds(self._socket, [request], [file] if file >= 0 else [])
            answer = self._socket.recv(cache_places.REPLY.size)
        except TimeoutError:
            cause = f"its cache does not answer in {_ANSWER_SECONDS:.0f} seconds"
            raise CommandError(self._place.path, cause) from None
        except OSError as error:
            cause = f"its cache cannot be asked: {error.strerror}"
            raise CommandError(self._place.path, cause) from None
        if len(answer) != cache_places.REPLY.size:
            raise CommandError(self._place.path, "its cache has ended")
        return Reply(*cache_places.REPLY.unpack(answer))

    def drop(self, file: int) -> int:
        """Drop what is cached of an open file; return how many bytes that was."""
        reply = self._ask(_DROP, file)
        if reply.error:
            raise OSError(reply.error, os.strerror(reply.error))
        return reply.size

    def fetch(self, file: int, size: int, show: Callable[[int], None]) -> int:
        """Bring an open file into the cache; return how many bytes are there.

        `show` is called with the bytes of each piece. Raises OSError, with EAGAIN where the file
        is not served now, as it is being changed.
        """
        opened = self._ask(_OPEN, file)
        if opened.error:
            raise OSError(opened.error, os.strerror(opened.error))
        done = 0
        try:
            while done < size:
                reply = self._ask(_FETCH, -1, opened, done, min(_PIECE_SIZE, size - done))
                if reply.error:
                    raise OSError(reply.error, os.strerror(reply.error))
                if reply.size == 0:
                    break  # the file is shorter by now, or memory is short
                done += min(reply.size, size - done)
                show(done)
        finally:
            if self._place.mountpoint:
                self._ask(_CLOSE, -1, opened)  # programs read it through the mount
        return done


@dataclass
class Outcome:
    """What became of files."""

    files: int = 0
    size: int = 0  # bytes
    busy: int = 0  # files that are being changed
    errors: list[tuple[str, str]] = field(default_factory=list)  # path and cause


def shown(place: cache_places.Place, path: str) -> str:
    """Return where programs find `path`, which is below the folder of a cache or its mount."""
    if not place.mountpoint or cache_places.is_below(path, place.mountpoint):
        return path
    return os.path.join(place.mountpoint, os.path.relpath(path, place.path))


def regular_files(path: str, failed: Callable[[OSError], None]) -> Iterator[tuple[str, int]]:
    """Return regular files at or below `path`, by name, with their sizes. Links are not followed.

    `failed` is called with the error of each folder that cannot be listed.
    """
    if not os.path.isdir(path):
        yield path, os.stat(path).st_size
        return
    folders = [path]
    while folders:
        try:
            with os.scandir(folders.pop()) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
            below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            folders += reversed(below)
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    yield entry.path, entry.stat(follow_symlinks=False).st_size
        except OSError as error:
            failed(error)


def for_each(
    place: cache_places.Place,
    files: Iterator[tuple[str, int]],
    threads: int,
    act: Callable[[Connection, int, int], int],
) -> Outcome:
    """Call `act` for each file with a connection, the open file and its size, in several threads.

    It returns a number of bytes. Raises CommandError if the cache does not answer.
    """
    outcome, lock = Outcome(), threading.Lock()
    waiting: queue.Queue[tuple[str, int] | None] = queue.Queue(_QUEUE_MAX)
    stopped: list[CommandError] = []

    def one(connection: Connection, path: str, size: int) -> None:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                size = act(connection, file, size)
            finally:
                os.close(file)
        except FileNotFoundError:
            return  # it was removed meanwhile
        except OSError as error:
            with lock:
                if error.errno in {errno.EAGAIN, errno.EBUSY}:
                    outcome.busy += 1
                else:
                    outcome.errors.append((path, error.strerror or str(error)))
            return
        with lock:
            outcome.files += 1
            outcome.size += size

    def work() -> None:
        try:
            connection = Connection(place)
        except CommandError as error:
            stopped.append(error)
        while (task := waiting.get()) is not None:
            if stopped:
                continue  # so that the queue empties
            try:
                one(connection, *task)
            except CommandError as error:
                stopped.append(error)
        if not stopped:
            connection.close()

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for task in files:
        if stopped:
            break
        waiting.put(task)
    for _ in workers:
        waiting.put(None)
    for worker in workers:
        worker.join()
    if stopped:
        raise stopped[0]
    return outcome


def cached(given: str) -> tuple[str, cache_places.Place]:
    """Return a path without links, and the cache that has it."""
    path = cache_places.resolved(given)
    cache_places.require_alive(path)
    place = cache_places.find_resolved(path)
    if place is None:
        cause = "has no cache (try: penstock serve --cache PATH)"
        raise CommandError(printable(path), cause)
    return path, place


def files_of(
    place: cache_places.Place, path: str, errors: list[tuple[str, str]]
) -> Iterator[tuple[str, int]]:
    """Return regular files below a cached path; enter what cannot be listed, and why."""
    return regular_files(
        shown(place, path),
        lambda error: errors.append((str(error.filename), error.strerror or str(error))),
    )
