"""A safetensors file of known bytes: writes it, and compares it with the bytes of a read."""

from __future__ import annotations

import ctypes
import json
import os
import random
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

LAYERS = 33  # of 9 tensors each, and 3 more
RING_BYTES = 67_108_859  # a prime, so that bytes at a wrong place differ
ALIGNMENT = 64

Shapes = Mapping[str, tuple[int, ...]]

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Span(NamedTuple):
    """The place of a tensor after the header."""

    begin: int
    size: int


@cache
def _ring(size: int) -> bytes:
    """Return the bytes that the tensors of a file repeat; `size` is that of all tensors."""
    return random.Random(1).randbytes(min(size, RING_BYTES))


def _same(ours: bytes, at: int, address: int, size: int) -> bool:
    start = ctypes.cast(ctypes.c_char_p(ours), ctypes.c_void_p).value or 0
    return bool(_memcmp(address, start + at, size) == 0)


def shapes_of(size: int) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a language model of about `size` bytes."""
    # A layer has 12 h^2 numbers, the embeddings 2 * 4 h^2 here, of two bytes each.
    hidden = max(64, int((size / 2 / (12 * LAYERS + 8)) ** 0.5) // 64 * 64)
    out: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (4 * hidden, hidden)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        out |= {f"{layer}.self_attn.{n}_proj.weight": (hidden, hidden) for n in "qkvo"}
        out |= {f"{layer}.mlp.{n}_proj.weight": (8 * hidden // 3, hidden) for n in ("gate", "up")}
        out[f"{layer}.mlp.down_proj.weight"] = (hidden, 8 * hidden // 3)
        out |= {f"{layer}.{n}_layernorm.weight": (hidden,) for n in ("input", "post_attention")}
    return out | {"model.norm.weight": (hidden,), "lm_head.weight": (4 * hidden, hidden)}


class ModelFile:
    """A file that `write` has written. `data_offset` is where the first tensor begins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            head = file.read(8)
            self._head = head + file.read(struct.unpack("<Q", head)[0])
        self.data_offset = len(self._head)
        self.spans: dict[str, Span] = {}
        for name, info in json.loads(self._head[8:]).items():
            begin, end = info["data_offsets"]
            self.spans[name] = Span(begin, end - begin)
        self.size = sum(span.size for span in self.spans.values())
        self.file_size = self.data_offset + self.size

    def is_at(self, name: str, address: int) -> bool:
        """Return whether the memory at an address holds every byte of a tensor."""
        begin, size = self.spans[name]
        return self.holds(self.data_offset + begin, size, address)

    def holds(self, offset: int, size: int, address: int) -> bool:
        """Return whether the memory at an address holds `size` bytes of the file from `offset`."""
        done = 0
        while done < size:
            ours, at = self._head, offset + done
            if at >= self.data_offset:
                ours, at = _ring(self.size), (at - self.data_offset) % RING_BYTES
            step = min(size - done, len(ours) - at)
            if not _same(ours, at, address + done, step):
                return False
            done += step
        return True


def write(path: Path, shapes: Shapes, dtype: str, item: int, *, page: int = 0) -> ModelFile:
    """Write a file.

    Its tensors begin at a multiple of `page`. With `page` 0 they begin at no multiple of ALIGNMENT,
    as in seven files of eight.
    """
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        count = item
        for extent in shape:
            count *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + count]}
        end += count
    raw = json.dumps(header, separators=(",", ":")).encode()
    if page:
        raw += b" " * (-(len(raw) + 8) % page)
    else:
        raw += b" " * (-len(raw) % 8)  # as the reference pads it
        if len(raw) % ALIGNMENT == ALIGNMENT - 8:
            raw += b" " * 8
    ring = _ring(end)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        whole, rest = divmod(end, RING_BYTES)
        for _ in range(whole):
            file.write(ring)
        file.write(ring[:rest])
    return ModelFile(path)


@contextmanager
def folder(place: str | None = None) -> Iterator[Path]:
    """Yield a folder on the measured disk; the folder and its files are removed at the end."""
    place = place or os.environ.get("TMPDIR", "/var/tmp")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=place) as name:
        yield Path(name)


@contextmanager
def written(size: int) -> Iterator[ModelFile]:
    """Write a file like that of a language model; it is removed at the end."""
    with folder() as place:
        yield write(place / "model.safetensors", shapes_of(size), "F16", 2)
