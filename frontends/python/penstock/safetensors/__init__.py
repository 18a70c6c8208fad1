"""Tensors of safetensors files, into NumPy arrays, DLPack tensors or device memory.

`load_file(path)` is as in safetensors.numpy. `load_file(path, device="cuda:0")` reads into memory
of the device and returns tensors that `torch.from_dlpack` takes. `safe_open` reads one tensor, or a
part of one. With framework="pt" both return torch tensors. In a `with installed():` statement,
transformers, diffusers and other users of safetensors read with Penstock. The header of a file is
checked before a byte of a tensor is read.
"""

from __future__ import annotations

from penstock.safetensors.errors import FormatError, MissingTensorError
from penstock.safetensors.header import TensorInfo
from penstock.safetensors.installation import installed
from penstock.safetensors.loading import SafetensorsFile, TensorSlice, load, load_file, safe_open
from penstock.safetensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safetensors import SafetensorError

__all__ = [
    "FormatError",
    "MissingTensorError",
    "SafetensorError",
    "SafetensorsFile",
    "Tensor",
    "TensorInfo",
    "TensorSlice",
    "installed",
    "load",
    "load_file",
    "safe_open",
]


def __getattr__(name: str) -> object:
    if name != "SafetensorError":
        raise AttributeError(f"module 'penstock.safetensors' has no attribute {name!r}")
    try:
        from safetensors import SafetensorError
    except ImportError:
        return FormatError
    return SafetensorError
