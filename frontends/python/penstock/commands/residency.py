"""Show what the OS page cache holds of files: a bar for each, or its runs.

The command reads no file and brings nothing into the cache. The OS answers only a user who owns a
file or may write it; the state of other files is shown as unknown. Dirty bytes, which storage does
not have yet, are shown if the method can tell them: cachestat can, mincore cannot. Most FUSE file
systems drop the cached bytes of a file when a program opens it, this command included. `--runs` and
`--json` are exact to the page. If a file has more than `--runs-max` runs, larger grains are used,
and a grain that is cached in part is "mixed".
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import sys
from typing import Any

from penstock.arguments import size_text
from penstock.errors import NOT_REGULAR, UsageError
from penstock.progress import ProgressLine

EXAMPLE = """\
  $ penstock residency model.safetensors
  model.safetensors
    ████████████████████▓▓░░░░░░░░▒▒▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░
    3.0 GiB: 1.1 GiB cached, 96.0 MiB dirty, 1.8 GiB missing (by cachestat)
  $ penstock residency model.safetensors --json
"""

_WIDTH_MAX = 120

# A cell of the bar: its character, its character without Unicode, its colour, its name.
_CELLS = {
    "cached": ("█", "#", "32"),
    "dirty": ("▓", "w", "33"),
    "mixed": ("▒", "+", "32"),
    "missing": ("░", ".", "90"),
    "unknown": ("?", "?", "31"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock residency`."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a regular file")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--runs", action="store_true", help="print the runs, one a line")
    form.add_argument("--json", action="store_true", help="print one JSON object with all runs")
    parser.add_argument(
        "--runs-max",
        type=int,
        default=65536,
        metavar="N",
        help="use larger grains if a file has more runs than N (16 or more; default 65536)",
    )


def _shown(path: str) -> str:
    """Return `path` in a form that prints on one line, whatever bytes it has."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _cell_state(sizes: dict[str, int], resident: int) -> str:
    """Return the state of a cell that holds `sizes` bytes of each state."""
    if "dirty" in sizes or "unknown" in sizes:
        return "dirty" if "dirty" in sizes else "unknown"
    if resident == 0:
        return "missing"
    return "cached" if resident >= sum(sizes.values()) else "mixed"


def cells(runs: list[dict[str, Any]], size: int, width: int) -> list[str]:
    """Return the states of `width` equal pieces of a file of `size` bytes; fewer if it is short."""
    width = max(1, min(width, size))
    sizes: list[dict[str, int]] = [{} for _ in range(width)]
    resident = [0] * width
    for run in runs:
        at, end, left = run["offset"], run["offset"] + run["size"], run["resident"]
        while at < end:
            cell = min(at * width // size, width - 1)
            # The first byte of the next cell.
            edge = min(-(-(cell + 1) * size // width), end) if cell + 1 < width else end
            piece = edge - at
            sizes[cell][run["state"]] = sizes[cell].get(run["state"], 0) + piece
            taken = min(left, piece) if run["state"] == "cached" else left * piece // (end - at)
            resident[cell] += taken
            left -= taken
            at = edge
    return [_cell_state(one, here) for one, here in zip(sizes, resident, strict=True)]


def _drawn(states: list[str], *, unicode: bool, colour: bool) -> str:
    text, last = "", ""
    for state in states:
        glyph, plain, code = _CELLS[state]
        if colour and state != last:
            text += f"\033[{code}m"
        text += glyph if unicode else plain
        last = state
    return text + ("\033[0m" if colour and text else "")


def _speaks_unicode() -> bool:
    try:
        "█▓▒░".encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def _summary(told: dict[str, Any]) -> str:
    parts = [f"{size_text(count)} {state}" for state, count in told["bytes"].items() if count]
    text = f"{size_text(told['size'])}: " + (", ".join(parts) or "empty")
    if told["bytes"]["mixed"]:
        text += f" ({size_text(told['resident'])} resident in all)"
    if told["bytes"]["unknown"]:
        return f"{text} ({told['reason']})"
    if not told["runs"]:
        return text
    return f"{text} (by {told['method']}{': ' if told['reason'] else ''}{told['reason']})"


def _print(told: dict[str, Any], arguments: argparse.Namespace) -> None:
    if arguments.runs:
        for run in told["runs"]:
            prefix = f"{_shown(told['path'])}:" if len(arguments.paths) > 1 else ""
            part = f" {run['resident']}" if run["state"] in ("mixed", "dirty") else ""
            print(f"{prefix}{run['offset']} {run['size']} {run['state']}{part}")
        return
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size().columns, _WIDTH_MAX) - 4
    print(_shown(told["path"]))
    if told["runs"]:
        states = cells(told["runs"], told["size"], max(width, 10))
        colour = terminal and "NO_COLOR" not in os.environ
        print("  " + _drawn(states, unicode=_speaks_unicode(), colour=colour))
    print("  " + _summary(told))


def _ask(path: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the residency of `path`, or `error` and `reason`."""
    from penstock import _core

    try:
        with ProgressLine(not arguments.json) as line:
            told = _core.residency(
                os.fsencode(path),
                runs_max=arguments.runs_max,
                progress=lambda done, size: line.show(f"{_shown(path)}: {100 * done // size} %"),
            )
    except OSError as error:
        irregular = error.errno in (errno.ESPIPE, errno.ENOTSUP)
        cause = NOT_REGULAR if irregular else os.strerror(error.errno or 0)
        return {"path": path, "error": cause}
    return {"path": path, **told}


def run(arguments: argparse.Namespace) -> int:
    """Look up the residency of each file and print it."""
    if arguments.runs_max < 16:
        raise UsageError("--runs-max", "16 at least")
    failed = False
    files = []
    for path in arguments.paths:
        told = _ask(path, arguments)
        if "error" in told:
            failed = True
            print(f"penstock: {_shown(path)}: {told['error']}", file=sys.stderr)
        elif not arguments.json:
            _print(told, arguments)
        files.append(told if arguments.json else {})
    if arguments.json:
        print(json.dumps({"files": files}, indent=2))
    return 1 if failed else 0
