"""End a mount of a file cache, when all that was written is in the files below.

If a program works in the mount, or has a file of it open, the command fails and the mount stays.
Otherwise the mount goes at once, and the command waits until everything is written back. It fails,
and says why, if something could not be.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import subprocess

from penstock.arguments import size_text
from penstock.errors import CommandError

EXAMPLE = """\
  $ penstock umount ~/data
"""

_UMOUNT_NOFOLLOW, _MNT_DETACH = 8, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock umount`."""
    parser.add_argument("mountpoint", metavar="MOUNTPOINT", help="where the mount is")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _unmount(mountpoint: str, *, lazily: bool = False) -> None:
    """Remove the mount, as root by the system call, else by FUSE's program."""
    from penstock.cache_service import printable

    libc = ctypes.CDLL(None, use_errno=True)
    flags = _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazily else 0)
    if libc.umount2(os.fsencode(mountpoint), flags) == 0:
        return
    error = ctypes.get_errno()
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
        cause = "in use: a program works in it, or has a file of it open"
    raise CommandError(printable(mountpoint), cause)


def run(arguments: argparse.Namespace) -> int:
    """Unmount, and wait for the process behind the mount."""
    from penstock.cache_places import touched
    from penstock.cache_service import REPORT_ATTRIBUTE, Report, printable
    from penstock.progress import ProgressLine

    mountpoint = os.path.abspath(arguments.mountpoint)
    name = printable(mountpoint)
    try:
        report = Report(touched(mountpoint, lambda: os.getxattr(mountpoint, REPORT_ATTRIBUTE)))
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            _unmount(mountpoint, lazily=True)
            lost = "its process was killed: the mount is removed, unwritten bytes are lost"
            raise CommandError(name, lost) from None
        if error.errno in {errno.ENODATA, errno.EOPNOTSUPP}:
            raise CommandError(name, "no file cache is mounted there") from None
        raise
    try:
        _unmount(mountpoint)
        with ProgressLine() as progress:
            line = report.wait(lambda size: progress.show(f"{size_text(size)} to write"))
    finally:
        report.close()
    if line.startswith("failed: "):
        subject, _, cause = line[len("failed: ") :].partition(": ")
        raise CommandError(printable(subject), cause)
    if line.startswith("writing "):
        raise CommandError(name, "its process still writes back, or was killed while it did")
    if line != "done":
        raise CommandError(name, "its process ended before everything was written back")
    if arguments.json:
        print(json.dumps({"mountpoint": mountpoint}, indent=2))
    return 0
