"""Opens safetensors files and reads their tensors into memory.

Reads go through penstock.File, which reads each range of the file by the cheapest route. A whole
file takes a few large reads that are under way at once.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections import deque
from collections.abc import Sequence
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock import _core
from penstock.errors import Error, error_of
from penstock.safetensors import layout, slicing
from penstock.safetensors.dtypes import DTYPES
from penstock.safetensors.entries import shown
from penstock.safetensors.errors import closed_file, missing_tensor, theirs
from penstock.safetensors.header import Header, TensorInfo, read_header
from penstock.safetensors.memory import Memory, allocate, host_addressable
from penstock.safetensors.tensor import DIMENSIONS_MAX, Tensor, as_array, host_bytes, required_dtype
from penstock.safetensors.torch import TorchMemory, as_torch, torch_device, torch_dtype

if TYPE_CHECKING:
    from penstock.report import Report

STEPS_AT_ONCE = 8  # steps of a layout that are under way: enough for any disk
PROBED_BYTES_MIN = 1 << 20  # less goes through the page cache
FRAMEWORKS = {
    "numpy": "numpy",
    "np": "numpy",
    "dlpack": "dlpack",
    "torch": "torch",
    "pytorch": "torch",
    "pt": "torch",
}


class SafetensorsFile:
    """An open safetensors file: its header is checked, and each call reads the tensors it returns.

    `safe_open` returns it. Any thread may use it. Tensors that were returned outlive the file.

    Attributes
    ----------
    path : str
    reports : list of penstock.Report
        The reports of the reads of the last call that returned tensors.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        framework: str | None,
        device: Any,
        *,
        descriptor: int | None = None,
        **reading: Any,
    ) -> None:
        self.path = os.fspath(path)
        self._framework = _framework(framework, device)
        self._device = torch_device(device) if self._framework == "torch" else device
        self._addressable = self._device is None or host_addressable(_core.empty(0, self._device))
        self.reports: list[Report] = []
        self._file = _core.File(self.path if descriptor is None else descriptor, "r", **reading)
        try:
            self._size = self._file.size
            self._header = read_header(self._read, self._size, self.path)
        except BaseException:
            self._file.close()
            raise

    def _read(self, offset: int, size: int) -> bytearray:
        out = bytearray(size)
        arrived = self._file.read(out, size, offset)
        del out[arrived:]
        return out

    def __enter__(self) -> SafetensorsFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; tensors that were returned stay valid."""
        self._file.close()

    def _opened(self) -> Header:
        """Return the header of the open file; raises ClosedError after close()."""
        if self._file.closed:
            raise closed_file(self.path)
        return self._header

    def keys(self) -> list[str]:
        """Return the sorted names of the tensors. Raises ClosedError, as all methods below."""
        return sorted(self._opened().tensors)

    def offset_keys(self) -> list[str]:
        """Return the names of the tensors in the order of their bytes."""
        return list(self._opened().tensors)

    def metadata(self) -> dict[str, str] | None:
        """Return the metadata of the header; None if it has none."""
        held = self._opened().metadata
        return None if held is None else dict(held)

    def info(self, name: str) -> TensorInfo:
        """Return a tensor's dtype, shape and place in the file. Raises MissingTensorError."""
        found = self._opened().tensors.get(name)
        if found is None:
            raise missing_tensor(self.path, shown(name))
        return found

    def get_tensor(self, name: str) -> Any:
        """Read a tensor. Raises KeyError, penstock.Error, and TypeError if NumPy lacks its type."""
        info = self.info(name)
        self._check(name, info)
        plan = self._plan([info])
        memory = self._allocate(plan.size, self._device)
        self._carry_out(plan.steps, memory)
        return self._made(memory, plan.places[0], info.dtype, info.shape)

    def get_tensors(self, memory: Memory | None = None) -> dict[str, Any]:
        """Read all tensors.

        The tensors share one piece of memory, which is freed after the last of them.

        Parameters
        ----------
        memory : penstock.DeviceMemory, optional
            Memory to read into, instead of new memory; `memory_size()` returns the size it needs.
        """
        tensors = self._opened().tensors
        for name, info in tensors.items():
            self._check(name, info)
        plan = self._plan(list(tensors.values()))
        if memory is None:
            memory = self._allocate(plan.size, self._device)
        else:
            memory = self._own(memory, plan)
        self._carry_out(plan.steps, memory)
        made: dict[str, Any] = {}
        held = host_bytes(memory) if self._framework == "numpy" else None
        for (name, info), place in zip(tensors.items(), plan.places, strict=True):
            if held is None:
                made[name] = self._made(memory, place, info.dtype, info.shape)
            else:
                dtype = required_dtype(info.dtype)
                made[name] = as_array(held, place, info.size, dtype, info.shape)
        return made

    def memory_size(self) -> int:
        """Return the bytes of memory that get_tensors() needs: few more than the tensors have."""
        return max(plan.size for plan in self._plans(list(self._header.tensors.values())))

    def get_slice(self, name: str) -> TensorSlice:
        """Return a view of a tensor, which reads only what is indexed. Raises KeyError."""
        return TensorSlice(self, name, self.info(name))

    def read_slice(self, name: str, key: Any) -> Any:
        """Read the part `key` of a tensor: what get_slice(name)[key] does."""
        info = self.info(name)
        self._check(name, info)
        if DTYPES[info.dtype].bits % 8 != 0:
            raise TypeError(f"{self.path}: tensor {shown(name)}: {info.dtype} has no whole bytes")
        gather = self._addressable and find_spec("numpy") is not None
        part = slicing.cut(info.shape, DTYPES[info.dtype].bits // 8, key, gather=gather)
        spans = [layout.Span(info.offset + at, size) for at, size in part.ranges]
        if len(spans) <= 1:
            plan = layout.plan(spans or [layout.Span(0, 0)], self._size, slide=self._addressable)
            steps, place, size = plan.steps, plan.places[0], plan.size
        else:
            each = spans[0].size
            pieces = [layout.Piece(i * each, each, span.offset) for i, span in enumerate(spans)]
            steps, place, size = [layout.Step(pieces, [])], 0, each * len(spans)
        memory = self._allocate(size, self._device if part.dense else None)
        self._carry_out(steps, memory)
        if not part.dense:
            memory, place = self._gathered(memory, place, info.dtype, part), 0
        return self._made(memory, place, info.dtype, part.shape)

    def _allocate(self, size: int, device: str | None) -> Memory:
        if self._framework == "torch" and device is not None:
            return TorchMemory(size, device)
        try:
            return allocate(size, device)
        except OSError as error:
            where = "the host" if device is None else f"device {device}"
            what = f"{size} bytes of {where} for its tensors"
            raise error_of(error.errno or errno.ENOMEM, what, self.path) from None

    def _plans(self, infos: Sequence[TensorInfo]) -> list[layout.Layout]:
        """Return the possible plans; the first one suits files that are not cached."""
        spans = [layout.Span(info.offset, info.size) for info in infos]
        straight = layout.plan(spans, self._size, slide=False)
        if not self._addressable:
            return [straight]
        sliding = layout.plan(spans, self._size, slide=True)
        return [sliding, straight] if any(step.slides for step in sliding.steps) else [sliding]

    def _plan(self, infos: Sequence[TensorInfo]) -> layout.Layout:
        plans = self._plans(infos)
        return plans[-1] if len(plans) > 1 and self._is_cached(infos) else plans[0]

    def _is_cached(self, infos: Sequence[TensorInfo]) -> bool:
        """Return whether most bytes of the tensors will be copied out of the OS page cache."""
        begin, last = infos[0].offset, infos[-1]
        size = last.offset + last.size - begin
        if size < PROBED_BYTES_MIN:
            return True
        try:
            # Ask about the open file: to open it again would empty the cache of most FUSE file
            # systems, and another file may have that name by now.
            seen = _core.residency(self._file, offset=begin, size=size, runs_max=16)
        except OSError:
            return False
        return bool(2 * seen["resident"] >= size)

    def _own(self, memory: Memory, plan: layout.Layout) -> Memory:
        """Return a handle of our own on the user's memory, since the user may free theirs."""
        if not isinstance(memory, _core.DeviceMemory):
            raise TypeError(f"memory must be penstock.DeviceMemory, not {type(memory).__name__}")
        if memory.nbytes < plan.size:
            raise ValueError(f"{self.path} takes {plan.size} bytes, memory has {memory.nbytes}")
        if memory.address % layout.ALIGNMENT != 0:
            raise ValueError(f"memory must begin at a multiple of {layout.ALIGNMENT}")
        if host_addressable(memory) != self._addressable:
            raise ValueError(f"memory is of {memory.device}, the file was opened for another")
        return memory[:]

    def _carry_out(self, steps: Sequence[layout.Step], memory: Memory) -> None:
        """Carry out reads and slides; at the return, with an error too, no read is under way."""
        reports: list[Report] = []
        under_way: deque[tuple[layout.Step, _core.Future]] = deque()
        try:
            for step in steps:
                pieces = [(memory[to : to + n], offset, n) for to, n, offset in step.pieces]
                under_way.append((step, self._file.preadv(pieces)))
                if len(under_way) >= STEPS_AT_ONCE:
                    reports.append(self._finish_first(under_way, memory))
            while under_way:
                reports.append(self._finish_first(under_way, memory))
        except BaseException as error:
            _end([future for _, future in under_way])
            if isinstance(error, Error):
                theirs(error)
            raise
        self.reports = reports

    def _finish_first(
        self, under_way: deque[tuple[layout.Step, _core.Future]], memory: Memory
    ) -> Report:
        step, future = under_way[0]
        arrived = future.result()
        if arrived != sum(piece.size for piece in step.pieces):
            raise error_of(errno.EIO, "the file became shorter while it was read", self.path)
        for to, source, size in step.slides:
            ctypes.memmove(memory.address + to, memory.address + source, size)
        under_way.popleft()
        return future.report

    def _check(self, name: str, info: TensorInfo) -> None:
        """Raise the error for a tensor that cannot be returned, before it is read."""
        if len(info.shape) > DIMENSIONS_MAX and self._framework != "dlpack":
            cause = f"{len(info.shape)} dimensions: read it as DLPack tensor, which gives bytes"
            raise TypeError(f"{self.path}: tensor {shown(name)} has {cause}")
        if self._framework != "dlpack":
            try:
                _ = (
                    required_dtype(info.dtype)
                    if self._framework == "numpy"
                    else torch_dtype(info.dtype)
                )
            except TypeError as error:
                raise TypeError(f"{self.path}: tensor {shown(name)}: {error}") from None

    def _made(self, memory: Memory, place: int, dtype: str, shape: tuple[int, ...]) -> Any:
        if self._framework == "torch":
            return as_torch(memory, place, dtype, shape)
        tensor = Tensor(memory, place, dtype, shape)
        return tensor.numpy() if self._framework == "numpy" else tensor

    def _gathered(self, ranges: Memory, place: int, dtype: str, part: slicing.Cut) -> Memory:
        """Pick the elements of a slice out of the ranges that hold them."""
        import numpy as np

        size = DTYPES[dtype].bits // 8
        element = np.dtype((np.void, size))
        picked = np.ndarray(part.picked, element, host_bytes(ranges), place, part.strides)
        out = self._allocate(picked.size * size, self._device)
        as_array(host_bytes(out), 0, out.nbytes, element, part.picked)[...] = picked
        return out


class TensorSlice:
    """A tensor of a file; an index reads only the part that it names."""

    def __init__(self, file: SafetensorsFile, name: str, info: TensorInfo) -> None:
        self._file = file
        self._name = name
        self._info = info

    def get_shape(self) -> list[int]:
        """Return the shape of the whole tensor."""
        return list(self._info.shape)

    def get_dtype(self) -> str:
        """Return the type as safetensors calls it: "F32"."""
        return self._info.dtype

    def __getitem__(self, key: Any) -> Any:
        return self._file.read_slice(self._name, key)


def _end(futures: Sequence[_core.Future]) -> None:
    """Drop the parts of reads that have not begun, and wait for the rest, whatever its result.

    A second Ctrl-C ends the wait; the reads keep their memory.
    """
    from penstock.futures import wait

    for future in futures:
        future.stop()
    wait(futures)


def _framework(name: str | None, device: object) -> str:
    if name is None:
        return "numpy" if device is None else "dlpack"
    if name not in FRAMEWORKS:
        raise ValueError(f"framework: {name!r} is not one of numpy, np, dlpack, torch, pt")
    return FRAMEWORKS[name]


def safe_open(
    path: str | os.PathLike[str],
    framework: str | None = None,
    device: Any = None,
    **reading: Any,
) -> SafetensorsFile:
    """Open a safetensors file to read single tensors, or parts of them.

    Parameters
    ----------
    path : path
    framework : str, optional
        "numpy" or "np": arrays; "torch" or "pt": torch tensors; "dlpack":
        penstock.safetensors.Tensor, which `torch.from_dlpack` and its like take. None: arrays
        without a device, else "dlpack".
    device : str, optional
        Device whose memory holds the tensors: auto, cpu, cpu:N or cuda:N. None is plain host
        memory. For torch, use torch's names: cpu is plain host memory, and cuda is the current
        device; torch's allocator gives memory of a CUDA device.
    **reading
        As in penstock.open: cache, route, strict, threads.

    Raises
    ------
    FormatError
        The file is no safetensors file, or is incomplete. It is a ValueError.
    penstock.Error
        The file cannot be opened or read. It is an OSError.
    """
    return SafetensorsFile(path, framework, device, **reading)


def load_file(
    path: str | os.PathLike[str],
    device: Any = None,
    *,
    framework: str | None = None,
    memory: Memory | None = None,
    **reading: Any,
) -> dict[str, Any]:
    """Read all tensors of a safetensors file.

    The tensors are in one piece of memory, each at a multiple of 64 bytes. It is freed after the
    last of them. Parameters and errors are those of `safe_open` and `get_tensors`.

    Returns
    -------
    dict
        numpy.ndarray, torch.Tensor or Tensor by name, in the order of the file.
    """
    with safe_open(path, framework, device, **reading) as opened:
        return opened.get_tensors(memory)


def load(data: bytes, device: Any = None, *, framework: str | None = None) -> dict[str, Any]:
    """Return all tensors of the bytes of a safetensors file, as load_file; the bytes are copied."""
    descriptor = os.memfd_create("safetensors", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as out:
            out.write(data)
        # The file keeps a descriptor of its own.
        with SafetensorsFile("bytes", framework, device, descriptor=descriptor) as opened:
            return opened.get_tensors()
    finally:
        os.close(descriptor)
