"""End a mount of a file cache, when all that was written is in the files below.

The command waits until everything is written back. If something cannot be, or a program works in
the mount or has a file of it open, the command says so and fails, and the mount stays. --force
removes the mount also where something cannot be written, which is lost. So is what programs write
while the mount goes, if it cannot be written.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import subprocess
import time
from typing import TYPE_CHECKING

from penstock.arguments import size_text
from penstock.errors import CommandError

if TYPE_CHECKING:
    from penstock.progress import ProgressLine

EXAMPLE = """\
  $ penstock umount ~/data
"""

_UMOUNT_NOFOLLOW, _MNT_DETACH, _MNT_EXPIRE = 8, 2, 4
_IN_USE = "in use: a program works in it, or has a file of it open"
_ENDING_SECONDS = 0.5
_SLACK = 64 << 20  # bytes written beyond twice what was dirty: programs write all the time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock umount`."""
    parser.add_argument("mountpoint", metavar="MOUNTPOINT", help="where the mount is")
    parser.add_argument(
        "--force", action="store_true", help="lose what cannot be written, as on a full disk"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _umount2(mountpoint: str, flags: int) -> int:
    """Call umount2(2); return its errno, or 0."""
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.umount2(os.fsencode(mountpoint), _UMOUNT_NOFOLLOW | flags)
    return 0 if done == 0 else ctypes.get_errno()


def _settled(mountpoint: str, flags: int) -> int:
    """Do as _umount2(), but give the kernel a moment to close what ended programs had open."""
    end = time.monotonic() + _ENDING_SECONDS
    while True:
        error = _umount2(mountpoint, flags)
        if error != errno.EBUSY or time.monotonic() >= end:
            return error
        time.sleep(0.02)


def _unmount(mountpoint: str, *, lazily: bool = False) -> None:
    """Remove the mount, as root by the system call, else by FUSE's program."""
    from penstock.cache_service import printable

    error = _settled(mountpoint, _MNT_DETACH if lazily else 0)
    if error == 0:
        return
    if error == errno.EPERM:
        words = ["fusermount3", "-u", *(["-z"] if lazily else []), "--", mountpoint]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise CommandError("fusermount3", "is not installed (try: apt install fuse3)") from None
        if done.returncode == 0:
            return
        if "busy" not in done.stderr:
            raise CommandError(printable(mountpoint), done.stderr.strip())
        error = errno.EBUSY
    cause = os.strerror(error)
    if error == errno.EBUSY:
        cause = _IN_USE
    raise CommandError(printable(mountpoint), cause)


class _WritesGoOnError(Exception):
    """More was written back than was dirty at first: programs write all the time."""


def _in_use(mountpoint: str) -> bool:
    """Return whether a program uses the mount, as far as this user may ask the kernel."""
    # The kernel removes nothing the first time after the mount was used, as it was just now.
    return _settled(mountpoint, _MNT_EXPIRE) == errno.EBUSY


def _write_back(mountpoint: str, pid: int, progress: ProgressLine) -> None:
    """Write back all that is dirty; raise CommandError, with what to do, if it cannot be."""
    from penstock import cache_places
    from penstock.cache_service import printable, quoted

    name = printable(mountpoint)
    advice = f"try again, or lose it: penstock umount --force {quoted(mountpoint)}"
    place = cache_places.of_process(pid)
    if place is None:
        raise CommandError(name, f"its process cannot be asked to write back ({advice})")
    first: dict[str, int] = {}

    def show(told: dict[str, int]) -> None:
        dirty = told["dirty_size"]
        progress.show(f"{size_text(dirty)} to write")
        begun = first or told
        first.update(begun)
        if told["bytes_written"] - begun["bytes_written"] > 2 * begun["dirty_size"] + _SLACK:
            raise _WritesGoOnError

    try:
        cache_places.flush(place, show)
    except _WritesGoOnError:
        return
    except CommandError as error:
        why = error.cause.removeprefix(cache_places.NOT_WRITTEN)
        raise CommandError(
            name, f"not all is written, and the mount stays: {why} ({advice})"
        ) from None


def run(arguments: argparse.Namespace) -> int:
    """Unmount, and wait for the process behind the mount."""
    from penstock.cache_places import find_resolved, resolved, touched
    from penstock.cache_service import REPORT_ATTRIBUTE, Report, printable, quoted
    from penstock.progress import ProgressLine

    mountpoint = resolved(arguments.mountpoint)
    name = printable(mountpoint)
    try:
        report = Report(touched(mountpoint, lambda: os.getxattr(mountpoint, REPORT_ATTRIBUTE)))
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            _unmount(mountpoint, lazily=True)
            lost = (
                "its process was killed: the mount is removed. What was not written back is lost,"
                " but for what the log of --tier-writes has (mount again with that --tier)"
            )
            raise CommandError(name, lost) from None
        if error.errno in {errno.ENODATA, errno.EOPNOTSUPP}:
            cause = "no file cache is mounted there"
            place = find_resolved(mountpoint)
            if place is not None and place.mountpoint:
                cause += f" (try: penstock umount {quoted(place.mountpoint)})"
            raise CommandError(name, cause) from None
        if error.errno in {errno.EACCES, errno.EPERM}:
            raise CommandError(name, "is the mount of another user, who may unmount it") from None
        raise
    try:
        with ProgressLine() as progress:
            if not arguments.force:
                if _in_use(mountpoint):
                    raise CommandError(name, _IN_USE)
                _write_back(mountpoint, report.pid, progress)
            _unmount(mountpoint)
            line = report.wait(lambda size: progress.show(f"{size_text(size)} to write"))
    finally:
        report.close()
    if line.startswith("failed: "):
        subject, _, cause = line[len("failed: ") :].partition(": ")
        raise CommandError(printable(subject), f"the mount is gone, but {cause}")
    if line.startswith("writing "):
        raise CommandError(name, "its process still writes back, or was killed while it did")
    if line != "done":
        raise CommandError(name, "its process ended before everything was written back")
    if arguments.json:
        print(json.dumps({"mountpoint": mountpoint}, indent=2))
    return 0
