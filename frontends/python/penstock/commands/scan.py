"""Find the lines of files that contain any of a set of fixed strings.

A kernel streams the files through the page cache and searches them, on a GPU if there is one, else
on the CPU. The results equal those of `LC_ALL=C grep -a -F`, for any bytes: `--count` prints what
`grep -c` prints, and `--lines` (the default) what `grep -n` prints. A directory is searched with
all files below it; `-` is standard input. `--pattern` and `--patterns` may be given several times
and together: a line is found if it holds any of the strings. As in grep, an empty string or an
empty line of a list is in every line, and a list without lines adds no string. If no line is found,
that is no error: the exit code is 1 only if a file could not be read or written. On the CPU,
large files that the OS has cached are searched in place, without the page cache in device memory,
unless `--explain` or `--trace` is given.

`--follow` goes on with the lines that the files get, as `tail -F | grep` would: it follows names
through rotation and truncation, waits for files that are missing, and scans a line once its newline
is there. Ctrl-C ends it, with a summary and exit code 130. With `--json` it prints one object a
line: first each found line, with path, number, offset and line, and at the end the counts. With
`--count` it prints the counts at the end.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys

from penstock.arguments import TRACE_HELP, chosen_device, device_name, size_text, traced
from penstock.errors import NOT_REGULAR, CommandError, UsageError, standard_input
from penstock.progress import ProgressLine

TYPE_CHECKING = False  # as typing has it; its loading is a tenth of a short command's time
if TYPE_CHECKING:
    from typing import Any

EXAMPLE = """\
  $ penstock scan /var/log --patterns suspicious.txt --count
  /var/log/access.log:1042
  $ penstock scan access.log --pattern 203.0.113.7
  1741:203.0.113.7 - - [20/Nov/2026:10:19:00 +0000] "GET / HTTP/1.1" 200 512
  $ penstock scan access.log --pattern /etc/passwd --pattern wp-login.php --count
  17
