"""The header of a safetensors file: which tensors lie where. Pure: given bytes, opens nothing.

A file is 8 bytes, the header's length, little-endian; the header, a JSON object; and the tensors,
back to back. The header names of each tensor the type, the shape, and where its bytes begin and end
behind the header. Everything is checked before a byte of a tensor is read; what the reference
implementation (safetensors/src/tensor.rs) refuses is refused here, and so is what its format
forbids but its parser lets through: names that occur twice, blanks before the first brace.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from penstock.safetensors.dtypes import DTYPES

LENGTH_BYTES = 8
HEADER_BYTES_MAX = 100_000_000  # the reference's limit: who sends more wants our memory
WORD_MAX = (1 << 64) - 1  # the reference counts in 64 bits

ReadRange = Callable[[int, int], bytes]  # offset, size


class FormatError(ValueError):
    """A file that is no safetensors file, or not a whole one: `FILE: what is wrong`."""


class TensorInfo(NamedTuple):
    """One tensor of a file."""

    dtype: str  # a key of DTYPES
    shape: tuple[int, ...]
    offset: int  # in the file
    size: int  # bytes


class Header(NamedTuple):
    """What a file holds."""

    tensors: dict[str, TensorInfo]  # by name, in the order of their bytes
    metadata: dict[str, str] | None
    data_offset: int  # where the first tensor begins


_short = reprlib.Repr()
_short.maxstring = 80
_short.maxlist = 8


def shown(value: object) -> str:
    """Return `value` as an error shows it: on one line, and not all of it if it is long."""
    return _short.repr(value)


def read_header(read: ReadRange, file_size: int, path: str) -> Header:
    """Read and check the header of a file of `file_size` bytes.

    `read` returns the bytes of a range, fewer at the end of the file. Raises FormatError, and what
    `read` raises. Takes no more memory than a few times the header, which may have 100 MB.
    """
    if file_size < LENGTH_BYTES:
        raise FormatError(f"{path}: {file_size} bytes are too few for a safetensors file")
    length = int.from_bytes(read(0, LENGTH_BYTES), "little")
    if length > HEADER_BYTES_MAX:
        _refuse(path, f"its header would have {length} bytes, the limit is {HEADER_BYTES_MAX}")
    if length > file_size - LENGTH_BYTES:
        _refuse(path, f"its header would have {length} bytes, the whole file has {file_size}")
    raw = read(LENGTH_BYTES, length)
    if len(raw) != length:
        _refuse(path, "it became shorter while its header was read")
    return parse_header(raw, file_size, path)


def parse_header(raw: bytes, file_size: int, path: str) -> Header:
    """Check the bytes of a header against the size of its file. Raises FormatError."""
    entries = _parse_json(raw, path)
    metadata = _checked_metadata(entries.pop("__metadata__", None), path)
    data_offset = LENGTH_BYTES + len(raw)
    tensors = {name: _checked_info(name, entry, path) for name, entry in entries.items()}
    # By place; names may come in any order. Empty tensors lie before the one they touch.
    ordered = dict(sorted(tensors.items(), key=lambda item: (item[1].offset, item[1].size)))
    end = 0
    for name, info in ordered.items():
        if info.offset != end:
            what = "overlaps the one before it" if info.offset < end else "lies behind a hole"
            _refuse(path, f"tensor {shown(name)} {what}: it begins at {info.offset}, not at {end}")
        end += info.size
    held = file_size - data_offset
    if end > held:
        _refuse(path, f"cut short: its tensors have {end} bytes, it holds {held} of them")
    if end < held:
        _refuse(path, f"{held - end} bytes lie behind its last tensor")
    # From here on places are places in the file.
    placed = {n: info._replace(offset=info.offset + data_offset) for n, info in ordered.items()}
    return Header(placed, metadata, data_offset)


def _refuse(path: str, cause: str) -> NoReturn:
    raise FormatError(f"{path}: {cause}") from None


def _parse_json(raw: bytes, path: str) -> dict[str, Any]:
    """Return the header's outer object; strict where Python's parser is not."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) != len(pairs):
            left = set(out)
            for name, _ in pairs:
                if name not in left:
                    _refuse(path, f"its header names {shown(name)} twice")
                left.remove(name)
        return out

    def unsigned(digits: str) -> int:
        if digits.startswith("-"):
            _refuse(path, f"its header holds a negative number, {shown(digits)}")
        return int(digits)

    def no_constant(text: str) -> NoReturn:
        _refuse(path, f"its header is no JSON: {text}")

    try:
        text = raw.decode("utf-8")
        if not text.startswith("{"):
            _refuse(path, "its header does not begin with a brace")
        out: dict[str, Any] = json.loads(
            text,
            object_pairs_hook=unique,
            parse_constant=no_constant,
            # -0 would pass for 0; the check is paid for only where one may stand.
            parse_int=unsigned if "-0" in text else None,
        )
        # An escape may spell half of a character, which no UTF-8 has.
        "".join(out).encode("utf-8")
    except FormatError:
        raise
    except UnicodeDecodeError as error:
        _refuse(path, f"its header is no UTF-8: byte {error.start}")
    except UnicodeEncodeError:
        _refuse(path, "a name in its header is no Unicode")
    except RecursionError:
        _refuse(path, "its header is nested too deeply")
    except ValueError as error:  # JSONDecodeError; a number with thousands of digits
        _refuse(path, f"its header is no JSON: {error}")
    return out


def _checked_metadata(entry: object, path: str) -> dict[str, str] | None:
    if entry is None:
        return None
    if not isinstance(entry, dict) or not all(isinstance(v, str) for v in entry.values()):
        _refuse(path, "__metadata__ must be an object of strings")
    try:
        "".join([*entry, *entry.values()]).encode("utf-8")
    except UnicodeEncodeError:
        _refuse(path, "__metadata__ holds what is no Unicode")
    return entry


def _is_word(value: object) -> bool:
    return type(value) is int and 0 <= value <= WORD_MAX


def _checked_info(name: str, entry: object, path: str) -> TensorInfo:
    """Return a tensor as the header states it, its offset still counted behind the header."""
    if not isinstance(entry, dict):
        _refuse(path, f"tensor {shown(name)} is no object")
    dtype, shape, place = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPES:
        _refuse(path, f"tensor {shown(name)}: unknown dtype {shown(dtype)}")
    if not isinstance(shape, list) or not all(map(_is_word, shape)):
        _refuse(path, f"tensor {shown(name)}: shape {shown(shape)} is no list of sizes")
    if not isinstance(place, list) or len(place) != 2 or not all(map(_is_word, place)):
        _refuse(path, f"tensor {shown(name)}: data_offsets {shown(place)} are no two offsets")
    bits = _bits(dtype, shape)
    if bits is None:
        _refuse(path, f"tensor {shown(name)}: shape {shown(shape)} overflows")
    if bits % 8 != 0:
        _refuse(path, f"tensor {shown(name)}: {bits} bits of {dtype} do not fill bytes")
    begin, end = place
    if end - begin != bits // 8:
        _refuse(
            path,
            f"tensor {shown(name)}: {dtype} {shown(shape)} has {bits // 8} bytes, "
            f"data_offsets {begin} to {end} hold {end - begin}",
        )
    return TensorInfo(dtype, tuple(shape), begin, end - begin)


def _bits(dtype: str, shape: list[int]) -> int | None:
    """Return what a tensor takes; None: a product on the way does not fit 64 bits."""
    bits = 1
    for factor in (*shape, DTYPES[dtype].bits):
        bits *= factor
        if bits > WORD_MAX:
            return None
    return bits
