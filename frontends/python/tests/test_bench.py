"""Goal: benchmarks in Python run, check what they claim, and write the JSON that all of them do."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.benchmarks.harness import page_cache
from penstock.benchmarks.harness.report import take_pairs, wanted
from penstock.commands.bench import find_programs

KEYS = ["case", "against", "unit", "pairs", "bytes", "verified", "simulated", "cpu_seconds", "note"]


def test_smoke_run_writes_rows(tmp_path: Path):
    pytest.importorskip("numpy")
    pytest.importorskip("safetensors")
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "penstock", "bench", "safetensors", "--smoke", "--json", out]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    whole = json.loads(out.read_text())
    assert set(whole) == {"bench", "question", "environment", "rows"}
    assert whole["bench"] == "safetensors"
    assert whole["environment"]["smoke"] == "yes"
    rows = {(row["case"], row["against"]): row for row in whole["rows"]}
    assert {("hot", "safetensors"), ("cold", "safetensors")} <= rows.keys()
    for name, row in rows.items():
        assert list(row) == KEYS
        assert len(row["pairs"]) == 1
        # A file system without a page cache of its own, as tmpfs, cannot be cold.
        assert row["verified"] or name[0] == "cold", done.stderr
    assert list(tmp_path.iterdir()) == [out]


def test_modules_are_found_as_programs_are():
    programs = find_programs()
    assert programs["safetensors"] == [sys.executable, "-m", "penstock.benchmarks.safetensors"]
    assert "harness" not in programs


def test_file_is_brought_into_the_page_cache_and_out():
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


def test_first_pair_is_thrown_away():
    figures = iter(range(100))
    pairs = take_pairs(2, lambda: float(next(figures)), lambda: float(next(figures)))
    assert pairs == [(2.0, 3.0), (4.0, 5.0)]


def test_cases_are_chosen_by_text_or_name():
    assert wanted("", "hot")
    assert wanted("ho", "hot")
    assert not wanted("=ho", "hot")
    assert wanted("=hot", "hot")
