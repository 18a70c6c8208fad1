"""Goal: a user learns which files cannot be written, and other files are written meanwhile."""

import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mounting import needs_mounts, penstock, serving

pytestmark = needs_mounts

FAR = 2 << 20
SECONDS_MAX = 30.0


def wait_for(done: Callable[[], bool]) -> float:
    """Wait until something is so; return how many seconds that took."""
    begin = time.monotonic()
    while not done():
        assert time.monotonic() - begin < SECONDS_MAX
        time.sleep(0.02)
    return time.monotonic() - begin


def statistics(path: Path) -> dict[str, Any]:
    """Return what `penstock stats --json` says of a cache."""
    told = penstock("stats", path, "--json")
    assert told.returncode == 0, told.stderr
    return dict(json.loads(told.stdout)["caches"][0])


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where log files go."""
    path = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(path))
    return path


def test_files_that_cannot_be_written_are_named_and_delay_no_other(
    tmp_path: Path, state: Path
) -> None:
    below, shown = tmp_path / "below", tmp_path / "shown"
    below.mkdir()
    shown.mkdir()
    bad = [f"bad {i}" for i in range(4)]
    with serving(below, shown) as pid:
        for name in bad:
            with open(shown / name, "wb") as file:
                file.seek(FAR)
                file.write(b"kept")
        limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        wait_for(lambda: statistics(below)["failing_count"] == len(bad))
        (shown / "good").write_bytes(b"good")
        assert wait_for(lambda: (below / "good").read_bytes() == b"good") < 15  # 5 s are usual

        told = statistics(below)
        assert {one["path"] for one in told["failing"]} == {str(below / name) for name in bad}
        assert all("File too large" in one["error"] for one in told["failing"])
        assert told["dirty_age_ms"] > 5000
        table = penstock("stats", below, "--once").stdout
        assert "bad 0: " in table
        assert "File too large" in table
        assert "oldest dirty byte" in table
        log = state / "penstock" / (str(below).strip("/").replace("/", "-") + ".log")
        assert told["log"] == str(log)
        assert str(log) in table
        lines = log.read_text().splitlines()
        assert sum("cannot be written" in line for line in lines) == len(bad)
        assert any(str(below / bad[0]) in line and "File too large" in line for line in lines)
        with open(shown / bad[0], "rb") as file, pytest.raises(OSError, match="too large"):
            os.fsync(file.fileno())

        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
        wait_for(lambda: statistics(below)["dirty_size"] == 0)
        assert statistics(below)["failing"] == []
        assert sum("is written again" in line for line in log.read_text().splitlines()) == 4
        assert penstock("umount", shown).returncode == 0
    for name in bad:
        assert (below / name).read_bytes()[FAR:] == b"kept"


def test_a_log_without_lines_is_removed(tmp_path: Path, state: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    with serving(below):
        log = Path(statistics(below)["log"])
        assert log.parent == state / "penstock"
        assert log.exists()
        assert penstock("umount", below).returncode == 0
    wait_for(lambda: not log.exists())
