"""Goal: a mount whose connection to the kernel fails is written back and taken away, with an error.

Programs must not be left with a folder that answers nothing.
"""

import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounting import DEVICE, SECONDS_MAX, needs_mounts, penstock, serving

pytestmark = [
    needs_mounts,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root aborts a connection of FUSE"),
]


@pytest.fixture
def connections(tmp_path: Path) -> Iterator[Path]:
    """Return where the kernel shows the connections of FUSE."""
    place = tmp_path / "connections"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "fusectl", "none", place], check=False)
    if made.returncode != 0:
        pytest.skip("this machine does not show its connections of FUSE")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def abort(connections: Path, mountpoint: Path) -> None:
    """Have the kernel end the connection of a mount, which stays as a folder without answers."""
    number = os.minor(os.stat(mountpoint).st_dev)
    (connections / str(number) / "abort").write_text("1")


def wait_for_end(mountpoint: Path) -> None:
    """Wait until no mount is there."""
    end = time.monotonic() + SECONDS_MAX
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if not os.path.ismount(mountpoint):
                return
        time.sleep(0.02)
    raise AssertionError(f"{mountpoint}: the mount is still there")


@pytest.mark.parametrize("over", [True, False], ids=["over its folder", "elsewhere"])
def test_a_failed_mount_is_written_back_and_taken_away(
    tmp_path: Path, connections: Path, over: bool
) -> None:
    below, shown = tmp_path / "below", tmp_path / "shown"
    below.mkdir()
    shown.mkdir()
    place = below if over else shown
    words = ["mount", str(below), str(place), "--foreground", "--device", DEVICE]
    mount = subprocess.Popen(
        [sys.executable, "-m", "penstock", *words, "--cache-size", "64M"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        end = time.monotonic() + SECONDS_MAX
        while not os.path.ismount(place):
            assert mount.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        data = os.urandom(1 << 20)
        file = os.open(place / "a", os.O_WRONLY | os.O_CREAT)
        assert os.write(file, data) == len(data)
        abort(connections, place)
        for call in (lambda: os.write(file, b"more"), lambda: os.close(file)):
            with pytest.raises(OSError, match=r"not connected|abort") as raised:
                call()
            assert raised.value.errno in {errno.ENOTCONN, errno.ECONNABORTED}
        _, told = mount.communicate(timeout=SECONDS_MAX)
    finally:
        mount.kill()
        subprocess.run(["umount", "-l", "-q", place], check=False)
    assert mount.returncode == 1
    (line,) = [one for one in told.splitlines() if "the mount has failed" in one]
    assert f"{place}: the mount has failed (" in line
    assert "all that was written is in the files" in line
    assert not os.path.ismount(place)
    assert (below / "a").read_bytes() == data


def test_commands_find_no_failed_mount_and_a_new_one_works(
    tmp_path: Path, connections: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    below = tmp_path / "below"
    below.mkdir()
    with serving(below):
        (below / "a").write_bytes(b"first")
        abort(connections, below)
        wait_for_end(below)
    ended = penstock("umount", below)
    assert ended.returncode == 1
    assert "no file cache is mounted there" in ended.stderr
    (log,) = (tmp_path / "state" / "penstock").iterdir()
    assert "the mount has failed" in log.read_text()
    with serving(below):
        assert (below / "a").read_bytes() == b"first"
        (below / "a").write_bytes(b"second")
        assert penstock("umount", below).returncode == 0
    assert (below / "a").read_bytes() == b"second"
