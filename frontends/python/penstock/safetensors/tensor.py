"""A tensor in memory that penstock filled, for consumers of DLPack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import _core
from penstock.safetensors.dtypes import DTYPES, numpy_dtype
from penstock.safetensors.memory import CUDA, Memory, host_addressable

if TYPE_CHECKING:
    import numpy as np

    from penstock._core import DeviceMemory

DIMENSIONS_MAX = 64  # NumPy's limit; DLPack's consumers have none that is higher
_CUDA_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}  # DLPack's type codes as NumPy spells them


class Tensor:
    """A tensor in C order; `torch.from_dlpack(tensor)` and similar calls share its memory.

    It keeps its memory alive, which it may share with all other tensors of its file. DLPack cannot
    name some types (F4, F6_E2M3, F6_E3M2, in which several elements share a byte). Tensors of these
    types, and of more than 64 dimensions, are given to DLPack as a flat array of uint8.
    """

    def __init__(self, memory: Memory, place: int, dtype: str, shape: tuple[int, ...]) -> None:
        self._memory = memory
        self.address = memory.address + place
        self.dtype = dtype  # as safetensors calls it: "BF16"
        self.shape = shape
        bits = DTYPES[dtype].bits
        for size in shape:
            bits *= size
        self.nbytes = bits // 8
        self._flat = DTYPES[dtype].bits % 8 != 0 or len(shape) > DIMENSIONS_MAX

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}, {list(self.shape)}, device={self.device!r})"

    @property
    def device(self) -> str:
        """The device whose memory holds the tensor; "host" for plain host memory."""
        return self._memory.device

    def _view(self) -> Any:
        code, bits = (1, 8) if self._flat else (DTYPES[self.dtype].code, DTYPES[self.dtype].bits)
        shape = [self.nbytes] if self._flat else list(self.shape)
        device_type, device_index = self.__dlpack_device__()
        return _core.tensor_view(
            self._memory, self.address, shape, code, bits, device_type, device_index
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()

    def __dlpack__(self, **wishes: Any) -> Any:
        # All bytes have arrived, so no stream has to be waited for.
        wishes.pop("stream", None)
        return self._view().__dlpack__(**wishes)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.__dlpack_device__()[0] != CUDA:
            raise AttributeError("the tensor is not in memory of a CUDA device")
        dtype = DTYPES[self.dtype]
        kind = "u" if self._flat else _CUDA_KINDS.get(dtype.code)
        if kind is None:
            raise AttributeError(f"the CUDA array interface cannot name {self.dtype}")
        size = 1 if self._flat else dtype.bits // 8
        return {
            "shape": (self.nbytes,) if self._flat else self.shape,
            "typestr": f"{'|' if size == 1 else '<'}{kind}{size}",
            "data": (self.address, False),
            "version": 3,
            "strides": None,
        }

    def tobytes(self) -> bytes:
        """Return a copy of the tensor's bytes in host memory."""
        place = self.address - self._memory.address
        held: memoryview | DeviceMemory = self._memory[place : place + self.nbytes]
        return held.tobytes()

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a NumPy array that shares the memory.

        Raises TypeError if NumPy and ml_dtypes have no such type, and BufferError if the host
        cannot address the memory.
        """
        dtype = required_dtype(self.dtype)
        place = self.address - self._memory.address
        return as_array(host_bytes(self._memory), place, self.nbytes, dtype, self.shape)


def host_bytes(memory: Memory) -> np.ndarray[Any, Any]:
    """Return memory that the host can address as bytes; they keep the memory alive."""
    import numpy as np

    if not host_addressable(memory):
        raise BufferError(f"the memory of {memory.device} cannot be addressed by the host")
    if memory.nbytes == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(memoryview(memory[0 : memory.nbytes]), np.uint8)


def as_array(
    held: np.ndarray[Any, Any],
    place: int,
    size: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
) -> np.ndarray[Any, Any]:
    """Return `size` bytes of `held` as an array of a type and shape."""
    array: np.ndarray[Any, Any] = held[place : place + size].view(dtype).reshape(shape)
    return array


def required_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's type for a type of safetensors. Raises TypeError if it has none."""
    dtype = numpy_dtype(name)
    if dtype is None:
        how = "the package ml_dtypes adds it" if DTYPES[name].numpy else "read it as DLPack tensor"
        raise TypeError(f"NumPy has no {name}: {how}")
    return dtype
