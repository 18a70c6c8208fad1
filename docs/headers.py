#!/usr/bin/env python3
"""Turns the public headers into Markdown: the comments as text, the declarations as code.

    docs/headers.py HEADER    print the page of a header, as file.h
    docs/headers.py --check   see that every header of the host API has a page

docs/site.py imports this when the site is built. The comments of the headers are the manual, so
nothing is written here that they do not say. What this understands is the style of those headers: a
comment stands directly above what it documents, and a class shows its public part only.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include/penstock"

# Headers with a page of their own, in the order of the reference, and what each is about.
HEADERS = {
    "file.h": "Host reads and writes",
    "device.h": "Devices and streams",
    "file_system.h": "File systems of kernels",
    "kernel.h": "Kernels and launches",
    "device/file.cuh": "Calls inside kernels",
    "preemption.h": "Blocks that leave while they wait",
    "device/preemption.cuh": "Points inside kernels",
    "options.h": "Options",
    "route.h": "Routes, reasons, residency",
    "report.h": "Reports of reads and writes",
    "residency.h": "Residency of a file",
    "calibrate.h": "Calibration",
    "access.h": "Signatures",
    "read_ahead.h": "Readahead for reads of your own",
    "file_cache.h": "Device memory as a file cache",
    "file_statistics.h": "Counts of a file",
    "queue_load.h": "Load of the request queue",
    "service_log.h": "Log of what was served",
    "status.h": "Errors",
    "abi/limits.h": "Limits",
}

NO_PAGE = {"cuda_library.h"}  # what PENSTOCK_KERNEL needs; no user calls it

# What is set as code within the text of a comment.
CODE = re.compile(
    r"(?<![\w`&/.])("
    r"(?:\w+::)+\w+(?:\(\))?"  # qualified names
    r"|\w*_\w*(?:\(\))?"  # names with an underscore
    r"|[a-z]\w*\(\d?\)"  # calls, and manual pages
    r"|k[A-Z]\w+"  # constants
    r"|-?E[A-Z]{3,}\d*"  # errors
    r")(?![\w`])"
)


@dataclass
class Entry:
    """A declaration with the comment above it."""

    comment: list[str]
    code: list[str]
    name: str
    is_type: bool = False
    members: list[Entry] = field(default_factory=list)


def page_name(header: str) -> str:
    """Return the name of a header's page: `device/file.cuh` is device-file.md."""
    return header.rsplit(".", 1)[0].replace("/", "-") + ".md"


def marked(text: str) -> str:
    """Return a text of a comment as Markdown, with names set as code."""
    parts = text.split("`")
    for index in range(0, len(parts), 2):
        plain = re.sub(r"(?<![\w*])\*(\w+)\*(?!\w)", r"\1", parts[index])  # emphasis
        plain = re.sub(r"([*\\|])", r"\\\1", plain)
        plain = CODE.sub(r"`\1`", plain)
        pieces = plain.split("`")
        pieces[::2] = [piece.replace("<", "&lt;").replace("[", "\\[") for piece in pieces[::2]]
        parts[index] = "`".join(pieces)
    # What was between backticks stays as it is.
    return "".join(part if index % 2 == 0 else f"`{part}`" for index, part in enumerate(parts))


def prose(lines: list[str]) -> str:
    """Return the lines of a comment, without `//`, as Markdown."""
    out: list[str] = []
    kind = ""  # of the block under way: "", text, item, number, code
    for line in lines:
        indent = len(line) - len(line.lstrip())
        text = line.strip()
        named = re.match(r"^ {3,5}(\S+(?:, \S+)*) {2,}(\S.*)$", line)
        numbered = re.match(r"^ {2,4}(\d+)\. (.*)$", line)
        if not text:
            kind = ""
            out.append("")
        elif numbered:
            out += ["", f"{numbered[1]}. {marked(numbered[2])}"]
            kind = "number"
        elif kind in ("number", "code") and indent >= 8:
            if kind == "number":
                out.append("")
            out.append(" " * 8 + text)
            kind = "code"
        elif named:
            out += [] if kind == "item" else [""]
            out.append(f"- `{named[1]}`: {marked(named[2])}")
            kind = "item"
        elif kind == "text" or (indent >= 4 and kind in ("item", "number")):
            out[-1] += " " + marked(text)
        else:
            out += ["", marked(text)]
            kind = "text"
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()


def comment_lines(lines: list[str]) -> list[str]:
    """Return comment lines without their `//` and the blank behind it."""
    return [re.sub(r"^\s*// ?", " ", line).rstrip() for line in lines]


def name_of(code: list[str]) -> tuple[str, bool]:
    """Return the name that a declaration declares, and whether it is a type."""
    text = re.sub(r"^template <[^>]*>\s*", "", " ".join(line.strip() for line in code))
    text = text.replace("[[nodiscard]] ", "")
    if found := re.match(r"(?:enum class|enum|struct|class) (?:__attribute__\S+ )?(\w+)", text):
        return found[1], True
    if found := re.match(r"#define (\w+)", text):
        return found[1], False
    if found := re.search(r"(operator[^\w\s(]+|~?\w+)\s*\(", text.replace("PENSTOCK_DEVICE ", "")):
        return found[1], False
    if found := re.search(r"(\w+)(?:\{.*\})?(?: = .*)?;", text):
        return found[1], False
    return text[:30], False


