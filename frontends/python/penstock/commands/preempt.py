"""Write the form of CUDA kernels whose blocks leave the GPU while they wait.

A kernel marks its points: `#pragma preempt` ahead of a statement with one gread or gwait,
penstock::preempt_point(fs, handle), yield_until(address, value), or yield(). The output has all of
the input, and for each such kernel a second form that saves what is live at a point and comes back
behind it. Compile the output in place of the input; penstock::launch finds the second form by
itself. Options of g++ and nvcc may follow the file: -I, -D and -std are used, options of code
generation are ignored, and others are refused. No CUDA is needed. A point that not all threads of a
block reach is an error, and after an error nothing is written. In CMake,
penstock_add_kernels(TARGET a.cu PREEMPT) does this in the build.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from penstock.errors import CommandError, UsageError

EXAMPLE = """\
  $ penstock preempt multiply.cu -o build/multiply.cu --report
  multiply.cu:10: kernel multiply, 1 point, multiply<float>
    saved state: 4 B for each thread, 28 B for each block, 0 B of shared memory; ...
  $ penstock preempt multiply.cu -o build/multiply.cu -I include -DTILE=32
"""

_PROGRAM = "penstock-preempt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock preempt`."""
    parser.usage = (
        "penstock preempt [--report] [--hoist] [--json] KERNEL.cu -o OUT.cu "
        "[OPTION OF g++ OR nvcc...]"
    )
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="KERNEL.cu",
        help="a source with kernels, and options of the compiler",
    )
    parser.add_argument("-o", dest="output", metavar="OUT.cu", help="where the output goes")
    parser.add_argument(
        "--report", action="store_true", help="print what each point saves, and why"
    )
    parser.add_argument(
        "--hoist", action="store_true", help="move points out of flow that differs by thread"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def compiler() -> str:
    """Return the path of the compiler: in this package, or where the library is."""
    from penstock import _core

    folders = [Path(__file__).parents[1], Path(_core.__file__).parent]
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        folders += [
            Path(line.split(maxsplit=5)[5]).parent for line in maps if "/libpenstock." in line
        ]
    folders += [folder.parent / "bin" for folder in folders]
    for folder in folders:
        if os.access(folder / _PROGRAM, os.X_OK):
            return str((folder / _PROGRAM).resolve())
    raise CommandError(
        _PROGRAM,
        "is not built: install libclang-19-dev and llvm-19-dev (or 16 to 18), and build Penstock "
        "again (make build)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the compiler, and return its exit code."""
    words = [
        *(["-o", arguments.output] if arguments.output else []),
        *(["--report"] if arguments.report else []),
        *(["--hoist"] if arguments.hoist else []),
        *(["--json"] if arguments.json else []),
        *arguments.words,
    ]
    if not arguments.words:
        raise UsageError("KERNEL.cu", "is missing (try: penstock preempt --help)")
    wants_json = "--json" in words
    told = subprocess.run([compiler(), *words], capture_output=True, text=True, check=False)
    sys.stderr.write(told.stderr)
    sys.stdout.write(told.stdout)
    if told.returncode == 1 and wants_json:
        print(json.dumps({"path": _input(words), "error": told.stderr.strip()}, indent=2))
    return told.returncode


def _input(words: list[str]) -> str:
    """Return the source among the words of a command line."""
    return next((word for word in words if word.endswith((".cu", ".cuh", ".cc"))), "")
