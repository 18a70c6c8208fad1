"""Analyse a recorded trace of file accesses, and write it as access programs.

TRACE has Penstock's own form, the form of `strace -f -ttt -T -y -o FILE`, or that of Darshan's
darshan-dxt-parser. Access programs (JSON, binary) and trace signatures are read too; `-` is
standard input. A stream is the accesses of one rank or thread to one file; ranks that one program
describes are joined. Its class comes from the online detector. Its confidence is the share of its
accesses that the detector predicted exactly. `penstock signature explain` adds which accesses were
not predicted and why, which lines of the trace were skipped, and a picture.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.arguments import size_text
from penstock.errors import CommandError, UsageError, require_regular, standard_input
from penstock.progress import ProgressLine

if TYPE_CHECKING:
    from penstock import _core

EXAMPLE = """\
  $ strace -f -ttt -T -y -o trace sha256sum /usr/bin/python3.11
  $ penstock signature trace --text -o programs.json
  1  read /usr/bin/python3.11, rank 0: contiguous, 0.980 of 209 accesses told ahead
     {READ, <contiguous, 1>, <single occurrence>, <varying medium>, <random>}
     {READ, 0, 1, ([{32768}, {32768}, {208}]), 1}
     ...
  $ penstock signature explain trace --picture trace.png
