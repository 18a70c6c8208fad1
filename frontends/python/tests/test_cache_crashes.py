"""Goal: after a kill and a loss of power all that was synced is there, and the rest is old or new.

PENSTOCK_NIGHTLY=1: 1,000 kills of the mount, not 200. PENSTOCK_SEED sets the seed, which fixes
the calls of the workload and what the disk loses, but not the scheduling.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import crash_checker
import pytest
from cache_mounts import CacheMount, needs_mount
from crash_matrix import Kept, Matrix, Outcome
from crash_workload import PAGE, pattern
from forgetting import ForgetfulDisk, needs_fuse

NIGHTLY = os.environ.get("PENSTOCK_NIGHTLY") == "1"
SEED = int(os.environ.get("PENSTOCK_SEED") or random.randrange(1, 1 << 32))
ROUNDS = 1000 if NIGHTLY else 200
ROUNDS_WITH_LOG = 200 if NIGHTLY else 50
ROUNDS_OF_THE_DISK = 200 if NIGHTLY else 40
ROUNDS_TO_FIND = 20  # in which a disk that lies has to be found


def check(outcome: Outcome) -> None:
    """Fail if something was wrong, or if nothing was tested."""
    assert not outcome.problems, "\n".join(outcome.problems)
    assert outcome.syncs > outcome.rounds
    assert outcome.cut_off > outcome.rounds // 4
    assert outcome.pages // 3 < outcome.pages_lost < outcome.pages * 2 // 3


@needs_fuse
def test_the_disk_itself_keeps_what_was_synced(tmp_path: Path) -> None:
    """The workload is killed, and nothing stands between it and the disk."""
    with ForgetfulDisk(tmp_path / "below", tmp_path / "disk", SEED) as disk:
        check(Matrix(disk, SEED, None).run(ROUNDS_OF_THE_DISK))


@needs_fuse
def test_a_disk_that_lies_is_found(tmp_path: Path) -> None:
    with ForgetfulDisk(tmp_path / "below", tmp_path / "disk", SEED, "--ignore-fsync") as disk:
        outcome = Matrix(disk, SEED, None).run(ROUNDS_TO_FIND)
    assert outcome.problems


# ---- The mount


class Mounts:
    """Starts mounts over a folder, each with other sizes, so that all kinds of write-back come."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.random = random.Random(SEED)

    def start(self, path: Path) -> CacheMount:
        """Start a mount over `path`."""
        chunk_size = self.random.choice([4096, 16384, 65536])
        return CacheMount(
            path,
            self.place,
            chunk_size=chunk_size,
            cache_size=1024 * chunk_size,  # the smallest
            dirty_limit=self.random.choice([1, 4, 16]) * 65536,
        )


@needs_mount
def test_a_killed_mount_keeps_what_was_synced(tmp_path: Path) -> None:
    mounts = Mounts(tmp_path / "mount")
    with ForgetfulDisk(tmp_path / "below", tmp_path / "disk", SEED) as disk:
        check(Matrix(disk, SEED, mounts.start).run(ROUNDS))


@needs_mount
def test_a_mount_over_a_disk_that_lies_is_found(tmp_path: Path) -> None:
    mounts = Mounts(tmp_path / "mount")
    with ForgetfulDisk(tmp_path / "below", tmp_path / "disk", SEED, "--ignore-fsync") as disk:
        outcome = Matrix(disk, SEED, mounts.start).run(ROUNDS_TO_FIND)
    assert outcome.problems


# ---- The log of a tier


class MountsWithLog(Mounts):
    """Starts mounts whose syncs are durable in a tier, a disk that loses its power too."""

    def __init__(self, place: Path, tier: ForgetfulDisk) -> None:
        super().__init__(place)
        self.tier = tier
        self.recovered = 0

    def start(self, path: Path) -> CacheMount:
        """Start a mount over `path`."""
        return CacheMount(
            path,
            self.place,
            chunk_size=4096,
            cache_size=4 << 20,
            dirty_limit=self.random.choice([1, 4, 16]) * 65536,
            tier=str(self.tier.place),
            tier_size=self.random.choice([4, 16, 64]) << 20,
            tier_writes=1,
        )

    def recover(self, path: Path) -> Kept:
        """Put what the log has into the files, as the next start does."""
        self.tier.lose_power()
        for log in self.tier.folder.glob("penstock-log-*"):
            # The key of a log follows its magic, and begins its first record.
            first = log.read_bytes()[:4104]
            self.recovered += first[8:16] == first[4096:]
        service = self.start(path)
        service.kill()
        service.clear()
        return {}


@needs_mount
def test_what_was_synced_to_the_tier_is_there_after_a_kill(tmp_path: Path) -> None:
    with (
        ForgetfulDisk(tmp_path / "below", tmp_path / "disk", SEED) as disk,
        ForgetfulDisk(tmp_path / "tier-below", tmp_path / "tier", SEED + 1) as tier,
    ):
        mounts = MountsWithLog(tmp_path / "mount", tier)
        outcome = Matrix(disk, SEED, mounts.start, mounts.recover).run(ROUNDS_WITH_LOG)
    assert not outcome.problems, "\n".join(outcome.problems)
    assert outcome.syncs > outcome.rounds
    assert mounts.recovered > 0
    assert list(tier.folder.glob("penstock-kept-*")) == []


