"""Goal: what the memory of a cache has lost comes from a quick folder, not from storage."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cache_mounts import PROGRAM, CacheMount
from caching import PENSTOCK, Cache, needs_cache, write
from mounting import mounted, needs_mounts, penstock, serving

pytestmark = needs_cache

SMALL = ("--cache-size", "4M", "--chunk-size", "4K")
SIZE = 12 << 20


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "tier").mkdir()
    runtime = Path(tempfile.mkdtemp(prefix="ps", dir="/tmp"))  # the paths of sockets are short
    made = Cache(folder, runtime)
    yield made
    made.end()
    shutil.rmtree(runtime)


def fill_tier(cache: Cache, data: bytes) -> None:
    """Read a file until the tier has all of it: a pass leaves out what would have waited."""
    end = time.monotonic() + 30
    while cache.statistics()["tier_used_size"] < SIZE and time.monotonic() < end:
        assert cache.run("cat", cache.folder / "a", text=False).stdout == data


def test_the_second_pass_over_more_than_memory_reads_no_storage(cache: Cache) -> None:
    data = write(cache.folder / "a", SIZE)
    tier = cache.folder.parent / "tier"
    cache.serve(*SMALL, "--tier", str(tier), "--tier-size", "16M")
    fill_tier(cache, data)
    before = cache.statistics()
    assert cache.run("cat", cache.folder / "a", text=False).stdout == data
    after = cache.statistics()
    assert after["bytes_read"] == before["bytes_read"]
    assert after["tier_bytes_read"] - before["tier_bytes_read"] >= SIZE - (4 << 20)
    assert after["tier"] == str(tier)
    assert (after["tier_size"], after["tier_used_size"]) == (16 << 20, SIZE)
    assert after["tier_bytes_filled"] >= SIZE
    assert after["tier_error"] == ""
    assert "tier          12.0 MiB of 16.0 MiB, " in cache.command("stats", "--once").stdout
    assert list(tier.iterdir()) == []


def test_a_program_may_bring_a_cache_with_a_tier(cache: Cache) -> None:
    data = write(cache.folder / "a", SIZE)
    tier = cache.folder.parent / "tier"
    words = ["run", "--cache", f"{cache.folder}=64M", "--tier", str(tier), "cksum"]
    done = cache.command(*words, cache.folder / "a")
    assert done.stdout.split()[1] == str(len(data))
    cache.serve()
    again = cache.command(*words, cache.folder / "a", check=False)
    assert again.returncode == 1
    assert "has a cache already" in again.stderr


@needs_mounts
def test_a_mount_reads_from_its_tier(tmp_path: Path) -> None:
    for name in ("data", "tier"):
        (tmp_path / name).mkdir()
    data = write(tmp_path / "data/a", SIZE)
    options = ("--chunk-size", "4K", "--tier", str(tmp_path / "tier"), "--tier-size", "16M")

    def statistics() -> dict[str, int]:
        told = penstock("stats", tmp_path / "data", "--json").stdout
        return dict(json.loads(told)["caches"][0])

    def read_past_the_kernel() -> bytes:
        with (folder / "a").open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return file.read()

    with mounted(tmp_path / "data", None, *options, "--cache-size", "4M") as folder:
        end = time.monotonic() + 30
        while statistics()["tier_used_size"] < SIZE and time.monotonic() < end:
            assert read_past_the_kernel() == data
        before = statistics()
        assert read_past_the_kernel() == data
        after = statistics()
        assert after["bytes_read"] == before["bytes_read"]
        assert after["tier_bytes_read"] > before["tier_bytes_read"]
        # What is written through the mount is what the tier must not give any more.
        with (folder / "a").open("r+b") as file:
            file.write(b"new")
        assert read_past_the_kernel() == b"new" + data[3:]


def refusal(cache: Cache, *options: str) -> str:
    done = cache.command("serve", "--cache", cache.folder, "--detach", *options, check=False)
    assert done.returncode in (1, 2)
    assert len(done.stderr.splitlines()) == 1 or done.returncode == 2
    return done.stderr


def test_wrong_tiers_are_refused(cache: Cache) -> None:
    (cache.folder / "inside").mkdir()
    (cache.folder / "file").write_bytes(b"")
    linked = cache.folder.parent / "linked"
    linked.symlink_to(cache.folder / "inside")
    tier = str(cache.folder.parent / "tier")
    assert "needs --tier" in refusal(cache, "--tier-size", "1G")
    for folder, cause in (
        (cache.folder.parent / "none", "No such file"),
        (cache.folder / "file", "is not a folder"),
        (cache.folder / "inside", "must not lie in the folder that is cached"),
        (linked, "must not lie in the folder that is cached"),
        (cache.folder, "must not lie in the folder that is cached"),
        (cache.folder.parent, "must not lie in the tier"),
    ):
        assert f"{folder}: " in refusal(cache, "--tier", str(folder))
        assert cause in refusal(cache, "--tier", str(folder))
    assert "at least 1024 chunks (64.0 MiB)" in refusal(cache, "--tier", tier, "--tier-size", "63M")
    assert "are free there, and --tier-size asks for 1000.0 TiB (free " in refusal(
        cache, "--tier", tier, "--tier-size", "1000T"
    )
    assert cache.command("stats").stdout.startswith("no cache")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a tmpfs")
def test_a_full_disk_for_the_tier_says_what_to_do(cache: Cache) -> None:
    tier = str(cache.folder.parent / "tier")
    for size, told in (
        ("20m", "20.0 MiB are free there, and a tier needs at least 64.0 MiB (free 44.0 MiB, or"),
        ("100m", "100.0 MiB are free there, of which a tier takes half"),
    ):
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "x", tier], check=True)
        try:
            small = f"{cache.folder}=64M", "--tier", tier
            wrong = cache.command("run", "--cache", *small, "true", check=False)
            assert wrong.stderr.startswith(f"penstock: {tier}: {told}")
            assert wrong.stderr.count("\n") == 1
            if "(try: --tier-size 64M)" in wrong.stderr:
                cache.command("run", "--cache", *small, "--tier-size", "64M", "true")
        finally:
            subprocess.run(["umount", tier], check=True)


def test_a_tier_that_cannot_be_written_is_refused(cache: Cache) -> None:
    tier = cache.folder.parent / "tier"
    tier.chmod(0o500)
    if os.access(tier, os.W_OK):
        # root may write everywhere, but for a file system that takes no files
        told = refusal(cache, "--tier", "/proc", "--tier-size", "64M")
        assert told.startswith("penstock: /proc: "), told
    else:
        assert "Permission denied" in refusal(cache, "--tier", str(tier))


def test_an_error_of_the_tier_is_told_and_not_met(cache: Cache) -> None:
    data = write(cache.folder / "a", SIZE)
    tier = cache.folder.parent / "tier"
    process = cache.serve(*SMALL, "--tier", str(tier), "--tier-size", "16M")
    fill_tier(cache, data)
    for name in os.listdir(f"/proc/{process}/fd"):
        link = f"/proc/{process}/fd/{name}"
        if os.readlink(link).startswith(str(tier)):
            os.truncate(link, 0)
    assert cache.run("cat", cache.folder / "a", text=False).stdout == data
    assert "tier" in cache.statistics()["tier_error"]
    assert "is no longer used" in cache.command("stats", "--once").stdout


# ---- Writes


WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(file, b"first", 0)
os.fsync(file)  # in storage, as the file might be new
for i in range(20):
    os.pwrite(file, bytes([i]) * 1000, 5000 * i)
os.fsync(file)
os.pwrite(file, b"unsynced", 200_000)
print("synced", flush=True)
sys.stdin.read()
"""


