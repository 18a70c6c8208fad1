"""Goal: benchmarks in Python run, check what they claim, and write the JSON that all of them do."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from penstock.benchmarks import fronts, safetensors
from penstock.benchmarks.harness import page_cache, programs, rivals, slow_storage
from penstock.benchmarks.harness.report import Report, take_pairs, wanted
from penstock.cli import main
from penstock.commands import bench
from penstock.commands.bench import find_programs

KEYS = ["case", "against", "unit", "pairs", "bytes", "verified", "simulated", "cpu_seconds", "note"]


def test_smoke_run_writes_rows(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    pytest.importorskip("safetensors")
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "penstock", "bench", "safetensors", "--smoke"]
    command += ["--json", str(out)]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    whole = json.loads(out.read_text())
    assert set(whole) == {"bench", "question", "environment", "rows"}
    assert whole["bench"] == "safetensors"
    assert whole["environment"]["smoke"] == "yes"
    rows = {(row["case"], row["against"]): row for row in whole["rows"]}
    assert {("hot", "safetensors"), ("cold", "safetensors")} <= rows.keys()
    for name in (
        "safetensors",
        "fastsafetensors",
        "runai-model-streamer",
        "instanttensor",
        "flashpack",
    ):
        told = whole["environment"][f"rival {name}"]
        ran = ("hot", name) in rows
        assert told[0].isdigit() if ran else told.startswith("not run: "), told
    for (case, _), row in rows.items():
        assert list(row) == KEYS
        assert len(row["pairs"]) == 1
        # A file system without a page cache of its own, as tmpfs, cannot be cold.
        assert row["verified"] or case == "cold", done.stderr
    assert list(tmp_path.iterdir()) == [out]


def test_fronts_have_their_rows(tmp_path: Path) -> None:
    if programs.find("foreign_write") is None:
        pytest.skip("the programs that it runs are not built")
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "penstock", "bench", "fronts", "--smoke", "--json", str(out)]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    whole = json.loads(out.read_text())
    rows = {(row["case"], row["against"]): row for row in whole["rows"]}
    wanted = {("foreign-fd-write", "no-preload"), ("readahead-4k", "pread+copy")}
    if "left out: mmap-*" not in whole["environment"]:
        wanted |= {(f"mmap-local-disk{end}", "no-preload") for end in ("", "-cold", "-hot")}
        if "left out: mmap-slow-storage" not in whole["environment"]:
            baselines = ("no-preload", "parallel-read-first")
            wanted |= {("mmap-slow-storage", against) for against in baselines}
    if "left out: replay-strided" not in whole["environment"]:
        cases = ("replay-strided", "replay-shuffled", "learned-strided")
        wanted |= {(case, "no-preload") for case in cases}
    assert set(rows) == wanted
    for row in rows.values():
        assert list(row) == KEYS
        assert len(row["pairs"]) == 1
        # A file system without a page cache of its own, as tmpfs, cannot be cold.
        assert row["verified"] or "cold" in row["note"], done.stderr
    assert list(tmp_path.iterdir()) == [out]


def test_fronts_say_why_there_is_no_slow_storage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(slow_storage, "why_not", lambda: "there is no /dev/fuse")
    arguments = Namespace(pairs=1, smoke=True, only="strided", device="cpu", json=None, full=False)
    report = Report("fronts", "?", arguments)
    fronts.measure_all(arguments, report)
    assert report._rows == []
    assert report.environment["left out: replay-strided"] == "there is no /dev/fuse"
    assert "left out: there is no /dev/fuse" in capsys.readouterr().err


def test_a_rival_that_cannot_run_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: set[str] = set()
    monkeypatch.setattr(rivals, "find_spec", lambda name: name if name in installed else None)
    told = {rival.package: rivals.why_not(rival) for rival in rivals.RIVALS}
    assert told["fastsafetensors"] == "no module fastsafetensors, torch"
    assert told["runai-model-streamer"] == "no module runai_model_streamer, torch"
    assert told["instanttensor"].startswith("no module instanttensor, torch; needs a GPU")
    installed |= {"fastsafetensors", "instanttensor", "flashpack", "accelerate"}
    told = {rival.package: rivals.why_not(rival) for rival in rivals.RIVALS}
    assert told["fastsafetensors"] == "no module torch"
    installed |= {"torch", "runai_model_streamer"}
    told = {rival.package: rivals.why_not(rival) for rival in rivals.RIVALS}
    assert told["fastsafetensors"] == told["runai-model-streamer"] == ""
    assert told["instanttensor"].startswith("needs a GPU")
    assert "own format" in told["flashpack"]


def test_a_rival_that_fails_is_told_with_what_it_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numpy = pytest.importorskip("numpy")
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def broken(path: Path, put: rivals.Put) -> None:
        raise RuntimeError("it is Friday\nand late")

    def whole(path: Path, put: rivals.Put) -> None:
        content = path.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        for name, info in json.loads(content[8:start]).items():
            begin, end = (start + at for at in info["data_offsets"])
            put(name, numpy.frombuffer(content[begin:end], numpy.uint8))

    table = (rivals.Rival("json", "json", (), broken), rivals.Rival("os", "os", (), whole))
    monkeypatch.setattr(rivals, "RIVALS", table)
    arguments = Namespace(pairs=1, smoke=True, only="hot", device="cpu", json=None)
    report = Report("safetensors", "?", arguments)
    safetensors.measure_all(arguments, report)
    assert report.environment["rival json"] == "not run: it raised RuntimeError: it is Friday"
    assert report.environment["rival os"] == "of unknown version"
    rows = {row.against: row for row in report._rows}
    assert rows["os"].verified
    assert "json" not in rows


def test_modules_are_found_as_programs_are() -> None:
    found = find_programs()
    assert found["safetensors"] == [sys.executable, "-m", "penstock.benchmarks.safetensors"]
    assert "harness" not in found


def test_programs_that_are_not_installed_are_known_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = Path(__file__).parents[3]
    assert sorted(path.stem for path in checkout.glob("bench/*.cc")) == list(bench.PROGRAMS)
    monkeypatch.setattr(bench, "program_folders", list[Path])
    assert main(["bench", "gread"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("penstock: gread: not installed; ")
    assert "cmake.define.PENSTOCK_BENCH=ON" in told
    assert told.count("\n") == 1
    assert main(["bench", "graed"]) == 2
    assert "graed: no such benchmark" in capsys.readouterr().err
    assert main(["bench", "--list"]) == 0
    listed = capsys.readouterr()
    assert listed.out.split() == ["fronts", "gmfs", "safetensors"]
    assert "tio: not installed; " in listed.err


def test_file_is_brought_into_the_page_cache_and_out() -> None:
    path = Path("/var/tmp") / f"penstock-test-{os.getpid()}"
    try:
        path.write_bytes(random.Random(1).randbytes(1_000_000))
        assert page_cache.warm(path)
        assert page_cache.cached_pages(path) == (245, 245)
        if page_cache.evict(path):
            assert page_cache.cached_pages(path) == (0, 245)
            with path.open("rb", buffering=0) as file:
                file.read(1)
            assert page_cache.cached_pages(path)[0] > 0
    finally:
        path.unlink()


def test_first_pair_is_thrown_away() -> None:
    figures = iter(range(100))
    pairs = take_pairs(2, lambda: float(next(figures)), lambda: float(next(figures)))
    assert pairs == [(2.0, 3.0), (4.0, 5.0)]


def test_cases_are_chosen_by_text_or_name() -> None:
    assert wanted("", "hot")
    assert wanted("ho", "hot")
    assert not wanted("=ho", "hot")
    assert wanted("=hot", "hot")
