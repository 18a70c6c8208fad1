"""Programs that benchmarks run: compiled ones of bench/programs, alone or with the preload library.

Each prints the seconds that its work took, as it measures them itself, and a checksum.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.commands.bench import HOW_TO_GET, program_folders
from penstock.errors import CommandError

_PREFIX = "penstock-program-"
_END_S = 5
_PENSTOCK = (sys.executable, "-m", "penstock")

Words = Sequence[str | Path]


def find(name: str) -> Path | None:
    """Return the path of a program, or None where it is not installed."""
    places = (folder / f"{_PREFIX}{name}" for folder in program_folders())
    return next((place for place in places if place.is_file()), None)


def find_all(*names: str) -> list[Path]:
    """Return the paths of programs that are built wherever benchmarks are."""
    found = [find(name) for name in names]
    if missing := [name for name, path in zip(names, found, strict=True) if path is None]:
        raise CommandError(f"{_PREFIX}{missing[0]}", HOW_TO_GET)
    return [path for path in found if path is not None]


def under_penstock(*words: str | Path, verb: str = "run", options: Words = ()) -> list[str | Path]:
    """Return the command that runs a program by a verb of Penstock."""
    return [*_PENSTOCK, verb, *options, *words]


def run(words: Words) -> list[str]:
    """Run a command to its end and return the words that it prints."""
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        try:
            out, told = program.communicate()
        except BaseException:  # what it started shall end too: it passes the signal on
            program.terminate()
            try:
                program.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                program.kill()
            raise
    if program.returncode != 0:
        last = told.strip().splitlines()[-1:] or ["it said nothing"]
        raise CommandError(str(words[0]), f"ended with exit code {program.returncode}: {last[0]}")
    return out.split()