# ---- The checker


@pytest.fixture
def file() -> crash_checker.File:
    """Return a file of 10,000 bytes, synced at version 1."""
    found = crash_checker.make_files()
    log = "create 0\ndone\nwrite 0 0 10000 1\ndone\nsync 0\ndone\n"
    assert crash_checker.replay(log, found).syncs == 1
    return found[0]


OLD = pattern(0, 1, 0, 10_000)


def after(file: crash_checker.File, log: str) -> crash_checker.File:
    """Replay more of the log."""
    files = crash_checker.make_files()
    files[0] = file
    crash_checker.replay(log, files)
    return file


def test_synced_bytes_must_be_there(file: crash_checker.File) -> None:
    assert file.check(OLD) == []
    assert file.check(None) == ["file 0: is missing (state 1 of 1)"]
    assert "size 9999" in file.check(OLD[:-1])[0]
    assert "size 10001" in file.check(OLD + b"\0")[0]
    assert "size 8192" in file.check(OLD[:8192])[0]
    for at in (0, 5000, 9999):
        wrong = bytearray(OLD)
        wrong[at] ^= 1
        assert f"1 bytes from {at} to {at}" in file.check(bytes(wrong))[0]


@pytest.mark.parametrize("end", ["", "done\n", "failed 107\n"])
def test_what_was_written_since_is_old_or_new(file: crash_checker.File, end: str) -> None:
    """Also where the write has not returned, or has failed."""
    after(file, "write 0 2000 3000 2\n" + end)
    new = OLD[:2000] + pattern(0, 2, 2000, 3000) + OLD[5000:]
    for content in (OLD, new, OLD[:PAGE] + new[PAGE:], new[:PAGE] + OLD[PAGE:]):
        assert file.check(content) == []
    for wrong in (pattern(0, 2, 2001, 3000), pattern(0, 3, 2000, 3000), pattern(1, 2, 2000, 3000)):
        assert file.check(OLD[:2000] + wrong + OLD[5000:])
    assert file.check(OLD[:2000] + bytes(3000) + OLD[5000:])
    assert file.check(OLD[:1990] + pattern(0, 2, 1990, 3010) + OLD[5000:])


def test_a_version_before_the_sync_is_wrong(file: crash_checker.File) -> None:
    after(file, "write 0 2000 3000 2\ndone\nwrite 0 2000 3000 3\ndone\nsync 0\n")
    parts = [pattern(0, version, 2000, 3000) for version in (2, 3)]
    for part in parts:
        assert file.check(OLD[:2000] + part + OLD[5000:]) == []
    after(file, "write 0 9000 10 4\ndone\nsync 0\ndone\n")
    assert file.check(OLD[:2000] + parts[0] + OLD[5000:])


def test_sizes_since_the_sync(file: crash_checker.File) -> None:
    after(file, "write 0 20000 5000 2\ndone\ntruncate 0 7000\ndone\n")
    new = OLD + bytes(10_000) + pattern(0, 2, 20_000, 5000)
    for size in (7000, 10_000, 25_000, 12_288, 20_480, 8192):
        assert file.check(new[:size]) == []
    for size in (6999, 4096, 20_000, 24_999, 9_999, 10_001):
        assert file.check(new[:size])
    assert file.check(new + b"\0")
    assert file.check(OLD[:7000] + bytes(3000)) == []
    assert file.check(OLD[:6999] + bytes(3001))


def test_a_file_that_was_never_synced_may_be_missing() -> None:
    files = crash_checker.make_files()
    crash_checker.replay("create 0\ndone\nwrite 0 0 10 1\ndone\n", files)
    for content in (None, b"", pattern(0, 1, 0, 10), bytes(10)):
        assert files[0].check(content) == []
    assert files[0].check(b"1")


def test_a_replaced_file_is_the_old_or_the_new_one(file: crash_checker.File) -> None:
    new = pattern(0, 2, 0, 500)
    after(file, "replace 0 500 2\n")
    assert file.check(OLD) == file.check(new) == []
    after(file, "replace 0 500 2\ndone\nwrite 0 100 10 3\ndone\n")
    changed = new[:100] + pattern(0, 3, 100, 10) + new[110:]
    assert file.check(OLD) == file.check(new) == file.check(changed) == []
    assert file.check(new[:100] + OLD[100:])
    assert file.check(None)
    after(file, "names 1\ndone\n")
    assert file.check(new) == file.check(changed) == []
    assert file.check(OLD)
    after(file, "sync 0\ndone\n")
    assert file.check(changed) == []
    assert file.check(new)


def test_bytes_that_were_lost_without_a_crash_are_told(file: crash_checker.File) -> None:
    files = crash_checker.make_files()
    files[0] = file
    told = crash_checker.replay("open 0 9999 1\nwrong file 0: read\n", files)
    assert len(told.problems) == 2
