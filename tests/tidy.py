#!/usr/bin/env python3
"""Checks of the source tree that no compiler makes: layers, doors, ports, length, words, links.

    tests/tidy.py [ROOT]      check the tree; one line for each finding, exit code 1 if there is any
    tests/tidy.py --self-test plant one violation of each kind in a tree, and check each is found

The layer table is read from ARCHITECTURE.md; CMakeLists.txt is compared with it too. Includes are
textual: `#if` is not evaluated, so an include in a dead branch counts.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from commits import check_commits

LINES_WARNED = 500
LINES_FAILED = 1000
COLUMNS = 100
CODE = {".h", ".cuh", ".cc", ".cu", ".def"}
CHECKED = CODE | {".py", ".sh", ".cmake", ".txt", ".toml", ".json", ".md", ".yml", ".in", ""}
WIDE_ALLOWED = {".md", ".json", ".txt", ""}  # tables, results and licences have their own widths
SKIPPED_FOLDERS = {".git", "build", ".venv", "__pycache__", "dist", "results"}
BANNED_FOLDERS = {
    "util", "utils", "common", "core", "misc", "detail", "details", "helper", "helpers", "impl",
}  # fmt: skip
# Concatenated here, so that the check does not find this file.
BANNED_WORDS = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
MACHINE_PATHS = re.compile("(?<![\\w.])(?:/wo" + "rk/|/tmp/bash" + "_jobs|/ro" + "ot/)")
BANNED_TYPES = re.compile(r"\b(?:class|struct)\s+\w*(?:Manager|Handler|Helper|Impl)\b")
THROW = re.compile(r"\bthrow\b(?!\s*\()")

# Calls that only a port may make. A call stands behind an operator, a bracket, a keyword or `::` at
# a line's start; a member of that name (`file.pread(`), a qualified name (`system::pread(`) and a
# declaration (`Status pread(`, `Result<T> pread(`) do not match.
CALL = r"(?:^|[=()[;{{!&|?:,<]|[^\w-]>|\b(?:return|else|do)\b)\s*(?<!\w::)({})\s*\("
# System calls on files, and functions of the C library that make one.
FILE_CALLS = (
    r"p?(?:read|write)(?:v2?|64|v64)?|openat2?|open64|creat|[fl]?stat(?:x|64|v?fs|at)?|newfstatat|"
    r"fstatv?fs|fdatasync|syncfs|sync_file_range|f?truncate|(?:posix_)?fallocate|posix_fadvise|"
    r"unlinkat|rename(?:at2?)|linkat|symlink(?:at)?|readlink(?:at)?|realpath|mkdir(?:at)?|rmdir|"
    r"mko?stemps?|mkdtemp|tmpfile|opendir|fdopendir|f?chmod|f?chown|faccessat|utimensat|futimens|"
    r"fopen|fdopen|freopen|flock|lockf|fcntl|ioctl|lseek|dup[23]?|copy_file_range|sendfile|splice|"
    r"memfd_create|name_to_handle_at|cachestat|syscall|open|close|stat|access|fsync|rename|remove|"
    r"unlink|link"
)
STREAMS = r"std::(?:basic_)?[io]?f(?:stream|ilebuf|open)\b|std::filesystem\b|std::re(?:name|move)\("
MAPPING = re.compile(CALL.format("mmap(?:64)?"))
# Calls that are allowed elsewhere. The calls on files move no bytes of a user's file. The variables
# are read in backend/, which may not include file/environment.h.
# fmt: off
EXCEPTIONS = {
    ("src/backend/cpu/crash_report.cc", "write"),         # to standard error
    ("src/backend/cpu/parking.cc", "syscall"),            # futex
    ("src/backend/cpu/shared_memory.cc", "std::ifstream"),  # symbols of a program that is loaded
    ("src/backend/cuda/kernel_library.cc", "stat"),       # looks for a library to load
    ("src/backend/cuda/kernel_library.cc", "realpath"),
    ("src/backend/cuda/kernel_library.cc", "access"),
    ("src/backend/cuda/kernel_library.cc", "getenv"),
    ("src/backend/cuda/driver.cc", "getenv"),
    ("src/backend/cuda/driver_fake.cc", "getenv"),
}
# fmt: on
PORTS = (
    ("src/backend/cuda/", re.compile(CALL.format(r"cu[A-Z]\w*|cuda[A-Z]\w*")), "the CUDA driver"),
    ("src/storage/", re.compile(CALL.format(r"io_uring_\w+")), "reads of files"),
    (
        "src/storage/system_calls",
        re.compile(CALL.format(FILE_CALLS) + r"(?!\s*\))"),
        "system calls on files",
    ),
    ("src/storage/system_calls", re.compile(f"({STREAMS})"), "streams of files"),
    ("src/file/environment.cc", re.compile(r"\b(getenv)\("), "the environment"),
)
IMPURE = re.compile(
    r"#include <(?:thread|chrono|fstream|iostream|mutex|unistd\.h|fcntl\.h|time\.h|ctime|random)>"
)
# A link or picture of Markdown to a file of the tree, and code, in which nothing is a link.
LINK = re.compile(r"\]\(([^)\s:#]+)(?:#[^)\s]*)?\)")
MARKDOWN_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# A call of submit of a storage queue, whatever the member's name: `queue_->submit(`,
# `storage.submit(`.
SUBMIT = re.compile(r"\b\w*(?:queue|storage)\w*(?:\(\)|\[\w*\])?(?:\.|->)submit(?:_and_reap)?\(")
# The files that may have such a call.
SUBMITTER = re.compile(r"src/(?:storage/|transfer/(?:executor|small_transfers)\.cc$)")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass
class Room:
    """A row of the layer table. `allowed`: rooms, or single headers as room/name."""

    name: str
    kind: str
    doors: set[str]
    allowed: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Source:
    """A file of the tree: its path from the root, and its text."""

    path: str
    text: str

    @property
    def suffix(self) -> str:
        """`.h`, `.cc` ..."""
        return Path(self.path).suffix

    @property
    def is_test(self) -> bool:
        """Whether the file is compiled into test or benchmark programs only."""
        stem = Path(self.path).stem
        in_tests = self.path.startswith(("tests/", "bench/", "src/testing/"))
        return (
            in_tests
            or stem.endswith(("_test", "_fuzz", "_bench", "_fixture", "_fake"))
            or "/tests/" in self.path
        )


def read_table(text: str) -> dict[str, Room]:
    """Read the layer table of ARCHITECTURE.md: | room | kind | doors | may include |."""
    section = text.partition("\n## Layers\n")[2].partition("\n## ")[0]
    rooms: dict[str, Room] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 4 or cells[0] in ("room", "") or set(cells[0]) <= set("-: "):
            continue
        name, kind, doors, allowed = cells
        names = [] if allowed == "nothing" else allowed.split(",")
        rooms[name.strip("`")] = Room(
            name.strip("`"),
            kind,
            {door.strip(" `") for door in doors.split(",") if door.strip()},
            {one.strip(" `") for one in names},
        )
    return rooms


def room_of(path: str, rooms: dict[str, Room]) -> str:
    """Return the room of a file of the tree, or an empty string."""
    parts = path.split("/")
    if parts[:2] == ["include", "penstock"]:
        return parts[2] if len(parts) > 3 else "api"
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else ""
    if parts[0] == "frontends":
        return "/".join(parts[:2])
    return parts[0] if parts[0] in rooms else ""


def resolve(include: str, source: Source, present: set[str]) -> str:
    """Return the path from the root of a file included with quotes, or an empty string."""
    own = source.path.split("/")
    roots = ["include", "src"]
    if own[0] not in ("include", "src"):
        roots += ["", "/".join(own[:-1]), own[0], "workloads"]
    for root in roots:
        path = os.path.normpath(os.path.join(root, include))
        if path in present:
            return path
    return ""


class Tree:
    """The tree under `root`, and the checks of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sources = [Source(path, text) for path, text in self._read()]
        self.present = {source.path for source in self.sources}
        table = root / "ARCHITECTURE.md"
        self.rooms = read_table(table.read_text()) if table.exists() else {}

    def _paths(self) -> Iterable[str]:
        command = ["git", "-C", str(self.root), "ls-files", "-co", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, text=True, check=False)
        if listed.returncode == 0 and (self.root / ".git").exists():
            return sorted(set(listed.stdout.splitlines()))
        found = []
        for folder, folders, files in os.walk(self.root):
            folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
            found += [os.path.relpath(os.path.join(folder, name), self.root) for name in files]
        return sorted(found)

    def _read(self) -> Iterator[tuple[str, str]]:
        for path in self._paths():
            file = self.root / path
            skipped = SKIPPED_FOLDERS & set(Path(path).parts)
            if file.suffix in CHECKED and file.is_file() and not skipped:
                yield path, file.read_text(errors="replace")

    def check(self) -> Iterator[str]:
        """Yield every finding as `path:line: text`."""
        if not self.rooms:
            yield "ARCHITECTURE.md:1: no layer table under '## Layers'"
        for source in self.sources:
            yield from check_words(source)
            yield from check_shape(source)
            if source.suffix == ".md":
                yield from self.check_links(source)
            if source.suffix in CODE:
                yield from self.check_includes(source)
                yield from check_ports(source)
                yield from self.check_purity(source)
        yield from self.check_submitters()
        yield from self.check_doors()
        yield from self.check_build()
        yield from check_commits(self.root)

    def check_links(self, source: Source) -> Iterator[str]:
        """Check that relative links of Markdown name existing files; `make docs` checks anchors."""
        text = MARKDOWN_CODE.sub(lambda match: "\n" * match[0].count("\n"), source.text)
        for match in LINK.finditer(text):
            target = os.path.normpath(os.path.join(os.path.dirname(source.path), match[1]))
            if target.startswith("..") or not (self.root / target).exists():
                line = text.count("\n", 0, match.start()) + 1
                yield f"{source.path}:{line}: link: no file {match[1]}"

    def check_includes(self, source: Source) -> Iterator[str]:
        """Check that includes point down the table, and go through doors."""
        name = room_of(source.path, self.rooms)
        if source.path.startswith("tests/") or not name:
            return
        if name not in self.rooms:
            yield f"{source.path}:1: room '{name}' is not in the layer table of ARCHITECTURE.md"
            return
        allowed = set(self.rooms[name].allowed)
        if source.is_test:
            allowed |= {"testing", "device", "language", "api", "base", "abi"}
        for match in INCLUDE.finditer(source.text):
            include = match[1]
            line = source.text.count("\n", 0, match.start(1)) + 1
            target = resolve(include, source, self.present)
            if not target:
                yield f'{source.path}:{line}: no file "{include}" under include/ or src/'
                continue
            below = room_of(target, self.rooms)
            if below in (name, ""):
                continue
            header = target.rsplit("/", 1)[1]
            single = f"{below}/{header}" in allowed
            if below not in allowed and not single:
                yield f"{source.path}:{line}: layer: {name} may not include {include}"
            elif not single and not source.is_test and not self.is_door(below, target):
                yield f"{source.path}:{line}: door: {include} is inside {below}; include its door"

    def is_door(self, room: str, target: str) -> bool:
        """Return whether other rooms may include this header of `room`."""
        doors = self.rooms[room].doors if room in self.rooms else set()
        inside = target.split(f"/{room}/", 1)[-1]
        return "*" in doors or inside in (doors or {f"{room}.h"})

    def check_purity(self, source: Source) -> Iterator[str]:
        """Check that pure rooms include nothing that does I/O, makes threads or reads clocks."""
        room = self.rooms.get(room_of(source.path, self.rooms))
        if room is None or room.kind != "pure" or source.is_test:
            return
        for match in IMPURE.finditer(source.text):
            line = source.text.count("\n", 0, match.start()) + 1
            yield f"{source.path}:{line}: pure room '{room.name}' has {match[0]}"

    def check_submitters(self) -> Iterator[str]:
        """Check that outside of storage only the executor submits to a storage queue."""
        callers = [
            source.path
            for source in self.sources
            if source.path.startswith("src/")
            and not source.is_test
            and SUBMIT.search(COMMENT.sub("", source.text))
        ]
        for path in callers:
            if not SUBMITTER.match(path):
                yield f"{path}:1: port: submits to a storage queue; only src/transfer/executor does"
        # A rule that finds no caller at all, as after a change of names, would never fail.
        executor = [path for path in self.present if path.startswith("src/transfer/executor")]
        if executor and not any(path in callers for path in executor):
            yield f"{min(executor)}:1: port: no executor submits to a storage queue"

    def check_doors(self) -> Iterator[str]:
        """Check that every room of src/ has its door X/X.h, or the doors that the table names."""
        found = {path.split("/")[1] for path in self.present if re.match(r"src/\w+/", path)}
        for name in sorted(found):
            doors = (self.rooms[name].doors if name in self.rooms else set()) or {f"{name}.h"}
            for door in sorted(doors - {"*"}):
                if f"src/{name}/{door}" not in self.present:
                    yield f"src/{name}:1: door: the room has no {name}/{door}"

    def check_build(self) -> Iterator[str]:
        """Check that CMakeLists.txt has the rooms, dependencies and fronts that the table has."""
        for room in self.rooms.values():
            for front in sorted(one for one in room.allowed if one.startswith("frontends")):
                yield f"ARCHITECTURE.md:1: layer: no room includes a front: {room.name}, {front}"
        build = self.root / "CMakeLists.txt"
        if not build.exists():
            return
        text = build.read_text()
        built = set(re.findall(r"^penstock_frontend\((\w+)", text, re.MULTILINE))
        named = {name[len("frontends/") :] for name in self.rooms if name.startswith("frontends/")}
        for name in sorted(built ^ named):
            yield f"CMakeLists.txt:1: layer: front '{name}' is missing here or in the table"
        for match in re.finditer(r"^penstock_room\(([^)]*)\)", text, re.MULTILINE):
            words = match[1].split()
            name, below = words[0], set(words[1:]) - {"DEPENDS", "TEST_ONLY"}
            if name not in self.rooms:
                yield f"CMakeLists.txt:1: layer: room '{name}' is not in the layer table"
                continue
            named = {one.split("/")[0] for one in self.rooms[name].allowed}
            named -= {"abi", "api", "device", "language"}
            if named != below:
                told = f"{name} depends on {sorted(below)}, the table says {sorted(named)}"
                yield f"CMakeLists.txt:1: layer: {told}"


