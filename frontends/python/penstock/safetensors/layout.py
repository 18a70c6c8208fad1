"""Plans where the tensors of a file go in memory, and the reads for them. Pure: moves no byte.

In the file, tensors follow each other without gaps after the header, mostly at odd multiples of 8.
In memory each shall begin at a multiple of ALIGNMENT, so the two places seldom agree modulo the
sector, and direct reads cannot write tensors to their places. In memory that the host can address,
large direct reads write them to an address that agrees modulo the page. Then they slide down by a
few bytes, while other reads are under way:

    landing    . . . . [header's end|tensor 0      |tensor 1   |tensor 2 ...        ]
    tensors    [tensor 0      |..|tensor 1   |...|tensor 2 ...

Each tensor slides down or stays, and the first tensors slide first, so a slide overwrites no bytes
that have yet to move. A file whose tensors are at multiples of ALIGNMENT needs no slide. Copies
out of the OS page cache, and copies into memory of other devices, can go to any address: then each
stretch of tensors is read to its final place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

ALIGNMENT = 64  # of each tensor: a cache line, and the requirement of DLPack's consumers
PAGE = 4096  # direct I/O may want this of a place in the file, in memory, and of a size
READ_BYTES = 16 << 20  # of one read if tensors slide: while they do, the next reads arrive


class Span(NamedTuple):
    """A range of a file."""

    offset: int
    size: int


class Piece(NamedTuple):
    """A read: its place in the memory, its size, its offset in the file."""

    to: int
    size: int
    offset: int


class Slide(NamedTuple):
    """A move inside the memory, downwards; the two ranges may overlap."""

    to: int
    source: int
    size: int


class Step(NamedTuple):
    """Reads that belong together, and the slides that follow them and those of earlier steps."""

    pieces: list[Piece]
    slides: list[Slide]


class Layout(NamedTuple):
    """A plan to load tensors."""

    size: int  # of the memory that it takes
    places: list[int]  # of each tensor in the memory
    steps: list[Step]


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _packed(spans: Iterable[Span]) -> tuple[list[int], int]:
    """Return aligned places for tensors, in a row, and the end of the last one."""
    places = []
    end = 0
    for span in spans:
        places.append(_round_up(end, ALIGNMENT))
        end = places[-1] + span.size
    return places, end


def plan(spans: Sequence[Span], file_size: int, *, slide: bool) -> Layout:
    """Plan to load tensors that lie back to back in a file, in its order.

    With `slide`, direct reads write tensors near their places; the host can address the memory,
    which begins at a page. Otherwise tensors are read to their final places.
    """
    places, end = _packed(spans)
    first = next((span.offset for span in spans if span.size > 0), None)
    if first is None:
        return Layout(end, places, [])
    if not slide:
        return Layout(end, places, [Step(_stretches(spans, places), [])])
    last = spans[-1].offset + spans[-1].size
    begin = first // PAGE * PAGE
    # The bytes from the last tensor to the end of its page are not needed, but a whole page is
    # read faster than part of one.
    stop = min(_round_up(last, PAGE), file_size)
    landing = _round_up(
        max(place - (span.offset - begin) for span, place in zip(spans, places, strict=True)), PAGE
    )
    landing = max(landing, 0)
    drops = [landing + s.offset - begin - p for s, p in zip(spans, places, strict=True)]
    up = min(drops) // ALIGNMENT * ALIGNMENT
    places = [place + up for place in places]
    slides = _slides(spans, places, [drop - up for drop in drops])
    size = max(landing + stop - begin, end + up)
    if not slides:
        return Layout(size, places, [Step([Piece(landing, stop - begin, begin)], [])])
    return Layout(size, places, _steps(begin, stop, landing, slides))


def _stretches(spans: Sequence[Span], places: Sequence[int]) -> list[Piece]:
    """Return the reads of tensors to their places; neighbours in file and memory share a read."""
    out: list[Piece] = []
    for span, place in zip(spans, places, strict=True):
        if span.size == 0:
            continue
        before = out[-1] if out else Piece(-1, 0, -1)
        if before.to + before.size == place and before.offset + before.size == span.offset:
            out[-1] = before._replace(size=before.size + span.size)
        else:
            out.append(Piece(place, span.size, span.offset))
    return out


def _slides(spans: Sequence[Span], places: Sequence[int], drops: Sequence[int]) -> list[Slide]:
    """Return the moves of tensors to their places; neighbours with one distance share a move."""
    out: list[Slide] = []
    for span, place, drop in zip(spans, places, drops, strict=True):
        if span.size == 0 or drop == 0:
            continue
        if out and out[-1].to + out[-1].size == place and out[-1].source - out[-1].to == drop:
            out[-1] = out[-1]._replace(size=out[-1].size + span.size)
        else:
            out.append(Slide(place, place + drop, span.size))
    return out


def _steps(begin: int, stop: int, landing: int, slides: Sequence[Slide]) -> list[Step]:
    """Cut a read of [begin, stop) of the file into steps, each with the slides of its bytes."""
    out = []
    waiting = list(reversed(slides))
    for offset in range(begin, stop, READ_BYTES):
        to = landing + offset - begin
        piece = Piece(to, min(READ_BYTES, stop - offset), offset)
        arrived = to + piece.size
        now = []
        while waiting and waiting[-1].source < arrived:
            whole = waiting.pop()
            part = min(whole.size, arrived - whole.source)
            now.append(whole._replace(size=part))
            if part < whole.size:
                waiting.append(Slide(whole.to + part, whole.source + part, whole.size - part))
        out.append(Step([piece], now))
    return out
