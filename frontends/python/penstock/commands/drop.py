"""Drop what a cache has of files, so that the next reads ask storage.

PATH is a file, or a folder all of whose files are meant. It is for changes of storage that the
cache cannot see: by another machine, or by a program that sets the times back. What was written and
not yet synced goes to storage first, so nothing is lost. Programs that have a file open read the
new bytes too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from penstock.arguments import size_text

if TYPE_CHECKING:
    from penstock.cache_files import Connection

EXAMPLE = """\
  $ penstock drop /mnt/images/train
  /mnt/images/train: dropped 9.6 GiB of 1,281 files
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock drop`."""
    parser.add_argument("path", metavar="PATH", help="a file or folder below one with a cache")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Drop the files' bytes."""
    from penstock import cache_files
    from penstock.cache_service import printable
    from penstock.progress import ProgressLine

    path, place = cache_files.cached(arguments.path)
    errors: list[tuple[str, str]] = []
    count = 0

    def drop(connection: Connection, file: int, _size: int) -> int:
        nonlocal count
        count += 1
        line.show(f"{count:,} files")
        size = connection.drop(file)
        # At an open the kernel drops what it has of a file of a mount that is another one now.
        os.close(os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC))
        return size

    files = cache_files.files_of(place, path, errors)
    with ProgressLine() as line:
        outcome = cache_files.for_each(place, files, 1, drop)
    errors += outcome.errors
    if arguments.json:
        numbers = {"files": outcome.files, "bytes": outcome.size, "busy_files": outcome.busy}
        failed = [{"path": name, "error": cause} for name, cause in errors]
        print(json.dumps({"path": path, **numbers, "errors": failed}, indent=2))
    else:
        print(f"{printable(path)}: dropped {size_text(outcome.size)} of {outcome.files:,} files")
    if outcome.busy:
        busy = f"{outcome.busy:,} files are written all the time, and kept (try again)"
        errors.append((path, busy))
    for name, cause in errors[:10]:
        print(f"penstock: {printable(name)}: {cause}", file=sys.stderr)
    return 1 if errors else 0
