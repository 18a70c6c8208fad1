"""Finds the bytes of a basic slice of a tensor, in as few reads as pay. Pure: reads nothing."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import NamedTuple, SupportsIndex

from penstock.safetensors.layout import Span

Index = SupportsIndex | slice | EllipsisType
# A gap of at most this many bytes between two ranges is read too: an operation costs as much.
GAP_BYTES_MAX = 32 << 10
RANGES_MAX = 1 << 20  # of one slice: with more, reading the whole tensor is faster


class Cut(NamedTuple):
    """A slice of a tensor: ranges of its bytes, of one size, and how to pick elements from them.

    In memory, the ranges follow each other. There the slice is the array of shape `picked` with
    `strides`; with `dense`, the ranges are the slice itself.
    """

    shape: tuple[int, ...]  # of the result: without the dimensions that have one index
    ranges: list[Span]  # from the tensor's first byte
    picked: tuple[int, ...]  # one size for each dimension of the tensor
    strides: tuple[int, ...]
    dense: bool


def _selected(key: Index | tuple[Index, ...], shape: Sequence[int]) -> list[range | int]:
    """Return the selection of each dimension: a range of indices, or one index."""
    keys = list(key) if isinstance(key, tuple) else [key]
    dots = [i for i, part in enumerate(keys) if part is Ellipsis]
    if len(dots) > 1:
        raise IndexError("a slice has one ellipsis at most")
    missing = len(shape) - (len(keys) - len(dots))
    if missing < 0:
        raise IndexError(f"too many indices: the tensor has {len(shape)} dimensions")
    at = dots[0] if dots else len(keys)
    keys[at : at + len(dots)] = [slice(None)] * missing
    out: list[range | int] = []
    for dimension, (part, size) in enumerate(zip(keys, shape, strict=True)):
        if isinstance(part, slice):
            indices = range(*part.indices(size))
            if indices.step < 0:
                raise ValueError("a slice of a file goes forward: steps must be positive")
            out.append(indices)
            continue
        index = operator.index(part)  # type: ignore[arg-type]
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of bounds: dimension {dimension} has {size}")
        out.append(index % size)
    return out


def cut(
    shape: Sequence[int], itemsize: int, key: Index | tuple[Index, ...], *, gather: bool
) -> Cut:
    """Return the slice `key` of a tensor, by NumPy's rules for basic slices without new axes.

    `gather` says that the caller can pick elements out of ranges that hold more than the slice.
    """
    selected = _selected(key, shape)
    result = tuple(len(part) for part in selected if isinstance(part, range))
    ranges = [part if isinstance(part, range) else range(part, part + 1) for part in selected]
    counts = tuple(len(part) for part in ranges)
    if 0 in counts:
        return Cut(result, [], counts, (0,) * len(counts), dense=True)
    strides = [itemsize * math.prod(shape[i + 1 :]) for i in range(len(shape))]
    pitches = [part.step * stride for part, stride in zip(ranges, strides, strict=True)]
    begin = sum(part.start * stride for part, stride in zip(ranges, strides, strict=True))
    # From the last dimension outwards: what is one range already grows by a dimension as long as
    # no gap, or a small one, lies between its repetitions.
    extent, outer, dense = itemsize, len(ranges), True
    while outer > 0:
        pitch, count = pitches[outer - 1], counts[outer - 1]
        gap = pitch - extent if count > 1 else 0
        if gap > (GAP_BYTES_MAX if gather else 0):
            break
        dense = dense and gap == 0
        extent += (count - 1) * pitch
        outer -= 1
    if math.prod(counts[:outer]) > RANGES_MAX:
        raise ValueError(
            f"the slice is cut into {math.prod(counts[:outer])} ranges of the file, more than "
            f"{RANGES_MAX}: read the whole tensor and slice that"
        )
    steps = [[i * pitches[d] for i in range(counts[d])] for d in range(outer)]
    spans = [Span(begin + sum(place), extent) for place in itertools.product(*steps)]
    # In memory the ranges follow each other.
    for i in reversed(range(outer)):
        pitches[i] = extent * math.prod(counts[i + 1 : outer])
    return Cut(result, spans, counts, tuple(pitches), dense)
