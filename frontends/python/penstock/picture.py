"""Draws the offsets of streams over accesses or over time, with a panel for each file.

A panel shows the cells of `_core.SignatureReader.plot` as an image. Matplotlib is imported only
here, so that the rest of the command works without it.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import CommandError

TYPE_CHECKING = False  # typing's, whose loading is a tenth of a short command's time
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS, ROWS = 430, 110  # cells of a panel, so large that single accesses are visible
# As many as _core numbers before it begins again.
_COLOURS = (
    "tab:blue", "tab:red", "tab:green", "tab:purple", "tab:orange", "tab:cyan",
    "tab:pink", "tab:brown", "tab:olive", "navy", "tab:gray", "darkgreen",
)  # fmt: skip
PANELS_MAX = 6
_LEGEND_MAX = 6
_NAME_MAX = 90  # characters
_TICKS_MAX = 6
_WIDTH, _PANEL_HEIGHT, _MARGIN_HEIGHT = 10.0, 2.6, 0.9  # inches


@dataclass(frozen=True)
class Panel:
    """The result of `_core.SignatureReader.plot(COLUMNS, ROWS)`, and the texts around it."""

    cells: bytes
    x_begin: int  # of the panel on the axis that all panels share: 0, or nanoseconds
    x_end: int  # accesses, or nanoseconds from x_begin on
    offset_begin: int
    offset_end: int
    file: str
    legend: list[tuple[int, str]]  # number of a stream, from 1 on, and its text


def _silence() -> None:
    """Keep Matplotlib from telling of its caches; errors are raised anyway."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)


def require_matplotlib() -> None:
    """Raise CommandError if Matplotlib is missing."""
    try:
        _silence()
        import matplotlib  # noqa: F401
    except ImportError:
        raise CommandError(
            "--picture", "Matplotlib is missing: pip install 'penstock[picture]'"
        ) from None


def byte_ticks(begin: int, end: int) -> list[tuple[int, str]]:
    """Return the offsets of the axis's marks, with labels; steps are powers of two."""
    step = 1
    while (end - begin) // step > _TICKS_MAX:
        step *= 2
    unit, name = 1, "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if step < unit * 1024:
            break
        unit, name = unit * 1024, larger
    first = -(-begin // step) * step
    return [(at, f"{at // unit} {name}") for at in range(first, end + 1, step)]


def _draw_panel(axes: Axes, panel: Panel, *, over_time: bool) -> None:
    import numpy as np
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    colours = ListedColormap(["none", *_COLOURS])
    unit = 1e-9 if over_time else 1
    left, right = panel.x_begin * unit, (panel.x_begin + max(panel.x_end, 1)) * unit
    # Offsets are drawn from 0 on, because floating-point numbers hold no large ones exactly.
    height = max(panel.offset_end - panel.offset_begin, 1)
    axes.imshow(
        np.frombuffer(panel.cells, dtype=np.uint8).reshape(ROWS, COLUMNS),
        cmap=colours,
        vmin=0,
        vmax=len(_COLOURS),
        extent=(left, right, 0, height),
        aspect="auto",
        interpolation="nearest",
        zorder=1,
    )
    ticks = byte_ticks(panel.offset_begin, panel.offset_end)
    axes.set_yticks([at - panel.offset_begin for at, _ in ticks], [label for _, label in ticks])
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    name = panel.file if len(panel.file) <= _NAME_MAX else "..." + panel.file[3 - _NAME_MAX :]
    axes.set_title(name, loc="left", fontsize="medium", parse_math=False)
    shown = panel.legend[:_LEGEND_MAX]
    handles = [
        Patch(color=colours(1 + (number - 1) % len(_COLOURS)), label=text) for number, text in shown
    ]
    if len(panel.legend) > len(shown):
        handles.append(Patch(alpha=0, label=f"and {len(panel.legend) - len(shown)} more"))
    legend = axes.legend(handles=handles, loc="upper left", fontsize="small", framealpha=0.8)
    for text in legend.get_texts():
        text.set_parse_math(False)


def figure(panels: Sequence[Panel], title: str, *, over_time: bool) -> Figure:
    """Return the picture of the panels, one below the other."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    height = _PANEL_HEIGHT * len(panels) + _MARGIN_HEIGHT
    whole = Figure(figsize=(_WIDTH, height), layout="constrained")
    every = whole.subplots(len(panels), 1, sharex=over_time, squeeze=False)[:, 0]
    for axes, panel in zip(every, panels, strict=True):
        _draw_panel(axes, panel, over_time=over_time)
        if over_time:
            axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
    if over_time:
        every[0].set_xlim(0, max(one.x_begin + max(one.x_end, 1) for one in panels) * 1e-9)
    every[-1].set_xlabel("time since the first access" if over_time else "number of the access")
    whole.supylabel("offset in the file")
    whole.suptitle(title, parse_math=False)
    return whole


def draw(panels: Sequence[Panel], title: str, *, over_time: bool) -> bytes:
    """Return the picture of the panels as PNG."""
    # It says that it builds its list of fonts, and which characters the font does not have.
    _silence()
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure(panels, title, over_time=over_time).savefig(out, format="png", dpi=110)
    return out.getvalue()
