"""As much of torch, on NumPy, as penstock.safetensors uses: for machines that have none."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import numpy as np


class FakeTensor:
    """A tensor of the host."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.dtype = array.dtype
        self.shape = array.shape
        self.device = "cpu"

    def view(self, to: Any) -> FakeTensor:
        """View as another type, or in another shape."""
        return FakeTensor(self._array.view(to) if isinstance(to, type) else self._array.reshape(to))

    def data_ptr(self) -> int:
        """Return where it lies."""
        return int(self._array.ctypes.data)

    def numpy(self) -> Any:
        """Return the array."""
        return self._array

    def tolist(self) -> Any:
        """Return what it holds."""
        return self._array.tolist()


def module() -> types.ModuleType:
    """Return a module to stand for torch."""
    fake = types.ModuleType("torch")
    for name in ("uint8", "int8", "float16", "float32", "float64", "int64", "complex64", "bool"):
        setattr(fake, name, getattr(np, name if name != "bool" else "bool_"))

    def from_dlpack(tensor: Any) -> FakeTensor:
        return FakeTensor(np.from_dlpack(tensor))

    def empty(shape: Sequence[int], dtype: Any, device: str) -> FakeTensor:
        assert device == "cpu"
        return FakeTensor(np.empty(shape, dtype))

    fake.from_dlpack = from_dlpack  # type: ignore[attr-defined]
    fake.empty = empty  # type: ignore[attr-defined]
    return fake
