"""Reads a JSON object one entry after another, so that what is in it is not held all at once. Pure.

Python's parser makes of `[[],[],...]` 25 times as many bytes; who checks what comes of it has paid
for it by then. Here a value has ENTRY_CHARACTERS_MAX at most, and the reader may refuse it before
the next one is parsed.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterator
from functools import partial
from typing import Any, NoReturn

# Of a tensor: 64 dimensions take 1,400.
ENTRY_CHARACTERS_MAX = 1 << 16
_FIRST_CHARACTERS = 1 << 10  # of an entry that are tried: mostly enough
_MORE = 8  # times as many, if they are not

_BLANKS = frozenset(" \t\n\r")
_blanks = re.compile(r"[ \t\n\r]*")


class FormatError(ValueError):
    """A file that is no safetensors file, or not a whole one: `FILE: what is wrong`."""


_short = reprlib.Repr()
_short.maxstring = 80
_short.maxlist = 8


def shown(value: object) -> str:
    """Return `value` as an error shows it: on one line, and not all of it if it is long."""
    return _short.repr(value)


def refuse(path: str, cause: str) -> NoReturn:
    """Raise FormatError."""
    raise FormatError(f"{path}: {cause}") from None


def _unique(path: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        left = set(out)
        for name, _ in pairs:
            if name not in left:
                refuse(path, f"its header names {shown(name)} twice")
            left.remove(name)
    return out


def _unsigned(path: str, digits: str) -> int:
    if digits.startswith("-"):
        refuse(path, f"its header holds a negative number, {shown(digits)}")
    return int(digits)


def _refuse_constant(path: str, word: str) -> NoReturn:
    refuse(path, f"its header is no JSON: {word}")


class Entries:
    """A place in the text of a header. Raises FormatError for what is no JSON.

    Strict where Python's parser is not: NaN, names given twice in one value, minus nothing.
    """

    def __init__(self, text: str, path: str) -> None:
        self._text = text
        self._at = 0
        self._path = path
        self._decoder = json.JSONDecoder(
            object_pairs_hook=partial(_unique, path),
            parse_constant=partial(_refuse_constant, path),
            # -0 would pass for 0; the check is paid for only where one may stand.
            parse_int=partial(_unsigned, path) if "-0" in text else None,
        )

    def names(self) -> Iterator[str]:
        """Yield the names of an object that begins here; who takes one reads its value."""
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

    def begins_object(self) -> bool:
        """Return whether an object is next."""
        return self._next() == "{"

    def string(self) -> str | None:
        """Read a string, of any length; None: none is next."""
        if self._next() != '"':
            return None
        try:
            value, self._at = self._decoder.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            self._refuse_json(error.msg)
        out = str(value)
        try:
            if not out.isascii():
                out.encode("utf-8")
        except UnicodeEncodeError:  # an escape spelled half of a character
            self.refuse("a text in its header is no Unicode")
        return out

    def value(self) -> Any:
        """Read a value of any kind."""
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
                    self._refuse_json(f"no value of at most {size} characters")
                size *= _MORE
            except FormatError:
                raise
            except RecursionError:
                self.refuse("its header is nested too deeply")
            except ValueError as error:  # a number with thousands of digits
                self._refuse_json(str(error))
            else:
                self._at += used
                return value

    def finish(self) -> None:
        """Refuse what is left."""
        if self._next():
            self._refuse_json("more than one value")

    def refuse(self, cause: str) -> NoReturn:
        """Raise FormatError."""
        refuse(self._path, cause)

    def _next(self) -> str:
        """Go on to what is no blank, and return it; empty: nothing is."""
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

    def _refuse_json(self, cause: str) -> NoReturn:
        self.refuse(f"its header is no JSON: {cause}: character {self._at}")