@needs_mounts
def test_what_was_synced_to_a_tier_is_there_after_a_kill(tmp_path: Path) -> None:
    for name in ("data", "mount", "tier"):
        (tmp_path / name).mkdir()
    file = tmp_path / "data/a"
    data = bytearray(write(file, SIZE))
    options: dict[str, Any] = {"tier": str(tmp_path / "tier"), "tier_writes": 1}
    options |= {"cache_size": 64 << 20, "tier_size": 64 << 20}
    mount = CacheMount(tmp_path / "data", tmp_path / "mount", **options)
    try:
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "mount/a")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"synced\n"
        data[:5] = b"first"
        assert file.read_bytes() == data  # storage has no more yet
        # No second process has the folder meanwhile, nor the log.
        with pytest.raises(AssertionError, match="another file cache shows it already"):
            CacheMount(tmp_path / "data", tmp_path / "mount", **options)
    finally:
        mount.kill()
        mount.clear()
        writer.kill()
        writer.wait()
    for i in range(20):
        data[5000 * i : 5000 * i + 1000] = bytes([i]) * 1000
    # The next one recovers, also without --tier-writes.
    options.pop("tier_writes")
    again = CacheMount(tmp_path / "data", tmp_path / "mount", **options)
    assert again.stop() == 0
    found = file.read_bytes()
    assert found[:200_000] == data[:200_000]
    assert len(found) == len(data)
    assert list((tmp_path / "tier").iterdir()) == []


