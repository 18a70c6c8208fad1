"""Goal: host reads arrive in CUDA memory, whoever made it, byte for byte.

Skipped, with the reason, where there is no CUDA device; PyTorch and CuPy are used where they are.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock

MIB = 1 << 20
SIZE = 80 * MIB + 13


@pytest.fixture(scope="module", autouse=True)
def cuda() -> None:
    try:
        penstock.empty(1, "cuda:0")
    except penstock.Error as error:
        pytest.skip(f"no CUDA device: {error}")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gpu") / "file"
    path.write_bytes(random.Random(1).randbytes(SIZE))
    return path


class Interface:
    """CUDA memory that is told by __cuda_array_interface__ only."""

    def __init__(self, memory: penstock.DeviceMemory) -> None:
        self.memory = memory

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.memory.__cuda_array_interface__


class Tensor:
    """CUDA memory that is told by DLPack only."""

    def __init__(self, memory: penstock.DeviceMemory) -> None:
        self.memory = memory

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.memory.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.__dlpack_device__()


def penstock_memory(size: int) -> tuple[Any, Callable[[], bytes]]:
    memory = penstock.empty(size, "cuda:0")
    return memory, memory.tobytes


def interface(size: int) -> tuple[Any, Callable[[], bytes]]:
    memory = penstock.empty(size, "cuda:0")
    return Interface(memory), memory.tobytes


def dlpack(size: int) -> tuple[Any, Callable[[], bytes]]:
    memory = penstock.empty(size, "cuda:0")
    return Tensor(memory), memory.tobytes


def torch_tensor(size: int) -> tuple[Any, Callable[[], bytes]]:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor = torch.zeros(size, dtype=torch.uint8, device="cuda:0")
    torch.cuda.synchronize()
    return tensor, lambda: bytes(tensor.cpu().numpy())


def cupy_array(size: int) -> tuple[Any, Callable[[], bytes]]:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    array = cupy.zeros(size, "u1")
    cupy.cuda.Device().synchronize()
    return array, array.tobytes


KINDS = [penstock_memory, interface, dlpack, torch_tensor, cupy_array]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", [None, "cuda:0"])
def test_bytes_arrive(kind: Any, device: str | None, file: Path) -> None:
    data = file.read_bytes()
    chance = random.Random(2)
    with penstock.open(file, device=device) as opened:
        for _ in range(24):
            size = chance.choice([1, 100, 4096, 70_000, MIB, 5 * MIB + 3, 64 * MIB])
            offset = chance.randrange(SIZE) // (unit := chance.choice([1, 512, 4096])) * unit
            policy: Any = chance.choice(["auto", "keep", "drop", "bypass"])
            memory, bytes_of = kind(size)
            future = opened.pread(memory, None, offset, cache=policy)
            expected = data[offset : offset + size]
            assert future.result(120) == len(expected)
            assert bytes_of()[: len(expected)] == expected
            report = future.report
            for group in (report.routes, report.reasons, report.residency):
                assert sum(group.values()) == len(expected)
            assert opened.read(memory, min(size, 50), offset) == min(len(expected), 50)


def test_pieces_and_slices(file: Path) -> None:
    data = file.read_bytes()
    memory = penstock.empty(8 * MIB, "cuda:0")
    chance = random.Random(3)
    pieces, at = [], 0
    while at < 7 * MIB:
        size, offset = chance.choice([1, 77, 4096, 300_000]), chance.randrange(64 * MIB)
        pieces.append((at, size, offset))
        at += size
    with penstock.open(file) as opened:
        future = opened.preadv([(memory[at : at + n], offset) for at, n, offset in pieces])
        assert future.result(120) == sum(n for _, n, _ in pieces)
    got = memory.tobytes()
    for at, n, offset in pieces:
        assert got[at : at + n] == data[offset : offset + n]
    assert not any(got[pieces[-1][0] + pieces[-1][1] :])


def test_memory_dropped_under_way_is_kept(file: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    with penstock.open(file, throttle_latency_us=100_000) as slow:
        futures = []
        for i in range(20):
            tensor = torch.zeros(MIB, dtype=torch.uint8, device="cuda:0")
            torch.cuda.synchronize()
            futures.append(slow.pread(tensor, None, i * MIB))
            del tensor
        others = torch.full((40 * MIB,), 7, dtype=torch.uint8, device="cuda:0")
        assert sum(future.result(120) for future in futures) == 20 * MIB
    assert bool((others == 7).all())


def test_host_and_device_memory_through_one_file(file: Path) -> None:
    data = file.read_bytes()
    with penstock.open(file, device="cuda:0") as opened:
        host, device = bytearray(MIB), penstock.empty(MIB, "cuda:0")
        assert opened.read(host, None, 5) == opened.read(device, None, 5) == MIB
    assert host == device.tobytes() == data[5 : 5 + MIB]
    with pytest.raises(BufferError, match="host cannot address"):
        memoryview(device)


def test_tensors_share_device_memory(file: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    memory = penstock.empty(MIB, "cuda:0")
    tensor = torch.from_dlpack(memory)
    penstock.open(file).read(memory)
    memory.free()
    assert bytes(tensor.cpu().numpy()) == file.read_bytes()[:MIB]
