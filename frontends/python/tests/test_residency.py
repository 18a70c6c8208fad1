"""Goal: `penstock residency` shows what is cached of files, on a terminal, as runs and as JSON.

What is cached is made so here, by reads and by POSIX_FADV_DONTNEED, and checked by mincore. Where
the temporary folder is on a file system whose probes are refused, those tests say so and stop.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import _core
from penstock.commands import residency
from penstock.probes import calls

COMMAND = [sys.executable, "-m", "penstock", "residency"]
PAGE = 4096
SIZE = 256 * PAGE


def run(*words: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, text=True, check=False, **more
    )


def runs_of(told: dict[str, Any]) -> list[tuple[int, int, str]]:
    return [(one["offset"], one["size"], one["state"]) for one in told["runs"]]


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """A file of which nothing is cached."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if calls.mincore(file.fileno(), SIZE) != 0:
            pytest.skip("this file system keeps what it was asked to drop")
    if _core.residency(os.fsencode(path))["method"] == "unknown":
        pytest.skip("neither cachestat nor mincore is allowed here")
    return path


def warm(path: Path, offset: int, size: int) -> None:
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no readahead
        os.pread(file.fileno(), size, offset)


def test_json_has_every_run(cold: Path) -> None:
    warm(cold, 16 * PAGE, 48 * PAGE)
    done = run(cold, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (told,) = json.loads(done.stdout)["files"]
    assert (told["path"], told["size"]) == (str(cold), SIZE)
    assert runs_of(told) == [
        (0, 16 * PAGE, "missing"),
        (16 * PAGE, 48 * PAGE, "cached"),
        (64 * PAGE, SIZE - 64 * PAGE, "missing"),
    ]
    assert told["bytes"]["cached"] == told["resident"] == 48 * PAGE
    assert sum(told["bytes"].values()) == SIZE


def test_looking_brings_nothing_into_the_cache(cold: Path) -> None:
    for _ in range(3):
        (told,) = json.loads(run(cold, "--json").stdout)["files"]
        assert runs_of(told) == [(0, SIZE, "missing")]


def test_runs_are_lines(cold: Path) -> None:
    warm(cold, 0, 8 * PAGE)
    done = run(cold, "--runs")
    assert done.stdout == f"0 {8 * PAGE} cached\n{8 * PAGE} {SIZE - 8 * PAGE} missing\n"


def test_more_runs_than_asked_for_are_told_in_larger_grains(cold: Path) -> None:
    for page in range(0, 256, 2):
        warm(cold, page * PAGE, PAGE)
    assert len(json.loads(run(cold, "--json").stdout)["files"][0]["runs"]) == 256
    (told,) = json.loads(run(cold, "--json", "--runs-max", "16").stdout)["files"]
    assert runs_of(told) == [(0, SIZE, "mixed")]
    assert told["resident"] == SIZE // 2
    assert told["grain"] > PAGE


def test_dirty_bytes_are_told_where_they_can_be(cold: Path) -> None:
    with cold.open("r+b") as file:
        os.pwrite(file.fileno(), b"x" * PAGE, 7 * PAGE)
        told = _core.residency(os.fsencode(cold))
    if told["method"] != "cachestat":
        pytest.skip("mincore cannot tell dirty pages")
    assert (7 * PAGE, PAGE, "dirty") in runs_of(told)


def test_bar_in_a_pipe_has_no_colours(cold: Path) -> None:
    warm(cold, 0, SIZE // 2)
    done = run(cold, env={**os.environ, "COLUMNS": "24", "PYTHONIOENCODING": "utf-8"})
    assert done.stdout.splitlines()[:2] == [str(cold), "  " + "█" * 10 + "░" * 10]
    assert "512.0 KiB cached" in done.stdout
    done = run(cold, env={**os.environ, "COLUMNS": "24", "PYTHONIOENCODING": "ascii"})
    assert done.stdout.splitlines()[1] == "  " + "#" * 10 + "." * 10


def test_bar_on_a_terminal_has_colours(cold: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "24"}
    environment.pop("NO_COLOR", None)
    subprocess.run([*COMMAND, str(cold)], stdout=theirs, env=environment, check=True, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "\033[90m" + "░" * 20 + "\033[0m" in shown


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    done = run(path)
    assert (done.returncode, done.stdout) == (0, f"{path}\n  0 bytes: empty\n")


def test_what_fails_is_one_line_and_the_rest_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    missing = tmp_path / "missing"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = run(missing, path, tmp_path, pipe)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"penstock: {missing}: No such file or directory",
        f"penstock: {tmp_path}: Is a directory",
        f"penstock: {pipe}: not a regular file",
    ]
    assert str(path) in done.stdout
    done = run(missing, path, "--json")
    assert done.returncode == 1
    assert [sorted(one)[0] for one in json.loads(done.stdout)["files"]] == ["error", "bytes"]


@pytest.mark.parametrize("words", [[], ["a", "--runs-max", "3"], ["a", "--runs", "--json"]])
def test_usage_errors_are_2(words: list[str]) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_a_name_of_odd_bytes(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\n"
    with open(path, "wb") as file:
        file.write(b"abc")
    done = run(os.fsdecode(path), env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == f"{tmp_path}/\\xff\\n"


def test_progress_can_stop_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    seen = []

    def refuse(done: int, size: int) -> None:
        seen.append((done, size))
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        _core.residency(os.fsencode(path), progress=refuse)
    assert seen == [(3, 3)]


def naive_cells(runs: list[dict[str, Any]], size: int, width: int) -> list[str]:
    """Byte by byte; of runs that are wholly resident or not at all."""
    states = [""] * size
    for run_ in runs:
        for byte in range(run_["offset"], run_["offset"] + run_["size"]):
            states[byte] = run_["state"]
    width = min(width, size)
    cells = []
    for cell in range(width):
        here = {states[b] for b in range(size) if b * width // size == cell}
        alone = next(iter(here))
        wins = [one for one in ("dirty", "unknown") if one in here]
        cells.append(wins[0] if wins else alone if len(here) == 1 else "mixed")
    return cells


def test_cells_of_the_bar_are_what_their_bytes_are() -> None:
    import random

    for seed in range(300):
        chance = random.Random(seed)
        runs, at = [], 0
        for _ in range(chance.randrange(1, 12)):
            size = chance.randrange(1, 20)
            state = chance.choice(["missing", "cached", "dirty", "unknown"])
            resident = size if state in ("cached", "dirty") else 0
            runs.append({"offset": at, "size": size, "state": state, "resident": resident})
            at += size
        width = chance.randrange(1, 40)
        assert residency.cells(runs, at, width) == naive_cells(runs, at, width), f"seed {seed}"
