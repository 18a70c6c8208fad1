"""The functions of safetensors.torch, read by Penstock: load_file, load, save and save_file.

torch is imported when a torch tensor is first requested, and not before.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.safetensors.dtypes import DTYPES
from penstock.safetensors.memory import CUDA, Memory
from penstock.safetensors.tensor import Tensor

if TYPE_CHECKING:
    import os

HOST_NAMES = ("cpu", "cpu:0")  # torch's names of what needs no device of Penstock


def imported() -> Any:
    """Return the module torch. Raises ImportError."""
    return import_module("torch")


class TorchMemory:
    """Memory of a CUDA device that torch's allocator gives, and counts as its own.

    Kernels that torch has queued may still use this memory, so the constructor waits for them.
    """

    def __init__(self, size: int, device: str) -> None:
        torch = imported()
        self._bytes = torch.empty(size, dtype=torch.uint8, device=device)
        torch.cuda.current_stream(self._bytes.device).synchronize()
        self.address = int(self._bytes.data_ptr())
        self.nbytes = size
        self.device = device
        self._index = int(self._bytes.device.index)

    def __getitem__(self, part: slice) -> Any:
        return self._bytes[part]

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self._index


def torch_device(device: object) -> str | None:
    """Return Penstock's name for a device of torch; None for the host's memory.

    Raises ValueError if `device` is neither the host nor a CUDA device.
    """
    name = f"cuda:{device}" if isinstance(device, int) else str("cpu" if device is None else device)
    if name in HOST_NAMES:
        return None
    if name == "cuda":
        torch = imported()
        return f"cuda:{torch.cuda.current_device()}"
    if name.startswith("cuda:") and name[5:].isdecimal():
        return name
    raise ValueError(f"device: {name!r} is neither cpu nor cuda:N, where torch tensors can be put")


def torch_dtype(name: str) -> Any:
    """Return torch's type for a type of safetensors. Raises TypeError if it has none."""
    torch = imported()
    known = "float4_e2m1fn_x2" if name == "F4" else DTYPES[name].numpy
    dtype = getattr(torch, known, None) if known else None
    if dtype is None:
        raise TypeError(f"this torch has no {name}: read it as DLPack tensor")
    return dtype


def as_torch(memory: Memory, place: int, dtype: str, shape: tuple[int, ...]) -> Any:
    """Return a torch tensor on `memory`, which it keeps alive; its storage is its bytes alone."""
    torch = imported()
    kind = torch_dtype(dtype)
    if dtype == "F4":  # torch counts pairs
        if not shape or shape[-1] % 2 != 0:
            raise TypeError(f"torch packs pairs of F4: shape {list(shape)} does not end with pairs")
        shape = (*shape[:-1], shape[-1] // 2)
    size = math.prod(shape) * (1 if dtype == "F4" else DTYPES[dtype].bits // 8)
    if size == 0:
        return torch.empty(shape, dtype=kind, device=_device_of(memory))
    # Pass bytes: DLPack cannot name all types, and its consumers do not know all names.
    flat = torch.from_dlpack(Tensor(memory, place, "U8", (size,)))
    return flat.view(kind).view(shape)


def _device_of(memory: Memory) -> str:
    kind, index = memory.__dlpack_device__()
    return f"cuda:{index}" if kind == CUDA else "cpu"


def load_file(filename: str | os.PathLike[str], device: Any = "cpu", **reading: Any) -> Any:
    """Read all tensors of a file; as safetensors.torch.load_file.

    Parameters
    ----------
    filename : path
    device : str, int or torch.device
        cpu, or a CUDA device.
    **reading
        As in penstock.open; `backend`, an option of safetensors, has no effect.
    """
    from penstock.safetensors import loading

    reading.pop("backend", None)
    return loading.load_file(filename, device, framework="pt", **reading)


def load(data: bytes) -> Any:
    """Return the tensors of a file's content; as safetensors.torch.load."""
    from penstock.safetensors import loading

    return loading.load(data, framework="pt")


def save(tensors: Any, metadata: dict[str, str] | None = None) -> bytes:
    """Return tensors as the content of a file; safetensors does it."""
    from safetensors import torch as theirs

    out: bytes = theirs.save(tensors, metadata)
    return out


def save_file(
    tensors: Any, filename: str | os.PathLike[str], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors to a file; safetensors does it."""
    from safetensors import torch as theirs

    theirs.save_file(tensors, filename, metadata)
