"""Goal: the picture of `penstock signature` has a panel for each file, with its offsets."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="Matplotlib is missing: pip install matplotlib")

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage, imread

from penstock import picture

COMMAND = [sys.executable, "-m", "penstock", "signature", "explain", "-", "--picture"]


def panel_of(accesses: list[tuple[int, int]], name: str = "data") -> picture.Panel:
    """Return a panel of one stream; the accesses are cells."""
    cells = bytearray(picture.COLUMNS * picture.ROWS)
    for column, row in accesses:
        cells[row * picture.COLUMNS + column] = 1
    return picture.Panel(
        cells=bytes(cells),
        x_begin=0,
        x_end=1000,
        offset_begin=0,
        offset_end=1 << 20,
        file=name,
        legend=[(1, "read, rank 0: random, 0 % told ahead")],
    )


def axes_of(panels: list[picture.Panel], *, over_time: bool = False) -> list[Axes]:
    return list(picture.figure(panels, "trace", over_time=over_time).axes)


def test_each_file_has_a_panel_with_its_cells_its_name_and_its_streams() -> None:
    chance = random.Random(1)
    places = [
        [(chance.randrange(picture.COLUMNS), chance.randrange(picture.ROWS)) for _ in range(99)]
        for _ in range(2)
    ]
    panels = [panel_of(places[0], "/data/a"), panel_of(places[1], "/data/" + 99 * "$b_")]
    every = axes_of(panels)
    assert len(every) == 2
    for axes, panel in zip(every, panels, strict=True):
        (image,) = axes.get_images()
        assert isinstance(image, AxesImage)
        drawn = np.asarray(image.get_array(), dtype=np.uint8)
        assert drawn.tobytes() == panel.cells
        legend = axes.get_legend()
        assert legend is not None
        assert [one.get_text() for one in legend.get_texts()] == [panel.legend[0][1]]
    assert every[0].get_title(loc="left") == "/data/a"
    assert every[1].get_title(loc="left").startswith("...")
    assert picture.draw(panels, "a$ trace", over_time=False).startswith(b"\x89PNG")


def test_panels_over_time_share_the_axis() -> None:
    first, second = panel_of([(0, 0)]), panel_of([(0, 0)])
    object.__setattr__(second, "x_begin", 5_000_000_000)
    every = axes_of([first, second], over_time=True)
    ends = [end for one in every for end in one.get_images()[0].get_extent()[:2]]
    assert ends == pytest.approx([0, 1e-6, 5, 5.000001])
    for one in every:
        assert list(one.get_xlim()) == pytest.approx([0, 5.000001])


def test_offsets_beyond_the_precision_of_floats_have_ticks() -> None:
    panel = panel_of([(3, 3)])
    for begin, size in ((0, 0), ((1 << 62) + 1, 9), (0, (1 << 63) - 1)):
        object.__setattr__(panel, "offset_begin", begin)
        object.__setattr__(panel, "offset_end", begin + size)
        assert picture.draw([panel], "", over_time=False).startswith(b"\x89PNG")


def test_ticks_are_round_and_few() -> None:
    assert picture.byte_ticks(0, 4096 * 6)[:2] == [(0, "0 KiB"), (4096, "4 KiB")]
    assert picture.byte_ticks(5, 5) == [(5, "5 B")]
    chance = random.Random(1)
    for _ in range(200):
        begin, span = chance.randrange(1 << 62), chance.randrange(1 << chance.randrange(1, 62))
        assert 1 <= len(picture.byte_ticks(begin, begin + span)) <= 8 or span < 8


def command(text: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *words], input=text.encode(), capture_output=True, check=False)


@pytest.mark.parametrize("over", ["accesses", "time"])
def test_the_command_writes_a_panel_for_each_large_file(tmp_path: Path, over: str) -> None:
    text = "penstock-trace 1\n"
    for file in range(8):
        text += "".join(f"{file * 99 + i} {i % 2} r f{file} {i * 4096} 4096\n" for i in range(50))
    paths = [tmp_path / "one.png", tmp_path / "all.png"]
    for path, lines in zip(paths, (51, 401), strict=True):
        head = "".join(text.splitlines(keepends=True)[:lines])
        done = command(head, str(path), "--over", over)
        assert (done.returncode, done.stderr) == (0, b"")
    one, most = (imread(path).shape for path in paths)
    assert one[1] == most[1]
    assert most[0] > 4 * one[0]


def test_without_matplotlib_it_is_said_what_is_missing(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None; from penstock.cli import main;"
        "sys.exit(main(['signature', '-', '--picture', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "p.png")],
        input=b"penstock-trace 1\n1 0 r a 0 1\n",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        b"penstock: --picture: Matplotlib is missing: pip install 'penstock[picture]'\n"
    )
    assert not (tmp_path / "p.png").exists()
