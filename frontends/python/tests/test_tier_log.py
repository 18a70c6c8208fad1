"""Goal: a log that is older than storage never wins, and one that cannot serve is told of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cache_mounts import CacheMount, needs_mount
from forgetting import ForgetfulDisk

pytestmark = needs_mount

MARKER = ".penstock-log"
SIZE = 20_000


class Place:
    """A folder that is cached, a mount of it, and a disk for its log."""

    def __init__(self, folder: Path, disk: ForgetfulDisk) -> None:
        self.data = folder / "data"
        self.data.mkdir()
        (self.data / "a").write_bytes(bytes(SIZE))
        self.mountpoint = folder / "mount"
        self.disk = disk
        self.running: CacheMount | None = None

    def start(self, data: Path | None = None, **options: int | str) -> CacheMount:
        """Start a mount with a log; options say what else."""
        options = {"tier": str(self.disk.place), "tier_writes": 1, **options}
        given: dict[str, Any] = {name: value for name, value in options.items() if value != ""}
        if "tier" in given:
            given["tier_size"] = 4 << 20
        self.running = CacheMount(
            data or self.data,
            self.mountpoint,
            chunk_size=4096,
            cache_size=4 << 20,
            **given,
        )
        return self.running

    def end(self, *, orderly: bool) -> int:
        """End the mount, or kill it; return its exit code."""
        assert self.running is not None
        mount, self.running = self.running, None
        if orderly:
            return mount.stop()
        mount.kill()
        mount.clear()
        return 0

    def open(self) -> int:
        """Return a descriptor of a file whose writes go to the log."""
        file = os.open(self.mountpoint / "a", os.O_RDWR)
        os.pwrite(file, b"first", 0)
        os.fsync(file)  # in storage, as the file might be new
        return file

    def synced(self, *texts: bytes) -> None:
        """Write texts at the beginning of a file, and sync it after each."""
        file = self.open()
        for text in texts:
            os.pwrite(file, text, 0)
            os.fsync(file)
        os.close(file)

    def text(self) -> bytes:
        """Return what the file begins with, in storage."""
        return (self.data / "a").read_bytes()[:5]

    def kept(self) -> list[Path]:
        """Return what was kept beside the log."""
        return list(self.disk.place.glob("penstock-kept-*"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ForgetfulDisk(tmp_path / "tier-below", tmp_path / "tier", 1) as disk:
        made = Place(tmp_path, disk)
        try:
            yield made
        finally:
            if made.running is not None:
                made.end(orderly=False)


@pytest.mark.parametrize("orderly", [True, False])
def test_a_log_that_comes_back_is_not_put_over_newer_bytes(place: Place, orderly: bool) -> None:
    place.start()
    file = place.open()
    os.pwrite(file, b"older", 0)
    os.fsync(file)
    assert place.text() == b"first"
    place.disk.be("broken")
    os.pwrite(file, b"newer", 0)
    os.fsync(file)
    os.close(file)
    assert place.text() == b"newer"
    assert not (place.data / MARKER).exists()
    assert place.end(orderly=orderly) == 0
    place.disk.be("well")
    assert list(place.disk.place.glob("penstock-log-*"))
    notes = place.start().notes
    assert place.text() == b"newer"
    (kept,) = place.kept()
    assert kept.read_bytes()[:5] == b"older"
    assert len(notes) == 1
    assert "the log is out of date" in notes[0].decode()
    assert f"{place.data}/a: " in notes[0].decode()
    assert str(kept) in notes[0].decode()
    assert place.end(orderly=True) == 0
    assert [name.name for name in place.disk.place.iterdir()] == [kept.name]


def test_a_start_without_the_log_of_a_killed_process_is_refused(
    place: Place, tmp_path: Path
) -> None:
    place.start()
    place.synced(b"older", b"newer")
    assert place.text() == b"first"
    place.end(orderly=False)
    (tmp_path / "other").mkdir()
    (place.data / "below").mkdir()
    told = f"what was synced last is in a log in {place.disk.place}, and not in the files yet"
    without: dict[str, Any] = {"tier": "", "tier_writes": ""}
    for data, options in (
        (place.data, without),
        (place.data / "below", without),
        (place.data, {"tier": str(tmp_path / "other")}),
        (place.data, {"tier": str(tmp_path / "other"), "tier_writes": ""}),
    ):
        with pytest.raises(AssertionError, match=told):
            place.start(data, **options)
        assert (place.data / MARKER).exists()
    # Where the log itself is gone, that is not taken for an empty one.
    for log in place.disk.place.glob("penstock-log-*"):
        log.rename(log.with_name("aside-" + log.name))
    with pytest.raises(AssertionError, match=told):
        place.start()
    for log in place.disk.place.glob("penstock-log-*"):
        log.unlink()
    for log in place.disk.place.glob("aside-*"):
        log.rename(log.with_name(log.name.removeprefix("aside-")))
    place.start(tier_writes="")
    assert place.text() == b"newer"
    assert place.end(orderly=True) == 0
    assert not (place.data / MARKER).exists()
    place.start(**without)
    assert place.end(orderly=True) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_another_user_keeps_no_folder_below_from_being_cached(place: Place) -> None:
    place.start()
    place.synced(b"newer")
    place.end(orderly=False)
    below = place.data / "below"
    below.mkdir()
    os.chown(place.data / MARKER, 65534, 65534)
    place.start(below, tier="", tier_writes="")
    assert place.end(orderly=True) == 0


def test_a_log_that_was_given_up_is_kept_aside(place: Place) -> None:
    place.start()
    place.synced(b"older")
    place.end(orderly=False)
    (place.data / MARKER).unlink()  # as the line of a refused start says
    place.start(tier="", tier_writes="")
    (place.mountpoint / "a").write_bytes(b"newer")
    assert place.end(orderly=True) == 0
    assert len(place.start().notes) == 1
    assert place.text() == b"newer"
    (kept,) = place.kept()
    assert kept.read_bytes()[:5] == b"older"


def test_a_folder_that_was_moved_keeps_its_log(place: Place, tmp_path: Path) -> None:
    place.start()
    place.synced(b"older", b"newer")
    place.end(orderly=False)
    shutil.copytree(place.data, tmp_path / "copy")
    place.data = place.data.rename(tmp_path / "moved")
    place.start(tmp_path / "copy", tier="", tier_writes="")  # has no log
    assert place.end(orderly=True) == 0
    place.start()
    assert place.text() == b"newer"
    assert place.end(orderly=True) == 0
    assert list(place.disk.place.iterdir()) == []


@pytest.mark.parametrize("moved", [True, False])
def test_a_log_without_its_name_acknowledges_nothing(
    place: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str], moved: bool
) -> None:
    place.start()
    file = place.open()
    os.pwrite(file, b"older", 0)
    os.fsync(file)
    assert place.text() == b"first"
    for log in place.disk.place.glob("penstock-log-*"):
        if moved:
            log.rename(place.disk.place / ("x" + log.name))
        else:
            log.unlink()
    os.pwrite(file, b"newer", 10)
    os.fsync(file)
    found = (place.data / "a").read_bytes()
    assert (found[:5], found[10:15]) == (b"older", b"newer")
    os.pwrite(file, b"again", 0)
    os.fsync(file)
    assert place.text() == b"again"
    os.close(file)
    told = capfd.readouterr().err
    assert "its log was removed or moved, or its folder was; writes go to storage" in told
    place.end(orderly=False)
    place.start(tier="", tier_writes="")  # nothing is in a log


def test_programs_do_not_see_what_says_which_log_there_is(place: Place) -> None:
    place.start()
    shown = place.mountpoint / MARKER
    assert (place.data / MARKER).exists()
    assert sorted(os.listdir(place.mountpoint)) == ["a"]
    assert [one.name for one in os.scandir(place.mountpoint)] == ["a"]
    with pytest.raises(FileNotFoundError):
        shown.stat()
    with pytest.raises(FileNotFoundError):
        shown.unlink()
    for make in (
        lambda: shown.write_bytes(b""),
        shown.mkdir,
        lambda: shown.symlink_to("a"),
        lambda: shown.hardlink_to(place.mountpoint / "a"),
        lambda: os.mknod(shown),
        lambda: (place.mountpoint / "a").rename(shown),
    ):
        with pytest.raises(PermissionError):
            make()
    (place.mountpoint / "below").mkdir()
    (place.mountpoint / "below" / MARKER).write_bytes(b"any")
    assert place.end(orderly=True) == 0
    assert not (place.data / MARKER).exists()


def test_an_end_that_leaves_its_log_fails(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    place.start()
    place.synced(b"newer")
    marker = place.data / MARKER
    marker.rename(place.data / "saved")
    (marker / "in the way").mkdir(parents=True)
    assert place.end(orderly=True) == 1
    told = capfd.readouterr().err
    assert f"{place.data}: all is written, but the log in {place.disk.place} stays: " in told
    assert place.text() == b"newer"
    shutil.rmtree(marker)
    (place.data / "saved").rename(marker)
    place.start()
    assert place.end(orderly=True) == 0
