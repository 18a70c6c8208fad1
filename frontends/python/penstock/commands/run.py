"""Run an unmodified program with Penstock's preload library loaded into it.

The program may pass memory of a CUDA GPU to read, pread, readv, preadv and their writes. Small
reads with gaps, backward or in nested loops are announced to the OS page cache before the program
makes them; with --signature from the first read on, in any order that an earlier run had. Large
read-only mappings of files on slow storage (NFS, Lustre, FUSE and the like) are read into the OS
page cache ahead of the program, in file order, by up to 8 threads in its process. How slow the
storage is, is measured: on a quick disk, and where the file is cached, nothing is read ahead. At
most a quarter of the available memory, and at most 80 GiB, is read ahead of the program. Its input,
output and exit code are its own; the code is 127 or 126 if it cannot be started. A program that is
linked statically or set-user-ID is refused.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import IO

from penstock.arguments import add_tier, chosen_tier
from penstock.commands import trace
from penstock.errors import CommandError, ProgramError, UsageError
from penstock.programs import (
    environment,
    find_program,
    give_back_signals,
    program_words,
    run_to_end,
)

TYPE_CHECKING = False  # typing's, whose loading is a tenth of a short command's time
if TYPE_CHECKING:
    from typing import Any

    from penstock.cache_places import Place

EXAMPLE = """\
  $ penstock run python load_model.py /mnt/nfs/model.safetensors
  $ penstock run --cache /mnt/nfs/images=16G python train.py
  $ penstock run --trace load.trace python load_model.py /mnt/nfs/model.safetensors
  penstock: load.trace: 2131 accesses to 402 files (try: penstock signature load.trace)
  $ penstock run --signature load.trace python load_model.py /mnt/nfs/model.safetensors
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock run`."""
    parser.usage = (
        "penstock run [--cache PATH[=SIZE] [--write-back] [--tier FOLDER]] "
        "[--no-readahead | --signature FILE] [--strict] [--trace FILE [--json]] "
        "PROGRAM [ARG...]"
    )
    parser.add_argument(
        "--cache",
        metavar="PATH[=SIZE]",
        help="serve reads of files below PATH from device memory: from the cache that penstock"
        " serve or mount keeps of them, else from one of SIZE (1G) that ends with the program",
    )
    parser.add_argument(
        "--write-back",
        action="store_true",
        help="with --cache: writes stay in the cache for some seconds; other programs see them in"
        " the files after 5 seconds, and when the program has ended",
    )
    add_tier(parser)
    ahead = parser.add_mutually_exclusive_group()
    ahead.add_argument("--no-readahead", action="store_true", help="read nothing ahead")
    ahead.add_argument(
        "--signature",
        metavar="FILE",
        help="read ahead as an earlier run read: its trace, or access programs of it",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="reads into GPU memory fail with EOPNOTSUPP where they cannot take PENSTOCK_ROUTE",
    )
    parser.add_argument("--trace", metavar="FILE", help="record accesses too (see penstock trace)")
    parser.add_argument("--json", action="store_true", help="with --trace: report as JSON")
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="PROGRAM", help="program and its arguments"
    )


def _write_programs(path: str, file: IO[bytes]) -> None:
    """Write the access programs of the streams in `path`."""
    from penstock.commands.signature import analyse
    from penstock.progress import ProgressLine

    with ProgressLine() as progress:
        reader = analyse(path, progress)
    programs = reader.programs(binary=True)
    found = [
        stream["file"]
        for stream in reader.streams
        if stream["operation"] != "write" and stream["nodes"]
    ]
    if not found:
        raise CommandError(path, "no reads in it have a pattern, so nothing could be read ahead")
    if not any(os.path.exists(file) for file in found):
        text = f"none of its {len(found)} files is here, so nothing is read ahead by it"
        print(f"penstock: {path}: warning: {text}", file=sys.stderr)
    file.write(programs)
    file.flush()


def _cache_path(text: str) -> tuple[str, int]:
    """Return the folder and the size that --cache names."""
    from penstock.arguments import cache_size, check_cache_size
    from penstock.cache_places import resolved

    path, equals, size = text.rpartition("=")
    whole = resolved(text)
    if not equals or os.path.isdir(whole):
        return whole, 0
    try:
        count = cache_size(size)
    except argparse.ArgumentTypeError as error:
        raise UsageError("--cache", str(error)) from None
    check_cache_size("--cache", count)
    return resolved(path), count


@contextlib.contextmanager
def _cache(
    text: str, tier: dict[str, Any], *, write_back: bool
) -> Iterator[tuple[Place | None, str]]:
    """Find the cache of a folder, or start one; the block gets it and the folder.

    It gets no cache if that does not answer: then a program that only reads goes to storage.
    """
    from penstock import cache_places
    from penstock.arguments import chosen_device, size_text
    from penstock.cache_service import Service, printable, start

    path, size = _cache_path(text)
    cache_places.require_alive(path)
    os.scandir(path).close()  # it exists, and may be read
    place = cache_places.find(path)
    if place is not None:
        if tier:
            raise CommandError(path, "has a cache already, with the tier that it has (omit --tier)")
        try:
            told = cache_places.statistics(place)
            has = told["size"] + told["given_back_size"]
            if size * len(told["devices"]) > has:
                text = f"has a cache already, of {size_text(has)}: it keeps that size"
                print(f"penstock: {printable(path)}: warning: {text}", file=sys.stderr)
        except CommandError as error:
            if write_back:
                raise
            text = f"warning: {error.cause}; the program reads storage"
            print(f"penstock: {printable(path)}: {text}", file=sys.stderr)
            place = None
        yield place, path
        return
    device = chosen_device(None) or "auto"
    try:
        service = Service(path=path, device=device, cache_size=size, **tier)
        process = start(service, bound=True)
    except CommandError as error:
        subject = error.subject.replace("--cache-size", "--cache")  # which has the size here
        raise CommandError(subject, error.cause) from None
    try:
        place = cache_places.find(path)
        if place is None:
            raise CommandError(path, "its cache has ended at once")
        yield place, path
    finally:
        process.terminate()
        process.wait()


def _run_beside(arguments: argparse.Namespace, words: list[str], settings: dict[str, str]) -> int:
    """Run the program and wait for it."""
    if arguments.trace is not None:
        return trace.record(words, arguments.trace, settings, as_json=arguments.json)
    return run_to_end(words, find_program(words[0]), environment(**settings))


def run(arguments: argparse.Namespace) -> int:
    """Run the program in place of this one, or beside it where something is left to do."""
    words = program_words(arguments.words, "penstock run PROGRAM [ARG...]")
    settings = {"PENSTOCK_FEED": "0" if arguments.no_readahead else "1"}
    if arguments.strict:
        settings["PENSTOCK_STRICT"] = "1"
    if arguments.write_back and arguments.cache is None:
        raise UsageError("--write-back", "needs --cache PATH")
    tier = chosen_tier(arguments)
    if tier and arguments.cache is None:
        raise UsageError("--tier", "needs --cache PATH")
    if arguments.cache is not None:
        from penstock import cache_places

        with _cache(arguments.cache, tier, write_back=arguments.write_back) as (place, path):
            if place is None:
                return _run(arguments, words, settings)
            settings["PENSTOCK_CACHE"] = f"{place.socket}:{path}"
            if not arguments.write_back:
                return _run(arguments, words, settings)
            code = _run(arguments, words, {**settings, "PENSTOCK_WRITE_BACK": "1"})
            cache_places.flush(place)
            return code
    return _run(arguments, words, settings)


def _run(arguments: argparse.Namespace, words: list[str], settings: dict[str, str]) -> int:
    if arguments.signature is not None:
        with tempfile.NamedTemporaryFile(prefix="penstock-", suffix=".programs") as programs:
            _write_programs(arguments.signature, programs)
            return _run_beside(arguments, words, {**settings, "PENSTOCK_SIGNATURE": programs.name})
    if arguments.trace is not None or arguments.cache is not None:
        return _run_beside(arguments, words, settings)
    path = find_program(words[0])
    give_back_signals()
    try:
        os.execve(path, words, environment(**settings))
    except OSError as error:
        raise ProgramError(path, error.strerror or str(error), found=True) from None