@needs_mounts
def test_a_mount_over_its_own_folder_recovers_after_a_kill(tmp_path: Path) -> None:
    """The dead mount lies over the files that the log is for."""
    folder, tier = tmp_path / "data", tmp_path / "tier"
    for made in (folder, tier):
        made.mkdir()
    data = bytearray(write(folder / "a", SIZE))
    options = ("--tier", str(tier), "--tier-size", "64M", "--tier-writes")
    with serving(folder, None, *options) as process:
        file = os.open(folder / "a", os.O_RDWR)
        for part in (b"first", b"later"):
            os.pwrite(file, part, 0)
            os.fsync(file)
        os.kill(process, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.close(file)
    with mounted(folder, None, *options):
        pass
    data[:5] = b"later"
    assert (folder / "a").read_bytes() == data
    assert list(tier.glob("penstock-kept-*")) == []


@needs_mounts
def test_a_mount_that_ends_under_an_open_file_leaves_no_log(tmp_path: Path) -> None:
    folder, tier = tmp_path / "data", tmp_path / "tier"
    for made in (folder, tier):
        made.mkdir()
    options = ("--tier", str(tier), "--tier-size", "64M", "--tier-writes")
    with serving(folder, None, *options) as process, os.scandir(folder):
        file = os.open(folder / "a", os.O_RDWR | os.O_CREAT)
        os.pwrite(file, b"text", 0)
        os.fsync(file)
        logs = list(tier.iterdir())
        end = os.pidfd_open(process)
        os.kill(process, signal.SIGTERM)
        ended = select.select([end], [], [], 30)[0]
        os.close(end)
        with contextlib.suppress(OSError):
            os.close(file)
    assert logs
    assert ended
    assert list(tier.iterdir()) == []


def dead(folder: Path) -> int:
    """Return the errno of a look at a folder."""
    try:
        os.statvfs(folder)
    except OSError as error:
        return error.errno or 0
    return 0


@needs_mounts
def test_a_dead_mount_below_a_cache_is_refused(cache: Cache) -> None:
    """Nothing may be taken from the log for files that cannot be looked at."""
    with serving(cache.folder) as process:
        os.kill(process, signal.SIGKILL)
    # The kernel first aborts what is under way, with another error.
    end = time.monotonic() + 30
    while dead(cache.folder) != errno.ENOTCONN and time.monotonic() < end:
        time.sleep(0.01)
    # `penstock serve` refuses it before it starts this.
    words = ["--path", str(cache.folder), "--socket", str(cache.folder.parent / "socket")]
    words += ["--device", "cpu", "--cache-size", "67108864"]
    words += ["--tier", str(cache.folder.parent / "tier"), "--tier-size", "67108864"]
    words += ["--tier-writes", "1"]
    try:
        done = subprocess.run(
            [PROGRAM, *words], capture_output=True, text=True, check=False, timeout=30
        )
    finally:
        subprocess.run(["umount", "-l", cache.folder], check=True)
    assert done.returncode == 1
    assert f"{cache.folder}: Transport endpoint is not connected" in done.stderr
    assert list((cache.folder.parent / "tier").iterdir()) == []


def test_bytes_without_a_place_are_told_and_kept(cache: Cache) -> None:
    file = cache.folder / "a"
    write(file, SIZE)
    tier = cache.folder.parent / "tier"
    options = ("--tier", str(tier), "--tier-size", "64M", "--tier-writes", "--cache-size", "64M")
    process = cache.serve(*options)
    program = subprocess.Popen(
        [
            *PENSTOCK,
            "run",
            "--cache",
            cache.folder,
            "--write-back",
            sys.executable,
            "-c",
            WRITER,
            file,
        ],
        env=cache.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == b"synced\n"
        assert cache.statistics()["tier_bytes_logged"] >= 20_000
        assert "logged" in cache.command("stats", "--once").stdout
    finally:
        os.kill(process, signal.SIGKILL)
        program.kill()
        program.wait()
    file.unlink()
    done = cache.command("serve", "--cache", cache.folder, "--detach", "--json", *options)
    cache.processes.append(int(json.loads(done.stdout)["pid"]))
    (kept,) = tier.glob("penstock-kept-a-*")
    assert done.stderr.startswith(f"penstock: {file}: ")
    assert f"could not be put there (No such file or directory); they are in {kept}" in done.stderr
    assert cache.statistics()["tier_kept"]
    assert kept.read_bytes()[5000:6000] == bytes([1]) * 1000


def test_tier_writes_need_a_tier(cache: Cache) -> None:
    assert "needs --tier" in refusal(cache, "--tier-writes")
