"""Draws offsets over accesses or over time as PNG, with only zlib and struct.

The canvas has one byte a pixel, an index into a palette. The font has 3 by 5 dots and capitals
only: each glyph is five digits, one for each row, whose three bits are the dots.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

WIDTH, HEIGHT = 1000, 620
LEFT, TOP, RIGHT, BOTTOM = 120, 44, 20, 106  # around the plot
CELL = 2  # pixels of a cell's side, so that single accesses are visible
COLUMNS, ROWS = (WIDTH - LEFT - RIGHT) // CELL, (HEIGHT - TOP - BOTTOM) // CELL
_PLOT_WIDTH, _PLOT_HEIGHT = COLUMNS * CELL, ROWS * CELL

_PAPER, _INK, _GRID, _FIRST_COLOUR = 0, 1, 2, 3
_COLOURS = (
    (31, 119, 180), (214, 39, 40), (44, 160, 44), (148, 103, 189), (255, 127, 14), (23, 190, 207),
    (227, 119, 194), (140, 86, 75), (188, 189, 34), (0, 0, 128), (127, 127, 127), (0, 100, 0),
)  # fmt: skip
_PALETTE = ((255, 255, 255), (0, 0, 0), (225, 225, 225), *_COLOURS)

_FONT = {
    "0": "75557", "1": "26227", "2": "71747", "3": "71717", "4": "55711", "5": "74717",
    "6": "74757", "7": "71222", "8": "75757", "9": "75717", "A": "25755", "B": "65656",
    "C": "34443", "D": "65556", "E": "74647", "F": "74644", "G": "34553", "H": "55755",
    "I": "72227", "J": "11152", "K": "55655", "L": "44447", "M": "57755", "N": "65555",
    "O": "25552", "P": "65644", "Q": "25573", "R": "65655", "S": "34216", "T": "72222",
    "U": "55557", "V": "55552", "W": "55775", "X": "55255", "Y": "55222", "Z": "71247",
    " ": "00000", ".": "00002", ",": "00024", ":": "02020", "-": "00700", "_": "00007",
    "/": "11244", "(": "12221", ")": "42224", "+": "02720", "%": "51245", "=": "07070",
    "#": "57575",
}  # fmt: skip
_UNKNOWN = "77777"
_DOT = 2  # pixels
_ADVANCE = 4 * _DOT
_TEXT_HEIGHT = 5 * _DOT
_TICKS_MAX = 8
_LEGEND_ENTRIES = 8
_LEGEND_ROW = 4  # entries beside each other


@dataclass(frozen=True)
class Plot:
    """The result of `_core.SignatureReader.plot(COLUMNS, ROWS)`, and the texts around it."""

    cells: bytes
    x_end: int  # accesses, or nanoseconds
    offset_begin: int
    offset_end: int
    over_time: bool
    title: str
    legend: list[str]  # a text for each stream, in the order of their colours


def byte_ticks(begin: int, end: int) -> list[tuple[int, str]]:
    """Return the offsets of the axis's marks, with labels; steps are powers of two."""
    step = 1
    while (end - begin) // step > _TICKS_MAX:
        step *= 2
    unit, name = 1, "B"
    for larger in ("KIB", "MIB", "GIB", "TIB", "PIB", "EIB"):
        if step < unit * 1024:
            break
        unit, name = unit * 1024, larger
    first = -(-begin // step) * step
    return [(at, f"{at // unit} {name}") for at in range(first, end + 1, step)]


def _steps() -> Iterator[int]:
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


def count_ticks(end: int) -> list[tuple[int, str]]:
    """Return the access numbers of the axis's marks, with labels; steps are 1, 2, 5, 10 ..."""
    step = next(step for step in _steps() if end // step <= _TICKS_MAX)
    return [(at, str(at)) for at in range(0, end + 1, step)]


def time_ticks(end_ns: int) -> list[tuple[int, str]]:
    """Return the times of the axis's marks, with labels."""
    ticks = count_ticks(end_ns)
    step = ticks[1][0] if len(ticks) > 1 else 1
    unit, name = 1, "NS"
    for larger in ("US", "MS", "S"):
        if step < unit * 1000:
            break
        unit, name = unit * 1000, larger
    return [(at, f"{at // unit} {name}") for at, _ in ticks]


class _Canvas:
    def __init__(self) -> None:
        self.pixels = bytearray(WIDTH * HEIGHT)

    def rectangle(self, x: int, y: int, width: int, height: int, colour: int) -> None:
        for row in range(max(y, 0), min(y + height, HEIGHT)):
            begin, end = max(x, 0), min(x + width, WIDTH)
            if begin < end:
                self.pixels[row * WIDTH + begin : row * WIDTH + end] = bytes([colour]) * (
                    end - begin
                )

    def text(self, x: int, y: int, text: str) -> None:
        for character in text.upper():
            for row, digit in enumerate(_FONT.get(character, _UNKNOWN)):
                for column in range(3):
                    if int(digit) & (4 >> column):
                        self.rectangle(x + column * _DOT, y + row * _DOT, _DOT, _DOT, _INK)
            x += _ADVANCE

    def png(self) -> bytes:
        rows = (b"\0" + self.pixels[y * WIDTH : (y + 1) * WIDTH] for y in range(HEIGHT))
        header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 3, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in (
                (b"IHDR", header),
                (b"PLTE", bytes(part for colour in _PALETTE for part in colour)),
                (b"IDAT", zlib.compress(b"".join(rows), 9)),
                (b"IEND", b""),
            )
        )


def _wide(text: str) -> int:
    return len(text) * _ADVANCE - _DOT


def _draw_axes(canvas: _Canvas, plot: Plot) -> None:
    height = max(plot.offset_end - plot.offset_begin, 1)
    for at, label in byte_ticks(plot.offset_begin, plot.offset_end):
        y = TOP + _PLOT_HEIGHT - (at - plot.offset_begin) * _PLOT_HEIGHT // height
        canvas.rectangle(LEFT, y, _PLOT_WIDTH, 1, _GRID)
        canvas.rectangle(LEFT - 6, y, 6, 1, _INK)
        canvas.text(LEFT - 10 - _wide(label), y - _TEXT_HEIGHT // 2, label)
    ticks = time_ticks(plot.x_end) if plot.over_time else count_ticks(plot.x_end)
    for at, label in ticks:
        x = LEFT + at * _PLOT_WIDTH // max(plot.x_end, 1)
        canvas.rectangle(x, TOP, 1, _PLOT_HEIGHT, _GRID)
        canvas.rectangle(x, TOP + _PLOT_HEIGHT, 1, 6, _INK)
        canvas.text(
            min(x - _wide(label) // 2, WIDTH - _wide(label)), TOP + _PLOT_HEIGHT + 10, label
        )
    name = "TIME SINCE THE FIRST ACCESS" if plot.over_time else "NUMBER OF THE ACCESS"
    canvas.text(LEFT + (_PLOT_WIDTH - _wide(name)) // 2, TOP + _PLOT_HEIGHT + 28, name)
    canvas.text(LEFT - 10 - _wide("OFFSET"), TOP - 18, "OFFSET")


def _draw_legend(canvas: _Canvas, plot: Plot) -> None:
    width = _PLOT_WIDTH // _LEGEND_ROW
    shown = plot.legend[:_LEGEND_ENTRIES]
    if len(plot.legend) > _LEGEND_ENTRIES:
        shown[-1] = f"AND {len(plot.legend) - _LEGEND_ENTRIES + 1} MORE"
    for i, text in enumerate(shown):
        x = LEFT + i % _LEGEND_ROW * width
        y = TOP + _PLOT_HEIGHT + 54 + i // _LEGEND_ROW * 20
        colour = _FIRST_COLOUR + i % len(_COLOURS)
        if not text.startswith("AND "):
            canvas.rectangle(x, y, _TEXT_HEIGHT, _TEXT_HEIGHT, colour)
        canvas.text(x + 16, y, text[: (width - 24) // _ADVANCE])


def _draw_cells(canvas: _Canvas, plot: Plot) -> None:
    for row in range(ROWS):
        cells = plot.cells[row * COLUMNS : (row + 1) * COLUMNS]
        for column, cell in enumerate(cells):
            if cell != 0:
                x, y = LEFT + column * CELL, TOP + row * CELL
                canvas.rectangle(x, y, CELL, CELL, _FIRST_COLOUR + cell - 1)


def draw(plot: Plot) -> bytes:
    """Return the picture of `plot` as PNG."""
    canvas = _Canvas()
    title = plot.title[: (WIDTH - 40) // _ADVANCE]
    canvas.text((WIDTH - _wide(title)) // 2, 10, title)
    _draw_axes(canvas, plot)
    _draw_cells(canvas, plot)
    canvas.rectangle(LEFT, TOP, 1, _PLOT_HEIGHT, _INK)
    canvas.rectangle(LEFT, TOP + _PLOT_HEIGHT, _PLOT_WIDTH, 1, _INK)
    _draw_legend(canvas, plot)
    return canvas.png()
