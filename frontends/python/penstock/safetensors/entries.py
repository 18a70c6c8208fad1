"""Reads a JSON object entry by entry, so that its content is never in memory as a whole. Pure.

Python's parser needs 25 times the size of a text such as `[[],[],...]`, before a caller can check
the result. This parser skips a value of more than ENTRY_CHARACTERS_MAX token by token; the caller
reads the names that it needs one after another.

It accepts what serde_json, the parser of the reference implementation, accepts: numbers that fit a
double, complete characters, and values that are nested no deeper than its limit.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, NoReturn

from penstock.safetensors.errors import FormatError, refuse

# The longest value that is parsed at once. A tensor with 64 dimensions takes 1,400 characters.
ENTRY_CHARACTERS_MAX = 1 << 16
_FIRST_CHARACTERS = 1 << 10  # of an entry that are tried: mostly enough
_MORE = 8  # times as many, if they are not
DEPTH_MAX = 126  # of a value inside the header's object: serde_json stops at 128 levels in all
# Digits that a number needs to be beyond the range of a double without an exponent.
_DIGITS_MAX = 309
# serde_json multiplies a rounded power of ten, so it finds numbers just below the largest double
# too large.
_DOUBLE_MAX = 1.797693134862315e308

_BLANKS = frozenset(" \t\n\r")
_blanks = re.compile(r"[ \t\n\r]*")
# Half of a character, as group 1, or another escape.
_escape = re.compile(
    r"\\(?:u[dD][89aAbB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F])|.)",
    re.DOTALL,
)
_long_number = re.compile(rf"[0-9]{{{_DIGITS_MAX},}}")
_scalar = re.compile(
    r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null", re.ASCII
)
_numbers = re.compile(r"\[[0-9, \t\n\r]*\]")

_short = reprlib.Repr()
_short.maxstring = 80
_short.maxlist = 8


def shown(value: object) -> str:
    """Return `value` as an error shows it: on one line, and shortened if it is long."""
    return _short.repr(value)


class Doubled(dict[str, Any]):
    """An object in which names occur twice: `twice` holds them."""

    twice: frozenset[str]


def _paired(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) == len(pairs):
        return out
    doubled = Doubled(out)
    counts = Counter(name for name, _ in pairs)
    doubled.twice = frozenset(name for name, count in counts.items() if count > 1)
    return doubled


def _refuse_constant(path: str, word: str) -> NoReturn:
    refuse(path, f"its header is no JSON: {word}")


def _fraction(path: str, digits: str) -> float:
    number = float(digits)
    if math.fabs(number) > _DOUBLE_MAX:
        refuse(path, f"its header is no JSON: {shown(digits)} is out of range")
    return number


def _whole(path: str, digits: str) -> int | float:
    if digits == "-0" or len(digits) >= _DIGITS_MAX:
        return _fraction(path, digits)
    return int(digits)


def _is_suspicious(text: str) -> bool:
    """Return whether a value may hold text that Python's parser accepts and serde_json refuses."""
    return text.count("[") + text.count("{") > DEPTH_MAX or (
        len(text) >= _DIGITS_MAX and _long_number.search(text) is not None
    )


LONG = object()  # returned for a value that is too long to be parsed at once


