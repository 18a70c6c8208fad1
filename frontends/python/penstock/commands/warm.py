"""Bring files into the cache of their folder, before programs read them.

PATH is a file, or a folder all of whose files are fetched in the order of their names. What is
cached already is not read again. Files that would not fit beside those before them are left out,
since they would take their place. So are files that a program has open for writing, and those of
another file system that is mounted below the folder of a mount.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.arguments import size_text, thread_count

if TYPE_CHECKING:
    from penstock.cache_files import Connection
    from penstock.progress import ProgressLine

EXAMPLE = """\
  $ penstock serve --cache /mnt/images --cache-size 16G --detach
  $ penstock warm /mnt/images/train
  /mnt/images/train: 1,281 files are cached, 9.6 GiB
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock warm`."""
    parser.add_argument("path", metavar="PATH", help="a file or folder below one with a cache")
    parser.add_argument(
        "--threads",
        type=thread_count,
        default=4,
        metavar="N",
        help="files that are fetched at the same time (4)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


class _Chosen:
    """The files that fit into a cache."""

    def __init__(self, files: Iterator[tuple[str, int]], room: int, chunk_size: int) -> None:
        self._files, self._room, self._chunk_size = files, room, chunk_size
        self.left_count = self.left_size = 0

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for path, size in self._files:
            taken = -(-size // self._chunk_size) * self._chunk_size
            if taken > self._room:
                self.left_count += 1
                self.left_size += size
                continue
            self._room -= taken
            yield path, size


class _Progress:
    """Counts the bytes of several threads."""

    def __init__(self, line: ProgressLine) -> None:
        self._line, self._lock, self._size = line, threading.Lock(), 0

    def fetch(self, connection: Connection, file: int, size: int) -> int:
        """Fetch a file, and show how far it all is."""
        last = 0

        def show(done: int) -> None:
            nonlocal last
            with self._lock:
                self._size += done - last
                last = done
                seconds = max(time.monotonic() - self._line.begin, 1e-9)
                speed = size_text(int(self._size / seconds))
                self._line.show(f"{size_text(self._size)} are cached, {speed}/s")

        return connection.fetch(file, size, show)


def run(arguments: argparse.Namespace) -> int:
    """Fetch the files."""
    from penstock import cache_files, cache_places
    from penstock.cache_service import printable
    from penstock.progress import ProgressLine

    path, place = cache_files.cached(arguments.path)
    told = cache_places.statistics(place)
    errors: list[tuple[str, str]] = []
    files = cache_files.files_of(place, path, errors)
    chosen = _Chosen(files, told["size"] + told["tier_size"], told["chunk_size"])
    begin = time.monotonic()
    with ProgressLine() as line:
        outcome = cache_files.for_each(
            place, iter(chosen), arguments.threads, _Progress(line).fetch
        )
    errors += outcome.errors
    for name, cause in errors[:10]:
        print(f"penstock: {printable(name)}: {cause}", file=sys.stderr)
    if len(errors) > 10:
        print(f"penstock: and {len(errors) - 10} files more", file=sys.stderr)
    if arguments.json:
        numbers = {"files": outcome.files, "bytes": outcome.size, "busy_files": outcome.busy}
        left = {"left_files": chosen.left_count, "left_bytes": chosen.left_size}
        seconds = round(time.monotonic() - begin, 3)
        failed = [{"path": name, "error": cause} for name, cause in errors]
        result = {"path": path, **numbers, **left, "seconds": seconds, "errors": failed}
        print(json.dumps(result, indent=2))
        return 1 if errors else 0
    print(f"{printable(path)}: {outcome.files:,} files are cached, {size_text(outcome.size)}")
    if outcome.busy:
        print(
            f"  {outcome.busy:,} files are being changed, or are not the cache's, and were left out"
        )
    if chosen.left_count:
        print(
            f"  {chosen.left_count:,} files of {size_text(chosen.left_size)} do not fit into"
            f" {size_text(told['size'] + told['tier_size'])}, and were left out"
        )
    return 1 if errors else 0
