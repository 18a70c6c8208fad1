"""The main job on real input: text of this machine and a web server log, compared with grep.

Run by `make demo`; prints a line for each. Every count is checked against GNU grep's; the exit code
is 1 if one differs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock import _core

TEXT_SIZE_MIN = 48 << 20
LOG_SIZE = 256 << 20
ROOTS = ("/usr/include", "/usr/share", "/var/lib/apt/lists", "/usr/lib/python3")
WORDS = b"Copyright\ntemplate\nvirtual memory\nfile system\nasynchronous\n#include <stdint.h>\n"


def _size_of(root: str) -> int:
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                total += path.stat().st_size
    return total


def _real_text() -> list[str]:
    """Folders of this machine that hold at least 48 MiB of files."""
    roots: list[str] = []
    total = 0
    for root in ROOTS:
        if Path(root).is_dir() and total < TEXT_SIZE_MIN:
            roots.append(root)
            total += _size_of(root)
    return roots


def _grep(patterns: Path, paths: list[str]) -> tuple[int, float]:
    start = time.monotonic()
    done = subprocess.run(
        ["grep", "-a", "-F", "-c", "-h", "-r", "-f", str(patterns), *paths],
        env=os.environ | {"LC_ALL": "C"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    seconds = time.monotonic() - start
    return sum(int(line) for line in done.stdout.split()), seconds


def _show(title: str, patterns: bytes, paths: list[str]) -> bool:
    """Scan `paths` with both; whether they agree."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(patterns)
        file.flush()
        _grep(Path(file.name), paths)  # so that both find the files cached
        expected, grep_seconds = _grep(Path(file.name), paths)
    found = _core.scan("auto", patterns, [], [os.fsencode(path) for path in paths])
    agree = found["matches"] == expected
    size, seconds = found["bytes"], found["seconds"]
    print(
        f"demo: {title}: {size / (1 << 20):.0f} MiB, {len(patterns.splitlines())} strings:"
        f" {found['matches']} lines in {seconds:.3f} s on {found['device']},"
        f" grep -F {grep_seconds:.3f} s: "
        + ("the counts agree" if agree else f"THE COUNTS DIFFER, grep found {expected}"),
        flush=True,
    )
    return agree


def main() -> int:
    """Run both parts."""
    agree = _show("text in " + ", ".join(_real_text()), WORDS, _real_text())
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        log = str(Path(folder) / "access.log")
        addresses = _core.write_access_log(log, LOG_SIZE)
        agree = _show("web server log, suspicious addresses", addresses.encode(), [log]) and agree
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
