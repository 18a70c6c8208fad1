"""Goal: programs that were written for KvikIO find its names, with their meaning, on host memory.

KvikIO's own tests are no part of this project; docs/guide/kvikio.md says how they fare.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import kvikio
from penstock.kvikio import buffers

PAGE = os.sysconf("SC_PAGE_SIZE")


def open_descriptors(path: Path) -> int:
    """Return how many descriptors of this process are of a file."""
    names = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(os.path.realpath(name) == str(path.resolve()) for name in names)


@pytest.mark.parametrize(
    ("flags", "access"),
    [("r", os.O_RDONLY), ("w", os.O_WRONLY), ("a", os.O_WRONLY), ("r+", os.O_RDWR)],
)
def test_flags_descriptor_and_open_flags(tmp_path: Path, flags: str, access: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    with penstock.CuFile(path, flags=flags) as opened:
        assert isinstance(opened, penstock.File)
        assert opened.mode == flags
        assert opened.open_flags() & os.O_ACCMODE == access
        assert os.path.samestat(os.fstat(opened.fileno()), path.stat())
        assert not opened.closed
    assert opened.closed
    with pytest.raises(penstock.ClosedError, match="the file is closed"):
        opened.fileno()
    assert path.stat().st_size == (0 if flags == "w" else 100)
    assert open_descriptors(path) == 0


def test_dropped_file_closes_its_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    assert open_descriptors(path) == 0
    assert os.fstat(kvikio.CuFile(path).fileno()).st_size == 1
    gc.collect()
    assert open_descriptors(path) == 0


def test_mode_and_options_as_of_penstock_open(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with penstock.CuFile(path, mode="w+", cache="keep", threads=2) as opened:
        assert opened.write(b"some bytes") == 10
        assert opened.cache == "keep"
    descriptor = os.open(path, os.O_RDONLY)
    out = bytearray(10)
    with penstock.CuFile(descriptor) as opened:
        os.close(descriptor)
        assert opened.pread(out).get() == 10
        assert os.fstat(opened.fileno()).st_size == 10
    assert out == b"some bytes"


def test_runtime_error_catches_what_goes_wrong(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(RuntimeError, match=r"Unable to open file.*No such file or directory") as no:
        kvikio.CuFile(path)
    assert isinstance(no.value, FileNotFoundError)
    assert no.value.errno == errno.ENOENT
    with kvikio.CuFile(path, "w") as opened:
        with pytest.raises(RuntimeError, match=r"Operation not permitted .* for writing only"):
            opened.read(bytearray(1))
        assert opened.write(b"x") == 1
    with (
        kvikio.CuFile(path) as opened,
        pytest.raises(RuntimeError, match=r"Operation not permitted .* for reading only"),
    ):
        opened.write(b"x")
    with pytest.raises(RuntimeError):
        opened.read(bytearray(1))
    with pytest.raises(ValueError, match="mode 'z'"):
        kvikio.CuFile(path, "z")


def test_raw_calls_refuse_host_memory(tmp_path: Path) -> None:
    with kvikio.CuFile(tmp_path / "file", "w+") as opened:
        for raw in (opened.raw_read, opened.raw_write):
            for buffer in (bytearray(8), penstock.empty(8, "cpu")):
                with pytest.raises(ValueError, match="Non-CUDA buffers not supported"):
                    raw(buffer)
        for behind in (opened.raw_read_async, opened.raw_write_async):
            with pytest.raises(ValueError, match="Non-CUDA buffers not supported"):
                behind(bytearray(8), 0)


class Stream:
    """A stream of a library that is not there."""

    waited: list[int] = []  # noqa: RUF012 (one for all, as the test wants)

    def __init__(self, raw: int) -> None:
        self._raw = raw

    def synchronize(self) -> None:
        """Say that it was waited for."""
        self.waited.append(self._raw)


def test_raw_calls_read_and_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "is_cuda", lambda _: True)  # of memory that the host has
    library = types.ModuleType("cupy")
    library.cuda = types.SimpleNamespace(ExternalStream=Stream)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", library)
    out = bytearray(8)
    with kvikio.CuFile(tmp_path / "file", "w+") as opened:
        assert opened.raw_write(b"abcdefgh", 8, 0) == 8
        assert opened.raw_read(out, 4, 2) == 4
        assert bytes(out) == b"cdef\0\0\0\0"
        assert opened.raw_write_async(b"ABCD", 7, file_offset=8).check_bytes_done() == 4
        assert opened.raw_read_async(out, 9, file_offset=4).check_bytes_done() == 8
        assert bytes(out) == b"efghABCD"
    assert Stream.waited == [7, 9]
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with (
        kvikio.CuFile(tmp_path / "file") as opened,
        pytest.raises(RuntimeError, match="neither torch nor cupy"),
    ):
        opened.raw_read_async(out, 9)


class OnDevice:
    """Says that it lies on a CUDA device."""

    nbytes = 96

    def __init__(self, strides: tuple[int, ...] | None) -> None:
        self.__cuda_array_interface__ = {
            "shape": (4, 3),
            "typestr": "<f8",
            "data": (0x1000, False),
            "version": 3,
            "strides": strides,
            "stream": 5,
        }


class TensorOnDevice(OnDevice):
    """The same, as torch's tensors do: the stream is torch's to tell."""

    is_cuda = True
    device = "cuda:1"

    def __init__(self) -> None:
        super().__init__(None)
        del self.__cuda_array_interface__["stream"]

    def data_ptr(self) -> int:
        """Return the address."""
        return 0x1000


def test_part_of_a_buffer_is_ordered_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = {"cuda:1": 0}
    library = types.ModuleType("torch")
    library.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        current_stream=lambda device: types.SimpleNamespace(cuda_stream=streams[device])
    )
    monkeypatch.setitem(sys.modules, "torch", library)
    for buffer, stream in ((OnDevice(None), 5), (TensorOnDevice(), buffers.LEGACY_STREAM)):
        part: Any = buffers.cuda_part(buffer, 16)
        assert part.__cuda_array_interface__["stream"] == stream
    streams["cuda:1"] = 9
    part = buffers.cuda_part(TensorOnDevice(), 16)
    assert part.__cuda_array_interface__["stream"] == 9


def test_part_of_a_device_buffer() -> None:
    for whole in (OnDevice(None), OnDevice((24, 8))):
        assert buffers.cuda_part(whole, 0) is whole
        part: Any = buffers.cuda_part(whole, 16)
        assert part.__cuda_array_interface__["data"] == (0x1010, False)
        assert part.__cuda_array_interface__["shape"] == (80,)
    with pytest.raises(ValueError, match="not contiguous"):
        buffers.cuda_part(OnDevice((8, 32)), 16)
    for offset in (-1, 97):
        with pytest.raises(ValueError, match="not within the buffer's 96 bytes"):
            buffers.cuda_part(OnDevice(None), offset)


def test_page_cache_is_counted_and_dropped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (10 * PAGE + 1))
    cached, total = kvikio.get_page_cache_info(path)
    assert (cached, total) == (11, 11)
    with path.open("rb") as file, kvikio.CuFile(path) as opened:
        for one in (str(path), file, file.fileno(), opened):
            assert kvikio.get_page_cache_info(one, PAGE + 1, 2 * PAGE) == (3, 3)
            assert kvikio.get_page_cache_info(one, 20 * PAGE) == (0, 0)
    for wrong in (123.456, ["path"]):
        with pytest.raises(ValueError, match="no path, descriptor or file"):
            kvikio.get_page_cache_info(wrong)
    with pytest.raises(RuntimeError, match="Unable to open file"):
        kvikio.get_page_cache_info(tmp_path / "missing")
    kvikio.drop_file_page_cache(path, 0, 4 * PAGE)
    part, _ = kvikio.get_page_cache_info(path)
    kvikio.drop_file_page_cache(str(path), sync_first=False)
    none, _ = kvikio.get_page_cache_info(path)
    if none == 11:
        pytest.skip("this file system keeps what it is told to drop")
    assert 7 <= part <= 11  # pages that the kernel keeps in one folio go together
    assert none == 0


def test_registration_wants_memory() -> None:
    for buffer in (bytearray(8), penstock.empty(8, "cpu"), OnDevice(None)):
        kvikio.memory_register(buffer)
        kvikio.memory_deregister(buffer)
    with pytest.raises(TypeError, match="int object gives no memory"):
        kvikio.memory_register(3)
    kvikio.stream_register(0, 15)
    kvikio.stream_deregister(0)
    assert kvikio.bounce_buffer_free() == 0


def test_defaults_are_kept_and_set_back() -> None:
    before = kvikio.defaults.get("task_size")
    with kvikio.defaults.set({"task_size": 1024, "num_threads": 100}):
        assert kvikio.defaults.get("task_size") == 1024
        assert kvikio.defaults.threads() == 64
        with kvikio.defaults.set("compat_mode", kvikio.CompatMode.ON):
            assert kvikio.defaults.get("compat_mode") is kvikio.CompatMode.ON
    assert kvikio.defaults.get("task_size") == before
    assert kvikio.defaults.threads() is None
    with pytest.raises(KeyError):
        kvikio.defaults.set("no such thing", 1)
    with pytest.raises(ValueError, match="positive integer"):
        kvikio.defaults.set("num_threads", 0)
    with pytest.raises(OverflowError, match="negative value"):
        kvikio.defaults.set({"task_size": 1, "gds_threshold": -1})
    assert kvikio.defaults.get("task_size") == before
