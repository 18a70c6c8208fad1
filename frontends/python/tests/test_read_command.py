"""Goal: `penstock read` writes the bytes of any part of a file and tells the truth about them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "penstock", "read"]
SIZE = (3 << 20) + 13


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    return path


def run(*words: object, **variables: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        capture_output=True,
        check=False,
        timeout=120,
        env={**os.environ, **variables},
    )


def text(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stdout.decode()


def test_of_an_empty_file_nothing_is_read_whatever_is_asked_for(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for words in ([], ["--size", "1T"]):
        done = run(empty, *words, "--json", "--device", "cpu")
        assert (done.returncode, done.stderr) == (0, b"")
        assert json.loads(done.stdout)["bytes"] == 0


def test_an_offset_past_the_end_is_told(file: Path, tmp_path: Path) -> None:
    out, empty = tmp_path / "out", tmp_path / "empty"
    empty.touch()
    untold = "of a file that does not tell its size"
    cases = [(file, SIZE + 1, "at 3.0 MiB"), (empty, 1, untold), ("/proc/version", 1 << 20, untold)]
    for path, offset, end in cases:
        done = run(path, "--offset", offset, "--device", "cpu", "-o", out)
        assert (done.returncode, done.stdout) == (1, b"")
        told = f"penstock: {path}: --offset {offset} is past the end, {end}\n"
        assert done.stderr.decode() == told


def test_a_full_disk_is_told_by_name(file: Path) -> None:
    done = run(file, "-o", "/dev/full", "--device", "cpu")
    assert done.returncode == 1
    assert done.stderr == b"penstock: /dev/full: No space left on device\n"


@pytest.mark.parametrize("words", [[], ["--offset", "100"], ["--size", "50"]])
def test_a_file_that_does_not_tell_its_size_is_read_to_its_end(
    words: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    begin = 100 if "--offset" in words else 0
    end = 50 if "--size" in words else None
    file = Path("/proc/kallsyms")  # some MiB
    if not file.exists():
        file = Path("/proc/filesystems")
    done = run(file, *words, "-o", out, "--check", "--json", "--device", "cpu")
    assert (done.returncode, done.stderr) == (0, b"")
    whole = file.read_bytes()
    assert out.read_bytes() == whole[begin:end]
    assert json.loads(done.stdout)["bytes"] == len(whole[begin:end])


@pytest.mark.parametrize(
    ("words", "begin", "end"),
    [
        ([], 0, SIZE),
        (["--offset", "13"], 13, SIZE),
        (["--size", "1M"], 0, 1 << 20),
        (["--offset", "4K", "--size", "1MiB", "--route", "direct"], 4096, 4096 + (1 << 20)),
        (["--offset", str(SIZE)], SIZE, SIZE),
        (["--cache", "drop", "--threads", "1"], 0, SIZE),
    ],
)
def test_bytes_and_report(
    words: list[str], begin: int, end: int, file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = run(file, *words, "-o", out, "--check", "--json", "--device", "cpu")
    assert (done.returncode, done.stderr) == (0, b"")
    assert out.read_bytes() == file.read_bytes()[begin:end]
    told = json.loads(done.stdout)
    assert told["bytes"] == end - begin
    for group in ("routes", "reasons", "residency"):
        assert sum(told[group].values()) == end - begin
    assert told["device"].startswith("cpu:")
    assert told["checked"] is True
    assert run(file, *words, "-o", "-", "--quiet", "--device", "cpu").stdout == out.read_bytes()


def test_pieces_come_in_order(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from penstock import cli
    from penstock.commands import read

    monkeypatch.setattr(read, "_PIECE_SIZE", 70_000)
    out = tmp_path / "out"
    assert cli.main(["read", str(file), "-o", str(out), "--device", "cpu"]) == 0
    assert out.read_bytes() == file.read_bytes()


def test_json_with_explain_has_the_report_of_each_piece(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock import cli
    from penstock.commands import read

    monkeypatch.setattr(read, "_PIECE_SIZE", 1 << 20)
    words = ["read", str(file), "--device", "cpu", "--json"]
    assert cli.main([*words, "--explain"]) == 0
    told = json.loads(capsys.readouterr().out)
    pieces = told["pieces"]
    assert [piece["offset"] for piece in pieces] == [at << 20 for at in range(4)]
    assert sum(piece["bytes"] for piece in pieces) == told["bytes"] == SIZE
    for piece in pieces:
        assert sum(piece["residency"].values()) == piece["bytes"]
    assert cli.main(words) == 0
    assert "pieces" not in json.loads(capsys.readouterr().out)


def test_text(file: Path) -> None:
    lines = text(run(file, "--device", "cpu", "--route", "cached")).splitlines()
    assert lines[0].startswith(f"{file}: 3.0 MiB in ")
    assert " GB/s) into cpu:" in lines[0]
    assert lines[1:] == ["  routes     cached 3.0 MiB", "  reasons    asked 3.0 MiB"]
    explained = text(run(file, "--device", "cpu", "--explain", "--check")).splitlines()
    assert explained[0].startswith(f"0: {SIZE} of {SIZE} bytes: ")
    assert explained[1].endswith("equal to plain reads")
    assert explained[-2].startswith("  residency  ")
    assert explained[-1].startswith("  calibration ")
    bytes_apart = run(file, "--device", "cpu", "-o", "-")
    assert bytes_apart.stdout == file.read_bytes()
    assert b" GB/s) into cpu:" in bytes_apart.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["/no/such/file"], 1, "penstock: /no/such/file: No such file or directory\n"),
        (["/"], 1, "penstock: /: Is a directory"),
        (["FILE", "--size", "many"], 2, "'many' is no size in bytes"),
        (["FILE", "--offset", "-1"], 2, "--offset"),
        (["FILE", "--route", "fast"], 2, "--route"),
        (["FILE", "--device", "gpu"], 2, "gpu"),
        (["FILE", "--threads", "0"], 2, "--threads: '0' is no number from 1 to 64"),
        (["FILE", "--threads", "-1"], 2, "--threads: '-1' is no number"),
        (["FILE", "--threads", "65"], 2, "--threads: '65' is no number"),
        (["FILE", "--threads", "two"], 2, "--threads: 'two' is no number"),
        (["FILE", "-o", "/no/such/folder/out"], 1, "penstock: /no/such/folder/out: No such file"),
        (
            ["FILE", "--route", "peer", "--strict"],
            1,
            "penstock: ",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: list[str], code: int, told: str, file: Path
) -> None:
    done = run(*[file if word == "FILE" else word for word in words])
    assert done.returncode == code
    errors = done.stderr.decode()
    assert errors.startswith("penstock: ")
    assert told in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("PENSTOCK_ROUTE", "fast", "'fast' is not one of auto, cached, direct, peer"),
        ("PENSTOCK_STRICT", "maybe", "'maybe' is neither 1 nor 0"),
        ("PENSTOCK_EXPLAIN", "perhaps", "'perhaps' is neither 1 nor 0"),
        ("PENSTOCK_THREADS", "two", "'two' is no number from 1 to 64"),
        ("PENSTOCK_THREADS", "65", "'65' is no number from 1 to 64"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named(
    variable: str, value: str, told: str, file: Path
) -> None:
    done = run(file, "--device", "cpu", **{variable: value})
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"penstock: {variable}: {told}\n"


@pytest.mark.parametrize("words", [["read", "FILE"], ["scan", "--pattern", "a", "FILE"], ["check"]])
def test_a_device_that_is_none_is_told_with_its_variable(words: list[str], file: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "penstock",
            *[str(file) if word == "FILE" else word for word in words],
        ],
        capture_output=True,
        check=False,
        env={**os.environ, "PENSTOCK_DEVICE": "gpu"},
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().startswith("penstock: PENSTOCK_DEVICE: 'gpu' is not auto, cpu,")
    assert done.stderr.count(b"\n") == 1
