"""Record what a program reads and writes, for `penstock signature`.

PROGRAM runs as it would alone, with its input, output and exit code; programs that it starts are
recorded too. The trace has one line for each call that moved bytes of a regular file: when, which
thread, r or w, the file, offset and size. What streams of stdio read and write is in it, as the
calls that fill and flush their buffers. It is complete however the program ends. Calls that a
program makes without libc, and accesses to mapped files, are not seen. A program that is linked
statically or set-user-ID is refused.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys

from penstock.errors import CommandError
from penstock.programs import environment, find_program, program_words, run_to_end

EXAMPLE = """\
  $ penstock trace -o dd.trace dd if=/usr/bin/python3.11 of=/dev/null bs=64K
  106+1 records in
  ...
  penstock: dd.trace: 110 accesses to 2 files (try: penstock signature dd.trace)
"""

_HEADER = b"penstock-trace 1\n"
_WHY_NONE = "what mappings, io_uring and libaio move is not seen"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock trace`."""
    parser.usage = "penstock trace -o FILE [--json] PROGRAM [ARG...]"
    parser.add_argument("-o", dest="output", metavar="FILE", required=True, help="where it goes")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on standard error at the end"
    )
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="PROGRAM", help="program and its arguments"
    )


def _begin(path: str) -> None:
    try:
        for name, content in (
            (path, _HEADER),
            (f"{path}.cursor", len(_HEADER).to_bytes(8, sys.byteorder)),
        ):
            with open(name, "wb") as file:
                file.write(content)
    except OSError as error:
        raise CommandError(path, error.strerror or str(error)) from None


def _finish(path: str) -> tuple[int, int]:
    """Cut a trace to what was recorded; return its numbers of accesses and files."""
    with open(f"{path}.cursor", "rb") as cursor:
        size = int.from_bytes(cursor.read(8), sys.byteorder)
    os.unlink(f"{path}.cursor")
    with open(path, "r+b") as file:
        file.truncate(min(size, os.fstat(file.fileno()).st_size))
    accesses, files = 0, set()
    with open(path, "rb") as file:
        next(file)
        for line in file:
            fields = line.split(b" ")
            if len(fields) == 6:
                accesses += 1
                files.add(fields[3])
    return accesses, len(files)


def record(words: list[str], output: str, settings: dict[str, str], *, as_json: bool) -> int:
    """Run a program, report what was recorded, and return the program's exit code."""
    program = find_program(words[0])
    try:
        path = os.path.abspath(output)
    except OSError as error:  # the working directory was removed
        raise CommandError(output, error.strerror or str(error)) from None
    if os.path.exists(path) and not os.path.isfile(path):
        cause = "is a directory" if os.path.isdir(path) else "is not a regular file"
        raise CommandError(output, cause)
    variables = environment(PENSTOCK_TRACE=path, **settings)
    _begin(path)
    code = run_to_end(words, program, variables)
    accesses, files = _finish(path)
    if as_json:
        text = json.dumps({"trace": path, "accesses": accesses, "files": files, "exit_code": code})
    else:
        hint = f"try: penstock signature {output}" if accesses else _WHY_NONE
        text = f"penstock: {output}: {accesses} accesses to {files} files ({hint})"
    if sys.stderr is not None:  # print() would turn to standard output, which is the program's
        with contextlib.suppress(OSError):  # a full disk must not change the exit code
            print(text, file=sys.stderr, flush=True)
    return code


def run(arguments: argparse.Namespace) -> int:
    """Run and record the program."""
    words = program_words(arguments.words, "penstock trace -o FILE PROGRAM [ARG...]")
    return record(words, arguments.output, {}, as_json=arguments.json)
