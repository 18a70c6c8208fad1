"""Goal: host reads take a GPU wherever there is one, also where no kernel of this program runs.

A driver without a GPU stands in for the real one: its device is host memory, which the library
does not know.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import _core

DRIVER = Path(_core.__file__).parents[2] / "driver_fake.so"  # of the build tree
MIB = 1 << 20


def run(code: str, tmp_path: Path, **more: str) -> list[str]:
    """Run Python with the stand-in as driver and with no kernel library; return what it prints."""
    if not DRIVER.exists():
        pytest.skip("the stand-in driver lies in build trees only")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PENSTOCK_DEVICE", "PENSTOCK_CUDA_KERNELS")
    }
    environment |= {"PENSTOCK_LIBCUDA": str(DRIVER)} | more
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


READ = """
import penstock
for device in (None, "auto"):
    memory = penstock.empty(3 << 20, device)
    with penstock.open("file", device=device) as opened:
        assert opened.pread(memory, None, 7).result() == len(memory)
        assert opened.read(memory[:100], None, 7) == 100
    with open("file", "rb") as plain:
        plain.seek(7)
        assert memory.tobytes() == plain.read(len(memory))
    print(memory.device)
"""


@pytest.mark.parametrize("named", ["", "auto"])
def test_auto_reads_into_a_gpu_that_runs_no_kernels(tmp_path: Path, named: str) -> None:
    (tmp_path / "file").write_bytes(os.urandom(4 * MIB))
    devices = run(READ, tmp_path, PENSTOCK_DEVICE=named)
    assert len(devices) == 2
    assert all(name.startswith("cuda:0") for name in devices)


def test_the_environment_may_name_the_cpu(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(4 * MIB))
    named, auto = run(READ, tmp_path, PENSTOCK_DEVICE="cpu:2")
    assert named == "cpu:2"
    assert auto.startswith("cuda:0")


def test_kernels_take_the_cpu_and_check_says_what_reads_take(tmp_path: Path) -> None:
    code = "from penstock.probes import devices; print(*devices.picked(), sep=chr(10))"
    name, why = run(code, tmp_path)
    if name.startswith("cuda:"):
        pytest.skip("this build has kernels that the stand-in takes")
    assert name.startswith("cpu:")
    assert "; host reads take cuda:0" in why


FREED = """
import errno
import penstock

class Interface:
    def __init__(self, told):
        self.__cuda_array_interface__ = told

memory = penstock.empty(3 << 20, "cuda:0")
stale = Interface(memory.__cuda_array_interface__)
with penstock.open("file") as opened:
    assert opened.read(stale) == len(memory)
    memory.free()
    for device in (None, "auto", "cuda:0"):
        with penstock.open("file", "r+", device=device) as opened:
            for read in (
                lambda: opened.read(stale),
                lambda: opened.read(stale, 100),
                lambda: opened.pread(stale, cache="bypass"),
                lambda: opened.preadv([(stale, 13)]),
                lambda: opened.write(stale, 100),
            ):
                try:
                    read()
                    print("read")
                except penstock.Error as error:
                    assert error.errno == errno.EFAULT, error
                    print(error)
            assert opened.read(stale, 0) == 0
"""


def test_memory_that_was_freed_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(4 * MIB))
    told = run(FREED, tmp_path)
    assert len(told) == 15
    assert set(told) == {told[0]}
    assert "file" in told[0]
    assert "was it freed?" in told[0]
