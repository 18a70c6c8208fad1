"""Goal: `penstock run` announces reads that the kernel does not foresee, and changes no result."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock import _core

LIBRARY = Path(_core.__file__).parent / "libpenstock-preload.so"
PAGE = 4096
GAP = 16 * PAGE  # between the offsets of reads
COUNT = 256
DONE = 100  # reads made when the cache is looked at

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="built without the preload library")

# Makes the first reads of a list, says so, and makes the others when it is told to.
READER = f"""
import os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
offsets = [int(one) for one in sys.argv[3].split(",")]
if sys.argv[2] == "random":
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
def read(offset):
    if sys.argv[2] == "seek":
        os.lseek(file, offset, os.SEEK_SET)
        return os.read(file, {PAGE})
    return os.pread(file, {PAGE}, offset)
data = []
for offset in offsets[:{DONE}]:
    data.append(read(offset))
    time.sleep(0.001)
print("ready", flush=True)
sys.stdin.readline()
data += [read(offset) for offset in offsets[{DONE}:]]
print(sum(b"".join(data)), len(os.listdir("/proc/self/fd")))
"""


def cached_pages(path: Path) -> list[bool]:
    """Return which pages of a file the OS page cache holds."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapping:
        pages = (ctypes.c_ubyte * (size // PAGE))()
        anchor = ctypes.c_char.from_buffer(mapping)
        failed = libc.mincore(
            ctypes.c_void_p(ctypes.addressof(anchor)), ctypes.c_size_t(size), pages
        )
        del anchor
    assert failed == 0
    return [bool(page & 1) for page in pages]


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """Return a file of which the page cache holds nothing."""
    path = tmp_path / "data"
    path.write_bytes(os.urandom(PAGE) * (COUNT * GAP // PAGE))
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if any(cached_pages(path)):
        pytest.skip("this file system keeps its pages")
    return path


def ahead(path: Path, offsets: list[int], way: str, *options: str) -> tuple[int, str]:
    """Run the reader; return how many of the next 8 reads were cached, and what it printed."""
    words = [sys.executable, "-m", "penstock", "run", *options, sys.executable, "-c", READER]
    arguments = [str(path), way, ",".join(str(offset) for offset in offsets)]
    with subprocess.Popen(
        [*words, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdin is not None
        assert reader.stdout.readline() == "ready\n"
        limit = time.monotonic() + (2 if "--no-readahead" not in options else 0.2)
        found = 0
        while found < 8 and time.monotonic() < limit:
            cached = cached_pages(path)
            found = sum(cached[offset // PAGE] for offset in offsets[DONE : DONE + 8])
            time.sleep(0.02)
        reader.stdin.write("\n")
        reader.stdin.close()
        text = reader.stdout.read()
        assert reader.wait(timeout=30) == 0
    return found, text


STRIDED = [i * GAP for i in range(COUNT)]


@pytest.mark.parametrize("way", ["pread", "seek"])
@pytest.mark.parametrize("step", [1, -1])
def test_strided_reads_are_announced(cold: Path, way: str, step: int) -> None:
    found, told = ahead(cold, STRIDED[::step], way)
    assert found == 8
    _, alone = ahead(cold, STRIDED[::step], way, "--no-readahead")
    assert told == alone  # the same bytes, and no descriptor more


def test_without_readahead_nothing_is_announced(cold: Path) -> None:
    assert ahead(cold, STRIDED, "pread", "--no-readahead")[0] == 0


def test_reads_that_are_declared_random_are_left_alone(cold: Path) -> None:
    assert ahead(cold, STRIDED, "random")[0] == 0


def test_a_trace_is_replayed_in_its_order(cold: Path, tmp_path: Path) -> None:
    shuffled = list(STRIDED)
    random.Random(4).shuffle(shuffled)
    trace = tmp_path / "trace"
    lines = [f"{i * 1000} 1 r {cold} {offset} {PAGE}" for i, offset in enumerate(shuffled)]
    trace.write_text("\n".join(["penstock-trace 1", *lines, ""]))
    assert ahead(cold, shuffled, "pread", "--signature", str(trace))[0] == 8
    # A signature of other reads changes no result.
    os.posix_fadvise(os.open(cold, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
    backward = ahead(cold, STRIDED[::-1], "pread", "--signature", str(trace))
    assert backward[1] == ahead(cold, STRIDED[::-1], "pread", "--no-readahead")[1]


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "No such file"),
        ("hello\n", "no access to a file"),
        ("penstock-trace 1\n1 1 w /a 0 10\n2 1 w /a 10 10\n3 1 w /a 20 10\n", "no reads in it"),
    ],
)
def test_a_signature_that_is_none_is_refused(
    tmp_path: Path, content: str | None, cause: str
) -> None:
    path = tmp_path / "signature"
    if content is not None:
        path.write_text(content)
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "run", "--signature", str(path), "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert cause in done.stderr, done.stderr


def test_a_signature_of_files_that_are_not_here_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "signature"
    lines = [f"{i} 1 r /nowhere/data {i * GAP} {PAGE}" for i in range(1, 20)]
    path.write_text("\n".join(["penstock-trace 1", *lines, ""]))
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "run", "--signature", str(path), "echo", "done"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert f"{path}: warning: none of its 1 files is here" in done.stderr
