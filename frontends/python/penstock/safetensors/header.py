"""The header of a safetensors file: the place of each tensor. Pure: it gets bytes, opens no file.

A file has three parts: 8 bytes with the header's length, little-endian; the header, a JSON object;
and the tensors, without gaps. For each tensor the header has the type, the shape, and where its
bytes begin and end after the header. Everything is checked before a byte of a tensor is read. Files
are accepted and refused as by the reference implementation (safetensors/src/tensor.rs). There is
one difference: what the format forbids is refused here, though the reference's parser accepts it.
These are names of tensors or texts that occur twice, and blanks before the first brace.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

from penstock.safetensors.dtypes import DTYPES
from penstock.safetensors.entries import LONG, Doubled, Entries, shown
from penstock.safetensors.errors import refuse

LENGTH_BYTES = 8
METADATA = "__metadata__"
HEADER_BYTES_MAX = 100_000_000  # the reference's limit: a longer header would exhaust memory
WORD_MAX = (1 << 64) - 1  # the reference counts in 64 bits
FIELDS = ("dtype", "shape", "data_offsets")  # of a tensor; in an array, in this order

ReadRange = Callable[[int, int], bytes | bytearray]  # offset, size


class TensorInfo(NamedTuple):
    """One tensor of a file."""

    dtype: str  # a key of DTYPES
    shape: tuple[int, ...]
    offset: int  # in the file
    size: int  # bytes


class Header(NamedTuple):
    """The header of a file."""

    tensors: dict[str, TensorInfo]  # by name, in the order of their bytes
    metadata: dict[str, str] | None
    data_offset: int  # where the first tensor begins


def read_header(read: ReadRange, file_size: int, path: str) -> Header:
    """Read and check the header of a file of `file_size` bytes.

    `read` returns the bytes of a range, and fewer at the end of the file. Raises FormatError, and
    the errors of `read`. Takes at most 24 times the size of the header, which may have 100 MB, and
    16 MiB. Headers of tiny texts, or of tensors with many dimensions, take that much; most headers
    take five times their size.
    """
    if file_size < LENGTH_BYTES:
        refuse(path, f"{file_size} bytes are too few for a safetensors file")
    length = int.from_bytes(read(0, LENGTH_BYTES), "little")
    if length > HEADER_BYTES_MAX:
        refuse(path, f"its header would have {length} bytes, the limit is {HEADER_BYTES_MAX}")
    if length > file_size - LENGTH_BYTES:
        refuse(path, f"its header would have {length} bytes, the whole file has {file_size}")
    raw = read(LENGTH_BYTES, length)
    if len(raw) != length:
        refuse(path, "it became shorter while its header was read")
    return parse_header(raw, file_size, path)


def parse_header(raw: bytes | bytearray, file_size: int, path: str) -> Header:
    """Check the bytes of a header against the size of its file. Raises FormatError."""
    data_offset = LENGTH_BYTES + len(raw)
    tensors, metadata = _read_entries(_text(raw, path), data_offset, path)
    end = data_offset
    for name, info in tensors.items():
        if info.offset != end:
            what = "overlaps the one before it" if info.offset < end else "lies behind a hole"
            begins = f"it begins at {info.offset - data_offset}, not at {end - data_offset}"
            refuse(path, f"tensor {shown(name)} {what}: {begins}")
        end += info.size
    if end > file_size:
        has, held = end - data_offset, file_size - data_offset
        refuse(path, f"cut short: its tensors have {has} bytes, it holds {held} of them")
    if end < file_size:
        refuse(path, f"{file_size - end} bytes lie behind its last tensor")
    return Header(tensors, metadata, data_offset)


def _text(raw: bytes | bytearray, path: str) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        refuse(path, f"its header is no UTF-8: byte {error.start}")
    if not text.startswith("{"):
        refuse(path, "its header does not begin with a brace")
    return text


def _read_entries(
    text: str, data_offset: int, path: str
) -> tuple[dict[str, TensorInfo], dict[str, str] | None]:
    """Return the tensors in the order of their bytes, and the metadata."""
    entries = Entries(text, path)
    tensors: dict[str, TensorInfo] = {}
    metadata: dict[str, str] | None = None
    has_metadata, in_order = False, True
    end = 0
    for name in entries.names():
        if name in tensors or (name == METADATA and has_metadata):
            refuse(path, f"its header names {shown(name)} twice")
        if name == METADATA:
            has_metadata = True
            metadata = _read_metadata(entries)
            continue
        info = _checked_info(name, _read_fields(name, entries, path), data_offset, path)
        # Names may be in any order. An empty tensor is sorted before the tensor that it touches.
        in_order = in_order and info.offset >= end
        end = info.offset + info.size
        tensors[name] = info
    entries.finish()
    if not in_order:
        places = sorted(tensors, key=lambda name: (tensors[name].offset, tensors[name].size))
        tensors = {name: tensors[name] for name in places}
    return tensors, metadata


def _read_metadata(entries: Entries) -> dict[str, str] | None:
    if not entries.begins_object():
        if entries.value() is None:
            return None
        entries.refuse(f"{METADATA} must be an object of strings")
    out: dict[str, str] = {}
    for name in entries.names():
        if name in out:
            entries.refuse(f"its header names {shown(name)} twice")
        text = entries.string()
        if text is None:
            entries.refuse(f"{METADATA} must be an object of strings")
        out[name] = text
    return out


def _is_word(value: object) -> bool:
    return type(value) is int and 0 <= value <= WORD_MAX


def _read_fields(name: str, entries: Entries, path: str) -> list[object]:
    """Read the FIELDS of a tensor from the header; a missing field is None.

    The reference takes an object, in which it skips other names, or an array.
    """
    entry = entries.value()
    if entry is LONG:
        return _read_long_fields(name, entries, path)
    if isinstance(entry, dict):
        for field in entry.twice if isinstance(entry, Doubled) else ():
            if field in FIELDS:
                refuse(path, f"its header names {shown(field)} twice")
        return [entry.get(field) for field in FIELDS]
    if not isinstance(entry, list) or len(entry) != len(FIELDS):
        refuse(path, f"tensor {shown(name)} is no object")
    return entry


def _read_long_fields(name: str, entries: Entries, path: str) -> list[object]:
    """Read fields as _read_fields, of an entry that is too long to be parsed at once."""
    found: dict[str, object] = {}
    if entries.begins_object():
        for field in entries.names():
            if field in found:
                refuse(path, f"its header names {shown(field)} twice")
            if field in FIELDS:
                found[field] = _read_field(field, entries)
            else:
                entries.skip()
    elif entries.begins_array():
        for i in entries.items():
            if i == len(FIELDS):
                refuse(path, f"tensor {shown(name)} is no object")
            found[FIELDS[i]] = _read_field(FIELDS[i], entries)
        if len(found) != len(FIELDS):
            refuse(path, f"tensor {shown(name)} is no object")
    else:
        entries.skip()
        refuse(path, f"tensor {shown(name)} is no object")
    return [found.get(field) for field in FIELDS]


def _read_field(field: str, entries: Entries) -> object:
    if field == "shape":
        return entries.numbers()
    value = entries.value()
    if value is LONG:
        entries.skip()
    return value


def _dtype_of(stated: object) -> str | None:
    """Return a type of DTYPES; None if none is stated. The reference takes {"F32": null} too."""
    if type(stated) is dict and list(stated.values()) == [None]:
        (stated,) = stated
    return stated if isinstance(stated, str) and stated in DTYPES else None


def _checked_info(name: str, fields: list[object], data_offset: int, path: str) -> TensorInfo:
    """Return a tensor as the header states it."""
    stated, shape, place = fields
    dtype = _dtype_of(stated)
    if dtype is None:
        refuse(path, f"tensor {shown(name)}: unknown dtype {shown(stated)}")
    if not isinstance(shape, list) or not all(map(_is_word, shape)):
        refuse(path, f"tensor {shown(name)}: shape {shown(shape)} is no list of sizes")
    if not isinstance(place, list) or len(place) != 2 or not all(map(_is_word, place)):
        refuse(path, f"tensor {shown(name)}: data_offsets {shown(place)} are no two offsets")
    bits = _bits(dtype, shape)
    if bits is None:
        refuse(path, f"tensor {shown(name)}: shape {shown(shape)} overflows")
    if bits % 8 != 0:
        refuse(path, f"tensor {shown(name)}: {bits} bits of {dtype} do not fill bytes")
    begin, end = place
    if end - begin != bits // 8:
        refuse(
            path,
            f"tensor {shown(name)}: {dtype} {shown(shape)} has {bits // 8} bytes, "
            f"data_offsets {begin} to {end} hold {end - begin}",
        )
    return TensorInfo(sys.intern(dtype), tuple(shape), data_offset + begin, end - begin)


def _bits(dtype: str, shape: list[int]) -> int | None:
    """Return the size of a tensor in bits; None if an intermediate product exceeds 64 bits."""
    bits = 1
    for factor in (*shape, DTYPES[dtype].bits):
        bits *= factor
        if bits > WORD_MAX:
            return None
    return bits
