"""Analyse a recorded trace of file accesses, and write it as access programs.

TRACE has Penstock's own form, the form of `strace -f -ttt -T -y -o FILE`, or that of Darshan's
darshan-dxt-parser. Access programs (JSON, binary) and trace signatures are read too; `-` is
standard input, and both may be compressed by gzip. A stream is the accesses of one rank or thread
to one file; ranks that one program describes are joined, and so are threads that take a file's
pieces in turn. Its confidence is the share of its bytes that were predicted before they were
read. `penstock signature explain` adds which accesses were not predicted and why, which lines of
the trace were skipped, a suggestion for each large stream, and a picture.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from penstock import stream_texts as texts
from penstock.arguments import size_text
from penstock.errors import CommandError, UsageError, require_regular, standard_input
from penstock.progress import ProgressLine

if TYPE_CHECKING:
    from penstock import _core

EXAMPLE = """\
  $ strace -f -ttt -T -y -o trace sha256sum /usr/bin/python3.11
  $ penstock signature trace --text -o programs.json
  1  read /usr/bin/python3.11, rank 0: contiguous, 0.985 of 6.5 MiB in 209 accesses told ahead
     {READ, <contiguous, 1>, <single occurrence>, <varying medium>, <random>}
     {READ, 0, 1, ([{32768}, {32768}, {208}]), 1}
     ...
  $ penstock signature explain trace --picture trace.png