"""

_CHUNK_SIZE = 4 << 20
_BINARY_SUFFIX = ".pnsk"
_EXPLAIN = "explain"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock signature`."""
    parser.usage = (
        "penstock signature TRACE [--text] [-o FILE] [--json]\n"
        "       penstock signature explain TRACE_OR_SIGNATURE [--picture FILE.png]"
    )
    parser.add_argument(
        "words", nargs="+", metavar="[explain] TRACE", help="trace to read; - is standard input"
    )
    parser.add_argument(
        "--text", action="store_true", help="print the pattern and trace signatures"
    )
    parser.add_argument(
        "-o",
        dest="output",
        metavar="FILE",
        help=f"write the access programs: JSON, or binary if it ends in {_BINARY_SUFFIX}",
    )
    parser.add_argument("--picture", metavar="FILE.png", help="draw offsets over accesses")
    parser.add_argument(
        "--over", choices=["accesses", "time"], default="accesses", help="x axis of the picture"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object with all of it")


def analyse(path: str, progress: ProgressLine) -> _core.SignatureReader:
    """Read a trace, programs or a trace signature, and analyse all of its streams."""
    from penstock import _core

    if path != "-":
        require_regular(path)
    reader = _core.SignatureReader()
    done = 0
    try:
        with standard_input() if path == "-" else Path(path).open("rb") as file:
            known = os.fstat(file.fileno()).st_size
            while chunk := file.read(_CHUNK_SIZE):
                reader.read(chunk)
                done += len(chunk)
                share = f", {100 * done // known} %" if known >= done else ""
                progress.show(f"{size_text(done)} read{share}")
        reader.finish()
        step = 0
        while reader.step():
            step += 1
            progress.show(f"{step} of {reader.steps} streams analysed")
    except OSError as error:
        raise CommandError(path, error.strerror or str(error)) from None
    finally:
        progress.clear()
    return reader


def _shown(name: str) -> str:
    """Return `name` in a form that prints on one line, whatever bytes it has."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text) or "(no name)"


def _whose(stream: dict[str, Any]) -> str:
    first, count = stream["first_rank"], stream["rank_count"]
    text = f"{stream['operation']} {_shown(stream['file'])}, "
    text += f"rank {first}" if count == 1 else f"ranks {first}-{first + count - 1}"
    extents = [extent for extent in stream["grid"] if extent != 1]
    if len(extents) > 1:
        text += f" (grid {' x '.join(map(str, extents))})"
    return text + (f", context {stream['context']}" if stream["context"] else "")


def _verdict(stream: dict[str, Any]) -> str:
    several = "" if stream["all"] else "the first "
    share = math.floor(stream["confidence"] * 1000) / 1000  # rounded down: 1.000 means all of them
    return f"{stream['class']}, {share:.3f} of {several}{stream['accesses']} accesses told ahead"


def _signature_lines(stream: dict[str, Any]) -> list[str]:
    if stream["why_no_program"]:
        return [f"no program: {stream['why_no_program']}"]
    lines: list[str] = [stream["pattern_signature"]]
    if stream["trace_signature"]:
        return [*lines, *stream["trace_signature"].splitlines()]
    return [*lines, f"no trace signature: {stream['why_no_signature']}"]


def _print_source(path: str, source: dict[str, Any]) -> None:
    lines = f"{source['lines']} lines, " if source["trace"] else ""
    print(f"{_shown(path)}: {source['form']}, {lines}{source['accesses']} accesses")
    for skip in source["skipped"]:
        print(f"  passed over {skip['count']}, first in line {skip['first_line']}: {skip['cause']}")
    if source["clock_jumps"]:
        print(f"  {source['clock_jumps']} accesses earlier than the one before: the clock jumped")


def _print_explanation(stream: dict[str, Any], number: int) -> None:
    print(f"{number}  {_whose(stream)}")

    def row(label: str, text: str) -> None:
        print(f"   {label:<12} {text}")

    row("class", stream["class"])
    row("confidence", _verdict(stream).partition(", ")[2])
    for loss in stream["unpredicted"]:
        row("not told", f"{loss['count']}: {loss['cause']}")
    lines = _signature_lines(stream)
    row("pattern", lines[0])
    label = "signature" if stream["rank_count"] == 1 else f"of rank {stream['first_rank']}"
    for line in lines[1:]:
        row(label, line.replace("no trace signature", "none"))
    if not stream["why_no_program"]:
        row("program", f"{stream['nodes']} node{'s' if stream['nodes'] != 1 else ''}")
    for loss in stream["unfolded"]:
        row("not folded", f"{loss['count'] or 'any number'}: {loss['cause']}")


def _write(path: str, data: bytes) -> None:
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise CommandError(path, error.strerror or str(error)) from None


def _write_picture(
    reader: _core.SignatureReader, streams: list[dict[str, Any]], arguments: argparse.Namespace
) -> None:
    from penstock import picture

    over_time = arguments.over == "time"
    made = reader.plot(picture.COLUMNS, picture.ROWS, over_time=over_time)
    name = _shown(Path(arguments.words[-1]).name)
    plot = picture.Plot(
        **made,
        over_time=over_time,
        title=f"{name}: offset over {'time' if over_time else 'accesses'}",
        legend=[f"{i} {one['operation']} {one['class']}" for i, one in enumerate(streams, 1)],
    )
    _write(arguments.picture, picture.draw(plot))


def run(arguments: argparse.Namespace) -> int:
    """Analyse the trace and print the result."""
    words = arguments.words
    explain = len(words) == 2 and words[0] == _EXPLAIN
    if len(words) > 1 and not explain:
        raise UsageError(words[1], "one trace at a time (or: penstock signature explain TRACE)")
    if words == [_EXPLAIN] and not Path(_EXPLAIN).exists():
        raise UsageError(_EXPLAIN, "which trace? (penstock signature explain TRACE)")
    if arguments.over == "time" and not arguments.picture:
        raise UsageError("--over", "belongs to --picture")
    path = arguments.path = words[-1]
    reader = analyse(path, ProgressLine(not arguments.json))
    source, streams = reader.source, reader.streams
    if arguments.over == "time" and not source["trace"]:
        raise UsageError(path, "access programs have no times: --over accesses")
    if arguments.output:
        binary = arguments.output.endswith(_BINARY_SUFFIX)
        _write(arguments.output, reader.programs(binary=binary))
    if arguments.picture:
        _write_picture(reader, streams, arguments)
    if arguments.json:
        print(json.dumps({"path": path, **source, "streams": streams}, indent=2))
        return 0
    if explain:
        _print_source(path, source)
    for number, stream in enumerate(streams, 1):
        if explain:
            _print_explanation(stream, number)
            continue
        print(f"{number}  {_whose(stream)}: {_verdict(stream)}")
        if arguments.text or stream["why_no_program"]:
            for line in _signature_lines(stream):
                print(f"   {line}")
    return 0
