"""Goal: benchmark programs run at their smallest, check what they read, and have all cases."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import _core
from penstock.commands.bench import find_programs

KEYS = ["case", "against", "unit", "pairs", "bytes", "verified", "simulated", "cpu_seconds", "note"]
DRIVER = Path(_core.__file__).parents[2] / "driver_fake.so"  # stands for one, in build trees


def smoke(name: str, folder: Path) -> list[dict[str, Any]]:
    """Run a benchmark's smoke value and return its rows."""
    if name not in find_programs():
        pytest.skip(f"penstock-bench-{name} is not built")
    out = folder / "out.json"
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "bench", name, "--smoke", "--json", out],
        env=os.environ | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    whole = json.loads(out.read_text())
    assert set(whole) == {"bench", "question", "environment", "rows"}
    assert whole["bench"] == name
    assert whole["environment"]["smoke"] == "yes"
    rows: list[dict[str, Any]] = whole["rows"]
    told = done.stderr.splitlines()
    for row in rows:
        assert list(row) == KEYS
        # Its baseline is not chosen on half of the rounds, so it keeps them all.
        assert len(row["pairs"]) == (2 if row["case"] == "auto-hot" else 1)
        line = f"{row['case']:<28} against {row['against']:<24} "
        assert any(one.startswith(line) for one in told)
        # A file system without a page cache of its own, as tmpfs, cannot be cold, also not in
        # part; what only calculates has no bytes to check.
        cold = re.search("cold|mixed50", row["note"] + row["case"])
        free = name == "readahead_simulation" or cold
        assert row["verified"] or free, (row, done.stderr)
    return rows


@pytest.mark.parametrize(
    "name", ["detector", "gread", "gwrite", "plan", "pread", "readahead_simulation", "route"]
)
def test_smoke_run_writes_rows(name: str, tmp_path: Path) -> None:
    assert smoke(name, tmp_path)


def test_readahead_has_its_cases(tmp_path: Path) -> None:
    rows = {(row["case"], row["against"]) for row in smoke("readahead", tmp_path)}
    assert rows >= {
        ("4k-requests+readahead", "seed-4k"),
        ("4k-requests+readahead", "two-copy-limit"),
        ("pages-4k+readahead", "pages-64k"),
        ("pages-4k+readahead", "two-copy-limit"),
        ("cold-4k+readahead", "cold-pread-4-threads"),
        ("twice-the-cache", "inside-the-cache"),
        ("random-4k+readahead", "random-4k"),
        ("mosaic-mixed", "better-of-4k-and-64k"),
        ("strided-cold+readahead", "strided-cold"),
        ("second-launch-first-miss", "no-miss"),
    }


def test_seed000_has_every_figure(tmp_path: Path) -> None:
    rows = smoke("seed000", tmp_path)
    told = [re.match(r"figures? ([\d and,to]+)", row["note"]) for row in rows]
    assert all(told), rows
    figures = {int(n) for one in told if one is not None for n in re.findall(r"\d+", one[1])}
    assert figures == {2, 3, 4, 5, 6, 7, 9, 10}
    assert {row["case"] for row in rows if row["simulated"]} == {
        row["case"] for row in rows if row["note"].startswith("figure 7")
    }


def test_tio_has_its_rows(tmp_path: Path) -> None:
    rows = smoke("tio", tmp_path)
    mechanisms = {"clwrite", "clwrite+d", "direct", "pread+gpu", "best-mechanism"}
    for cell in ("random-512b-1t-hot", "random-512k-4t-mixed50"):
        assert {row["against"] for row in rows if row["case"] == cell} == mechanisms
    assert [(row["case"], row["against"]) for row in rows[-2:]] == [
        ("auto-geomean", "best-mechanism"),
        ("auto-cached-50", "best-mechanism"),
    ]
    assert rows[-1]["bytes"] == next(row["bytes"] for row in rows if "mixed50" in row["case"])


@pytest.mark.skipif(not DRIVER.exists(), reason="the stand-in driver is not built")
def test_tio_reads_into_memory_that_the_host_cannot_address(tmp_path: Path) -> None:
    command = find_programs().get("tio")
    if command is None:
        pytest.skip("penstock-bench-tio is not built")
    out = tmp_path / "out.json"
    done = subprocess.run(
        [*command, "--smoke", "--device", "cuda:0", "--json", out],
        env=os.environ | {"PENSTOCK_LIBCUDA": str(DRIVER), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    hot = [row for row in json.loads(out.read_text())["rows"] if row["case"].endswith("-hot")]
    assert hot
    assert all(row["verified"] for row in hot)


def test_readahead_refuses_memory_that_the_host_cannot_address() -> None:
    command = find_programs().get("readahead")
    if command is None or not DRIVER.exists():
        pytest.skip("penstock-bench-readahead or the stand-in driver is not built")
    told = subprocess.run(
        [*command, "--smoke", "--device", "cuda:0"],
        env=os.environ | {"PENSTOCK_LIBCUDA": str(DRIVER)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert told.returncode == 1
    assert "which must be host memory" in told.stderr
    assert told.stderr.count("\n") == 1


def test_a_case_that_is_none_is_an_error() -> None:
    command = find_programs().get("gread")
    if command is None:
        pytest.skip("penstock-bench-gread is not built")
    told = subprocess.run(
        [*command, "--smoke", "--only", "=nosuch"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 1
    assert "--only =nosuch: no case of gread" in told.stderr
    assert not told.stdout


def test_help_of_a_program_has_an_example() -> None:
    command = find_programs().get("seed000")
    if command is None:
        pytest.skip("penstock-bench-seed000 is not built")
    told = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "example: penstock bench seed000 --smoke --json seed000.json" in told