class Entries:
    """A position in the text of a header. Its methods raise FormatError if the text is no JSON.

    It refuses what Python's parser accepts: NaN, numbers beyond a double, halves of characters, and
    values that are nested too deeply. Objects in which a name occurs twice are Doubled.
    """

    def __init__(self, text: str, path: str) -> None:
        self._text = text
        self._at = 0
        self._path = path
        self._decoder = json.JSONDecoder(
            object_pairs_hook=_paired,
            parse_constant=partial(_refuse_constant, path),
            parse_float=partial(_fraction, path),
            # -0 is a float to the reference; the check is paid for only where one may stand.
            parse_int=partial(_whole, path) if "-0" in text else None,
        )
        if "\\u" in text and any(match[1] for match in _escape.finditer(text)):
            self.refuse("a text in its header is no Unicode")

    def names(self) -> Iterator[str]:
        """Yield the names of an object that begins here; the caller reads the value of each."""
        self._take("{")
        if self._next() == "}":
            self._at += 1
            return
        while True:
            name = self.string()
            if name is None:
                self._refuse_json("a name is missing")
            self._take(":")
            yield name
            if self._next() != ",":
                break
            self._at += 1
        self._take("}")

    def items(self) -> Iterator[int]:
        """Yield the indices of an array that begins here; the caller reads the value of each."""
        self._take("[")
        if self._next() == "]":
            self._at += 1
            return
        number = 0
        while True:
            yield number
            number += 1
            if self._next() != ",":
                break
            self._at += 1
        self._take("]")

    def begins_object(self) -> bool:
        """Return whether an object is next."""
        return self._next() == "{"

    def begins_array(self) -> bool:
        """Return whether an array is next."""
        return self._next() == "["

    def string(self) -> str | None:
        """Read a string of any length; None if no string is next."""
        if self._next() != '"':
            return None
        try:
            value, self._at = self._decoder.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            self._refuse_json(error.msg)
        return str(value)

    def value(self) -> Any:
        """Read a value of any kind; if it is too long, read nothing and return LONG."""
        self._next()
        size = _FIRST_CHARACTERS
        while True:
            part = self._text[self._at : self._at + size]
            try:
                value, used = self._decoder.raw_decode(part)
            except json.JSONDecodeError as error:
                if len(part) < size:
                    self._at += error.pos
                    self._refuse_json(error.msg)
                if size >= ENTRY_CHARACTERS_MAX:
                    return LONG
                size *= _MORE
            except FormatError:  # perhaps of a number that continues after this part
                if len(part) < size:
                    raise
                if size >= ENTRY_CHARACTERS_MAX:
                    return LONG
                size *= _MORE
            except RecursionError:
                self._refuse_depth()
            except ValueError as error:  # a number with thousands of digits
                self._refuse_json(str(error))
            else:
                if used > DEPTH_MAX and _is_suspicious(part[:used]):
                    self.skip()  # which checks depth and numbers
                else:
                    self._at += used
                return value

    def numbers(self) -> list[int] | None:
        """Read an array of any length; None if it is no array of whole numbers from 0 up."""
        self._next()
        found = _numbers.match(self._text, self._at)
        if found is None or _long_number.search(self._text, self._at, found.end()):
            self.skip()
            return None
        try:
            value, self._at = self._decoder.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            self._refuse_json(error.msg)
        out: list[int] = value
        return out

    def skip(self) -> None:
        """Skip a value of any kind and length."""
        closers: list[str] = []
        while True:
            character = self._next()
            if character in ("[", "{"):
                self._at += 1
                closers.append("]" if character == "[" else "}")
                if len(closers) > DEPTH_MAX:
                    self._refuse_depth()
                if self._next() != closers[-1]:
                    self._skip_name(closers)
                    continue
            elif self.string() is None:
                self._skip_scalar()
            while closers:
                character = self._next()
                if character not in (",", closers[-1]):
                    self._refuse_json(f"{closers[-1]} is missing")
                self._at += 1
                if character == ",":
                    self._skip_name(closers)
                    break
                closers.pop()
            else:
                return

    def _skip_name(self, closers: list[str]) -> None:
        if closers[-1] == "}":
            if self.string() is None:
                self._refuse_json("a name is missing")
            self._take(":")

    def _skip_scalar(self) -> None:
        found = _scalar.match(self._text, self._at)
        if found is None:
            self._refuse_json("Expecting value")
        if found[0] not in ("true", "false", "null"):
            _fraction(self._path, found[0])
        self._at = found.end()

    def finish(self) -> None:
        """Raise FormatError if text is left."""
        if self._next():
            self._refuse_json("more than one value")

    def refuse(self, cause: str) -> NoReturn:
        """Raise FormatError."""
        refuse(self._path, cause)

    def _next(self) -> str:
        """Skip blanks and return the next character; empty at the end of the text."""
        character = self._text[self._at : self._at + 1]
        if character in _BLANKS:
            found = _blanks.match(self._text, self._at)
            self._at = found.end() if found else self._at
            character = self._text[self._at : self._at + 1]
        return character

    def _take(self, character: str) -> None:
        if self._next() != character:
            self._refuse_json(f"{character} is missing")
        self._at += 1

    def _refuse_depth(self) -> NoReturn:
        self.refuse("its header is nested too deeply")

    def _refuse_json(self, cause: str) -> NoReturn:
        self.refuse(f"its header is no JSON: {cause}: character {self._at}")
