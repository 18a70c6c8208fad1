"""Goal: a full disk is told by the write or the close, and no acknowledged byte is lost."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from caching import Cache, needs_cache
from mounting import mounted, needs_mounts
from small_disks import SECONDS_MAX, fill_command, free_of, small_disk, stream

KINDS = {"ext4": "8M", "ext2": "8M", "tmpfs": "8M", "xfs": "320M"}  # mkfs.xfs makes no smaller ones
MIB = 1 << 20


def fill(path: Path, seed: int, most: int, size_max: int) -> tuple[int, str, str]:
    """Run the program that fills a disk. Return what it acknowledged and its errors."""
    done = subprocess.run(
        fill_command(path, seed, most, size_max),
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS_MAX,
    )
    count, failure, closed = done.stdout.split()
    return int(count), failure, closed


@needs_mounts
@pytest.mark.parametrize("kind", KINDS)
def test_a_move_that_does_not_fit_keeps_its_source(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "source"
    with small_disk(tmp_path, kind, KINDS[kind]) as disk:
        data = stream(1, free_of(disk) + 2 * MIB)
        source.write_bytes(data)
        where = tmp_path / "at"
        where.mkdir()
        with mounted(disk, where):
            moved = subprocess.run(
                ["mv", source, where / "target"],
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS_MAX,
            )
            assert moved.returncode != 0
            assert "No space left" in moved.stderr
            assert source.read_bytes() == data
            (where / "target").unlink(missing_ok=True)


@needs_mounts
@pytest.mark.parametrize("kind", ["ext4", "ext2", "tmpfs"])
@pytest.mark.parametrize("size_max", [5_000, 30_000, 500_000])
def test_every_acknowledged_byte_is_in_the_file(tmp_path: Path, kind: str, size_max: int) -> None:
    with small_disk(tmp_path, kind) as disk:
        where = tmp_path / "at"
        where.mkdir()
        with mounted(disk, where):
            count, failure, closed = fill(where / "a", size_max, 10 * MIB, size_max)
            assert "ENOSPC" in (failure, closed)
            if closed == "-":
                assert (where / "a").read_bytes()[:count] == stream(size_max, count)
            else:
                (where / "a").unlink()
        if closed == "-":
            assert (disk / "a").read_bytes()[:count] == stream(size_max, count)


@needs_mounts
def test_an_offset_that_no_file_may_have_is_refused_by_the_write(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        where = tmp_path / "at"
        where.mkdir()
        with mounted(disk, where), (where / "a").open("w+b", buffering=0) as file:
            for at in [1 << 62, 1 << 50, (1 << 62) - 1]:
                with pytest.raises(OSError, match="File too large") as failed:
                    os.pwrite(file.fileno(), b"1", at)
                assert failed.value.errno == errno.EFBIG
            assert os.pwrite(file.fileno(), b"1", 5) == 1
            assert os.fstat(file.fileno()).st_size == 6


# ---- Programs with the preload library


@contextlib.contextmanager
def cached_disk(tmp_path: Path, kind: str, *options: str) -> Iterator[Cache]:
    """Serve a small disk from a cache, with chunks of 4 KiB unless options say so."""
    options = options or ("--chunk-size", "4K", "--cache-size", "16M")
    with small_disk(tmp_path, kind, KINDS[kind]) as disk:
        runtime = Path(tempfile.mkdtemp(prefix="ps", dir="/tmp"))
        cache = Cache(disk, runtime)
        try:
            cache.serve(*options)
            yield cache
            cache.command("serve", "--cache", disk, "--stop")
        finally:
            cache.end()
            shutil.rmtree(runtime)
            time.sleep(0.2)


def fill_all(
    cache: Cache, names: list[str], most: int, size_max: int
) -> dict[str, tuple[int, str, str]]:
    """Run programs at once that fill a disk. Return what each acknowledged and its errors."""
    commands = [fill_command(cache.folder / name, len(name), most, size_max) for name in names]
    run = [sys.executable, "-m", "penstock", "run", "--cache", str(cache.folder), "--write-back"]
    programs = [
        subprocess.Popen(
            [*run, "--", *one], env=cache.environment, stdout=subprocess.PIPE, text=True
        )
        for one in commands
    ]
    told = {}
    for name, program in zip(names, programs, strict=True):
        words = program.communicate(timeout=SECONDS_MAX)[0].split()
        assert program.returncode in (0, 1)  # 1: some of it could not be written
        told[name] = (int(words[0]), words[1], words[2])
    return told


@needs_cache
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", ["mv", "cp", "dd"])
def test_a_program_under_write_back_learns_of_a_full_disk(
    tmp_path: Path, kind: str, program: str
) -> None:
    source = tmp_path / "source"
    with cached_disk(tmp_path, kind) as cache:
        data = stream(1, free_of(cache.folder) + 2 * MIB)
        source.write_bytes(data)
        target = cache.folder / "target"
        programs: dict[str, list[str | Path]] = {
            "mv": ["mv", source, target],
            "cp": ["cp", "--reflink=never", source, target],
            "dd": ["dd", f"if={source}", f"of={target}", "bs=10000"],
        }
        done = cache.run(*programs[program], check=False, write_back=True)
        assert done.returncode != 0, done.stderr
        assert "No space left" in done.stderr
        assert source.read_bytes() == data


@needs_cache
@pytest.mark.parametrize("kind", ["ext4", "ext2", "tmpfs"])
@pytest.mark.parametrize("size_max", [5_000, 30_000, 500_000])
def test_programs_at_once_keep_every_acknowledged_byte(
    tmp_path: Path, kind: str, size_max: int
) -> None:
    most = 4 * MIB
    names = ["a", "bb", "ccc"]
    with cached_disk(tmp_path, kind) as cache:
        # Another program, which knows of no cache, takes the rest of the disk meanwhile.
        keep = max(free_of(cache.folder) - 2 * most - MIB // 3, 0)

        def take() -> None:
            time.sleep(0.5)
            (cache.folder / "other").write_bytes(bytes(keep))

        taker = threading.Thread(target=take)
        taker.start()
        told = fill_all(cache, names, most, size_max)
        taker.join()
        disk = cache.folder
        kept = {name: (disk / name).read_bytes() for name in names}
    assert any("ENOSPC" in one for one in told.values()), told
    for name, (count, _, closed) in told.items():
        if closed == "-":
            assert kept[name][:count] == stream(len(name), count), (name, told)


@needs_cache
def test_small_files_have_no_more_blocks_than_they_need(tmp_path: Path) -> None:
    with cached_disk(tmp_path, "xfs", "--cache-size", "64M") as cache:
        script = """