def without_body(code: list[str]) -> list[str]:
    """Return a function without what stands between its braces."""
    kept: list[str] = []
    parentheses = 0
    for line in code:
        for index, letter in enumerate(line):
            parentheses += (letter == "(") - (letter == ")")
            if letter == "{" and parentheses == 0:
                head = re.sub(r"\s+:\s.*$", "", line[:index].rstrip())  # a constructor's list
                if not head.strip() and kept:
                    return [*kept[:-1], kept[-1] + ";"]
                return [*kept, head + ";"]
        kept.append(line)
    return kept


def ends(code: list[str]) -> bool:
    """Whether a declaration is complete."""
    text = "\n".join(re.sub(r"//.*$", "", line) for line in code)
    opened = text.count("{") - text.count("}")
    if opened > 0 or text.count("(") > text.count(")"):
        return False
    return text.rstrip().endswith((";", "}", ":"))


def statement(lines: list[str], index: int) -> tuple[list[str], int]:
    """Return the lines of the declaration or macro that begins at a line, and the line behind."""
    code = [lines[index]]
    is_macro = code[0].strip().startswith("#")
    index += 1
    while index < len(lines) and (code[-1].endswith("\\") if is_macro else not ends(code)):
        code.append(lines[index])
        index += 1
    return code, index


def entry_of(code: list[str], comment: list[str]) -> Entry | None:
    """Return what a declaration declares; nothing where it is of no use to a reader."""
    text = code[0].strip()
    if text.startswith("#"):
        if not text.startswith("#define") or not comment:
            return None
        code = [re.sub(r"(#define \w+(?:\([^)]*\))?).*", r"\1", text)]
    elif re.match(r"namespace |(class|struct) \w+;", text):  # forward declarations
        return None
    name, is_type = name_of(code)
    if is_type and text.startswith("class"):
        return Entry(comment, [], name, True, entries(code[1:-1]))
    return Entry(comment, code if is_type or text[0] == "#" else without_body(code), name, is_type)


def entries(lines: list[str]) -> list[Entry]:
    """Return the declarations of some lines: of a namespace, or of the public part of a class."""
    found: list[Entry] = []
    comment: list[str] = []
    adjacent = False  # the line before ended a declaration
    index = 0
    while index < len(lines):
        text = lines[index].strip()
        if re.match(r"(private|protected):", text):
            break
        if text.startswith("//"):
            comment.append(lines[index])
            index += 1
            continue
        if not text or re.match(r"namespace penstock(::\w+)? \{", text):
            comment, adjacent = [], False
            index += 1
            continue
        if text.startswith(("}", "public:", "friend ", "static_assert")):
            index += 1
            continue
        code, index = statement(lines, index)
        entry = entry_of(code, comment_lines(comment))
        if entry is None:
            # The condition of a macro stands between it and its comment.
            comment = comment if text.startswith("#if") else []
            continue
        comment = []
        # A comment also covers what follows it without a blank line and has none of its own.
        is_covered = not entry.is_type and not entry.comment and "  //" not in code[-1]
        if adjacent and is_covered and found and not found[-1].is_type:
            found[-1].code += entry.code
        else:
            found.append(entry)
        adjacent = True
    return found


def dedented(code: list[str]) -> list[str]:
    """Return code moved to the left."""
    indent = min((len(line) - len(line.lstrip()) for line in code if line.strip()), default=0)
    return [line[indent:] for line in code]


def written(entry: Entry, level: int) -> list[str]:
    """Return an entry as lines of Markdown."""
    out = [f"{'#' * level} `{entry.name}`", ""]
    if entry.code:
        out += ["```cpp", *dedented(entry.code), "```", ""]
    if entry.comment:
        out += [prose(entry.comment), ""]
    for member in entry.members:
        out += written(member, level + 1)
    return out


def page(header: str) -> str:
    """Return the page of a header."""
    lines = (INCLUDE / header).read_text().splitlines()
    first = next(index for index, line in enumerate(lines) if not line.startswith("//"))
    body = [line for line in lines[first:] if not line.startswith(("#include", "#pragma"))]
    out = [f"# {HEADERS[header]}", "", f'`#include "penstock/{header}"`', ""]
    out += [prose(comment_lines(lines[:first])), ""]
    for entry in entries(body):
        if entry.comment or entry.is_type:
            out += written(entry, 2)
    return "\n".join(out)


def index() -> str:
    """Return the page that lists the headers."""
    out = ["# C++ reference", "", "| header | what it declares |", "| --- | --- |"]
    out += [
        f"| [`penstock/{header}`]({page_name(header)}) | {title} |"
        for header, title in HEADERS.items()
    ]
    return "\n".join([*out, ""])


def main(words: list[str]) -> int:
    """Print a page, or check that all headers have one."""
    if words == ["--check"]:
        present = {path.name for path in INCLUDE.glob("*.h")} - NO_PAGE
        lost = [header for header in HEADERS if not (INCLUDE / header).exists()]
        for header in lost:
            print(f"docs/headers.py: include/penstock/{header} is not there")
        for header in sorted(present - set(HEADERS)):
            print(f"docs/headers.py: include/penstock/{header} has no page")
        return 1 if lost or present - set(HEADERS) else 0
    if len(words) != 1 or words[0] not in HEADERS:
        print(__doc__)
        return 2
    print(page(words[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
