"""Goal: tensors arrive as they are in the file, whatever its alignment, type, size and route.

Files are written here, byte by byte, and by the reference implementation; what arrives is held
against NumPy, DLPack's structures are read as a C program would. A failure prints the seed.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import os
import random
import struct
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import _core, safetensors
from penstock.benchmarks.harness import page_cache
from penstock.safetensors import layout, loading, slicing
from penstock.safetensors.dtypes import DTYPES

np = pytest.importorskip("numpy")


def usable_devices() -> list[str | None]:
    """Return plain memory, the CPU backend, and a GPU where there is one."""
    try:
        _core.pick_device("cuda:0")
    except OSError:
        return [None, "cpu"]
    return [None, "cpu", "cuda:0"]


DEVICES = usable_devices()
NUMPY_TYPES = {name: dtype.numpy for name, dtype in DTYPES.items() if hasattr(np, dtype.numpy)}
Spec = tuple[str, tuple[int, ...]]  # dtype, shape


def size_of(spec: Spec) -> int:
    bits = DTYPES[spec[0]].bits
    for size in spec[1]:
        bits *= size
    return bits // 8


def write(path: Path, specs: Mapping[str, Spec], seed: int = 0, pad: int = 0) -> dict[str, bytes]:
    """Write a file of random bytes; `pad` blanks move its tensors. Returns the bytes by name."""
    chance = random.Random(seed)
    header: dict[str, Any] = {"__metadata__": {"seed": str(seed)}}
    out = {}
    end = 0
    for name, spec in specs.items():
        out[name] = chance.randbytes(size_of(spec))
        if spec[0] == "BOOL":
            out[name] = bytes(byte & 1 for byte in out[name])
        begin, end = end, end + len(out[name])
        header[name] = {"dtype": spec[0], "shape": list(spec[1]), "data_offsets": [begin, end]}
    raw = json.dumps(header).encode() + b" " * pad
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + b"".join(out.values()))
    return out


def random_specs(chance: random.Random, types: list[str]) -> dict[str, Spec]:
    sizes = chance.choice(((0, 1, 2, 3, 5, 8), (1, 4, 64, 100), (8, 64, 256)))
    return {
        f"t{i}": (
            chance.choice(types),
            (*(chance.choice(sizes) for _ in range(chance.randrange(3))), 8),
        )
        for i in range(chance.randrange(30))
    }


@pytest.mark.parametrize("device", DEVICES)
def test_random_files_arrive(tmp_path: Path, monkeypatch: Any, device: str | None) -> None:
    path = tmp_path / "m.safetensors"
    for seed in range(60):
        chance = random.Random(seed)
        monkeypatch.setattr(layout, "READ_BYTES", chance.choice((4096, 1 << 16, 16 << 20)))
        monkeypatch.setattr(loading, "STEPS_AT_ONCE", chance.choice((1, 2, 8)))
        cached = chance.random() < 0.3
        monkeypatch.setattr(
            loading.SafetensorsFile, "_is_cached", lambda _, __, is_so=cached: is_so
        )
        specs = random_specs(chance, list(NUMPY_TYPES))
        content = write(path, specs, seed, pad=chance.randrange(64))
        loaded = safetensors.load_file(path, device, framework="dlpack")
        assert list(loaded) == list(specs), f"seed {seed}"
        for name, tensor in loaded.items():
            assert tensor.tobytes() == content[name], f"seed {seed}, {name}"
            assert tensor.address % layout.ALIGNMENT == 0, f"seed {seed}, {name}"
        if device == "cuda:0":
            continue
        for name, array in safetensors.load_file(path, device, framework="numpy").items():
            assert array.dtype == NUMPY_TYPES[specs[name][0]], f"seed {seed}, {name}"
            assert array.shape == specs[name][1], f"seed {seed}, {name}"
            assert array.tobytes() == content[name], f"seed {seed}, {name}"
            assert array.flags.writeable


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("route", ["cached", "direct", None])
def test_large_tensors_arrive_by_every_route(
    tmp_path: Path, route: str | None, device: str | None
) -> None:
    path = tmp_path / "m.safetensors"
    specs = {"a": ("F32", (3, 1 << 20)), "b": ("U8", (5_000_001,)), "c": ("F64", (1 << 20,))}
    content = write(path, specs, pad=5)
    with safetensors.safe_open(path, "dlpack", device, route=route) as opened:
        loaded = opened.get_tensors()
        assert sum(report.bytes for report in opened.reports) >= sum(map(len, content.values()))
        for report in opened.reports:
            assert sum(report.routes.values()) == report.bytes
    for name, tensor in loaded.items():
        assert tensor.tobytes() == content[name]


def test_plan_follows_the_page_cache(tmp_path: Path) -> None:
    path = Path("/var/tmp") / f"penstock-test-{os.getpid()}.safetensors"
    content = write(path, {"a": ("U8", (3 << 20,)), "b": ("U8", (3 << 20,))}, pad=5)
    try:
        for prepare in (page_cache.warm, page_cache.evict):
            if not prepare(path):
                continue  # a file system without a page cache of its own
            with safetensors.safe_open(path, device="cpu") as opened:
                # The open file counts, not what has its name.
                path.rename(path.with_suffix(".moved"))
                cached = opened._is_cached([opened.info("a"), opened.info("b")])
                path.with_suffix(".moved").rename(path)
                assert cached == (prepare == page_cache.warm)
                assert opened.get_tensors()["b"].tobytes() == content["b"]
    finally:
        path.unlink()


def test_agrees_with_the_reference(tmp_path: Path) -> None:
    reference = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "m.safetensors"
    chance = np.random.default_rng(5)
    tensors = {f"x{i}": chance.standard_normal((i, 37)).astype("f4") for i in range(20)}
    tensors["mask"] = chance.integers(0, 2, 1001).astype(bool)
    tensors["scalar"] = np.array(3.5)
    reference.save_file(tensors, path, metadata={"a": "b"})
    loaded = safetensors.load_file(path)
    assert loaded.keys() == tensors.keys()
    for name, array in tensors.items():
        assert loaded[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded[name], array)
    with safetensors.safe_open(path) as mine, reference.safe_open(path, "np") as theirs:
        assert mine.keys() == theirs.keys()
        assert mine.offset_keys() == theirs.offset_keys()
        assert mine.metadata() == theirs.metadata() == {"a": "b"}
        part = (slice(1, 3), slice(None, 5))
        np.testing.assert_array_equal(
            mine.get_slice("x7")[part], theirs.get_slice("x7")[part], strict=True
        )
        assert mine.get_slice("x7").get_shape() == theirs.get_slice("x7").get_shape()
        assert mine.get_slice("x7").get_dtype() == theirs.get_slice("x7").get_dtype()


class DLTensor(ctypes.Structure):
    """The structure of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def dlpack_of(tensor: Any) -> tuple[Any, DLTensor]:
    """Return a tensor's capsule, and the structure in it."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    capsule = tensor.__dlpack__(stream=None)
    return capsule, DLTensor.from_address(pointer(capsule, b"dltensor"))


@pytest.mark.parametrize("device", [None, "cpu"])
def test_dlpack_names_every_type(tmp_path: Path, device: str | None) -> None:
    path = tmp_path / "m.safetensors"
    specs = {name: (name, (3, 16)) for name in DTYPES}
    content = write(path, specs, pad=3)
    for name, tensor in safetensors.load_file(path, device, framework="dlpack").items():
        packed = DTYPES[name].bits % 8 != 0
        assert (tensor.dtype, tensor.shape, tensor.nbytes) == (name, (3, 16), len(content[name]))
        assert tensor.__dlpack_device__() == (1, 0)
        capsule, made = dlpack_of(tensor)
        assert (made.device_type, made.device_id, made.lanes, made.byte_offset) == (1, 0, 1, 0)
        assert made.data == tensor.address
        assert made.data % layout.ALIGNMENT == 0
        assert made.bits == (8 if packed else DTYPES[name].bits)
        assert made.code == DTYPES[name].code
        shape = (len(content[name]),) if packed else (3, 16)
        assert tuple(made.shape[: made.ndim]) == shape
        assert ctypes.string_at(made.data, len(content[name])) == content[name]
        del capsule
        with pytest.raises(AttributeError, match="not in memory of a CUDA device"):
            _ = tensor.__cuda_array_interface__


def test_numpy_takes_tensors_by_dlpack(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    content = write(path, {"a": ("F32", (5, 7)), "empty": ("I64", (0, 3)), "one": ("F64", ())})
    loaded = safetensors.load_file(path, "cpu")
    assert np.from_dlpack(loaded["one"]).tobytes() == content["one"]
    array = np.from_dlpack(loaded["a"])
    assert array.tobytes() == content["a"]
    assert array.ctypes.data == loaded["a"].address
    assert np.from_dlpack(loaded["empty"]).shape == (0, 3)
    assert loaded["a"].device.startswith("cpu")
    assert "F32, [5, 7]" in repr(loaded["a"])


def test_types_that_numpy_lacks(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "m.safetensors"
    content = write(path, {"w": ("BF16", (4, 8)), "x": ("F4", (4, 8))})
    with safetensors.safe_open(path) as opened:
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
        with pytest.raises(TypeError, match="tensor 'w': NumPy has no BF16: the package ml_dtypes"):
            opened.get_tensors()
        with pytest.raises(TypeError, match="'x': NumPy has no F4: read it as DLPack"):
            opened.get_slice("x")[0]
    monkeypatch.undo()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with safetensors.safe_open(path, "np") as opened:
        weights = opened.get_tensor("w")
        assert weights.dtype == ml_dtypes.bfloat16
        assert weights.tobytes() == content["w"]
        assert opened.get_slice("w")[1, ::3].tobytes() == weights[1, ::3].tobytes()
    with safetensors.safe_open(path, "dlpack") as opened:
        with pytest.raises(TypeError, match="F4 has no whole bytes"):
            opened.get_slice("x")[0]
        assert ctypes.string_at(opened.get_tensor("x").address, 16) == content["x"]


@pytest.mark.parametrize("device", DEVICES)
def test_slices_are_those_of_numpy(tmp_path: Path, monkeypatch: Any, device: str | None) -> None:
    path = tmp_path / "m.safetensors"
    shape = (30, 20, 50)
    content = write(path, {"skip": ("U8", (13,)), "x": ("I16", shape)})
    whole = np.frombuffer(content["x"], "i2").reshape(shape)
    chance = random.Random(3)
    with safetensors.safe_open(path, "dlpack", device) as opened:
        part = opened.get_slice("x")
        for i in range(150):
            monkeypatch.setattr(slicing, "GAP_BYTES_MAX", chance.choice((0, 50, 1 << 20)))
            key = tuple(
                chance.choice((chance.randrange(-size, size), slice(None), slice(2, -3)))
                if chance.random() < 0.6
                else slice(chance.randrange(size), chance.randrange(size), chance.randrange(1, 4))
                for size in shape[: chance.randrange(4)]
            )
            tensor = part[key]
            assert tensor.shape == whole[key].shape, f"number {i}: {key}"
            assert tensor.tobytes() == whole[key].tobytes(), f"number {i}: {key}"
        with pytest.raises(IndexError, match="too many indices"):
            _ = part[0, 0, 0, 0]


def test_tensors_outlive_file_and_each_other(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    content = write(path, {"a": ("F32", (1000,)), "b": ("F32", (1000,))})
    for device in (None, "cpu"):
        loaded = safetensors.load_file(path, device, framework="dlpack")
        memory = loaded["a"]._memory
        watched = weakref.ref(memory) if device is None else None
        array = loaded["b"].numpy()
        capsule, _ = dlpack_of(loaded["a"])
        del memory, loaded
        gc.collect()
        assert array.tobytes() == content["b"]
        assert watched is None or watched() is not None
        del array, capsule
        gc.collect()
        assert watched is None or watched() is None


def test_memory_of_the_user_is_read_into(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    content = write(path, {"a": ("F32", (100_000,)), "b": ("F64", (3,))}, pad=7)
    with safetensors.safe_open(path, device="cpu") as opened:
        size = opened.memory_size()
        memory = penstock.empty(size, "cpu")
        for _ in range(2):
            loaded = opened.get_tensors(memory)
            assert memory.address <= loaded["a"].address < memory.address + size
            assert loaded["a"].numpy().tobytes() == content["a"]
        with pytest.raises(ValueError, match=r"takes 40.* bytes, memory has 64"):
            opened.get_tensors(memory[:64])
        with pytest.raises(ValueError, match="multiple of 64"):
            opened.get_tensors(penstock.empty(size + 8, "cpu")[8:])
        with pytest.raises(TypeError, match="not bytearray"):
            opened.get_tensors(bytearray(size))  # type: ignore[arg-type]
    memory.free()
    assert loaded["b"].numpy().tobytes() == content["b"]


def test_files_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write(path, {})
    assert safetensors.load_file(path) == {}
    write(path, {"a": ("F32", (0,)), "b": ("F64", (3, 0))})
    for device in (None, "cpu"):
        loaded = safetensors.load_file(path, device, framework="numpy")
        assert [array.shape for array in loaded.values()] == [(0,), (3, 0)]
        with safetensors.safe_open(path, "numpy", device) as opened:
            assert opened.get_tensor("b").shape == (3, 0)
            assert opened.get_slice("b")[1:].shape == (2, 0)


def test_file_that_shrinks_after_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write(path, {"a": ("U8", (100_000,)), "b": ("U8", (100_000,))})
    with safetensors.safe_open(path) as opened:
        os.truncate(path, 150_000)
        assert len(opened.get_tensor("a")) == 100_000
        for read in (opened.get_tensors, lambda: opened.get_slice("b")[90_000:]):
            with pytest.raises(penstock.Error, match="became shorter") as caught:
                read()
            assert caught.value.errno == errno.EIO
            assert caught.value.filename == str(path)


def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write(path, {"a": ("U8", (100,))})
    with pytest.raises(penstock.Error, match=r"not auto, cpu, .*'nope'"):
        safetensors.load_file(path, "nope")
    with pytest.raises(FileNotFoundError, match="no-such-file"):
        safetensors.load_file(tmp_path / "no-such-file")
    with pytest.raises(IsADirectoryError):
        safetensors.load_file(tmp_path)
    with pytest.raises(ValueError, match="framework: 'tf' is not one of"):
        safetensors.load_file(path, framework="tf")
    with pytest.raises(penstock.Error, match="not auto, cpu"):
        safetensors.load_file(path, "nowhere")
    with pytest.raises(ValueError, match="route"):
        safetensors.load_file(path, route="scenic")
    opened = safetensors.safe_open(path)
    with pytest.raises(KeyError, match="no tensor 'b'"):
        opened.get_tensor("b")
    with pytest.raises(KeyError, match="no tensor 'b'"):
        opened.get_slice("b")
    opened.close()
    with pytest.raises(penstock.ClosedError):
        opened.get_tensor("a")
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(safetensors.FormatError, match="1 bytes lie behind"):
        safetensors.load_file(path)


def test_tensor_of_many_dimensions_is_bytes(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    content = write(path, {"a": ("U16", (1,) * 64 + (100,)), "b": ("U8", (3,))})
    tensor = safetensors.load_file(path, "cpu")["a"]
    assert tensor.shape == (1,) * 64 + (100,)
    assert tensor.tobytes() == content["a"]
    assert np.from_dlpack(tensor).tobytes() == content["a"]
    with safetensors.safe_open(path) as opened:
        assert opened.get_tensor("b").tobytes() == content["b"]
        with pytest.raises(TypeError, match="'a' has 65 dimensions: read it as DLPack"):
            opened.get_tensor("a")


def test_memory_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    size = 1 << 40
    header = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(path, 8 + len(header) + size)  # sparse
    with pytest.raises(penstock.Error, match="bytes of device cpu for its tensors") as caught:
        safetensors.load_file(path, "cpu")
    assert caught.value.errno == errno.ENOMEM
    assert caught.value.filename == str(path)


def test_slices_without_numpy(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "m.safetensors"
    content = write(path, {"x": ("U8", (10, 20, 3))})
    whole = np.frombuffer(content["x"], "u1").reshape(10, 20, 3)
    monkeypatch.setattr(loading, "find_spec", lambda _: None)
    with safetensors.safe_open(path, "dlpack") as opened:
        part = opened.get_slice("x")[2:9:3, 5, ::2]
        assert part.tobytes() == whole[2:9:3, 5, ::2].tobytes()


def test_threads_share_an_open_file(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    content = write(path, {f"t{i}": ("U8", (50_000 + i,)) for i in range(20)})
    wrong: list[str] = []
    with safetensors.safe_open(path) as opened:

        def read(seed: int) -> None:
            names = random.Random(seed).choices(list(content), k=40)
            wrong.extend(n for n in names if opened.get_tensor(n).tobytes() != content[n])

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
