"""Goal: the commands of a file cache end, and tell what to do, whatever became of its process."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from caching import PENSTOCK, Cache, making

from penstock import _core

pytestmark = pytest.mark.skipif(
    not (Path(_core.__file__).parent / "penstock-cache").exists(), reason="built without the cache"
)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with making(tmp_path, "cpu") as made:
        yield made


# Writes a file, and says what it reads of it before and after a line of input.
OUTLIVES = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(file, b"written" * 1000)
print(len(os.pread(file, 10_000, 0)), flush=True)
sys.stdin.readline()
print(len(os.pread(file, 10_000, 0)), flush=True)
"""


def test_a_cache_of_its_own_ends_when_the_command_is_killed(cache: Cache) -> None:
    words = ["run", "--cache", f"{cache.folder}=64M", "--write-back", sys.executable, "-c"]
    command = subprocess.Popen(
        [*PENSTOCK, *words, OUTLIVES, str(cache.folder / "a")],
        env=cache.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert command.stdin is not None
    assert command.stdout is not None
    assert command.stdout.readline() == "7000\n"
    cache.processes.append(cache.statistics()["pid"])
    process = os.pidfd_open(cache.processes[-1])
    command.kill()
    try:
        assert select.select([process], [], [], 30)[0], "the process of the cache has stayed"
    finally:
        os.close(process)
    assert (cache.folder / "a").read_bytes() == b"written" * 1000
    assert command.communicate("\n", timeout=30)[0] == "7000\n"  # the program goes on
