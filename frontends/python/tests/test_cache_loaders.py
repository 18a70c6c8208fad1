"""Goal: in three epochs a data loader reads storage once, and fio finds what it wrote."""

from __future__ import annotations

import io
import random
import shutil
import sys
import tarfile
from pathlib import Path

import pytest
from caching import Cache, needs_cache, settled
from mounting import mounted, needs_mounts, run

pytestmark = needs_cache
FILES = 10_000
SHARDS, MEMBERS = 4, 300
EPOCHS = 3

# Each epoch has an order of its own. Prints a sum that no order changes.
LOAD_FILES = """
import pathlib, random, sys, zlib
from concurrent.futures import ThreadPoolExecutor
paths = sorted(pathlib.Path(sys.argv[1]).glob("*/*"))
for epoch in range(int(sys.argv[2])):
    random.Random(epoch).shuffle(paths)
    with ThreadPoolExecutor(4) as threads:
        sums = threads.map(lambda path: zlib.crc32(path.read_bytes()), paths)
        print(len(paths), sum(sums))
"""
LOAD_SHARDS = """
import pathlib, random, sys, tarfile, zlib
shards = sorted(pathlib.Path(sys.argv[1]).glob("*.tar"))
for epoch in range(int(sys.argv[2])):
    random.Random(epoch).shuffle(shards)
    count = total = 0
    for shard in shards:
        with tarfile.open(shard) as members:
            for member in members:
                total += zlib.crc32(members.extractfile(member).read())
                count += 1
    print(count, total)
"""
FIO = """
[all]
filename={path}
rw=randwrite
bsrange=1k-96k
size=8m
verify=crc32c
verify_state_save=0
do_verify=1
verify_fatal=1
fsync=64
ioengine=psync
"""


def check_epochs(cache: Cache, program: str, size: int, *options: str) -> None:
    words = (sys.executable, "-c", program, str(cache.folder), str(EPOCHS))
    settled()
    cache.serve("--cache-size", "128M", *options)
    loaded = cache.run(*words).stdout
    told = cache.statistics()
    assert loaded == run(*words)
    assert len(set(loaded.splitlines())) == 1
    assert told["bytes_read"] == size
    assert told["bytes_served"] >= EPOCHS * size * 99 // 100


def test_small_files(cache: Cache) -> None:
    random_bytes = random.Random(5)
    size = 0
    for folder in range(100):
        (cache.folder / str(folder)).mkdir()
        for number in range(FILES // 100):
            data = random_bytes.randbytes(random_bytes.randrange(1, 3000))
            (cache.folder / str(folder) / str(number)).write_bytes(data)
            size += len(data)
    # A file takes one chunk at least.
    check_epochs(cache, LOAD_FILES, size, "--chunk-size", "4K")


def test_tar_shards(cache: Cache) -> None:
    random_bytes = random.Random(6)
    for shard in range(SHARDS):
        with tarfile.open(cache.folder / f"{shard}.tar", "w") as made:
            for number in range(MEMBERS):
                member = tarfile.TarInfo(f"{number}.bin")
                member.size = random_bytes.randrange(1, 20_000)
                made.addfile(member, io.BytesIO(random_bytes.randbytes(member.size)))
    size = sum(path.stat().st_size for path in cache.folder.glob("*.tar"))
    check_epochs(cache, LOAD_SHARDS, size)


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_fio_verifies_what_it_wrote_back(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "job").write_text(FIO.format(path=cache.folder / "file"))
    cache.serve("--cache-size", "64M")
    done = cache.run("fio", tmp_path / "job", check=False, write_back=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_mounts
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_fio_verifies_what_it_wrote_to_a_mount(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "job").write_text(FIO.format(path=tmp_path / "data" / "file"))
    with mounted(tmp_path / "data", None, "--dirty-limit", "2M"):
        run("fio", tmp_path / "job")
