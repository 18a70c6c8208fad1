"""Goal: what goes wrong while tensors are read is told as what it is, and harms nobody else.

Files that become shorter and Ctrl-C while many reads are under way, held there by a throttle; forks
after tensors were read.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import safetensors
from penstock.benchmarks.harness import page_cache
from penstock.safetensors import layout

np = pytest.importorskip("numpy")

MIB = 1 << 20
TENSORS = 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file whose tensors slide, and of which nothing is cached where that can be."""
    path = tmp_path / "m.safetensors"
    header = {
        f"t{i}": {"dtype": "U8", "shape": [MIB], "data_offsets": [i * MIB, (i + 1) * MIB]}
        for i in range(TENSORS)
    }
    raw = json.dumps(header).encode()
    raw += b" " * (-(8 + len(raw)) % layout.ALIGNMENT + 8)
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(range(256)) * (TENSORS * MIB // 256))
    page_cache.evict(path)
    return path


class Recorder:
    """A file that keeps the futures of its reads."""

    closed = False

    def __init__(self, file: penstock.File) -> None:
        self._file = file
        self.futures: list[penstock.Future] = []

    def preadv(self, pieces: Any) -> penstock.Future:
        """Begin a read."""
        self.futures.append(self._file.preadv(pieces))
        return self.futures[-1]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def open_slow(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Open a file of many steps, each of which takes 200 ms."""
    monkeypatch.setattr(layout, "READ_BYTES", MIB)
    monkeypatch.setattr(safetensors.SafetensorsFile, "_is_cached", lambda *_: False)
    opened = safetensors.safe_open(path, throttle_bandwidth_mbs=5, threads=1)
    opened._file = Recorder(opened._file)  # type: ignore[assignment]
    return opened


def test_file_that_shrinks_while_many_reads_are_under_way(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_slow(path, monkeypatch) as opened:
        os.truncate(path, 5 * MIB)
        with pytest.raises(OSError, match="became shorter") as caught:
            opened.get_tensors()
        assert isinstance(caught.value, penstock.Error)
        assert caught.value.errno == errno.EIO
        assert caught.value.filename == str(path)
        assert len(opened._file.futures) > 1
        assert all(future.done() for future in opened._file.futures)


def test_ctrl_c_while_many_reads_are_under_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_slow(path, monkeypatch) as opened:
        interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                opened.get_tensors()
        finally:
            interrupt.cancel()
        assert len(opened._file.futures) > 1
        assert all(future.done() for future in opened._file.futures)
        assert any(future.cancelled() for future in opened._file.futures)


def mapping_of(address: int) -> str:
    """Return the permissions and the file of the mapping that holds an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, permissions, _, _, _, *name = line.split()
        begin, end = (int(word, 16) for word in span.split("-"))
        if begin <= address < end:
            return " ".join([permissions, *name])
    return ""


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("name", ["small", "large"])
def test_what_a_forked_child_writes_stays_there(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    size = 3 * MIB if name == "large" else 100
    header = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"x" * size)
    array = safetensors.load_file(path)["a"]
    child = os.fork()
    if child == 0:
        array[:] = 77
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert array.tobytes() == b"x" * size
    assert mapping_of(array.ctypes.data) == "rw-p"


def test_safetensor_error_and_os_error_catch_what_goes_wrong(tmp_path: Path) -> None:
    reference = pytest.importorskip("safetensors")
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"no safetensors file")
    for kind in (reference.SafetensorError, OSError, ValueError, safetensors.FormatError):
        with pytest.raises(kind, match=r"m\.safetensors: its header would have"):
            safetensors.load_file(path)
    path.write_bytes(struct.pack("<Q", 2) + b"{}")
    with safetensors.safe_open(path) as opened:
        for kind in (reference.SafetensorError, KeyError, safetensors.MissingTensorError):
            with pytest.raises(kind, match="no tensor 'a'"):
                opened.get_tensor("a")
    for use in (opened.keys, opened.offset_keys, opened.metadata, opened.get_tensors):
        for kind in (reference.SafetensorError, penstock.ClosedError):
            with pytest.raises(kind, match="the file is closed"):
                use()


def test_safetensor_error_catches_a_file_that_shrinks(tmp_path: Path) -> None:
    reference = pytest.importorskip("safetensors")
    path = tmp_path / "m.safetensors"
    header = b'{"a":{"dtype":"U8","shape":[5000],"data_offsets":[0,5000]}}'
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(5000))
    with safetensors.safe_open(path) as opened:
        os.truncate(path, 1000)
        with pytest.raises(reference.SafetensorError, match="became shorter") as caught:
            opened.get_tensor("a")
    assert isinstance(caught.value, penstock.Error)
    assert caught.value.errno == errno.EIO


def test_errors_come_back_from_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"")
    with pytest.raises(safetensors.FormatError) as caught:
        safetensors.load_file(path)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert str(again) == str(caught.value)


WITHOUT_SAFETENSORS = """
import sys
sys.modules["safetensors"] = None
from penstock import safetensors
try:
    safetensors.load_file(sys.argv[1])
except safetensors.FormatError as error:
    assert isinstance(error, OSError)
    print(error)
"""


def test_errors_without_the_package_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"")
    command = [sys.executable, "-c", WITHOUT_SAFETENSORS, str(path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "0 bytes are too few" in told
