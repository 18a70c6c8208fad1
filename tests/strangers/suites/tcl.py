"""Tcl: the tests of its channels, files, programs and sockets.

https://github.com/tcltk/tcl, or Debian's source of tcl8.6, of which `tests/` is enough. The program
is the installed `tclsh`, of the same version.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..suite import FAILED, PASSED, SKIPPED, Case, Finished, Outcomes, Place, Suite, words

FILES = words("""
    io ioCmd ioTrans iogt chan chanio cmdAH fCmd fileName fileSystem fileSystemEncoding exec event
    socket unixFCmd unixFile encoding source zlib pid pwd load tcltest env basic async binary
    http unload clock main autoMkindex pkgMkIndex safe package interp timer stack trace
""")
LINE = re.compile(r"^(?:\+\+\+\+|====) (\S+)(.*)$", re.MULTILINE)


def _read(done: Finished) -> Outcomes:
    outcomes: Outcomes = {}
    for line in LINE.finditer(done.output):
        name, rest = line[1], line[2]
        if rest.endswith("FAILED"):
            outcomes[name] = FAILED
        elif outcomes.get(name) != FAILED:
            outcomes[name] = SKIPPED if "SKIPPED" in rest else PASSED
    if done.code != 0:
        outcomes["end"] = FAILED
    return outcomes


def _missing(copies: Path) -> str:
    if not (copies / "tcl/tests/io.test").exists():
        return f"there is no {copies}/tcl/tests"
    return "" if shutil.which("tclsh") else "tclsh is not installed"


def _prepare(copies: Path, place: Place) -> None:
    shutil.copytree(copies / "tcl/tests", place.folder / "tests")


def _cases(_copies: Path) -> Sequence[Case]:
    options = ["-verbose", "pse", "-tmpdir", "{folder}"]
    return [
        Case(
            name,
            ["tclsh", f"../tests/{name}.test", *options],
            seconds_max=120,
            read=_read,
        )
        for name in FILES
    ]


SUITE = Suite("tcl", _cases, missing=_missing, prepare=_prepare)
