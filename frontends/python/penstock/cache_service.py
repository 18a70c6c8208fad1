"""Starts the process that owns a file cache, and reads what it reports of its end."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock import cache_places
from penstock.errors import CommandError
from penstock.programs import installed_file

PROGRAM = "penstock-cache"
# An extended attribute of a mount's root: where its process and the process's report are.
REPORT_ATTRIBUTE = "user.penstock.service"
_READY_SECONDS = 120.0  # a cache of a terabyte takes its memory at start
_DYING_SECONDS = 5.0  # between the end of its last word and its own
_ABANDONED_SECONDS = 20.0  # for which an interrupted start is waited
_STILL_SECONDS = 60.0  # that a write-back may go without an end
_COPY_SECONDS = 2.0  # a process serves on for less after its last mount has gone


def printable(path: str) -> str:
    """Return a path as text that any terminal takes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace").replace("\n", "\\n")


def quoted(path: str) -> str:
    """Return a path as text that a shell takes too, for advice."""
    return shlex.quote(printable(path))


@dataclass
class Service:
    """What a process is started with. Sizes are in bytes; 0 lets it choose."""

    path: str
    mountpoint: str = ""
    read_only: bool = False
    suid: bool = False
    dev: bool = False
    device: str = ""
    cache_size: int = 0
    chunk_size: int = 0
    dirty_size_max: int = 0
    keep_free: int = 0
    tier: str = ""
    tier_size: int = 0
    tier_writes: bool = False
    log: str = ""  # set by start(), where the process is detached
    more: list[str] = field(default_factory=list)  # further options

    def words(self) -> list[str]:
        """Return the command line."""
        words = [installed_file(PROGRAM), "--path", self.path, *self.more]
        for option, value in (
            ("--mount", self.mountpoint),
            ("--read-only", int(self.read_only)),
            ("--suid", int(self.suid)),
            ("--dev", int(self.dev)),
            ("--device", self.device),
            ("--cache-size", self.cache_size),
            ("--chunk-size", self.chunk_size),
            ("--dirty-limit", self.dirty_size_max),
            ("--keep-free", self.keep_free),
            ("--tier", self.tier),
            ("--tier-size", self.tier_size),
            ("--tier-writes", int(self.tier_writes)),
            ("--log", self.log),
        ):
            if value:
                words += [option, str(value)]
        return words


def _read_line(descriptor: int, seconds: float) -> str:
    """Return the last line, without its end; an empty one if none came in time.

    Notes, which come before it, are printed.
    """
    end = time.monotonic() + seconds
    text = b""
    while True:
        left = end - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return ""
        part = os.read(descriptor, 4096)
        text += part
        *lines, text = text.split(b"\n")
        for line in map(os.fsdecode, lines):
            if not line.startswith("note: "):
                return line
            print(f"penstock: {printable(line.removeprefix('note: '))}", file=sys.stderr)
        if not part:
            return os.fsdecode(text)


def _interrupt(_signal: int, _frame: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


@contextlib.contextmanager
def ended_if_interrupted(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a process of which this one has not told yet, if Ctrl-C or SIGTERM comes meanwhile."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _interrupt) if main else None
    try:
        yield
    except BaseException:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ABANDONED_SECONDS)
        raise
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def start(
    service: Service, *, detached: bool = True, bound: bool = False
) -> subprocess.Popen[bytes]:
    """Start the process and return when it serves; raise CommandError with its reason if not.

    `detached`: what the process prints goes to its log file, and it is in a session of its own.
    `bound`: the process ends when this one does, however this one ends.
    """
    service.log = cache_places.log_file(service.path) if detached else ""
    cache_places.wait_for_end_of_mount(service.path)
    told, tells = os.pipe()
    # This process alone has the end to write to, and never closes it.
    starter = os.pipe()[0] if bound else -1
    with (
        open(told, "rb", buffering=0),
        cache_places.claimed(service.path, service.mountpoint) as place,
    ):
        try:
            process = subprocess.Popen(
                [*service.words(), "--socket", place.socket, "--ready-fd", str(tells)]
                + (["--starter-fd", str(starter)] if bound else []),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if detached else None,
                stderr=subprocess.DEVNULL if detached else None,
                cwd="/",
                start_new_session=detached,
                pass_fds=[tells, place.lock, *([starter] if bound else [])],
            )
        finally:
            os.close(tells)
            if bound:
                os.close(starter)
        with ended_if_interrupted(process):
            line = _read_line(told, _READY_SECONDS)
    if line == "ready":
        return process
    if line:
        process.kill()
        process.wait()
        subject, _, cause = line.partition(": ")
        raise CommandError(printable(subject), cause)
    try:
        code = process.wait(_DYING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise CommandError(PROGRAM, f"did not serve in {_READY_SECONDS:.0f} seconds") from None
    if code == -signal.SIGKILL:
        cause = "was killed before it served: memory may be short (try a smaller cache)"
        raise CommandError(PROGRAM, cause)
    raise CommandError(PROGRAM, f"ended with code {code} before it served")


def tell_systemd() -> None:
    """Tell the service manager, if it has started this process and waits for that: all serves."""
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if not address:
        return
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        manager.connect(address.replace("@", "\0", 1) if address[0] == "@" else address)
        manager.send(b"READY=1\n")


def devices_of(service: Service) -> str:
    """Return the devices of a running process, with commas between, also where it chose them."""
    if service.device not in {"", "auto"}:
        return service.device
    place = cache_places.find(service.path)
    if place is None:
        raise CommandError(printable(service.path), "its cache has ended at once")
    return ",".join(str(one["name"]) for one in cache_places.statistics(place)["devices"])


class Report:
    """The report of a running process. It can be read when the process is gone."""

    def __init__(self, place: bytes) -> None:
        pid, number = place.split()
        self.pid = int(pid)
        self._process = os.pidfd_open(int(pid))
        try:
            self._file = os.open(b"/proc/%s/fd/%s" % (pid, number), os.O_RDONLY)
        except OSError:
            os.close(self._process)
            raise

    def line(self) -> str:
        """Return what it says now."""
        return os.fsdecode(os.pread(self._file, 512, 0)).rstrip()

    def wait(self, show: object = None) -> str:
        """Wait for the end of the process and return the last line.

        `show` is called with the bytes that are still to be written. A process that writes nothing
        back for a minute is not waited for. One that serves on is told to end: a container, or a
        program with mounts of its own, has a copy of the mount that was removed.
        """
        last, since, told = "", time.monotonic(), False
        while not select.select([self._process], [], [], 0.1)[0]:
            line = self.line()
            if line != last:
                last, since = line, time.monotonic()
            elif time.monotonic() - since > _STILL_SECONDS:
                return line
            if line == "serving" and not told and time.monotonic() - since > _COPY_SECONDS:
                told = True
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(self._process, signal.SIGTERM)
            word, _, size = line.partition(" ")
            if callable(show) and word == "writing":
                show(int(size))
        return self.line()

    def close(self) -> None:
        """Close it."""
        os.close(self._file)
        os.close(self._process)
