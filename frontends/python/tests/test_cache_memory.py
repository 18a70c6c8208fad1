"""Goal: a served cache lies on several devices, and gives memory back and takes it again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from caching import DEVICES, HAS_GPU, Cache, making, needs_cache, write

pytestmark = needs_cache

SLAB = 4 << 20  # at chunks of 4 KiB
IN_SLABS = "(memory goes in slabs of 4.0 MiB)"
SMALL = ("--cache-size", "16M", "--chunk-size", "4K")


@pytest.fixture(params=DEVICES)
def cache(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cache]:
    with making(tmp_path, request.param) as made:
        made.environment["PENSTOCK_FAKE_GPUS"] = "2"
        yield made


def test_chunks_lie_evenly_on_two_devices(cache: Cache) -> None:
    data = write(cache.folder / "a", 1000 << 12)
    gpu = cache.environment["PENSTOCK_DEVICE"] != "cpu"
    if gpu and HAS_GPU and not Path("/dev/nvidia1").exists():
        pytest.skip("chunks cannot lie on two devices: there is one GPU")
    cache.serve(*SMALL, "--device", "cuda:0,cuda:1" if gpu else "cpu:1,cpu:2")
    for _ in range(2):
        assert cache.run("cat", cache.folder / "a", text=False).stdout == data
    devices = cache.statistics()["devices"]
    assert [device["name"][:6] for device in devices] == (
        ["cuda:0", "cuda:1"] if gpu else ["cpu:1", "cpu:2"]
    )
    assert [device["size"] for device in devices] == [16 << 20, 16 << 20]
    assert [device["size"] - device["free_size"] for device in devices] == [500 << 12, 500 << 12]
    table = cache.command("stats", cache.folder, "--once").stdout
    assert ", 2 devices" in table.splitlines()[0]
    assert table.count("2.0 MiB of 16.0 MiB, 0 bytes dirty") == 2


def test_a_cache_that_holds_little_takes_little_memory(cache: Cache) -> None:
    if cache.environment["PENSTOCK_DEVICE"] != "cpu":
        pytest.skip("memory of a GPU is taken at start")
    data = write(cache.folder / "a", 10 << 20)
    cache.serve("--cache-size", "1G")
    assert cache.run("cat", cache.folder / "a", text=False).stdout == data
    status = Path(f"/proc/{cache.statistics()['pid']}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    assert int(resident.split()[1]) < 300 << 10  # KiB
    assert cache.statistics()["size"] == 1 << 30


def test_memory_is_given_back_and_taken_again(cache: Cache) -> None:
    data = write(cache.folder / "a", 10 << 20)
    cache.serve(*SMALL)
    assert cache.run("cat", cache.folder / "a", text=False).stdout == data
    told = cache.command("serve", "--cache", cache.folder, "--give-back", "5M").stdout
    assert told == f"{cache.folder}: has given back 8.0 MiB, caches in 8.0 MiB {IN_SLABS}\n"
    assert cache.statistics()["given_back_size"] == 2 * SLAB
    assert "gone" in cache.command("stats", "--once").stdout
    assert cache.run("cat", cache.folder / "a", text=False).stdout == data
    told = cache.command("serve", "--cache", cache.folder, "--give-back", "1T", "--json").stdout
    assert '"given_back": 8388608' in told
    assert cache.run("cat", cache.folder / "a", text=False).stdout == data
    told = cache.command("serve", "--cache", cache.folder, "--grow", "1T").stdout
    assert (
        told == f"{cache.folder}: has taken 16.0 MiB, caches in 16.0 MiB (1.0 TiB were asked for)\n"
    )
    assert cache.run("cat", cache.folder / "a", text=False).stdout == data
    assert cache.statistics()["size"] == 4 * SLAB
    more = cache.command("serve", "--cache", cache.folder, "--grow", "99G", check=False)
    assert more.returncode == 1
    assert "has all that it had at first, 16.0 MiB: it takes no more" in more.stderr
    cache.command("serve", "--cache", cache.folder, "--give-back", "4M")
    less = cache.command("serve", "--cache", cache.folder, "--grow", "1M", check=False)
    assert less.returncode == 1
    assert "memory goes in slabs of 4.0 MiB" in less.stderr


def test_a_cache_leaves_memory_to_other_programs(cache: Cache) -> None:
    data = write(cache.folder / "a", 10 << 20)
    cache.serve(*SMALL, "--keep-free", "1000T")
    end = time.monotonic() + 20
    while cache.statistics()["size"] and time.monotonic() < end:
        time.sleep(0.05)
    assert cache.statistics()["given_back_size"] == 4 * SLAB
    assert cache.run("cat", cache.folder / "a", text=False).stdout == data
    cache.run("cp", cache.folder / "a", cache.folder / "b", write_back=True)
    cache.run("sh", "-c", "echo 1 > $0", cache.folder / "c", write_back=True)
    write_all = "import sys; open(sys.argv[1], 'wb').write(b'x' * 100_000)"
    cache.run(sys.executable, "-c", write_all, cache.folder / "d", write_back=True)
    assert (cache.folder / "b").read_bytes() == data
    assert (cache.folder / "c").read_bytes() == b"1\n"
    assert (cache.folder / "d").read_bytes() == b"x" * 100_000
    assert "ended" in cache.command("serve", "--cache", cache.folder, "--stop").stdout


@pytest.mark.parametrize("names", ["cpu,cpu", "auto,cpu", "cpu,", "gpu,cpu"])
def test_wrong_lists_of_devices_are_refused(cache: Cache, names: str) -> None:
    done = cache.command("serve", "--cache", cache.folder, "--device", names, check=False)
    assert done.returncode == 2
    assert "--device" in done.stderr


def test_memory_of_no_cache_is_refused(cache: Cache) -> None:
    done = cache.command("serve", "--cache", cache.folder, "--give-back", "1G", check=False)
    assert done.returncode != 0
    assert "has no cache" in done.stderr
