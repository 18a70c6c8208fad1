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
ONCE = ["--seconds", "0", "--threads", "2", "--device", "cpu:2"]
SHORT = [*ONCE, "--force"]  # each size is measured once, which is refused otherwise


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
            error = told[name].get("error_mean", 0) + told[name].get("spread", 0)
            assert (error if key == "error" else told[name][key]) == value
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
    assert json.loads(config.read_text())["version"] == 2


def test_where_nothing_can_be_stored(config: Path, data: Path) -> None:
    config.parent.parent.write_text("no folder")
    done = run(data, *SHORT)
    assert done.returncode == 1
    assert "cached" in done.stdout
    assert done.stderr.startswith(f"penstock: {config}: ")
    assert done.stderr.count("\n") == 1


def test_a_bad_fit_is_refused_in_one_line_and_the_old_one_stays(config: Path, data: Path) -> None:
    for before in (None, STORED):
        if before is not None:
            config.parent.mkdir(parents=True, exist_ok=True)
            config.write_text(before)
        done = run(data, *ONCE)
        assert done.returncode == 1
        assert done.stdout.splitlines()[2].split()[0] == "cached"
        assert "stored in" not in done.stdout
        assert done.stderr.startswith(f"penstock: {data}: not stored: ")
        assert "what was stored before stays" in done.stderr
        assert done.stderr.count("\n") == 1
        assert (config.read_text() if config.exists() else None) == before
    told = json.loads(run(data, *ONCE, "--json").stdout)
    assert told["refusal"]
    assert told["stored_in"] == ""


STORED = """{"format": "penstock calibration", "version": 1, "entries": [
    {"memory": "host", "file_system": "ext4 1", "storage": "auto",
     "measured_at": 1000, "threads": 2, "depth": 16,
     "cached": {"ns": 400, "ns_per_byte": 0.1}}
]}
"""


def test_what_is_stored_is_shown_and_removed(config: Path, data: Path) -> None:
    done = run("--show")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "nothing is stored: default costs are used, which follow the reads\n"
    config.parent.mkdir(parents=True)
    config.write_text(STORED)
    shown = run("--show").stdout.splitlines()
    assert shown[0].startswith("ext4 1 into host memory: ")
    assert shown[0].endswith(" days old, error 25.0 % (not stored: assumed)")
    assert [line.split() for line in shown[1:4]] == [
        ["direct", "not", "measured"],
        ["cached", "error", "not", "stored"],
        ["buffered", "not", "measured"],
    ]
    assert shown[4] == f"stored in {config}"

    assert run(data, *SHORT).returncode == 0
    told = json.loads(run("--show", "--json").stdout)
    assert told["stored_in"] == str(config)
    assert [one["file_system"] == "ext4 1" for one in told["entries"]] == [True, False]
    here = json.loads(run("--show", data, "--json").stdout)["entries"]
    assert [one["file_system"] for one in here] == [told["entries"][1]["file_system"]]
    assert 0 <= here[0]["age_seconds"] < 600
    assert here[0]["error"] >= here[0]["cached"]["error"] >= 0

    done = run("--reset", data)
    assert (done.returncode, done.stdout) == (0, "removed 1 calibration\n")
    assert len(json.loads(run("--show", "--json").stdout)["entries"]) == 1
    assert json.loads(run("--reset", "--json").stdout) == {"removed": 1}
    assert json.loads(run("--show", "--json").stdout)["entries"] == []
    config.write_text("{")
    done = run("--show")
    assert done.stderr.count("\n") == 1
    assert str(config) in done.stderr
    assert run("--reset").returncode == 0
    assert run("--show").stderr == ""


def test_check_and_read_say_which_is_used(config: Path, data: Path) -> None:
    (data / "file").write_bytes(b"x" * 100_000)

    def checked() -> dict[str, str]:
        done = subprocess.run(
            [*COMMAND[:-1], "check", str(data), "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        findings: list[dict[str, str]] = json.loads(done.stdout)["findings"]
        return next(one for one in findings if one["name"] == "calibration")

    def read(*words: str) -> str:
        command = [*COMMAND[:-1], "read", str(data / "file"), "--explain", "--device", "cpu"]
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=True)
        return done.stdout

    assert checked()["state"] == "ok"
    assert checked()["value"].startswith("none: default costs")
    assert "calibration none: default costs" in read()
    assert json.loads(read("--json"))["calibration"]["stored"] is None
    assert run(data, *SHORT).returncode == 0
    assert "seconds old, error " in checked()["value"]
    assert "into host memory, " in read()
    assert json.loads(read("--json"))["calibration"]["stored"]["age_seconds"] < 600
    config.write_text("{")
    assert checked()["state"] == "limited"
    assert str(config) in checked()["value"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["no/such/path"], 1),
        ([], 2),
        ([".", "--threads", "65"], 2),
        ([".", "--show", "--reset"], 2),
        (["--force"], 2),
        (["no/such/path", "--show"], 1),
        (["no/such/path", "--reset"], 1),
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
