"""Goal: a layout puts each byte where it belongs, and a slice of a file is what NumPy makes of it.

Layouts are carried out on byte arrays, with reads that arrive as late and as early as they may;
everything is random, and a failure prints the seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.safetensors import layout, slicing

LAYOUTS = 400
SLICES = 3_000


def carried_out(made: layout.Layout, file: bytes, chance: random.Random) -> bytearray:
    """Return the memory after all steps; each read arrives at any time before its slides."""
    memory = bytearray(chance.randbytes(made.size))
    waiting = list(range(len(made.steps)))
    early = chance.choice((0.0, 0.3, 1.0))

    def land(index: int) -> None:
        waiting.remove(index)
        for piece in made.steps[index].pieces:
            assert 0 <= piece.to <= piece.to + piece.size <= made.size
            assert piece.offset + piece.size <= len(file)
            memory[piece.to : piece.to + piece.size] = file[piece.offset :][: piece.size]

    for index, step in enumerate(made.steps):
        for other in [i for i in waiting if i > index and chance.random() < early]:
            land(other)
        if index in waiting:
            land(index)
        for slide in step.slides:
            assert slide.to < slide.source
            memory[slide.to : slide.to + slide.size] = memory[slide.source :][: slide.size]
    return memory


@pytest.mark.parametrize("slide", [True, False])
def test_layout_brings_every_byte_to_an_aligned_place(monkeypatch: Any, slide: bool) -> None:
    for seed in range(LAYOUTS):
        chance = random.Random(seed)
        monkeypatch.setattr(layout, "READ_BYTES", chance.choice((4096, 16384, 16 << 20)))
        sizes = chance.choice(((0, 1, 3, 8, 4, 100), (64, 4096, 128, 9984), (8, 5000, 40_000)))
        unit = chance.choice((1, 8, 64))
        offset = chance.randrange(1, 10_000) * unit
        spans = []
        for _ in range(chance.randrange(40)):
            spans.append(layout.Span(offset, chance.choice(sizes)))
            offset += spans[-1].size
        file = chance.randbytes(offset + chance.choice((0, 0, 5000)))
        made = layout.plan(spans, len(file), slide=slide)
        memory = carried_out(made, file, chance)
        end = 0
        for span, place in zip(spans, made.places, strict=True):
            assert place % layout.ALIGNMENT == 0, f"seed {seed}"
            assert place >= end, f"seed {seed}"
            end = place + span.size
            assert memory[place:end] == file[span.offset :][: span.size], f"seed {seed}"
        if slide:
            for piece in [piece for step in made.steps for piece in step.pieces]:
                assert piece.to % layout.PAGE == piece.offset % layout.PAGE == 0, f"seed {seed}"


def test_tensors_that_lie_well_are_read_at_once() -> None:
    spans = [layout.Span(128 + i * (20 << 20), 20 << 20) for i in range(10)]
    made = layout.plan(spans, 128 + (200 << 20), slide=True)
    assert made.places == [span.offset for span in spans]
    assert made.steps == [([(0, 128 + (200 << 20), 0)], [])]


def test_tensors_at_an_odd_place_slide_by_no_more_than_needed() -> None:
    spans = [layout.Span(1000 + i * (20 << 20), 20 << 20) for i in range(10)]
    made = layout.plan(spans, 1000 + (200 << 20), slide=True)
    slides = [slide for step in made.steps for slide in step.slides]
    assert {slide.source - slide.to for slide in slides} == {1000 % 64}
    assert len(slides) == len(made.steps) == 13
    assert made.size < (200 << 20) + 2 * layout.PAGE


def random_key(shape: Sequence[int], chance: random.Random) -> Any:
    """Return a basic slice of an array of this shape."""
    keys: list[Any] = []
    for size in shape:
        kind = chance.randrange(5)
        if kind == 0 and size > 0:
            keys.append(chance.randrange(-size, size))
        elif kind == 1:
            keys.append(slice(None))
        else:
            start, stop = (
                chance.choice((None, chance.randrange(-size - 2, size + 3))) for _ in range(2)
            )
            keys.append(slice(start, stop, chance.choice((None, 1, 1, 2, 3, 50))))
    if chance.random() < 0.3:
        begin = chance.randrange(len(keys) + 1)
        keys[begin : chance.randrange(begin, len(keys) + 1)] = [...]
    elif chance.random() < 0.3:
        del keys[chance.randrange(len(keys) + 1) :]
    return keys[0] if len(keys) == 1 and chance.random() < 0.5 else tuple(keys)


@pytest.mark.parametrize("gather", [True, False])
def test_slices_are_those_of_numpy(monkeypatch: Any, gather: bool) -> None:
    np = pytest.importorskip("numpy")
    for seed in range(SLICES):
        chance = random.Random(seed)
        monkeypatch.setattr(slicing, "GAP_BYTES_MAX", chance.choice((0, 7, 64, 1 << 20)))
        sizes = chance.choice(((0, 1, 2, 3, 7), (5, 8, 40), (1, 3, 30)))
        shape = [chance.choice(sizes) for _ in range(chance.randrange(4))]
        array = np.arange(np.prod(shape, dtype=int)).astype(chance.choice(("u1", "u2", "f8")))
        array = array.reshape(shape)
        key = random_key(shape, chance)
        made = slicing.cut(shape, array.itemsize, key, gather=gather)
        wanted = array[key]
        assert made.shape == wanted.shape, f"seed {seed}"
        file = array.tobytes()
        parts = [file[offset : offset + size] for offset, size in made.ranges]
        assert all(len(part) == made.ranges[0].size for part in parts), f"seed {seed}"
        read = b"".join(parts)
        if made.dense:
            assert read == wanted.tobytes(), f"seed {seed}"
            continue
        assert gather
        picked = np.ndarray(made.picked, array.dtype, read, strides=made.strides)
        assert picked.tobytes() == wanted.tobytes(), f"seed {seed}"


def test_near_ranges_are_one_read_and_far_ones_are_not() -> None:
    near = slicing.cut((1000, 64), 4, (slice(None), slice(0, 8)), gather=True)
    assert near.ranges == [(0, 999 * 256 + 32)]
    far = slicing.cut((1000, 1 << 20), 4, (slice(None), slice(0, 8)), gather=True)
    assert len(far.ranges) == 1000
    assert far.dense
    assert {span.size for span in far.ranges} == {32}


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        ((0, 0, 0), IndexError, "has 2 dimensions"),
        (10, IndexError, "index 10 is out of bounds: dimension 0 has 10"),
        ((0, -5), IndexError, "index -5 is out of bounds: dimension 1 has 4"),
        (slice(None, None, -1), ValueError, "steps must be positive"),
        (slice(None, None, 0), ValueError, "cannot be zero"),
        ((..., ...), IndexError, "one ellipsis"),
        ("a", TypeError, "integer"),
        ([0, 1], TypeError, "integer"),
        (None, TypeError, "integer"),
    ],
)
def test_bad_slice_is_refused(key: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        slicing.cut((10, 4), 4, key, gather=True)


def test_slice_of_millions_of_ranges_is_refused() -> None:
    with pytest.raises(ValueError, match="read the whole tensor"):
        slicing.cut((1 << 21, 1 << 21), 4, (slice(None), 0), gather=True)
