"""Run an unmodified program with Penstock's preload library loaded into it.

Large read-only mappings of files on slow storage (NFS, Lustre, FUSE and the like) are read into the
OS page cache ahead of the program, in file order, by up to 8 threads in its process. How slow the
storage is, is measured: on a quick disk, and where the file is cached, nothing is read ahead. At
most a quarter of the available memory, and at most 80 GiB, is read ahead of the program. Its input,
output and exit code are its own. A program that is linked statically or set-user-ID is refused.
"""

from __future__ import annotations

import argparse
import os

from penstock.commands import trace
from penstock.programs import environment, find_program, program_words

EXAMPLE = """\
  $ penstock run python load_model.py /mnt/nfs/model.safetensors
  $ penstock run --trace load.trace python load_model.py /mnt/nfs/model.safetensors
  penstock: load.trace: 2131 accesses to 402 files (try: penstock signature load.trace)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock run`."""
    parser.usage = "penstock run [--no-readahead] [--trace FILE [--json]] PROGRAM [ARG...]"
    parser.add_argument("--no-readahead", action="store_true", help="read nothing ahead")
    parser.add_argument("--trace", metavar="FILE", help="record accesses too (see penstock trace)")
    parser.add_argument("--json", action="store_true", help="with --trace: report as JSON")
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="PROGRAM", help="program and its arguments"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the program in place of this one, or beside it where it is recorded."""
    words = program_words(arguments.words, "penstock run PROGRAM [ARG...]")
    settings = {"PENSTOCK_FEED": "0" if arguments.no_readahead else "1"}
    if arguments.trace is not None:
        return trace.record(words, arguments.trace, settings, as_json=arguments.json)
    path = find_program(words[0])
    os.execve(path, words, environment(**settings))
    raise AssertionError
