"""What the tests of file caches share."""

from __future__ import annotations

import contextlib
import json
import os
import random
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

from penstock import _core

DRIVER = Path(_core.__file__).parents[2] / "driver_fake.so"  # stands for a GPU
HAS_GPU = Path("/dev/nvidiactl").exists()
DEVICES = ["cpu", "cuda:0"] if HAS_GPU or DRIVER.exists() else ["cpu"]
needs_cache = pytest.mark.skipif(
    not (Path(_core.__file__).parent / "penstock-cache").exists(), reason="built without the cache"
)
PENSTOCK = [sys.executable, "-m", "penstock"]


# Runs a program in a sandbox that forbids process_vm_readv(2), as some containers and kernels do.
SANDBOX = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
number = 310 if os.uname().machine == "x86_64" else 270
code = struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, number, 6, 0, 0, 0x50001, 6, 0, 0,
                   0x7fff0000)
kept = ctypes.create_string_buffer(code, len(code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(kept)), 16)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
assert libc.process_vm_readv(os.getpid(), None, 0, None, 0, 0) == -1
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Cache:
    """A cache of `folder`, kept by a process of its own."""

    def __init__(self, folder: Path, runtime: Path, device: str = "cpu") -> None:
        self.folder = folder
        self.processes: list[int] = []
        self.environment = {
            **os.environ,
            "XDG_RUNTIME_DIR": str(runtime),
            "PENSTOCK_DEVICE": device,
        }
        if device != "cpu" and not HAS_GPU:
            self.environment["PENSTOCK_LIBCUDA"] = str(DRIVER)

    def command(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a verb of penstock."""
        return subprocess.run(
            [*PENSTOCK, *map(str, words)],
            env=self.environment,
            text=True,
            capture_output=True,
            timeout=60,
            check=check,
        )

    def serve(self, *options: str) -> int:
        """Start the process and return its number."""
        options = options or ("--cache-size", "64M")
        done = self.command("serve", "--cache", self.folder, "--detach", "--json", *options)
        self.processes.append(int(json.loads(done.stdout)["pid"]))
        return self.processes[-1]

    def end(self) -> None:
        """Kill what was started."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def statistics(self) -> dict[str, Any]:
        """Return what `penstock stats --json` tells of it."""
        told = json.loads(self.command("stats", self.folder, "--json").stdout)
        return dict(told["caches"][0])

    def program_environment(self) -> dict[str, str]:
        """Return the environment of a program under `penstock run --cache`."""
        shown = self.command("run", "--cache", self.folder, "env").stdout
        lines = [line.partition("=") for line in shown.splitlines()]
        return {**self.environment, **{name: value for name, _, value in lines}}

    def run(
        self,
        *words: str | Path,
        check: bool = True,
        text: bool = True,
        write_back: bool = False,
    ) -> subprocess.CompletedProcess[Any]:
        """Run a program with its files in the cache."""
        options = ["--write-back"] if write_back else []
        return subprocess.run(
            [*PENSTOCK, "run", "--cache", str(self.folder), *options, "--", *map(str, words)],
            env=self.environment,
            text=text,
            capture_output=True,
            timeout=60,
            check=check,
        )


def settled() -> None:
    """Wait until files just written have times that tell of the next change."""
    time.sleep(0.05)


@contextlib.contextmanager
def making(tmp_path: Path, device: str) -> Iterator[Cache]:
    """Make a cache of an empty folder, and end what the test has started."""
    folder = tmp_path / "data"
    folder.mkdir()
    runtime = Path(tempfile.mkdtemp(prefix="ps", dir="/tmp"))  # the paths of sockets are short
    made = Cache(folder, runtime, device)
    yield made
    made.end()
    shutil.rmtree(runtime)


def write(path: Path, size: int, seed: int = 1) -> bytes:
    """Write random bytes to a file that the cache may have, and return them."""
    data = random.Random(seed).randbytes(size)
    path.write_bytes(data)
    settled()
    return data


@pytest.fixture(params=DEVICES)
def cache(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cache]:
    """Give a cache of an empty folder, on each device that there is."""
    with making(tmp_path, request.param) as made:
        yield made
