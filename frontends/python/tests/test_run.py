"""Goal: programs behave under `penstock run` as alone; large mappings on slow storage are read."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import _core

LIBRARY = Path(_core.__file__).parent / "libpenstock-preload.so"
SIZE = 64 << 20
BLOCKS = SIZE >> 20  # the feeder reads a MiB at a time

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="built without the preload library")

# madvise() that takes a millisecond, as storage behind a network does, and counts its calls.
SLOW = """
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
static int count;
int madvise(void* begin, size_t size, int advice) {
    if (advice == 22) {
        __sync_fetch_and_add(&count, 1);
        usleep(1000);
    }
    return syscall(SYS_madvise, begin, size, advice);
}
__attribute__((destructor)) static void tell(void) { fprintf(stderr, "populated %d\\n", count); }
"""


@pytest.fixture
def slow(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which populating a mapping is slow and counted."""
    (tmp_path / "slow.c").write_text(SLOW)
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    library = tmp_path / "slow.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "slow.c"], check=True)
    return {**os.environ, "LD_PRELOAD": str(library)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(1 << 20) * (SIZE >> 20))
    return path


def run(
    *words: str, env: dict[str, str] | None = None, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", "run", *options, "--", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=env
    )


def reading(data: Path, after: str = "") -> list[str]:
    """Return a program that maps the file, waits, prints its hash, and goes on with `after`."""
    code = f"""
import hashlib, mmap, os, sys, time
file = open({str(data)!r}, "rb")
mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
{after or "time.sleep(1)"}
print(hashlib.sha256(mapping).hexdigest())
"""
    return [sys.executable, "-c", code]


def populated(done: subprocess.CompletedProcess[str]) -> list[int]:
    """Return what each process that ended counted; the last is the program itself."""
    return [int(count) for count in re.findall(r"^populated (\d+)$", done.stderr, re.MULTILINE)]


def test_a_slow_mapping_is_read_once_and_in_full(data: Path, slow: dict[str, str]) -> None:
    done = run(*reading(data), env=slow)
    assert done.stdout.strip() == hashlib.sha256(data.read_bytes()).hexdigest()
    probes = 4  # all are slow, so there are no more
    assert populated(done)[-1] == BLOCKS + probes


def test_nothing_is_read_of_a_quick_or_small_one(data: Path, slow: dict[str, str]) -> None:
    small = data.with_name("small")
    small.write_bytes(b"x" * (8 << 20))
    done = run(*reading(small), env=slow)
    assert populated(done)[-1] == 0
    done = run(*reading(data), env=slow, options=("--no-readahead",))
    assert populated(done)[-1] == 0
    assert run(*reading(data)).returncode == 0  # quick: the file is cached


def test_a_mapping_that_is_removed_or_forked_meanwhile(data: Path, slow: dict[str, str]) -> None:
    remove = "mapping.close(); mapping = open(file.name, 'rb').read()"
    done = run(*reading(data, remove), env=slow)
    assert (done.returncode, len(done.stdout)) == (0, 65)
    assert populated(done)[-1] <= BLOCKS + 4
    fork = "child = os.fork()\nif child == 0: os._exit(mapping[5] != mapping[5 + (1 << 20)])\n"
    done = run(*reading(data, fork + "print(os.waitpid(child, 0)[1])"), env=slow)
    assert done.stdout.split()[0] == "0"


def test_a_file_that_shrinks_meanwhile(data: Path, slow: dict[str, str]) -> None:
    cut = (
        "os.truncate(file.name, 1 << 20); time.sleep(0.5); print('alive', flush=True); os._exit(0)"
    )
    done = run(*reading(data, cut), env=slow)
    assert (done.returncode, done.stdout) == (0, "alive\n")


def test_exit_codes_and_refusals() -> None:
    assert run("sh", "-c", "exit 9").returncode == 9
    done = run("nowhere-to-be-found")
    assert (done.returncode, done.stderr.count("\n")) == (127, 1)
    command = [sys.executable, "-m", "penstock", "run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2


def test_run_traces_too(tmp_path: Path, data: Path) -> None:
    done = run("dd", f"if={data}", "of=/dev/null", options=("--trace", str(tmp_path / "t")))
    assert done.returncode == 0
    assert f" r {data} 0 " in (tmp_path / "t").read_text()
