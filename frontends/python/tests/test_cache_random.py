"""Goal: several processes get the bytes, sizes and errors that the file system below would give.

PENSTOCK_NIGHTLY=1: a million operations instead of 10,000. PENSTOCK_SEED sets the seed.
"""

from __future__ import annotations

import mmap
import os
import random
import subprocess
import sys
from pathlib import Path

from cache_mounts import CacheMount, needs_mount
from forgetting import ForgetfulDisk, needs_fuse
from random_operations import Way, compare

NIGHTLY = os.environ.get("PENSTOCK_NIGHTLY") == "1"
SEED = int(os.environ.get("PENSTOCK_SEED") or random.randrange(1, 1 << 32))
OPERATIONS = 1_000_000 if NIGHTLY else 10_000
SECONDS_MAX = 3 * 3600 if NIGHTLY else 120
PROCESSES = 3
CHUNK = 256 << 10
OPENER_SECONDS = 3
OPENER = """
import os, sys, time
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    try:
        os.close(os.open(sys.argv[1], os.O_RDONLY))
    except FileNotFoundError:
        pass
"""


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
def test_a_write_beside_opens_is_not_lost(tmp_path: Path) -> None:
    """Each open compares the file below with the cache; a new file may seem to have changed."""
    [below] = folders(tmp_path, "below")
    mount = CacheMount(
        below, tmp_path / "mount", chunk_size=CHUNK, cache_size=1024 * CHUNK, dirty_limit=CHUNK
    )
    path = mount.folder / "file"
    opener = subprocess.Popen([sys.executable, "-I", "-S", "-c", OPENER, path, str(OPENER_SECONDS)])
    lost = files = 0
    try:
        while opener.poll() is None:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT)
            with mmap.mmap(-1, CHUNK) as data:  # aligned, as O_DIRECT wants it
                data.write(b"x" * CHUNK)
                os.pwrite(descriptor, data, 0)
                data[:] = bytes(CHUNK)
                os.preadv(descriptor, [data], 0)
                lost += data[:] != b"x" * CHUNK
            os.close(descriptor)
            os.unlink(path)
            files += 1
    finally:
        opener.kill()
        opener.wait()
        mount.stop()
    assert lost == 0, f"of {files} files"
    assert files > 20


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