def check_words(source: Source) -> Iterator[str]:
    """Check for marks of unfinished work, paths of one machine, and names without meaning."""
    for number, line in enumerate(source.text.splitlines(), 1):
        for pattern, text in ((BANNED_WORDS, "unfinished"), (MACHINE_PATHS, "machine path")):
            if pattern.search(line):
                yield f"{source.path}:{number}: {text}: {line.strip()[:60]}"
        if source.suffix in CODE and BANNED_TYPES.search(line):
            yield f"{source.path}:{number}: name: {line.strip()[:60]}"


def check_shape(source: Source) -> Iterator[str]:
    """Check length, width, folder names, and the comment that a file opens with."""
    lines = source.text.splitlines()
    is_code = source.suffix in CODE | {".py", ".sh", ".cmake"}
    if is_code and len(lines) > LINES_FAILED:
        yield f"{source.path}:{len(lines)}: length: {len(lines)} lines, {LINES_FAILED} at most"
    elif is_code and len(lines) > LINES_WARNED:
        print(f"{source.path}: note: {len(lines)} lines; {LINES_WARNED} want a reason")
    if source.suffix not in WIDE_ALLOWED:
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS:
                yield f"{source.path}:{number}: width: {len(line)} columns, {COLUMNS} at most"
    if banned := BANNED_FOLDERS & set(Path(source.path).parts[:-1]):
        yield f"{source.path}:1: folder: '{banned.pop()}' says nothing about what is in it"
    opening = ("//", "#", '"""', "/*")
    if is_code and lines and not lines[0].startswith(opening):
        yield f"{source.path}:1: opening: a file opens with what lives in it"


