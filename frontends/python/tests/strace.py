"""What `strace` sees of a program's files, in the form of a trace of Penstock's.

strace tells sizes but no positions, so they are followed here: per open file description, as the
kernel does. It is enough for programs whose processes take turns.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

Accesses = list[tuple[str, int, int]]  # operation, offset, size

_CALLS = (
    "open,openat,creat,close,dup,dup2,dup3,fcntl,lseek,read,readv,pread64,preadv,write,writev,"
    "pwrite64,pwritev,sendfile,copy_file_range,fork,vfork,clone,clone3,execve,ftruncate"
)
_LINE = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+|\?)(.*)$")


class _Description:
    """An open file description."""

    def __init__(self, path: str, *, appends: bool) -> None:
        self.path, self.appends, self.position = path, appends, 0


class Strace:
    """Runs a program in a folder under strace, and follows what it does with files there."""

    def __init__(self, folder: Path, words: list[str], log: Path) -> None:
        command = ["strace", "-f", "-s0", "-e", f"trace={_CALLS}", "-o", str(log), *words]
        self.done = subprocess.run(
            command, capture_output=True, check=False, timeout=120, cwd=folder
        )
        self.files: dict[str, Accesses] = {}
        self._folder = str(folder)
        self._sizes: dict[str, int] = {}
        self._tables: dict[int, dict[int, _Description]] = {}
        self._halves: dict[int, str] = {}
        for line in log.read_text(errors="replace").splitlines():
            self._line(line)

    def _line(self, line: str) -> None:
        """Follow a call; one that other processes interrupted has two lines."""
        process, _, rest = line.partition(" ")
        pid, rest = int(process), rest.strip()
        if rest.endswith("<unfinished ...>"):
            self._halves[pid] = rest.removesuffix("<unfinished ...>")
            return
        if rest.startswith("<... "):
            rest = self._halves.pop(pid, "") + rest.partition(" resumed>")[2]
        found = _LINE.match(f"{pid} {rest}")
        if found and found[4] not in ("?", "-1"):
            self._call(pid, found[2], found[3], int(found[4]))

    def _call(self, pid: int, call: str, words: str, result: int) -> None:
        table = self._tables.setdefault(pid, self._inherited())
        parts = words.split(", ")
        first = int(parts[0]) if parts[0].lstrip("-").isdigit() else -1
        if call in ("open", "openat", "creat"):
            name = re.search(r'"((?:[^"\\]|\\.)*)"', words)
            assert name is not None
            path = os.path.join(self._folder, name[1])
            table[result] = _Description(path, appends="O_APPEND" in words)
            if "O_TRUNC" in words or call == "creat":
                self._sizes[path] = 0
        elif call in ("fork", "vfork", "clone", "clone3"):
            if "CLONE_FILES" in words:
                self._tables[result] = table
            self._tables.setdefault(result, dict(table))
        elif call == "close":
            table.pop(first, None)
        elif call.startswith("dup") or (call == "fcntl" and "F_DUPFD" in words):
            if first in table:
                table[result] = table[first]
            else:
                table.pop(result, None)
        elif call == "lseek" and first in table:
            table[first].position = result
        elif call in ("sendfile", "copy_file_range"):
            other = int(parts[1 if call == "sendfile" else 2])
            source, target = (other, first) if call == "sendfile" else (first, other)
            self._move(table.get(source), "r", result)
            self._move(table.get(target), "w", result)
        elif call in ("pread64", "pwrite64"):
            self._at(table.get(first), call[1], int(parts[-1]), result)
        elif call in ("read", "readv", "write", "writev"):
            self._move(table.get(first), call[0], result)

    def _inherited(self) -> dict[int, _Description]:
        """Return the descriptors of a new process, which may run before its parent goes on."""
        for parent, half in self._halves.items():
            if half.startswith(("fork(", "vfork(", "clone(", "clone3(")):
                return dict(self._tables.get(parent, {}))
        return {}

    def _move(self, file: _Description | None, operation: str, size: int) -> None:
        if file is None:
            return
        if operation == "w" and file.appends:
            known = self._sizes.get(file.path)
            file.position = os.path.getsize(file.path) if known is None else known
        self._at(file, operation, file.position, size)
        file.position += size

    def _at(self, file: _Description | None, operation: str, offset: int, size: int) -> None:
        if file is None or size <= 0 or not file.path.startswith(self._folder):
            return
        self.files.setdefault(file.path, []).append((operation, offset, size))
        if operation == "w":
            self._sizes[file.path] = max(self._sizes.get(file.path, 0), offset + size)
