"""Goal: no header, however broken, does more than raise a FormatError of one line.

None that the reference implementation refuses may pass. Bad files are listed by what is wrong with
them, and made at random from good ones; a failure prints the seed.
"""

from __future__ import annotations

import json
import random
import re
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.safetensors import FormatError
from penstock.safetensors.dtypes import DTYPES
from penstock.safetensors.header import HEADER_BYTES_MAX, Header, read_header

MUTATIONS = 20_000
DIFFERENTIAL = 4_000


def file_of(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    """Return a file: `header` as it is if it is bytes, else as JSON."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def parsed(content: bytes) -> Header:
    """Return the header of a file with this content."""
    return read_header(lambda offset, size: content[offset : offset + size], len(content), "m.st")


def tensor(dtype: str, shape: Sequence[float | str], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


GOOD = {
    "__metadata__": {"format": "pt", "ü": "ß"},
    "b": tensor("F32", [2, 3], 8, 32),
    "a": tensor("I8", [8], 0, 8),
    "empty": tensor("F64", [3, 0], 32, 32),
    "scalar": tensor("U64", [], 32, 40),
}


def test_header_says_where_tensors_are() -> None:
    content = file_of(GOOD, bytes(40))
    header = parsed(content)
    assert header.metadata == {"format": "pt", "ü": "ß"}
    assert list(header.tensors) == ["a", "b", "empty", "scalar"]
    at = len(content) - 40
    assert header.data_offset == at
    assert header.tensors["b"] == ("F32", (2, 3), at + 8, 24)
    assert header.tensors["scalar"] == ("U64", (), at + 32, 8)


@pytest.mark.parametrize("header", [b"{}", b'{"__metadata__":null}', b"{}    \n\t "])
def test_file_without_tensors(header: bytes) -> None:
    assert parsed(file_of(header)) == ({}, None, 8 + len(header))


def test_every_dtype_is_known() -> None:
    for name, dtype in DTYPES.items():
        content = file_of({"x": tensor(name, [8], 0, dtype.bits)}, bytes(dtype.bits))
        assert parsed(content).tensors["x"].size == dtype.bits


def one(entry: object) -> bytes:
    """Return a file of one tensor x as stated, with 8 bytes."""
    return file_of({"x": entry}, bytes(8))


def unknown(value: bytes) -> bytes:
    """Return a file of one tensor with a name that safetensors does not know."""
    return file_of(b'{"x":{"dtype":"U8","shape":[0],"later":%b,"data_offsets":[0,0]}}' % value)


LONG = b'"' + b"x" * 70_000 + b'"'  # too long to be parsed with the rest of its tensor
UNKNOWN_BAD = {
    "1e999": (b"1e999", "out of range"),
    "-1e999": (b"-1e999", "out of range"),
    "400 digits": (b"9" * 400, "out of range"),
    "400 digits below zero": (b"[-" + b"9" * 400 + b"]", "out of range"),
    "half a character": (rb'"\ud800"', "no Unicode"),
    "other half of a character": (rb'{"a":["\udc00"]}', "no Unicode"),
    "halves in the wrong order": (rb'"\ude00\ud83d"', "no Unicode"),
    "nested 126 deep": (b"[" * 126 + b"]" * 126, "nested too deeply"),
    "nested 300 deep": (b'{"a":' * 300 + b"1" + b"}" * 300, "nested too deeply"),
    "long, then 1e999": (b"[%b,1e999]" % LONG, "out of range"),
    "long, then 400 digits": (b"[%b,%b]" % (LONG, b"9" * 400), "out of range"),
    "long, then nested 300 deep": (b"[%b,%b]" % (LONG, b"[" * 300 + b"]" * 300), "too deeply"),
    "long, then NaN": (b"[%b,NaN]" % LONG, "no JSON"),
    "long, then no name": (b"[%b,{1:2}]" % LONG, "no JSON: a name is missing"),
    "long, then a comma": (b"[%b,]" % LONG, "no JSON: Expecting value"),
    "long, then the wrong bracket": (b"[%b}" % LONG, "no JSON: ] is missing"),
    "long, then two names": (b'%b,"dtype":"U8","dtype":"U8"' % LONG, "'dtype' twice"),
}
UNKNOWN_GOOD = {
    "300 digits": b"9" * 300,
    "nothing times much": b"0e999",
    "very little": b"1e-999",
    "many digits of little": b"9" * 400 + b"e-200",
    "minus nothing": b"-0",
    "below zero": b"[-5,-5.5]",
    "a whole character": rb'"\ud83d\ude00 \\\ud83d\ude00 \\ud800"',
    "a name twice": b'{"a":1,"a":2}',
    "nested 125 deep": b"[" * 125 + b"]" * 125,
    "brackets in a text": b'"' + b"[" * 300 + b'"',
    "a long text": LONG,
    "a long array": b"[%b]" % b",".join([b'[{},{"a":-1.5e3,"b":[true,false,null]}]'] * 3_000),
    "long and nested 125 deep": b"[%b,%b]" % (LONG, b"[" * 124 + b"]" * 124),
    "another, twice": b'%b,"later":1' % LONG,
}


EMPTY = b'{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
DEEP = b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
BAD = {
    "empty file": (b"", "too few"),
    "seven bytes": (b"\x02\0\0\0\0\0\0", "too few"),
    "header longer than the file": (file_of({}, length=3), "whole file has 10"),
    "header bomb of 100 MB": (file_of({}, length=HEADER_BYTES_MAX + 1), "the limit is 100000000"),
    "header bomb of 2^64": (file_of({}, length=(1 << 64) - 1), "the limit is"),
    "header of no bytes": (file_of(b""), "does not begin with a brace"),
    "header that is a list": (file_of([]), "does not begin with a brace"),
    "blanks first": (file_of(b" {}"), "does not begin with a brace"),
    "no UTF-8": (file_of(b'{"\xff":1}'), "no UTF-8: byte 2"),
    "byte-order mark": (file_of(b"\xef\xbb\xbf{}"), "does not begin with a brace"),
    "half a character": (file_of(rb'{"\ud800":{}}'), "no Unicode"),
    "half a character in metadata": (file_of(rb'{"__metadata__":{"a":"\udc00"}}'), "no Unicode"),
    "no JSON": (file_of(b'{"x":'), "no JSON"),
    "NaN": (file_of(b'{"x":NaN}'), "no JSON: NaN"),
    "something behind the JSON": (file_of(b"{}{}"), "no JSON"),
    "NUL behind the JSON": (file_of(b"{}\0"), "no JSON"),
    "number of 5000 digits": (file_of(b'{"x":{"dtype":' + b"9" * 5000 + b"}}"), "no JSON"),
    "nested 200,000 deep": (file_of(DEEP), "nested too deeply"),
    "metadata is a list": (file_of({"__metadata__": []}), "object of strings"),
    "metadata of numbers": (file_of({"__metadata__": {"a": 1}}), "object of strings"),
    "name twice": (file_of(b'{"x":%b,"y":%b,"x":%b}' % (EMPTY, EMPTY, EMPTY)), "'x' twice"),
    "metadata twice": (file_of(b'{"__metadata__":{},"__metadata__":{}}'), "'__metadata__' twice"),
    "text twice": (file_of(b'{"__metadata__":{"a":"","a":""}}'), "'a' twice"),
    "comma at the end": (file_of(b'{"x":%b,}' % EMPTY), "no JSON: a name is missing"),
    "no colon": (file_of(b'{"x" %b}' % EMPTY), "no JSON: : is missing"),
    "no comma": (file_of(b'{"x":%b "y":%b}' % (EMPTY, EMPTY)), "no JSON: } is missing"),
    "no end": (file_of(b'{"x":%b' % EMPTY), "no JSON: } is missing"),
    "name without end": (file_of(b'{"x":%b,"y' % EMPTY), "no JSON: Unterminated string"),
    "name is a number": (file_of(b'{"x":%b,1:2}' % EMPTY), "no JSON: a name is missing"),
    "key twice": (file_of(b'{"x":{"dtype":"U8","dtype":"U8"}}'), "'dtype' twice"),
    "tensor is a number": (one(3), "'x' is no object"),
    "tensor is a list of two": (one(["U8", [8]]), "'x' is no object"),
    "tensor is a list of four": (one(["U8", [8], [0, 8], 1]), "'x' is no object"),
    "tensor is a long list of four": (one(["U8", [1] * 40_000, [0, 8], 1]), "'x' is no object"),
    "no dtype": (one({"shape": [8], "data_offsets": [0, 8]}), "unknown dtype None"),
    "unknown dtype": (one(tensor("F12", [8], 0, 8)), "unknown dtype 'F12'"),
    "dtype is a list": (one({**tensor("U8", [8], 0, 8), "dtype": ["U8"]}), "unknown dtype"),
    "no shape": (one({"dtype": "U8", "data_offsets": [0, 8]}), "no list of sizes"),
    "negative size": (one(tensor("U8", [-8], 0, 8)), "no list of sizes"),
    "minus nothing": (one({**tensor("U8", [7], 0, 8)}).replace(b"7", b"-0"), "no list of sizes"),
    "size is a float": (one({**tensor("U8", [8], 0, 8), "shape": [8.0]}), "no list of sizes"),
    "size is true": (one({**tensor("U8", [8], 0, 8), "shape": [True, 8]}), "no list of sizes"),
    "size of 65 bits": (one(tensor("U8", [1 << 64], 0, 8)), "no list of sizes"),
    "shape overflows": (one(tensor("U8", [1 << 32, 1 << 32, 0], 0, 8)), "overflows"),
    "size overflows": (one(tensor("F64", [1 << 61], 0, 8)), "overflows"),
    "part of a byte": (one(tensor("F4", [3], 0, 8)), "12 bits of F4 do not fill bytes"),
    "no offsets": (one({"dtype": "U8", "shape": [8]}), "no two offsets"),
    "one offset": (one({**tensor("U8", [8], 0, 8), "data_offsets": [0]}), "no two offsets"),
    "negative offset": (one(tensor("U8", [8], -8, 0)), "no two offsets"),
    "end before begin": (one(tensor("U8", [8], 8, 0)), "0 hold -8"),
    "size and shape differ": (one(tensor("U8", [9], 0, 8)), "has 9 bytes"),
    "hole in front": (one(tensor("U8", [4], 4, 8)), "lies behind a hole"),
    "hole": (
        file_of({"x": tensor("U8", [2], 0, 2), "y": tensor("U8", [2], 4, 6)}, bytes(6)),
        "'y' lies behind a hole",
    ),
    "overlap": (
        file_of({"x": tensor("U8", [4], 0, 4), "y": tensor("U8", [4], 2, 6)}, bytes(6)),
        "'y' overlaps",
    ),
    "the same bytes twice": (
        file_of({"x": tensor("U8", [4], 0, 4), "y": tensor("U8", [4], 0, 4)}, bytes(4)),
        "overlaps",
    ),
    "beyond the file": (one(tensor("U8", [9], 0, 9)), "cut short: its tensors have 9 bytes"),
    "far beyond the file": (one(tensor("U8", [1 << 60], 0, 1 << 60)), "cut short"),
    "bytes left over": (one(tensor("U8", [7], 0, 7)), "1 bytes lie behind"),
    "bytes and no tensor": (file_of({}, b"x"), "1 bytes lie behind"),
    "name of a megabyte": (file_of({"\n" * 1_000_000: 1}), "is no object"),
    "shape of ten thousand": (one(tensor("U8", [1] * 10_000, 0, 8)), "has 1 bytes"),
    "shape of a million": (one(tensor("U8", [1] * 1_000_000, 0, 8)), "has 1 bytes"),
    "long shape with a text": (one(tensor("U8", [1] * 99_999 + ["1"], 0, 8)), "no list of sizes"),
    "long shape of floats": (one(tensor("U8", [1.0] * 99_999, 0, 8)), "no list of sizes"),
    "long shape, no JSON": (
        one(tensor("U8", [1] * 99_999, 0, 8)).replace(b"1, 1]", b"1, ]"),
        "JSON",
    ),
    "long dtype": (one(tensor("U" * 99_999, [8], 0, 8)), "unknown dtype"),
    **{
        f"unknown: {what}": (unknown(value), reason)
        for what, (value, reason) in UNKNOWN_BAD.items()
    },
}


GOOD_FILES = {
    **{f"unknown: {what}": unknown(value) for what, value in UNKNOWN_GOOD.items()},
    "tensor is a list": one(["U8", [8], [0, 8]]),
    "tensor is a long list": one(["U8", [1] * 40_000 + [8], [0, 8]]),
    "dtype in an object": one({**tensor("U8", [8], 0, 8), "dtype": {"U8": None}}),
    "shape of a million": one(tensor("U8", [1] * 1_000_000 + [8], 0, 8)),
    "much metadata": file_of({"__metadata__": {f"{i}": "" for i in range(70_000)}}),
}


@pytest.mark.parametrize("what", GOOD_FILES)
def test_odd_file_is_accepted(what: str) -> None:
    assert parsed(GOOD_FILES[what]).tensors.keys() <= {"x"}


def test_number_that_is_cut_where_parsing_begins_with_a_part() -> None:
    small = b"9" * 400 + b".5e-300"
    for length in range(560, 640):
        value = b'["%b",%b]' % (b"x" * length, small)
        assert parsed(unknown(value)).tensors.keys() == {"x"}, length


@pytest.mark.parametrize("what", [*GOOD_FILES, *(what for what in BAD if "unknown" in what)])
def test_odd_file_is_as_the_reference_finds_it(what: str) -> None:
    reference = pytest.importorskip("safetensors")
    if what in GOOD_FILES:
        assert len(reference.deserialize(GOOD_FILES[what])) == len(parsed(GOOD_FILES[what]).tensors)
    else:
        with pytest.raises(reference.SafetensorError):
            reference.deserialize(BAD[what][0])


@pytest.mark.parametrize("what", BAD)
def test_bad_file_is_refused_with_the_reason(what: str) -> None:
    content, reason = BAD[what]
    with pytest.raises(FormatError, match=re.escape(reason)) as caught:
        parsed(content)
    text = str(caught.value)
    assert text.startswith("m.st: ")
    assert "\n" not in text
    assert len(text) < 300


def test_header_that_shrinks_while_it_is_read() -> None:
    content = file_of(GOOD, bytes(40))
    with pytest.raises(FormatError, match="became shorter"):
        read_header(lambda offset, size: content[offset : offset + size][:20], len(content), "m.st")


BOMB_BYTES = 4_000_000


def repeated(before: bytes, part: bytes, after: bytes) -> bytes:
    """Return a text of BOMB_BYTES of equal parts."""
    return before + b",".join([part] * (BOMB_BYTES // (len(part) + 1))) + after


def numbered(before: bytes, make: Callable[[int], bytes], after: bytes) -> bytes:
    """Return a text of BOMB_BYTES of parts that are made."""
    return before + b",".join(map(make, range(BOMB_BYTES // (len(make(99_999)) + 1)))) + after


BOMBS: dict[str, Callable[[], bytes]] = {
    "lists": lambda: repeated(b'{"a":[', b"[]", b"]}"),
    "objects": lambda: repeated(b'{"a":[', b"{}", b"]}"),
    "lists in a tensor": lambda: repeated(b'{"a":{"b":[', b"[]", b"]}}"),
    "names in a tensor": lambda: numbered(b'{"a":{', lambda i: b'"%x":1' % i, b"}}"),
    "lists in place of tensors": lambda: numbered(b"{", lambda i: b'"%x":[]' % i, b"}"),
    "metadata": lambda: numbered(b'{"__metadata__":{', lambda i: b'"%x":"%x"' % (i, i), b"}}"),
    "empty tensors": lambda: numbered(b"{", lambda i: b'"%x":%b' % (i, EMPTY), b"}"),
    "dimensions, four bytes a character": lambda: numbered(
        b'{"\xf0\x9f\x98\x80":%b,' % EMPTY,
        lambda i: b'"%x":%b' % (i, EMPTY.replace(b"[0]", b"[0" + b",999" * 10_000 + b"]")),
        b"}",
    ),
}


@pytest.mark.parametrize("what", BOMBS)
def test_header_takes_no_more_memory_than_is_said(what: str) -> None:
    content = file_of(BOMBS[what]())
    tracemalloc.start()
    try:
        parsed(content)
    except FormatError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 24 * len(content) + (16 << 20)


def random_good_file(chance: random.Random) -> bytes:
    """Return a file of up to six tensors, names in any order."""
    entries: list[tuple[str, Any]] = []
    end = 0
    for i in range(chance.randrange(7)):
        name = chance.choice(list(DTYPES))
        shape = [chance.choice((0, 1, 2, 3, 8, 24)) for _ in range(chance.randrange(4))]
        shape.append(8)  # whole bytes
        size = DTYPES[name].bits
        for dimension in shape:
            size *= dimension
        entries.append((f"t-{i}", tensor(name, shape, end, end + size // 8)))
        end += size // 8
    chance.shuffle(entries)
    if chance.random() < 0.5:
        entries.insert(0, ("__metadata__", {"k": "v", "-0": "x"}))
    for _, stated in entries:
        if chance.random() < 0.2 and isinstance(stated, dict) and "shape" in stated:
            stated["later"] = chance.choice((-1, 0.5, None, "x", {"a": [1]}, [[[]]]))
    header = json.dumps(dict(entries), separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return file_of(header, chance.randbytes(end))


SPLICES = [b"{", b"}", b"[", b"]", b'"', b",", b":", b"0", b"-", b"1e3", b"null", b"true", b"\\u"]
SPLICES += [b"\xc3", b"\\", b"\0", b"18446744073709551616", b"F32", b"F4", b"[[", b"\\ud83d", b"-0"]
SPLICES += [b"1e999,", b"9" * 400, b"\\ude00", b'"u":[],', b'"u":-0,', b'{"F32":null}', b"[" * 124]


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Return `content` with one to four changes, most of them in the header."""
    out = bytearray(content)
    for _ in range(chance.randrange(1, 5)):
        edge = min(len(out), 8 + int.from_bytes(content[:8], "little"))
        at = chance.randrange(edge + 1) if chance.random() < 0.9 else chance.randrange(len(out) + 1)
        kind = chance.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del out[at : at + chance.choice((1, 1, 2, 8))]
        elif kind == 2:
            out[at:at] = chance.choice(SPLICES)
        elif kind == 3:
            out[at : at + 1] = chance.choice(SPLICES)
        elif kind == 4:
            source = chance.randrange(edge + 1)
            out[at:at] = out[source : source + chance.randrange(40)]
        else:
            del out[chance.randrange(len(out) + 1) :]
    if chance.random() < 0.7 and len(out) >= 8:  # a length that fits again
        out[:8] = struct.pack("<Q", max(0, len(out) - len(content) + edge_of(content)))
    return bytes(out)


def edge_of(content: bytes) -> int:
    """Return the length of a good file's header."""
    return int.from_bytes(content[:8], "little")


@pytest.mark.parametrize("seed", range(4))
def test_mutated_files_are_parsed_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    refused = 0
    for i in range(MUTATIONS // 4):
        content = mutated(random_good_file(chance), chance)
        header = None
        lines = [""]
        try:
            header = parsed(content)
        except FormatError as error:
            refused += 1
            lines = str(error).splitlines()
        assert len(lines) == 1, f"seed {seed}, file {i}: {content!r}"
        if header is None:
            continue
        end = header.data_offset
        for info in header.tensors.values():
            assert info.offset == end, f"seed {seed}, file {i}: {content!r}"
            end += info.size
        assert end == len(content), f"seed {seed}, file {i}: {content!r}"
    assert 0 < refused < MUTATIONS // 4


# What is refused here although the reference lets it through: its format forbids both.
STRICTER = ("twice", "does not begin with a brace")


def test_refuses_what_the_reference_refuses(tmp_path: Path) -> None:
    reference = pytest.importorskip("safetensors")
    pytest.importorskip("numpy")
    chance = random.Random(11)
    path = tmp_path / "m.safetensors"
    agreed = {True: 0, False: 0}
    for i in range(DIFFERENTIAL):
        good = random_good_file(chance)
        content = mutated(good, chance) if chance.random() < 0.8 else good
        path.write_bytes(content)
        theirs = None
        try:
            with reference.safe_open(path, framework="np") as opened:
                theirs = (opened.offset_keys(), opened.metadata())
        except (reference.SafetensorError, OSError, ValueError):
            pass
        mine = None
        reason = ""
        try:
            header = parsed(content)
            mine = (list(header.tensors), header.metadata)
        except FormatError as error:
            reason = str(error)
        if mine is None and theirs is not None:
            assert any(word in reason for word in STRICTER), f"file {i}: {reason}: {content!r}"
            continue
        assert (mine is None) == (theirs is None), f"file {i}: {content!r}"
        if mine is not None and theirs is not None:
            # Empty tensors at one place have no order: the reference shuffles them.
            places = {name: header.tensors[name].offset for name in mine[0]}
            ends = {name: places[name] + header.tensors[name].size for name in mine[0]}
            assert sorted(mine[0]) == sorted(theirs[0])
            for names in zip(mine[0], theirs[0], strict=True):
                assert len({(places[name], ends[name]) for name in names}) == 1, f"file {i}"
            assert mine[1] == theirs[1]
        agreed[mine is not None] += 1
    assert min(agreed.values()) > DIFFERENTIAL // 20
