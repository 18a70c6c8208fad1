"""Goal: `penstock calibrate` measures, says what, stores it where it belongs; it leaves no more.

What the figures are is not tested here: they are this machine's. As little as there is to measure
is measured.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock import _core
from penstock.commands import calibrate

COMMAND = [sys.executable, "-m", "penstock", "calibrate"]
SHORT = ["--seconds", "0", "--threads", "2", "--device", "cpu:2"]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it is stored."""
    folder = tmp_path / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    return folder / "penstock" / "calibration.json"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder to measure in."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True, check=False)


def test_the_users_configuration_is_out_of_reach_of_tests(data: Path) -> None:
    done = run(data, *SHORT)
    assert done.returncode == 1
    assert "/dev/null/penstock" in done.stderr


def test_stores_what_it_tells(config: Path, data: Path) -> None:
    done = run(data, *SHORT, "--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert list(data.iterdir()) == []
    assert done.stderr == ""
    assert told["stored_in"] == str(config)
    entry = json.loads(config.read_text())["entries"][0]
    assert told["cached"]["measured"]
    for name in ("direct", "cached", "buffered"):
        assert told[name]["measured"] == (name in entry) == (told[name]["reason"] == "")
        for key, value in entry.get(name, {}).items():
            assert told[name][key] == value
    assert entry["memory"] == told["memory"] == "host"
    assert entry["threads"] == told["threads"] == 2


def test_text_and_a_second_run(config: Path, data: Path) -> None:
    (data / "file").write_bytes(b"some bytes")
    for _ in range(2):
        done = run(data / "file", *SHORT)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert [line.split()[0] for line in lines[1:4]] == ["direct", "cached", "buffered"]
        assert "R2" in lines[2]
        assert lines[4] == f"stored in {config}"
    assert len(json.loads(config.read_text())["entries"]) == 1


def test_dry_run_stores_nothing(config: Path, data: Path) -> None:
    done = run(data, *SHORT, "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "stored" not in done.stdout
    assert not config.exists()


def test_a_bad_file_is_told_and_written_anew(config: Path, data: Path) -> None:
    config.parent.mkdir(parents=True)
    config.write_text("{")
    done = run(data, *SHORT)
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert str(config) in done.stderr
    assert json.loads(config.read_text())["version"] == 1


def test_where_nothing_can_be_stored(config: Path, data: Path) -> None:
    config.parent.parent.write_text("no folder")
    done = run(data, *SHORT)
    assert done.returncode == 1
    assert "cached" in done.stdout
    assert done.stderr.startswith(f"penstock: {config}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["no/such/path"], 1),
        ([], 2),
        ([".", "--threads", "65"], 2),
        ([".", "--seconds", "-1"], 2),
        ([".", "--seconds", "nan"], 2),
        ([".", "--device", "tpu"], 2),
        ([".", "--device", "cuda:99"], 1),
    ],
)
def test_what_cannot_be(config: Path, words: list[str], code: int) -> None:
    done = run(*words)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("penstock: ")
    assert done.stderr.count("\n") == 1
    assert not config.exists()


def test_interrupted_it_leaves_nothing(config: Path, data: Path) -> None:
    terminal, far = pty.openpty()
    process = subprocess.Popen([*COMMAND, data, "--device", "cpu"], stderr=far, stdout=far)
    os.close(far)
    seen = b""
    while b"reads" not in seen:  # it measures
        seen += os.read(terminal, 4096)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    os.close(terminal)
    assert list(data.iterdir()) == []
    assert not config.exists()


def test_other_threads_go_on_and_progress_may_raise(config: Path, data: Path) -> None:
    turns = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal turns
        while not stop.is_set():
            turns += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    shares: list[float] = []

    def progress(what: str, share: float) -> None:
        assert what
        shares.append(share)
        if len(shares) == 20:
            raise RuntimeError("enough")

    try:
        with pytest.raises(RuntimeError, match="enough"):
            _core.calibrate(os.fsencode(data), device="cpu:2", threads=2, progress=progress)
    finally:
        stop.set()
        thread.join()
    assert turns > 1
    assert shares == sorted(shares)
    assert len(shares) == 20
    assert list(data.iterdir()) == []
    assert not config.exists()


def test_rows_of_text() -> None:
    told = {"measured": False, "reason": "no direct I/O"}
    assert "not measured: no direct I/O" in calibrate._row("direct", told, 2)
    told = {
        "measured": True,
        "ns": 90_000.0,
        "ns_per_byte": 0.5,
        "cutoff_size": 0,
        "start_ns": 2e6,
        "r_squared": 0.99,
        "error_mean": 0.01,
    }
    row = calibrate._row("direct", told, 4)
    assert "90 us, then 8 GB/s; 2 ms once" in row
    assert row.endswith("R2 0.990, mean error 1.0 %")
