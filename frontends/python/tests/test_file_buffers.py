"""Goal: every kind of buffer is read into in place, and those that cannot be are refused.

Buffers come by the buffer protocol, DLPack and __cuda_array_interface__. What a GPU would be needed
for is read nowhere here: objects that only claim device memory show how it is taken.
"""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import weakref
from pathlib import Path
from typing import Any, cast

import pytest

import penstock

DATA = bytes(range(256)) * 1024


@pytest.fixture
def file(tmp_path: Path) -> penstock.File:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    return penstock.open(path)


class Wrapped:
    """An object that has no buffer protocol, only what it is given."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Tensor:
    """An exporter of DLPack and nothing else."""

    def __init__(self, memory: penstock.DeviceMemory) -> None:
        self.memory = memory

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.memory.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.__dlpack_device__()


def test_the_buffer_protocol(file: penstock.File) -> None:
    kinds: list[Any] = [
        bytearray(1000),
        array.array("d", bytes(1000)),
        memoryview(bytearray(1000)).cast("B", (10, 100)),
        mmap.mmap(-1, 1000),
        (ctypes.c_uint32 * 250)(),
    ]
    for buffer in kinds:
        assert file.read(buffer, None, 3) == 1000
        assert bytes(memoryview(buffer).cast("B")) == DATA[3:1003]
        assert file.pread(buffer, 500, 7).result() == 500
        assert bytes(memoryview(buffer).cast("B"))[:500] == DATA[7:507]


def test_dlpack(file: penstock.File) -> None:
    memory = penstock.empty(1000, "cpu")
    assert memory.__dlpack_device__() == (1, 0)
    assert file.read(Tensor(memory), None, 3) == 1000
    assert memory.tobytes() == DATA[3:1003]


def test_numpy_arrays(file: penstock.File) -> None:
    numpy = pytest.importorskip("numpy", reason="NumPy is not installed")
    for dtype in ("u1", "<f4", "c16", "?"):
        for order in "CF":
            shaped = numpy.zeros((10, 16), dtype, order=order)
            assert file.read(shaped) == shaped.nbytes
            assert shaped.tobytes(order) == DATA[: shaped.nbytes]
    part = numpy.zeros(5000, "u1")
    assert file.read(part[100:1100], None, 9) == 1000
    assert part[100:1100].tobytes() == DATA[9:1009]
    assert not part[:100].any()
    assert not part[1100:].any()
    with pytest.raises(BufferError, match="ndarray object is not contiguous"):
        file.read(part[::2])
    with pytest.raises(BufferError, match="not contiguous"):
        file.pread(numpy.zeros((10, 10))[:, :5])
    part.flags.writeable = False
    with pytest.raises(BufferError, match="ndarray object is read-only"):
        file.read(part)


def test_device_memory_as_numpy_array(file: penstock.File) -> None:
    numpy = pytest.importorskip("numpy", reason="NumPy is not installed")
    memory = penstock.empty(1000, "cpu")
    by_buffer, by_dlpack = numpy.asarray(memory), numpy.from_dlpack(memory)
    file.read(memory)
    assert by_buffer.tobytes() == by_dlpack.tobytes() == DATA[:1000]
    memory.free()
    # The views hold the memory.
    assert by_buffer.tobytes() == by_dlpack.tobytes() == DATA[:1000]
    with pytest.raises(ValueError, match="freed"):
        memory.tobytes()


def test_device_memory(file: penstock.File) -> None:
    with penstock.empty(10_000, "cpu") as memory:
        assert len(memory) == memory.nbytes == 10_000
        assert memory.device.startswith("cpu:")
        assert bytes(memory) == bytes(10_000)
        part = memory[100:-100][50:1050]
        assert part.address == memory.address + 150
        file.read(part, None, 5)
        assert part.tobytes() == DATA[5:1005]
        assert memory.tobytes() == bytes(150) + DATA[5:1005] + bytes(10_000 - 1150)
        with pytest.raises(ValueError, match="contiguous"):
            memory[::2]
        assert not hasattr(memory, "__cuda_array_interface__")
    assert part.tobytes() == DATA[5:1005]  # a slice holds the memory
    assert repr(memory) == "<penstock.DeviceMemory, freed>"
    for use in (len, bytes, memoryview, file.read, lambda freed: freed[1:2]):
        with pytest.raises((ValueError, BufferError), match="freed"):
            use(memory)
    assert penstock.empty(0, "cpu").tobytes() == b""
    with pytest.raises(penstock.Error):
        penstock.empty(1 << 60, "cpu")
    with pytest.raises(penstock.Error):
        penstock.empty(1, "gpu:9")


def test_cuda_array_interface_is_understood(file: penstock.File) -> None:
    # Read-only and strided ones are refused before any device is looked for.
    plain = {"shape": (4, 8), "typestr": "<f4", "data": (4096, False), "version": 3}
    locked = Wrapped(__cuda_array_interface__={**plain, "data": (4096, True)})
    with pytest.raises(BufferError, match="read-only"):
        file.read(locked)  # type: ignore[arg-type]
    strided = Wrapped(__cuda_array_interface__={**plain, "strides": (64, 4)})
    with pytest.raises(BufferError, match="not contiguous"):
        file.read(strided)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size 129 is beyond the buffer's 128 bytes"):
        file.read(Wrapped(__cuda_array_interface__=plain), 129)  # type: ignore[arg-type]


def test_read_only_buffers_are_refused(file: penstock.File) -> None:
    for buffer in (b"bytes", memoryview(b"bytes")):
        for read in (
            file.read,
            file.pread,
            lambda one: file.readv([(bytearray(5), 0), (one, 0)]),
            lambda one: file.preadv([(one, 0)]),
        ):
            with pytest.raises(BufferError, match="object is read-only"):
                read(buffer)


def test_what_is_not_contiguous_is_refused(file: penstock.File) -> None:
    with pytest.raises(BufferError, match="not contiguous"):
        file.read(memoryview(bytearray(100))[::2])
    with pytest.raises(BufferError, match="not contiguous"):
        file.preadv([(memoryview(bytearray(100))[::-1], 0)])


class Pair(ctypes.Structure):
    """A number and a reference to a Python object."""

    _fields_ = (("O", ctypes.c_int), ("held", ctypes.py_object))


class Numbers(ctypes.Structure):
    """Two numbers; a name is no type."""

    _fields_ = (("O", ctypes.c_int), ("OO", ctypes.c_double))


def test_what_holds_python_objects_is_refused(file: penstock.File) -> None:
    kinds: list[Any] = [(ctypes.py_object * 8)(), (Pair * 2)(), memoryview((Pair * 2)())]
    kinds.append(
        Wrapped(
            __cuda_array_interface__={
                "shape": (4,),
                "typestr": "|O8",
                "data": (4096, False),
                "version": 3,
            }
        )
    )
    for buffer in kinds:
        for read in (file.read, file.pread, lambda one: file.readv([(one, 0)])):
            with pytest.raises(TypeError, match="holds references to Python objects"):
                read(buffer)
    assert file.read((Numbers * 2)()) == 32


def test_numpy_arrays_that_hold_python_objects_are_refused(file: penstock.File) -> None:
    numpy = pytest.importorskip("numpy")
    types: list[Any] = [
        object,
        [("a", "i4"), ("b", object)],
        [("a", "i1"), ("b", [("c", "f4"), ("d", object, (2, 3))])],
        [("when", "M8[s]"), ("what", object)],  # formats of buffers cannot name all of it
    ]
    if hasattr(numpy.dtypes, "StringDType"):
        types.append(numpy.dtypes.StringDType())
    for dtype in types:
        array = numpy.zeros(4, dtype)
        before = repr(array)
        with pytest.raises(TypeError, match="ndarray object holds references to Python objects"):
            file.read(array)
        assert repr(array) == before
    for plain in ("M8[s]", "c16", "U3", "V9", [("O", "f8"), ("b", "M8[s]")]):
        array = numpy.zeros(4, plain)
        assert file.read(array) == array.nbytes
        assert array.tobytes() == DATA[: array.nbytes]


def test_what_gives_no_memory_is_refused(file: penstock.File) -> None:
    for buffer in (None, 5, "text", [1], object()):
        with pytest.raises(TypeError, match="gives no memory"):
            file.read(buffer)  # type: ignore[arg-type]


def test_other_devices_are_refused(file: penstock.File) -> None:
    class OnRocm(Tensor):
        def __dlpack_device__(self) -> tuple[int, int]:
            return (10, 0)

        def __dlpack__(self, **arguments: Any) -> Any:
            raise BufferError("not on this machine")

    with pytest.raises(BufferError, match=r"DLPack device \(10, 0\)"):
        file.read(OnRocm(penstock.empty(8, "cpu")))


def test_sizes_and_offsets_that_make_no_sense(file: penstock.File) -> None:
    buffer = bytearray(100)
    for size, offset, told in [
        (101, 0, "size 101 is beyond the buffer's 100 bytes"),
        (-1, 0, "size is negative"),
        (10, -1, "file_offset is negative"),
        (10, -(1 << 70), "file_offset is negative"),
        (10, 1 << 63, "file_offset is beyond 2^63"),
    ]:
        for read in (file.read, file.pread):
            with pytest.raises(ValueError, match=told.replace("^", r"\^")):
                read(buffer, size, offset)
    with pytest.raises(OSError, match="2\\^63"):
        file.read(buffer, 100, (1 << 63) - 50)
    for no_size in (1.5, "10"):
        with pytest.raises(TypeError):
            file.read(buffer, no_size)  # type: ignore[arg-type]
    for piece, told in [
        ((buffer, -1), "file_offset is negative"),
        ((buffer, 1 << 63), "file_offset is beyond"),
        ((buffer, 0, -1), "size is negative"),
        ((buffer, 0, 101), "size 101 is beyond the buffer's 100 bytes"),
    ]:
        for readv in (file.readv, file.preadv):
            with pytest.raises(ValueError, match=told):
                # Nothing of the others is read either.
                readv([(buffer, 0), piece])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="a piece is"):
        file.preadv([(buffer,)])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        file.preadv([5])  # type: ignore[list-item]
    for word in ({"cache": "warm"}, {"route": "fast"}):
        with pytest.raises(ValueError, match="is not one of"):
            file.read(buffer, **word)  # type: ignore[arg-type]
    assert buffer == bytes(100)


def test_a_buffer_is_kept_until_its_read_is_done_and_no_longer(tmp_path: Path) -> None:
    class Held(bytearray):
        pass

    path = tmp_path / "file"
    path.write_bytes(DATA)
    slow = penstock.open(path, route="cached", throttle_latency_us=200_000)
    buffer = Held(1000)
    alive = weakref.ref(buffer)
    future = slow.pread(buffer)
    with pytest.raises(BufferError):  # it is exported, so it cannot be moved
        buffer.extend(b"more")
    del buffer
    gc.collect()
    assert alive() is not None
    assert future.result() == 1000
    gc.collect()
    assert alive() is None


def test_a_dropped_future_keeps_its_buffer(tmp_path: Path) -> None:
    import time

    path = tmp_path / "file"
    path.write_bytes(DATA)
    slow = penstock.open(path, throttle_latency_us=200_000)
    buffer = bytearray(1000)
    slow.pread(buffer, None, 3)
    slow.close()
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    for _ in range(500):
        try:
            buffer.extend(b"more")
            break
        except BufferError:
            time.sleep(0.01)
    assert buffer == DATA[3:1003] + b"more"


def test_device_memory_that_is_freed_too_early_stays_until_the_read_is_done(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    slow = penstock.open(path, throttle_latency_us=200_000)
    memory = penstock.empty(100_000, "cpu")
    view = memoryview(memory)
    future = slow.pread(memory, None, 3)
    memory.free()
    others = [penstock.empty(100_000, "cpu") for _ in range(8)]
    assert future.result() == 100_000
    assert view == DATA[3:100_003]
    assert all(other.tobytes() == bytes(100_000) for other in others)


class FakeTensor:
    """What of a tensor of torch in CUDA memory is asked for; it lies in host memory here."""

    is_cuda, requires_grad, is_sparse = True, False, False

    def __init__(self, conjugate: bool = False) -> None:
        self.conjugate = conjugate

    def is_contiguous(self) -> bool:
        """Whether its elements lie side by side."""
        return True

    def is_conj(self) -> bool:
        """Whether its bytes are those of the conjugate."""
        return self.conjugate

    def data_ptr(self) -> int:
        """Tell that it was asked for its address."""
        raise MemoryError("by its own calls")

    @property
    def device(self) -> object:
        """Where it lies."""

        class Index:
            index = 0

        return Index()


def test_tensors_of_torch_are_taken_by_their_own_calls(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345678")
    with penstock.open(path) as file:
        with pytest.raises(MemoryError, match="by its own calls"):
            file.read(cast(Any, FakeTensor()))
        with pytest.raises(TypeError, match="no memory"):
            file.read(cast(Any, FakeTensor(conjugate=True)))


def test_streams_that_are_none_are_told(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345678")
    into = bytearray(8)
    with penstock.open(path) as file:
        assert file.read(into, stream=-1) == 8
        with pytest.raises(TypeError, match="stream is neither an int"):
            file.read(into, stream="default")
        with pytest.raises(ValueError, match="negative"):
            file.read(into, stream=-2)
