#!/usr/bin/env python3
"""Runs every example of README.md as it is printed, with the installation below PREFIX.

    tests/readme.py PREFIX

The language of a fenced block says what becomes of it. `console`: what follows `$ ` is run by bash
in a folder that looks like a checkout, and must print what stands below it, numbers excepted.
`python`: is run there; the `text` behind it is what it prints. `cpp`, `cuda`: must be the file that
the text before names, which a `console` block compiles. `sh`: sets up, and is a stage of its own.
$HOME/.local is PREFIX. Prints a line for each block; exit code 1 if one failed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SECONDS_MAX = 900  # of one block: nvcc is slow where others compile too
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Commands of `sh` blocks, and the stage that runs each.
SET_UP = {
    "pip install .": "wheel",
    "make demo": "(its parts: build-release, pytest)",
    "make install PREFIX=$HOME/.local": "out-of-tree",
    "make build": "build-release",
    "make test": "(all)",
}
# What these print depends on the machine and its load: only the first word of a line is compared,
# or the name in the second column.
FIRST_WORDS = ("penstock read", "penstock signature", "python")
NAMES = ("penstock check",)


class Block(NamedTuple):
    """One fenced block."""

    language: str
    text: str
    line: int
    before: str  # the text above it


class FailedError(Exception):
    """A block does not do what it says."""


class SkippedError(Exception):
    """A block needs what is not here."""


def blocks() -> list[Block]:
    """Return the fenced blocks of the README."""
    readme = (ROOT / "README.md").read_text()
    return [
        Block(match[1], match[2], readme.count("\n", 0, match.start()) + 1, readme[: match.start()])
        for match in BLOCK.finditer(readme)
    ]


def shape(line: str) -> str:
    """Return the line without what differs from run to run: numbers, bars, how it was found out."""
    line = re.sub(r"\(by \w+\)|[░▒▓█]", "", line)
    return re.sub(r"\d[\d.,]*", "N", line).rstrip()


def name(line: str) -> str:
    """Return the name in the second column of what `penstock check` prints; empty without one."""
    found = re.match(r"  \S+ +(\S.*?)  ", line)
    return found[1] if found else ""


def compare(command: str, printed: list[str], expected: list[str]) -> None:
    """See that a command printed what the README shows, up to a line `...`."""
    if "..." in expected:
        expected = expected[: expected.index("...")]
        printed = printed[: len(expected)]
    look: Callable[[str], str] = shape
    if command.startswith(FIRST_WORDS):
        look = lambda line: shape(line.partition(" ")[0] or line.split()[0])  # noqa: E731
    elif command.startswith(NAMES):
        look = name
    found, wanted = [look(line) for line in printed], [look(line) for line in expected]
    if found != wanted:
        raise FailedError("\n".join([f"$ {command}", *printed, "but README.md has:", *expected]))


def environment(scratch: Path, prefix: Path) -> dict[str, str]:
    """Return the environment of a user who has run `make install PREFIX=$HOME/.local`."""
    home = scratch / "home"
    home.mkdir()
    (home / ".local").symlink_to(prefix.resolve())
    unwanted = ("PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH")
    kept = {name: text for name, text in os.environ.items() if name not in unwanted}
    # A Python of a virtual environment does not look below $HOME/.local by itself.
    kept["PYTHONPATH"] = ":".join(map(str, prefix.resolve().glob("lib/python*/*-packages")))
    path = [str(home / ".local/bin"), str(ROOT / ".venv/bin"), os.environ["PATH"]]
    return kept | {"HOME": str(home), "PATH": os.pathsep.join(path), "PENSTOCK_DEVICE": "cpu"}


def run(command: list[str], folder: Path, variables: dict[str, str]) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS_MAX,
    )
    if done.returncode != 0:
        raise FailedError(f"exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def console(block: Block, folder: Path, variables: dict[str, str]) -> None:
    """Run the commands of a block in one shell; compare what is printed where output is shown."""
    first, *parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    if first or not parts:
        raise FailedError("begins with no command")
    commands = [part.partition("\n")[0] for part in parts]
    outputs = [part.partition("\n")[2].rstrip("\n").split("\n") for part in parts]
    if any("strace" in command for command in commands):
        tool = shutil.which("strace") or "false"
        if subprocess.run([tool, "true"], capture_output=True, check=False).returncode != 0:
            raise SkippedError("strace is missing, or may not trace")
    mark = "\1"  # ends what a command prints
    script = "set -e\n" + "".join(f"{command}\nprintf '\\1'\n" for command in commands)
    printed = run(["bash", "-c", script], folder, variables).split(mark)
    for command, told, expected in zip(commands, printed, outputs, strict=False):
        if expected != [""]:
            compare(command, told.rstrip("\n").split("\n"), expected)


def source(block: Block) -> None:
    """See that the block is the file named last above it."""
    named = re.findall(r"`([\w/.-]+\.(?:cc|cu|h))`", block.before)
    if not named:
        raise FailedError("the text above names no file")
    if (ROOT / named[-1]).read_text() != block.text:
        raise FailedError(f"differs from {named[-1]}, which the text above names")


def set_up(block: Block) -> None:
    """See that each command is one that a stage runs, and that its target is there."""
    for line in block.text.splitlines():
        command = line.partition("#")[0].strip()
        if command not in SET_UP:
            raise FailedError(f"{command}: no stage is known to run it")
        if command.startswith("make "):
            run(["make", "-n", *command.split()[1:]], ROOT, dict(os.environ))


def check(block: Block, output: Block | None, folder: Path, variables: dict[str, str]) -> None:
    """Do with a block what its language says; `output` is the `text` block behind it."""
    if block.language == "console":
        console(block, folder, variables)
    elif block.language == "python":
        printed = run([str(ROOT / ".venv/bin/python"), "-c", block.text], folder, variables)
        if output is not None:
            compare("python", printed.splitlines(), output.text.splitlines())
    elif block.language in ("cpp", "cuda"):
        source(block)
    elif block.language == "sh":
        set_up(block)
    elif block.language != "text":
        raise FailedError("its language says not what to do with it")


def main() -> int:
    """Check all blocks, in order."""
    prefix = Path(sys.argv[1])
    found = blocks()
    failed = 0
    # Not in /tmp, which may be in memory: the OS page cache of its files cannot be emptied.
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as place:
        folder = Path(place) / "checkout"
        folder.mkdir()
        for entry in ("LICENSE", "examples"):
            (folder / entry).symlink_to(ROOT / entry)
        variables = environment(Path(place), prefix)
        for block, after in zip(found, [*found[1:], None], strict=True):
            output = after if after is not None and after.language == "text" else None
            head = f"README.md:{block.line} {block.language}"
            try:
                check(block, output, folder, variables)
                print(f"{head}: ok", flush=True)
            except SkippedError as reason:
                print(f"{head}: skipped: {reason}", flush=True)
            except (FailedError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"{head}: FAILED: {error}", flush=True)
    return 1 if failed or not found else 0


if __name__ == "__main__":
    sys.exit(main())
