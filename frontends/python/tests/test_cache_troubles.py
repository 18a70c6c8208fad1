"""Goal: whatever is killed, and whatever becomes of storage and tier, nothing is lost.

The rounds of test_cache_crashes.py, in which a trouble begins before the end: by a mount and by the
preload library with write-back, with a tier and with its log. A round kills the cache, the program
or both, or ends the cache in good order. What was synced is there afterwards; and without a kill of
the cache, all that was written. PENSTOCK_NIGHTLY=1: 600 rounds, which is about 480 kills and 165
losses of power, not 60; or PENSTOCK_ROUNDS of each way. PENSTOCK_SEED sets the seed.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cache_mounts import needs_mount
from crash_matrix import Disk, Ends, Matrix, PlainFolder
from crash_troubles import Troubles, Way
from forgetting import ForgetfulDisk

NIGHTLY = os.environ.get("PENSTOCK_NIGHTLY") == "1"
SEED = int(os.environ.get("PENSTOCK_SEED") or random.randrange(1, 1 << 32))
ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS") or (100 if NIGHTLY else 10))
POWER_EVERY = 3  # of the rounds, one loses power too

pytestmark = needs_mount

WAYS = {
    "mount": Way(),
    "mount, tier": Way(),
    "mount, log": Way(log=True),
    "write-back": Way(preload=True),
    "write-back, log": Way(preload=True, log=True),
    "write-back, folder": Way(preload=True),  # with leases, and room that is promised
}


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Return a folder whose path is short enough for sockets in it."""
    path = Path(tempfile.mkdtemp(prefix="ps", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("name", WAYS)
def test_what_was_acknowledged_is_there(short_path: Path, name: str) -> None:
    way = WAYS[name]
    with contextlib.ExitStack() as stack:
        disk: Disk = PlainFolder(short_path / "disk")
        tier: ForgetfulDisk | None = None
        forgets = not name.endswith("folder")
        if forgets:
            disk = stack.enter_context(
                ForgetfulDisk(short_path / "below", short_path / "disk", SEED)
            )
        if name.endswith(("tier", "log")):
            tier = stack.enter_context(
                ForgetfulDisk(short_path / "tier-below", short_path / "tier", SEED + 1)
            )
        troubles = Troubles(way, short_path, disk, tier, SEED)
        ends = Ends(
            troubles.begin,
            POWER_EVERY if forgets else 0,
            ("service", "program", "both", "stop", "service"),
        )
        outcome = Matrix(disk, SEED, troubles.start, troubles.recover, ends).run(ROUNDS)
    told = (
        f"{name}, seed {SEED}: {outcome.rounds} rounds, {outcome.kills} kills, {outcome.losses}"
        f" losses of power, {outcome.complete} complete, {outcome.syncs} syncs, {outcome.calls}"
        f" calls, {troubles.kept} files kept, {troubles.interrupted} recoveries killed,"
        f" {troubles.refused} refused, {troubles.count}"
    )
    print(told)
    problems = outcome.problems + troubles.problems
    assert not problems, "\n".join([told, *problems, f"last: {troubles.last}"])
    assert outcome.syncs > outcome.rounds
    if ROUNDS >= 50:
        assert outcome.complete > 0
