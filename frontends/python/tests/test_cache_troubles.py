"""Goal: whatever becomes of storage and of the tier's disk, all that was synced is in the files.

The rounds of test_cache_crashes.py, in which a trouble begins before the kill. PENSTOCK_NIGHTLY=1:
300 rounds with 100 losses of power, not 24 with 8; or PENSTOCK_ROUNDS of them.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from cache_mounts import CacheMount, needs_mount
from crash_matrix import Ends, Matrix
from forgetting import SECONDS_MAX, ForgetfulDisk

NIGHTLY = os.environ.get("PENSTOCK_NIGHTLY") == "1"
SEED = int(os.environ.get("PENSTOCK_SEED") or random.randrange(1, 1 << 32))
ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS") or (300 if NIGHTLY else 24))
POWER_EVERY = 3  # of the rounds, one loses power too
STOP_EVERY = 5  # one ends in good order, as far as it can

pytestmark = needs_mount


class Troubles:
    """Mounts with a log, and what happens to them."""

    def __init__(self, folder: Path, disk: ForgetfulDisk, tier: ForgetfulDisk) -> None:
        self.mountpoint = folder / "mount"
        self.errors = folder / "errors"
        self.disk = disk
        self.tier = tier
        self.random = random.Random(SEED)
        self.count: dict[str, int] = {}
        self.problems: list[str] = []
        self.kept = 0

    def start(self, path: Path) -> CacheMount:
        """Start a mount over `path`."""
        with self.errors.open("wb") as errors:
            return CacheMount(
                path,
                self.mountpoint,
                errors=errors,
                chunk_size=4096,
                cache_size=4 << 20,
                dirty_limit=self.random.choice([1, 4, 16]) * 65536,
                tier=str(self.tier.place),
                tier_size=self.random.choice([4, 16, 64]) << 20,
                tier_writes=1,
            )

    def begin(self, source: random.Random) -> None:
        """Let one trouble begin."""
        kinds = [self.remove_log, self.break_tier, self.fill_storage, self.forbid_storage]
        kind = source.choice([*kinds, None])
        name = kind.__name__ if kind is not None else "none"
        self.count[name] = self.count.get(name, 0) + 1
        if kind is not None:
            kind()

    def remove_log(self) -> None:
        """Remove the log's names, and wait until that is noticed: until then it has bytes alone."""
        for log in self.tier.place.glob("penstock-log-*"):
            log.unlink()
        limit = time.monotonic() + SECONDS_MAX
        while b"writes go to storage" not in self.errors.read_bytes():
            if time.monotonic() > limit:
                self.problems.append("nothing told that the log was removed")
                break
            time.sleep(0.01)

    def break_tier(self) -> None:
        """Have the disk of the log fail; it is back at the next start."""
        self.tier.be("broken")

    def fill_storage(self) -> None:
        """Leave storage no room."""
        self.disk.be("full")

    def forbid_storage(self) -> None:
        """Have storage take nothing more."""
        self.disk.be("read-only")

    def recover(self, path: Path) -> None:
        """Mend all, and put what the log has into the files, as the next start does."""
        self.disk.be("well")
        self.tier.be("well")
        if self.random.random() < 0.5:
            self.tier.lose_power()
        service = self.start(path)
        service.kill()
        service.clear()
        for kept in self.tier.place.glob("penstock-kept-*"):
            self.kept += 1
            if not any(kept.name.encode() in note for note in service.notes):
                self.problems.append(f"{kept.name} was not announced")
            kept.unlink()


def test_troubles_of_storage_and_tier_lose_nothing_that_was_synced(tmp_path: Path) -> None:
    with (
        ForgetfulDisk(tmp_path / "below", tmp_path / "disk", SEED) as disk,
        ForgetfulDisk(tmp_path / "tier-below", tmp_path / "tier", SEED + 1) as tier,
    ):
        troubles = Troubles(tmp_path, disk, tier)
        ends = Ends(troubles.begin, POWER_EVERY, STOP_EVERY)
        outcome = Matrix(disk, SEED, troubles.start, troubles.recover, ends).run(ROUNDS)
    told = (
        f"seed {SEED}: {outcome.rounds} rounds, {outcome.kills} kills, {outcome.losses} losses of"
        f" power, {outcome.syncs} syncs, {outcome.calls} calls, {outcome.failed} rounds with a"
        f" failed call, {troubles.kept} files kept, {troubles.count}"
    )
    print(told)
    problems = outcome.problems + troubles.problems
    assert not problems, "\n".join([told, *problems])
    assert outcome.syncs > outcome.rounds