"""

_CHUNK_SIZE = 4 << 20
_GZIP = b"\x1f\x8b"
_BINARY_SUFFIX = ".pnsk"
_EXPLAIN = "explain"
_SKIPS_SHOWN = 8
# Streams with fewer bytes than this, or than 1/100 of all, are listed together.
_SMALL_SIZE, _SMALL_PART = 64 << 10, 100


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
    parser.add_argument(
        "--picture", metavar="FILE.png", help="draw offsets over accesses, file by file"
    )
    parser.add_argument(
        "--over", choices=["accesses", "time"], default="accesses", help="x axis of the picture"
    )
    parser.add_argument("--all", action="store_true", help="list each of the small streams too")
    parser.add_argument("--json", action="store_true", help="print one JSON object with all of it")


def _unpacked(file: IO[bytes]) -> IO[bytes] | io.BufferedIOBase:
    """Return a file with the bytes that `file` has once it is uncompressed."""
    if not isinstance(file, io.BufferedReader) or not file.peek(2).startswith(_GZIP):
        return file
    import gzip

    return gzip.GzipFile(fileobj=file)


def analyse(path: str, progress: ProgressLine) -> _core.SignatureReader:
    """Read a trace, programs or a trace signature, and analyse all of its streams."""
    from penstock import _core

    if path != "-":
        require_regular(path)
    reader = _core.SignatureReader()
    done = 0
    try:
        with standard_input() if path == "-" else Path(path).open("rb") as raw:
            known = os.fstat(raw.fileno()).st_size
            file = _unpacked(raw)
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
    except (OSError, EOFError, zlib.error) as error:
        cause = error.strerror if isinstance(error, OSError) else None
        raise CommandError(path, cause or str(error)) from None
    finally:
        progress.clear()
    return reader


def _signature_lines(stream: dict[str, Any]) -> list[str]:
    if stream["why_no_program"]:
        return [f"no program: {stream['why_no_program']}"]
    lines: list[str] = [stream["pattern_signature"]]
    if stream["trace_signature"]:
        return [*lines, *stream["trace_signature"].splitlines()]
    return [*lines, f"no trace signature: {stream['why_no_signature']}"]


def _print_source(path: str, source: dict[str, Any]) -> None:
    lines = f"{source['lines']} lines, " if source["trace"] else ""
    print(f"{texts.shown(path)}: {source['form']}, {lines}{source['accesses']} accesses")
    skips = source["skipped"]
    for skip in skips[:_SKIPS_SHOWN]:
        cause = texts.shown(skip["cause"])
        print(f"  passed over {skip['count']}, first in line {skip['first_line']}: {cause}")
    if len(skips) > _SKIPS_SHOWN:
        rest = sum(skip["count"] for skip in skips[_SKIPS_SHOWN:])
        print(f"  passed over {rest} for {len(skips) - _SKIPS_SHOWN} other causes (--json has all)")
    if source["clock_jumps"]:
        print(f"  {source['clock_jumps']} accesses earlier than the one before: the clock jumped")


def _print_explanation(stream: dict[str, Any], number: int) -> None:
    print(f"{number}  {texts.whose(stream)}")

    def row(label: str, text: str) -> None:
        if text:
            print(f"   {label:<12} {text}")

    row("class", texts.class_text(stream))
    row("confidence", texts.told(stream))
    row("sizes", texts.sizes(stream))
    row("time", texts.time(stream))
    for loss in stream["unpredicted"]:
        row("not told", texts.loss(loss))
    lines = _signature_lines(stream)
    row("pattern", lines[0])
    label = "signature" if stream["rank_count"] == 1 else f"of rank {stream['first_rank']}"
    for line in lines[1:]:
        row(label, line.replace("no trace signature", "none"))
    if not stream["why_no_program"]:
        row("program", f"{stream['nodes']} node{'s' if stream['nodes'] != 1 else ''}")
    for loss in stream["unfolded"]:
        row("not folded", f"{loss['count'] or 'any number'}: {loss['cause']}")
    row("suggestion", stream["suggestion"])


def _print_small(streams: list[dict[str, Any]]) -> None:
    files = len({stream["file"] for stream in streams})
    accesses = sum(stream["accesses"] for stream in streams)
    size = size_text(sum(stream["bytes"] for stream in streams))
    print(
        f"and {len(streams)} small streams of {files} file{'s' if files != 1 else ''}: {size} in "
        f"{accesses} accesses (--all lists them)"
    )


def _large_count(streams: list[dict[str, Any]]) -> int:
    """Return how many of the streams, largest first, are listed one by one."""
    least = max(_SMALL_SIZE, sum(stream["bytes"] for stream in streams) // _SMALL_PART)
    large = max(sum(1 for stream in streams if stream["bytes"] >= least), 1)
    return large if len(streams) - large > 1 else len(streams)


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
    files: dict[str, list[int]] = {}
    for index, stream in enumerate(streams):
        files.setdefault(stream["file"], []).append(index)
    origin = min(stream["first_ns"] for stream in streams)
    panels = []
    for file, members in list(files.items())[: picture.PANELS_MAX]:
        made = reader.plot(picture.COLUMNS, picture.ROWS, over_time=over_time, streams=members)
        begin = min(streams[i]["first_ns"] for i in members) - origin if over_time else 0
        legend = [(i + 1, texts.legend(streams[i])) for i in members]
        panels.append(picture.Panel(**made, x_begin=begin, file=texts.shown(file), legend=legend))
    path = arguments.words[-1]
    title = "standard input" if path == "-" else texts.shown(Path(path).name)
    if len(files) > len(panels):
        title += f", the {len(panels)} files with the most bytes of {len(files)}"
    _write(arguments.picture, picture.draw(panels, title, over_time=over_time))


def _check(arguments: argparse.Namespace) -> None:
    words = arguments.words
    if len(words) > 1 and not (len(words) == 2 and words[0] == _EXPLAIN):
        raise UsageError(words[1], "one trace at a time (or: penstock signature explain TRACE)")
    if words == [_EXPLAIN] and not Path(_EXPLAIN).exists():
        raise UsageError(_EXPLAIN, "which trace? (penstock signature explain TRACE)")
    if arguments.over == "time" and not arguments.picture:
        raise UsageError("--over", "belongs to --picture")
    if arguments.picture:
        from penstock import picture

        picture.require_matplotlib()


def _print_streams(streams: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    large = len(streams) if arguments.all else _large_count(streams)
    for number, stream in enumerate(streams[:large], 1):
        if len(arguments.words) == 2:
            _print_explanation(stream, number)
            continue
        print(f"{number}  {texts.whose(stream)}: {stream['class']}, {texts.told(stream)}")
        if arguments.text or stream["why_no_program"]:
            for line in _signature_lines(stream):
                print(f"   {line}")
    if large < len(streams):
        _print_small(streams[large:])


def run(arguments: argparse.Namespace) -> int:
    """Analyse the trace and print the result."""
    _check(arguments)
    path = arguments.path = arguments.words[-1]
    reader = analyse(path, ProgressLine(not arguments.json))
    source, streams = reader.source, reader.streams
    for stream in streams:
        stream["suggestion"] = texts.suggestion(stream)
    for warning in source["warnings"]:
        print(f"penstock: {texts.shown(path)}: warning: {warning['cause']}", file=sys.stderr)
    if arguments.over == "time" and not source["trace"]:
        raise UsageError(path, "access programs have no times: --over accesses")
    if arguments.output:
        known = path != "-" and os.path.exists(arguments.output)
        if known and os.path.samefile(path, arguments.output):
            raise UsageError(arguments.output, "-o would overwrite the trace itself")
        binary = arguments.output.endswith(_BINARY_SUFFIX)
        _write(arguments.output, reader.programs(binary=binary))
    if arguments.picture:
        _write_picture(reader, streams, arguments)
    if arguments.json:
        print(json.dumps({"path": path, **source, "streams": streams}, indent=2))
        return 0
    if len(arguments.words) == 2:
        _print_source(path, source)
    _print_streams(streams, arguments)
    return 0