def is_own_function(text: str, name: str) -> bool:
    """Return whether this file declares or defines a function or a lambda of this name."""
    name = re.escape(name)
    type_before = r"(?:[\w>]|\w ?[&*])(?<!\breturn)(?<!\belse)(?<!\bdo) +"
    own = rf"{type_before}(?:\w+::)*{name}\(|\bauto {name} = \["
    return re.search(own, text) is not None


def check_ports(source: Source) -> Iterator[str]:
    """Check that only the ports call the OS or a driver, and nothing below front-ends throws."""
    product = source.path.startswith(("src/", "include/"))
    if not product or source.is_test:
        return
    blanked = COMMENT.sub(lambda match: "\n" * match[0].count("\n"), source.text)
    blanked = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', blanked)
    for number, line in enumerate(blanked.splitlines(), 1):
        for place, pattern, what in PORTS:
            for match in pattern.finditer(line):
                name = match[1]
                allowed = source.path.startswith(place) or (source.path, name) in EXCEPTIONS
                if not allowed and not is_own_function(blanked, name):
                    yield f"{source.path}:{number}: port: {name}: {what}: only in {place}"
        if THROW.search(line):
            yield f"{source.path}:{number}: throw: below the front-ends errors are a Status"
    for match in MAPPING.finditer(blanked):
        arguments = blanked[match.end() :].partition(";")[0]
        if "MAP_ANONYMOUS" not in arguments and not source.path.startswith("src/storage/system"):
            number = blanked.count("\n", 0, match.start(1)) + 1
            yield f"{source.path}:{number}: port: mmap: of a file: only in src/storage/system_calls"


def main(words: list[str]) -> int:
    """Check the tree named on the command line, or this one."""
    if words == ["--self-test"]:
        from tidy_self_test import run  # imported only here: it is beside this file

        return run()
    root = Path(words[0]) if words else Path(__file__).resolve().parent.parent
    findings = list(Tree(root).check())
    for finding in findings:
        print(finding)
    print(f"tidy: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
