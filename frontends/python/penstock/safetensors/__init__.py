"""Tensors of safetensors files, into NumPy arrays, DLPack tensors or device memory.

`load_file(path)` is safetensors.numpy's; `load_file(path, device="cuda:0")` reads into memory of
the device and returns tensors that `torch.from_dlpack` takes; `safe_open` reads one tensor, or a
part of one. Files are checked before a byte of a tensor is read.
"""

from __future__ import annotations

from penstock.safetensors.errors import FormatError, MissingTensorError
from penstock.safetensors.header import TensorInfo
from penstock.safetensors.loading import SafetensorsFile, TensorSlice, load_file, safe_open
from penstock.safetensors.tensor import Tensor

__all__ = [
    "FormatError",
    "MissingTensorError",
    "SafetensorsFile",
    "Tensor",
    "TensorInfo",
    "TensorSlice",
    "load_file",
    "safe_open",
]
