"""Run a benchmark: one question, raw pairs of figures, a baseline that you would pick instead.

Each benchmark is a module of penstock or a separate program; the programs are installed only on
request. A benchmark prints a line for each case to standard error, and one JSON object with every
raw pair. Case and baseline run in turn, and the first pair is discarded. Without NAME, or with
--list, the command lists the benchmarks.
"""

from __future__ import annotations

import argparse
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from penstock.arguments import device_name
from penstock.errors import CommandError, UsageError

PREFIX = "penstock-bench-"
# Benchmarks in bench/ of a checkout: tells one that is not installed from a misspelt name.
PROGRAMS = (
    "detector",
    "gread",
    "gwrite",
    "plan",
    "pread",
    "preempt",
    "readahead",
    "readahead_simulation",
    "route",
    "scan",
    "seed000",
    "tio",
)
HOW_TO_GET = (
    "not installed; in a checkout of Penstock run: make build, or"
    " pip install . --config-settings=cmake.define.PENSTOCK_BENCH=ON"
)

EXAMPLE = """\
  $ penstock bench gread --smoke --json gread.json
  hits-4k                      against memcpy-64k                0.902 of 1 pairs
  ...
  $ penstock bench seed000 --only twice-the-cache --json figure-10.json
"""


def program_folders() -> list[Path]:
    """Return the folders of benchmark programs: in the package, in its build tree, on PATH."""
    package = Path(__file__).parent.parent
    places = [package, package.resolve().parent.parent]
    # In a build tree the package is a folder of links to the sources: do not follow the links.
    module = sys.modules["penstock"].__file__
    if module is not None:
        places.append(Path(module).absolute().parent.parent.parent)
    places += [Path(place) for place in os.environ.get("PATH", "").split(os.pathsep) if place]
    return places


def find_programs(device: str = "cpu") -> dict[str, list[str]]:
    """Return the command of each benchmark, by name.

    For a CUDA device, modules of penstock.benchmarks.cuda come before others of the same name.
    """
    from penstock import benchmarks
    from penstock.benchmarks import cuda

    found: dict[str, list[str]] = {}
    for package in (cuda, benchmarks) if device.startswith("cuda") else (benchmarks,):
        for module in pkgutil.iter_modules(package.__path__):
            if not module.ispkg:
                command = [sys.executable, "-m", f"{package.__name__}.{module.name}"]
                found.setdefault(module.name, command)
    for folder in program_folders():
        for program in sorted(folder.glob(PREFIX + "*")):
            name = program.name.removeprefix(PREFIX)
            if os.access(program, os.X_OK) and program.is_file():
                found.setdefault(name, [str(program)])
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock bench`."""
    parser.add_argument("name", nargs="?", help="name of the benchmark")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and stop")
    parser.add_argument("--smoke", action="store_true", help="use the smallest sizes and one pair")
    parser.add_argument("--full", action="store_true", help="run the whole sweep, which is long")
    parser.add_argument("--pairs", type=int, default=15, metavar="N", help="number of pairs (15)")
    parser.add_argument("--only", metavar="TEXT", help="run only cases whose name contains TEXT")
    parser.add_argument(
        "--device", type=device_name, default="cpu", metavar="D", help="cpu, cpu:N or cuda:N (cpu)"
    )
    parser.add_argument("--trace", metavar="FILE", help="write a Chrome trace (preempt)")
    parser.add_argument("--json", metavar="FILE", help="write the JSON here (standard output)")


def _run_to_end(
    command: list[str], environment: dict[str, str], kept: int | None
) -> tuple[int, bytes]:
    """Run a benchmark and return its exit code and output.

    At Ctrl-C, which it gets from the terminal, it has the time that it takes to clear up. SIGTERM
    is passed on.
    """
    program = subprocess.Popen(command, env=environment, stdout=kept)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: program.terminate())
    output, _ = program.communicate()
    return program.returncode, output or b""


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark's program and return its exit code."""
    programs = find_programs(arguments.device)
    if arguments.list or arguments.name is None:
        print("\n".join(sorted(programs)))
        if missing := [name for name in PROGRAMS if name not in programs]:
            print(f"penstock: {', '.join(missing)}: {HOW_TO_GET}", file=sys.stderr)
        return 0 if arguments.list else UsageError.exit_code
    if arguments.name not in programs:
        if arguments.name in PROGRAMS:
            raise CommandError(arguments.name, HOW_TO_GET)
        known = ", ".join(sorted({*programs, *PROGRAMS}))
        raise UsageError(arguments.name, f"no such benchmark ({known})")
    if arguments.pairs < 1:
        raise UsageError("--pairs", "must be at least 1")
    command = [*programs[arguments.name], "--pairs", str(arguments.pairs)]
    command += ["--device", arguments.device]
    for flag in ("smoke", "full"):
        command += [f"--{flag}"] if getattr(arguments, flag) else []
    for option in ("only", "json", "trace"):
        value = getattr(arguments, option)
        command += [f"--{option}", value] if value is not None else []
    # Benchmarks of whole commands shall run this penstock.
    own = shutil.which(sys.argv[0]) or sys.argv[0]
    environment = os.environ | {"PENSTOCK_COMMAND": str(Path(own).absolute())}
    # What is installed below a prefix of its own only this process knows the place of.
    here = str(Path(sys.modules["penstock"].__file__ or "").absolute().parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(
        [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    # The JSON passes through this process, which reports errors of standard output as any verb.
    kept = None if arguments.json is not None else subprocess.PIPE
    code, output = _run_to_end(command, environment, kept)
    if output:
        sys.stdout.write(output.decode())
    if code < 0:
        raise CommandError(arguments.name, f"ended by signal {-code}")
    return code
