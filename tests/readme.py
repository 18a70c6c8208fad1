#!/usr/bin/env python3
"""Runs every example of the documentation as it is printed, with the installation below PREFIX.

    tests/readme.py PREFIX [PAGE...]

The pages are README.md, docs/start.md and docs/guide/*.md, or the named pages. The language of a
fenced block selects the test:

    console   Bash runs the text after `$ ` in a folder that looks like a checkout. It must print
              the text below the command, except for numbers.
    python    Python runs it in that folder. It must print the `text` block below it.
    cpp, cuda It must equal the file that the text above it names; a `console` block compiles it.
    sh        It sets up. A stage of tests/run.py must run each of its commands.

A block below a line `<!-- not run: REASON -->` is skipped. Each page has its own folder, and
$HOME/.local is PREFIX. The program prints a line for each block; the exit code is 1 if one failed.
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
# Stands above a block that no test machine can run, or that is only a part of a program.
NOT_RUN = re.compile(r"<!-- not run: ([^\n]+) -->\n+\Z")
# Commands of `sh` blocks, and the stage that runs each.
SET_UP = {
    "pip install .": "wheel",
    "make demo": "(its parts: build-release, pytest)",
    "make install PREFIX=$HOME/.local": "out-of-tree",
    "make build": "build-release",
    "make test": "(all)",
    "make test-all": "(all)",
}
# The output of these depends on the machine and its load: only the first word of a line, or the
# name in the second column, is compared.
FIRST_WORDS = ("penstock read", "penstock signature", "python")
NAMES = ("penstock check",)


class Block(NamedTuple):
    """One fenced block."""

    page: str
    language: str
    text: str
    line: int
    before: str  # the text above it


class FailedError(Exception):
    """A block does not do what the page says."""


class SkippedError(Exception):
    """A block needs something that this machine lacks."""


def pages() -> list[str]:
    """Return the pages whose examples are run."""
    guides = sorted((ROOT / "docs/guide").glob("*.md"))
    return ["README.md", "docs/start.md", *(str(path.relative_to(ROOT)) for path in guides)]


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = (ROOT / page).read_text()
    return [
        Block(
            page, match[1], match[2], text.count("\n", 0, match.start()) + 1, text[: match.start()]
        )
        for match in BLOCK.finditer(text)
    ]


def shape(line: str) -> str:
    """Return the line without what differs from run to run: numbers, bars, the method."""
    line = re.sub(r"\(by \w+\)|[░▒▓█]", "", line)
    return re.sub(r"\d[\d.,]*", "N", line).rstrip()


def name(line: str) -> str:
    """Return the name in the second column of what `penstock check` prints; empty without one."""
    found = re.match(r"  \S+ +(\S.*?)  ", line)
    return found[1] if found else ""


def compare(command: str, printed: list[str], expected: list[str]) -> None:
    """Check that a command printed what the page shows, up to a line `...`."""
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
        raise FailedError("\n".join([f"$ {command}", *printed, "but the page has:", *expected]))


def environment(scratch: Path, prefix: Path) -> dict[str, str]:
    """Return the environment of a user who has run `make install PREFIX=$HOME/.local`."""
    home = scratch / "home"
    home.mkdir()
    (home / ".local").symlink_to(prefix.resolve())
    unwanted = ("PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH")
    kept = {name: text for name, text in os.environ.items() if name not in unwanted}
    # A Python of a virtual environment does not search $HOME/.local by default.
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
    """Run the commands of a block in one shell; compare the output if the page shows it."""
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
    """Check that the block equals the file named last above it."""
    named = re.findall(r"`([\w/.-]+\.(?:cc|cu|h))`", block.before)
    if not named:
        raise FailedError("the text above names no file")
    if (ROOT / named[-1]).read_text() != block.text:
        raise FailedError(f"differs from {named[-1]}, which the text above names")


def set_up(block: Block) -> None:
    """Check that a stage runs each command, and that its target exists."""
    for line in block.text.splitlines():
        command = line.partition("#")[0].strip()
        if command not in SET_UP:
            raise FailedError(f"{command}: no stage is known to run it")
        if command.startswith("make "):
            run(["make", "-n", *command.split()[1:]], ROOT, dict(os.environ))


def check(block: Block, output: Block | None, folder: Path, variables: dict[str, str]) -> None:
    """Test a block as its language says; `output` is the `text` block after it."""
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


def check_page(page: str, prefix: Path) -> int:
    """Check the blocks of a page, in order; return how many failed."""
    found = blocks(page)
    failed = 0
    # The folder is not in /tmp, which may be in memory: such files cannot leave the page cache.
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as place:
        folder = Path(place) / "checkout"
        folder.mkdir()
        for entry in ("LICENSE", "examples"):
            (folder / entry).symlink_to(ROOT / entry)
        variables = environment(Path(place), prefix)
        for block, after in zip(found, [*found, None][1:], strict=True):
            output = after if after is not None and after.language == "text" else None
            head = f"{page}:{block.line} {block.language}"
            if marked := NOT_RUN.search(block.before):
                print(f"{head}: not run: {marked[1]}", flush=True)
                continue
            try:
                check(block, output, folder, variables)
                print(f"{head}: ok", flush=True)
            except SkippedError as reason:
                print(f"{head}: skipped: {reason}", flush=True)
            except (FailedError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"{head}: FAILED: {error}", flush=True)
    return failed


def main() -> int:
    """Check the pages named on the command line, or all."""
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    named = sys.argv[2:] or pages()
    failed = sum(check_page(page, Path(sys.argv[1])) for page in named)
    return 1 if failed or not blocks("README.md") else 0


if __name__ == "__main__":
    sys.exit(main())
