"""Goal: several processes get the bytes, sizes and errors that the file system below would give.

PENSTOCK_NIGHTLY=1: a million operations instead of 10,000. PENSTOCK_SEED sets the seed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from cache_mounts import CacheMount, needs_mount
from forgetting import ForgetfulDisk, needs_fuse
from random_operations import Way, compare

NIGHTLY = os.environ.get("PENSTOCK_NIGHTLY") == "1"
SEED = int(os.environ.get("PENSTOCK_SEED") or random.randrange(1, 1 << 32))
OPERATIONS = 1_000_000 if NIGHTLY else 10_000
SECONDS_MAX = 3 * 3600 if NIGHTLY else 120
PROCESSES = 3


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def folders(root: Path, *names: str) -> list[Path]:
    made = [root / name for name in names]
    for folder in made:
        folder.mkdir()
    return made


def test_a_plain_folder_is_as_another(tmp_path: Path) -> None:
    plain, oracle = folders(tmp_path, "plain", "oracle")
    assert compare([Way(plain)] * PROCESSES, oracle, SEED, 5000, SECONDS_MAX) == []
    assert contents(plain) == contents(oracle)


def test_ways_to_different_files_are_found(tmp_path: Path) -> None:
    one, other, oracle = folders(tmp_path, "one", "other", "oracle")
    assert compare([Way(one), Way(other)], oracle, SEED, 2000, SECONDS_MAX)


@needs_fuse
def test_the_forgetful_disk_is_as_a_plain_folder(tmp_path: Path) -> None:
    [oracle] = folders(tmp_path, "oracle")
    with ForgetfulDisk(tmp_path / "below", tmp_path / "disk", SEED) as disk:
        assert compare([Way(disk.place)] * PROCESSES, oracle, SEED, 5000, SECONDS_MAX) == []
        assert contents(disk.place) == contents(oracle)
    assert contents(disk.folder) == contents(oracle)


@needs_mount
def test_the_mount_is_as_a_plain_folder(tmp_path: Path) -> None:
    """The cache has less room than the files need, and a low limit of what is dirty."""
    below, oracle = folders(tmp_path, "below", "oracle")
    mount = CacheMount(
        below, tmp_path / "mount", chunk_size=4096, cache_size=4 << 20, dirty_limit=1 << 20
    )
    try:
        ways = [Way(mount.folder)] * PROCESSES
        assert compare(ways, oracle, SEED, OPERATIONS, SECONDS_MAX) == []
        assert contents(mount.folder) == contents(oracle)
    finally:
        code = mount.stop()
    assert code == 0
    assert contents(below) == contents(oracle)