import sys
for i in range(50):
    with open(f"{sys.argv[1]}/{i}", "wb") as file:
        file.write(b"1" * (1 + 40_000 * (i % 3)))
"""
        cache.run(sys.executable, "-c", script, cache.folder, write_back=True)
        for _ in range(100):
            extra = [
                path.name
                for path in cache.folder.iterdir()
                if path.stat().st_blocks * 512 > path.stat().st_size + 8192
            ]
            if not extra:
                break
            time.sleep(0.2)
        assert extra == []


# A limit that is set while the file is open, and one that the program inherits.
LIMITED = """
import errno, os, resource, signal, sys
signals = []
signal.signal(signal.SIGXFSZ, lambda *_: signals.append("signal"))
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
print(os.write(fd, b"1" * 10_000))
if sys.argv[2] == "later":
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
print(os.write(fd, b"2" * 20_000))
try:
    os.write(fd, b"3")
except OSError as error:
    print(errno.errorcode[error.errno])
print(os.fstat(fd).st_size, os.pwrite(fd, b"4", 19_999), *signals)
"""


@needs_cache
@pytest.mark.parametrize("when", ["later", "inherited"])
def test_a_file_size_limit_holds_under_write_back(tmp_path: Path, when: str) -> None:
    path = tmp_path / "data"
    path.mkdir()
    runtime = Path(tempfile.mkdtemp(prefix="ps", dir="/tmp"))
    cache = Cache(path, runtime)
    try:
        cache.serve()
        words = [sys.executable, "-c", LIMITED, str(path / "a"), when]
        limited = ["prlimit", "--fsize=20000:unlimited", *words] if when == "inherited" else words
        alone = subprocess.run([*map(str, limited)], capture_output=True, text=True, check=True)
        (path / "a").unlink()
        under = cache.run(*limited, write_back=True)
        assert under.stdout == alone.stdout
        assert "signal" in under.stdout
        assert (path / "a").read_bytes() == b"1" * 10_000 + b"2" * 9_999 + b"4"
    finally:
        cache.end()
        shutil.rmtree(runtime)
