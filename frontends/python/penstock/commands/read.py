"""Read a file, or a part of it, into device memory, and say how fast and by which routes.

Each byte range takes the cheapest route: out of the OS page cache, or past it. The device is a GPU
if there is one, else the CPU backend's memory. `-o` writes the bytes to a file, and `-o -` to
standard output; without it they are only read. `--check` compares them with plain reads.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from penstock import calibrations
from penstock.arguments import (
    TRACE_HELP,
    byte_size,
    chosen_device,
    device_name,
    size_text,
    thread_count,
    traced,
)
from penstock.errors import CommandError, Error, UsageError, require_regular
from penstock.progress import ProgressLine

if TYPE_CHECKING:
    from penstock import DeviceMemory, File, Future, Report

EXAMPLE = """\
  $ penstock read model.safetensors
  model.safetensors: 1.0 GiB in 0.311 s (3.45 GB/s) into cpu:4
    routes     cached 512.0 MiB, direct 512.0 MiB
    reasons    resident 512.0 MiB, missing 512.0 MiB
  $ penstock read disk.img --offset 1G --size 64M --route direct --check
"""

_PIECE_SIZE = 64 << 20
_PIECES_IN_FLIGHT = 3
_UNTOLD_PIECE_SIZE = 1 << 20  # for a file that does not tell its size, as in /proc


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock read`."""
    parser.add_argument("path", metavar="PATH", help="the file")
    parser.add_argument(
        "--offset", type=byte_size, default=0, metavar="N", help="first byte (4096, 4K, 1G)"
    )
    parser.add_argument(
        "--size", type=byte_size, default=None, metavar="N", help="number of bytes (to the end)"
    )
    parser.add_argument("--route", choices=["auto", "cached", "direct", "peer"], default=None)
    parser.add_argument("--cache", choices=["auto", "keep", "drop", "bypass"], default="auto")
    parser.add_argument("--strict", action="store_true", help="fail rather than take another route")
    parser.add_argument(
        "--device",
        type=device_name,
        default=None,
        metavar="D",
        help="auto, cpu, cpu:N or cuda:N (default: PENSTOCK_DEVICE, else auto)",
    )
    parser.add_argument(
        "--threads", type=thread_count, default=None, metavar="N", help="threads that read, 1 to 64"
    )
    parser.add_argument("-o", dest="output", metavar="FILE", help="file for the bytes; - is stdout")
    parser.add_argument("--check", action="store_true", help="compare with plain reads")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="print every piece, residency and times, and which calibration is used",
    )
    parser.add_argument("--trace", metavar="FILE", help=TRACE_HELP)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quiet", action="store_true", help="no progress and no summary")


class _Sum:
    """The sum of the reports of pieces."""

    def __init__(self) -> None:
        self.bytes = self.transfers = self.direct_depth = 0
        self.times = dict.fromkeys(("predicted_ns", "queue_ns", "plan_ns", "read_ns", "copy_ns"), 0)
        self.groups: dict[str, collections.Counter[str]] = {
            "routes": collections.Counter(),
            "reasons": collections.Counter(),
            "residency": collections.Counter(),
        }
        self.pieces: list[dict[str, Any]] = []  # with --explain: the report of each piece, for JSON

    def add(self, report: Report) -> None:
        self.bytes += report.bytes
        self.transfers += report.transfers
        self.direct_depth = max(self.direct_depth, report.direct_depth)
        for name in self.times:
            self.times[name] += report[name]
        for name, counter in self.groups.items():
            counter.update(report[name])


def _bytes_of(memory: DeviceMemory, size: int) -> memoryview | bytes:
    part = memory[:size]
    try:
        return memoryview(part)
    except BufferError:  # only the device can address the memory
        return part.tobytes()


def _write(output: IO[bytes], data: memoryview | bytes) -> None:
    """Write all bytes: standard output may be unbuffered, and take fewer at a time."""
    left = memoryview(data)
    while left:
        left = left[output.write(left) or 0 :]


def _check(path: str, plain: IO[bytes], offset: int, data: memoryview | bytes) -> None:
    plain.seek(offset)
    if plain.read(len(data)) != bytes(data):
        raise CommandError(path, f"bytes from {offset} on differ from those of a plain read")


@contextlib.contextmanager
def _output(path: str | None, source: str) -> Iterator[IO[bytes] | None]:
    """Open the file for the bytes of `source`, which must be another one: opening empties it."""
    if path is None:
        yield None
    elif path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        try:
            if Path(path).exists() and Path(path).samefile(source):
                raise CommandError(path, "is the file that is read; name another for -o")
            with Path(path).open("wb") as file:
                yield file
        except OSError as error:
            if error.filename is not None:
                raise
            raise CommandError(path, error.strerror or str(error)) from None


def _pieces(
    file: File, memory: DeviceMemory, offset: int, size: int
) -> Iterator[tuple[int, DeviceMemory, Future]]:
    """Read [offset, offset + size) in pieces; several are under way if their memory allows it."""
    piece_size = min(_PIECE_SIZE, max(len(memory), 1))
    slots = [memory[at : at + piece_size] for at in range(0, len(memory), piece_size)]
    flights: collections.deque[tuple[int, DeviceMemory, Future]] = collections.deque()
    for number, at in enumerate(range(0, size, piece_size)):
        if len(flights) == len(slots):
            yield flights.popleft()  # the caller uses up the piece before this function goes on
        slot = slots[number % len(slots)][: size - at]
        flights.append((offset + at, slot, file.pread(slot, None, offset + at)))
    yield from flights


