"""What `penstock signature` says of a stream: whose it is, how much was told, and what to do.

A stream is an entry of `_core.SignatureReader.streams`.
"""

from __future__ import annotations

import math
import os

from penstock.arguments import size_text

TYPE_CHECKING = False  # typing's, whose loading is a tenth of a short command's time
if TYPE_CHECKING:
    from typing import Any

_SMALL_REQUEST = 64 << 10  # bytes below which a call costs more than its bytes
_FEW_ACCESSES = 8
_IN_ORDER = ("contiguous", "interleaved")
_EVEN = ("fixed stride", "nest", "period", "majority", "interleaved")


def shown(name: str) -> str:
    """Return `name` in a form that prints on one line, whatever bytes it has."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text) or "(no name)"


def _accesses(count: int) -> str:
    return f"{count} access{'es' if count != 1 else ''}"


def ranks(stream: dict[str, Any]) -> str:
    """Return the ranks and threads whose accesses the stream has."""
    first, count = stream["first_rank"], stream["rank_count"]
    if stream["shared_by"] > 1:
        return f"{stream['shared_by']} ranks or threads together"
    text = f"rank {first}" if count == 1 else f"ranks {first}-{first + count - 1}"
    extents = [extent for extent in stream["grid"] if extent != 1]
    if len(extents) > 1:
        text += f" (grid {' x '.join(map(str, extents))})"
    return text + (f", thread {stream['thread']}" if stream["thread"] else "")


def whose(stream: dict[str, Any]) -> str:
    """Return the stream's operation, file, ranks and context."""
    text = f"{stream['operation']} {shown(stream['file'])}, {ranks(stream)}"
    return text + (f", context {stream['context']}" if stream["context"] else "")


def legend(stream: dict[str, Any]) -> str:
    """Return what a picture says of the stream beside the name of its file."""
    share = math.floor(stream["confidence"] * 100)
    return f"{stream['operation']}, {ranks(stream)}: {stream['class']}, {share} % told ahead"


def told(stream: dict[str, Any]) -> str:
    """Return which share of the stream's bytes was told ahead."""
    several = "" if stream["all"] else "the first "
    share = math.floor(stream["confidence"] * 1000) / 1000  # rounded down: 1.000 means all of them
    size = size_text(stream["bytes"])
    return f"{share:.3f} of {several}{size} in {_accesses(stream['accesses'])} told ahead"


def class_text(stream: dict[str, Any]) -> str:
    """Return the stream's class, and what there is besides to know of it."""
    text = str(stream["class"])
    if text in _IN_ORDER and stream["sequences"] > 1:
        text += f", {stream['sequences']} contiguous sequences in turn"
    if text == "period" and stream["repeat_period"]:
        text += f", the same {stream['repeat_period']} accesses again and again"
    return text


def sizes(stream: dict[str, Any]) -> str:
    """Return the sizes of the stream's accesses."""
    low, high = stream["size_min"], stream["size_max"]
    if low == high:
        return f"{size_text(low)} each"
    mean = stream["bytes"] // max(stream["accesses"], 1)
    return f"{size_text(low)} to {size_text(high)}, {size_text(mean)} on average"


def time(stream: dict[str, Any]) -> str:
    """Return the time from the first access to the last, with the rate; "" if it is not known."""
    span_ns = stream["last_ns"] - stream["first_ns"]
    if span_ns <= 0:
        return ""
    unit, name = next(
        (unit, name) for unit, name in ((10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns"))
        if span_ns >= unit
    )  # fmt: skip
    rate = size_text(stream["bytes"] * 10**9 // span_ns)
    return f"{span_ns / unit:.1f} {name} from the first to the last access, {rate}/s"


def loss(one: dict[str, Any]) -> str:
    """Return how much was lost by a cause, and the cause."""
    return f"{_accesses(one['count'])}, {size_text(one.get('bytes', 0))}: {one['cause']}"


def suggestion(stream: dict[str, Any]) -> str:
    """Return the one thing that helps this stream most; "" if there is nothing to say."""
    if stream["accesses"] < _FEW_ACCESSES:
        return ""
    mean = stream["bytes"] // stream["accesses"]
    rules = _rules_for_writes if stream["operation"] == "write" else _rules_for_reads
    return next((text for holds, text in rules(stream, mean) if holds), "")


def _rules_for_reads(stream: dict[str, Any], mean: int) -> list[tuple[bool, str]]:
    kind, even = stream["class"], stream["class"] in _EVEN
    again = size_text(mean * stream["repeat_period"])
    return [
        (
            stream["shared_by"] > 1,
            "read ahead for the file as a whole: each thread alone seems to jump",
        ),
        (
            stream["repeat_period"] > 0,
            f"the same {again} come again: keep them in memory",
        ),
        (
            kind == "random",
            "no order to follow: keep many reads in flight, and switch readahead off",
        ),
        (
            kind == "contiguous" and mean < _SMALL_REQUEST,
            f"in order, but by {size_text(mean)}: read 1 MiB at a time",
        ),
        (
            kind == "contiguous",
            "in order by large reads, which readahead serves: nothing to change",
        ),
        (
            even and stream["rank_count"] > 1,
            "the pieces of the ranks belong together: read them by collective calls",
        ),
        (
            even and stream["sequences"] > 1,
            f"read larger pieces of each sequence than {size_text(mean)}",
        ),
        (
            even and mean <= _SMALL_REQUEST,
            "the OS does not read ahead of it, but penstock.open() does",
        ),
        (
            even,
            "the OS does not read ahead of it: keep several reads in flight",
        ),
    ]


def _rules_for_writes(stream: dict[str, Any], mean: int) -> list[tuple[bool, str]]:
    in_order = stream["class"] in _IN_ORDER
    return [
        (in_order and mean >= _SMALL_REQUEST, "in order by large writes: nothing to change"),
        (in_order, f"in order, but by {size_text(mean)}: collect 1 MiB before each write"),
        (
            stream["rank_count"] > 1,
            "the pieces of the ranks belong together: write them by collective calls",
        ),
        (True, "sort the writes by offset, and merge neighbours, before they are made"),
    ]