"""


_FILES_TOLD = 10  # the files with the longest waits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock scan`."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="file, directory, or -")
    parser.add_argument(
        "--pattern",
        action="append",
        default=[],
        metavar="TEXT",
        help="a string to look for, as grep -e; may be repeated",
    )
    parser.add_argument(
        "--patterns",
        action="append",
        default=[],
        metavar="LIST",
        help="a file with one string a line, as grep -f; may be repeated",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--count", action="store_true", help="print the number of lines of each file")
    form.add_argument("--lines", action="store_true", help="print the lines, numbered (default)")
    parser.add_argument(
        "--device",
        type=device_name,
        default=None,
        metavar="D",
        help="auto, cpu, cpu:N or cuda:N (default: PENSTOCK_DEVICE, else auto)",
    )
    parser.add_argument(
        "--follow", action="store_true", help="scan lines as they are appended, until Ctrl-C"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object with all counts")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="print how the pages of the files reached the kernel: on stderr, or in the JSON",
    )
    parser.add_argument("--trace", metavar="FILE", help=TRACE_HELP)
    parser.add_argument("--quiet", action="store_true", help="no progress and no summary")


def _how_far(done: int, known: int, texts: int, seconds: float) -> str:
    share = f" {100 * done / known:3.0f} %" if known else ""
    rate = done / max(seconds, 1e-9) / 1e9
    return f"{size_text(done)} of {size_text(known)}{share}, {texts} files, {rate:.2f} GB/s"


def _pattern_list(path: str) -> bytes:
    """Return the lines of a list; the last one has its newline too."""
    try:
        with standard_input() if path == "-" else open(path, "rb") as file:
            lines: bytes = file.read()
    except OSError as error:
        raise CommandError(path, error.strerror or str(error)) from None
    return lines + b"\n" if lines and not lines.endswith(b"\n") else lines


def _report(result: dict[str, Any]) -> str:
    seconds = result["seconds"]
    rate = result["bytes"] / seconds / 1e9 if seconds > 0 else 0.0
    in_blocks = result["block_read_seconds"] + result["block_search_seconds"]
    reading = 100 * result["block_read_seconds"] / in_blocks if in_blocks > 0 else 0.0
    return (
        f"{result['matches']} lines in {result['texts']} files, {size_text(result['bytes'])}"
        f" in {seconds:.3f} s ({rate:.2f} GB/s) on {result['device']}:"
        f" {reading:.0f} % reading, {100 - reading:.0f} % searching"
    )


def _told(pages: dict[str, Any]) -> str:
    def share(name: str) -> str:
        return f"{100 * pages[name] / max(pages['pages'], 1):.1f} %"

    return (
        f"{pages['pages']} pages wanted, {share('window_hits')} read ahead,"
        f" {share('window_late')} read ahead but late, {share('misses')} missed,"
        f" {share('hits')} there before; {pages['prefetched']} prefetched,"
        f" {pages['window_hits'] + pages['window_late']} used, {pages['wasted']} wasted,"
        f" {pages['advised']} advised, {pages['learned']} ahead of launches;"
        f" {pages['stalled_seconds']:.3f} s waited for them"
    )


def _explain(result: dict[str, Any]) -> str:
    lines = [f"page cache: {_told(result['page_cache'])}, summed over blocks"]
    files = sorted(
        result["files"], key=lambda one: one["page_cache"]["stalled_seconds"], reverse=True
    )
    if len(files) > 1:
        lines += [f"  {one['path']}: {_told(one['page_cache'])}" for one in files[:_FILES_TOLD]]
    if len(files) > _FILES_TOLD:
        lines.append(f"  and {len(files) - _FILES_TOLD} files that were waited for no longer")
    memory = result["readahead"]
    lines.append(
        f"readahead: windows hold {size_text(memory['windows_bytes'])}, at most"
        f" {size_text(memory['windows_bytes_max'])} of a cache of"
        f" {size_text(result['cache_bytes'])}; {size_text(memory['tables_bytes'])} of tables"
    )
    lines.append(
        f"storage: {result['requests']} pages in {result['reads']} reads,"
        f" {size_text(result['bytes_read'])} in {result['storage_seconds']:.3f} s,"
        f" summed over threads"
    )
    return "\n".join(lines)


def _require_names(arguments: argparse.Namespace) -> None:
    """Raise UsageError if something is asked for that cannot be followed."""
    for path in arguments.paths:
        if path == "-":
            raise UsageError("-", "--follow takes files; without it a pipe is scanned to its end")
        if os.path.exists(path) and not os.path.isfile(path):
            raise UsageError(path, "--follow takes regular files")
    if arguments.explain or arguments.trace:
        raise UsageError("scan", "--follow goes with neither --explain nor --trace")


def _follow(arguments: argparse.Namespace, pattern_list: bytes, texts: list[bytes]) -> int:
    """Scan the files and what is appended to them, until Ctrl-C or until nothing reads it."""
    from penstock import _core

    def notice(path: str, text: str, trouble: bool) -> None:
        if trouble or not arguments.quiet:
            print(f"penstock: {path}: {text}", file=sys.stderr)

    form = "json" if arguments.json else "path" if len(arguments.paths) > 1 else "number"
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each file stays open
    result = _core.follow(
        chosen_device(arguments.device),
        pattern_list,
        texts,
        [os.fsencode(path) for path in arguments.paths],
        lines=not arguments.count,
        form=form,
        output=sys.stdout.fileno(),
        notice=notice,
    )
    if arguments.json:
        import json

        print(json.dumps(result))
    elif not arguments.quiet:
        print(
            f"{result['matches']} lines in {result['texts']} files, {size_text(result['bytes'])},"
            f" followed for {result['seconds']:.1f} s on {result['device']}",
            file=sys.stderr,
        )
    return 130 if result["interrupted"] else 0


def run(arguments: argparse.Namespace) -> int:
    """Scan the files and print the results."""
    from penstock import _core

    if not arguments.pattern and not arguments.patterns:
        raise UsageError("scan", "what to look for? --pattern TEXT or --patterns LIST is required")
    if "-" in arguments.patterns and "-" in arguments.paths:
        raise UsageError("-", "standard input cannot be both the patterns and a text")
    if arguments.follow:
        _require_names(arguments)
    if "-" in arguments.paths:
        standard_input()  # if it is closed, its descriptor is another file of the process
    pattern_list = b"".join(_pattern_list(path) for path in arguments.patterns)
    if not pattern_list and not arguments.pattern and not arguments.quiet:
        empty = ", ".join(arguments.patterns)
        print(f"penstock: {empty}: no patterns, so nothing is found", file=sys.stderr)
    texts = [os.fsencode(text) for text in arguments.pattern]
    if arguments.follow:
        sys.stdout.flush()
        return _follow(arguments, pattern_list, texts)
    several = len(arguments.paths) > 1 or any(map(os.path.isdir, arguments.paths))
    sys.stdout.flush()
    with (
        traced(arguments.trace),
        ProgressLine(not arguments.quiet and not arguments.json) as line,
    ):
        result = _core.scan(
            chosen_device(arguments.device),
            pattern_list,
            texts,
            [os.fsencode(path) for path in arguments.paths],
            lines=not arguments.count,
            with_path=several,
            output=-1 if arguments.json else sys.stdout.fileno(),
            progress=(lambda *far: line.show(_how_far(*far))) if line.wanted else None,
            explain=arguments.explain,
        )
    for text in result["files"]:
        if "error" in text:
            reason = f"{text['error']} ({text['reason']})" if text["reason"] else text["error"]
            cause = NOT_REGULAR if text["reason"] == NOT_REGULAR else reason
            print(f"penstock: {text['path']}: {cause}", file=sys.stderr)
    if arguments.json:
        import json

        print(json.dumps(result, indent=2))
    elif line.wanted:
        print(_report(result), file=sys.stderr)
    if arguments.explain and not arguments.json:
        print(_explain(result), file=sys.stderr)
    return 1 if result["failed"] else 0