def _read(file: File, memory: DeviceMemory, size: int, arguments: argparse.Namespace) -> _Sum:
    total = _Sum()
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(ProgressLine(not arguments.json and not arguments.quiet))
        output = stack.enter_context(_output(arguments.output, arguments.path))
        plain = stack.enter_context(Path(arguments.path).open("rb")) if arguments.check else None
        for at, slot, future in _pieces(file, memory, arguments.offset, size):
            count = future.result()
            total.add(future.report)
            if arguments.explain and arguments.json:
                total.pieces.append({"offset": at, **future.report.as_dict()})
            elif arguments.explain:
                line.clear()
                print(f"{at}: {future.report.explain()}", file=_channel(arguments))
            if plain is not None:
                _check(arguments.path, plain, at, _bytes_of(slot, count))
            if output is not None:
                _write(output, _bytes_of(slot, count))
            rate = total.bytes / max(time.monotonic() - line.begin, 1e-9) / 1e9
            told = f" of {size_text(size)} {100 * total.bytes // max(size, 1):3d} %"
            line.show(f"{size_text(total.bytes)}{told if file.size > 0 else ''}, {rate:.2f} GB/s")
            if file.size == 0 and count < len(slot):
                break  # it ends here: there is no other piece under way
    return total


def _channel(arguments: argparse.Namespace) -> IO[str]:
    """Return the stream for text, which must not be mixed with the bytes."""
    return sys.stderr if arguments.output == "-" else sys.stdout


def _print_text(total: _Sum, seconds: float, device: str, arguments: argparse.Namespace) -> None:
    out = _channel(arguments)
    rate = total.bytes / seconds / 1e9 if seconds > 0 else 0.0
    checked = ", equal to plain reads" if arguments.check else ""
    print(
        f"{arguments.path}: {size_text(total.bytes)} in {seconds:.3f} s ({rate:.2f} GB/s)"
        f" into {device}{checked}",
        file=out,
    )
    rows = ("routes", "reasons", "residency") if arguments.explain else ("routes", "reasons")
    for label in rows:
        told = ", ".join(f"{name} {size_text(n)}" for name, n in total.groups[label].most_common())
        if told:
            print(f"  {label:<10} {told}", file=out)


def _open(arguments: argparse.Namespace) -> File:
    import penstock

    try:
        return penstock.open(
            arguments.path,
            "r",
            chosen_device(arguments.device) or "auto",
            arguments.cache,
            arguments.route,
            arguments.strict or None,
            arguments.threads,
        )
    except Error:
        raise
    except ValueError as error:  # of a variable, which it names: options were checked
        raise UsageError("", str(error)) from None


def _calibration(arguments: argparse.Namespace) -> dict[str, Any]:
    try:
        return calibrations.in_use(arguments.path, chosen_device(arguments.device) or "")
    except OSError as error:
        raise CommandError(arguments.path, error.strerror or str(error)) from None


def _past_the_end(arguments: argparse.Namespace, size: int | None) -> CommandError:
    end = "of a file that does not tell its size" if size is None else f"at {size_text(size)}"
    where = f"--offset {arguments.offset} is past the end, {end}"
    return CommandError(arguments.path, where)


def run(arguments: argparse.Namespace) -> int:
    """Read and print."""
    import penstock

    require_regular(arguments.path)
    with traced(arguments.trace), _open(arguments) as file:
        told = file.size > 0
        if told and arguments.offset > file.size:
            raise _past_the_end(arguments, file.size)
        left = max(file.size - arguments.offset, 0) if told else sys.maxsize - arguments.offset
        size = left if arguments.size is None else min(arguments.size, left)
        room = _PIECES_IN_FLIGHT * _PIECE_SIZE if told else _UNTOLD_PIECE_SIZE
        memory = penstock.empty(min(size, room), arguments.device)
        used = _calibration(arguments) if arguments.explain else None
        begin = time.perf_counter()
        total = _read(file, memory, size, arguments)
        seconds = time.perf_counter() - begin
        if not told and total.bytes == 0 and arguments.offset > 0 and size > 0:
            raise _past_the_end(arguments, None)
    if arguments.json:
        answer: dict[str, Any] = {
            "path": arguments.path,
            "offset": arguments.offset,
            "bytes": total.bytes,
            "seconds": seconds,
            "device": memory.device,
            "checked": arguments.check,
            **total.groups,
            "transfers": total.transfers,
            "direct_depth": total.direct_depth,
            **total.times,
        }
        if arguments.explain:
            answer["pieces"] = total.pieces
            answer["calibration"] = used
        print(json.dumps(answer, indent=2), file=_channel(arguments))
    elif not arguments.quiet:
        _print_text(total, seconds, memory.device, arguments)
        if used is not None:
            text = calibrations.in_use_text(used)
            print(f"  {'calibration':<10} {text}", file=_channel(arguments))
    return 0
