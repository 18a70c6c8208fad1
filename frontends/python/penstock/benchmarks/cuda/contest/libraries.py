"""Other libraries that read files into a CUDA device's memory, by the calls they document.

Each library is loaded when its loader is created, in its own process. Settings have the library's
names; without settings the library runs at its defaults.
"""

# ruff: noqa: D102 (what each method does is said in Loader)

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock.benchmarks.cuda.contest.loaders import Arena, InPlace, Placed, Settings
from penstock.benchmarks.cuda.contest.memory import Memory
from penstock.benchmarks.harness.model_file import ModelFile
from penstock.benchmarks.harness.rivals import version_of


class _Interface:
    """Memory of a device, described by __cuda_array_interface__."""

    def __init__(self, arena: Arena) -> None:
        self.__cuda_array_interface__ = {
            "shape": (arena.size,),
            "typestr": "|u1",
            "data": (arena.address, False),
            "version": 3,
        }


class KvikIO(InPlace):
    """A file by one pread of KvikIO, into memory that is there."""

    def __init__(self, memory: Memory, device: str) -> None:
        self._library: Any = import_module("kvikio")
        self._defaults: Any = import_module("kvikio.defaults")
        names = ("num_threads", "task_size", "auto_direct_io_read")
        self._initial = {name: self._defaults.get(name) for name in names}
        self._arena = Arena(memory)

    def version(self) -> str:
        return version_of("kvikio-cu13")

    def open(self, model: ModelFile, settings: Settings) -> Path:
        self._defaults.set(self._initial | settings)
        self._arena.reserve(model.file_size)
        self._buffer = _Interface(self._arena)
        self._file = self._library.CuFile(str(model.path), "r")
        return model.path

    def read(self) -> None:
        self._file.pread(self._buffer).get()

    def placed(self) -> list[Placed]:
        return self._arena.whole()


class _Variables:
    """Environment variables that a library reads at each use."""

    def __init__(self) -> None:
        self._initial: dict[str, str | None] = {}

    def set(self, settings: Settings) -> None:
        """Set these variables; restore others that were set before."""
        for name, value in self._initial.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        for name, value in settings.items():
            self._initial.setdefault(name, os.environ.get(name))
            os.environ[name] = str(value)


class FlashPackReader(InPlace):
    """The parallel reader of flashpack on a plain file, into memory that is there."""

    def __init__(self, memory: Memory, device: str) -> None:
        self._torch: Any = import_module("torch")
        self._reader: Any = import_module("flashpack.parallel_read")
        self._block: Any = import_module("flashpack.deserialization").MacroblockSpec
        self._device = self._torch.device(device)
        self._variables = _Variables()
        self._to: Any = None

    def version(self) -> str:
        return version_of("flashpack")

    def open(self, model: ModelFile, settings: Settings) -> Path:
        self._variables.set(settings)
        self._path, size = str(model.path), model.file_size
        if self._to is None or self._to.numel() != size:
            self._to = self._torch.empty(size, dtype=self._torch.uint8, device=self._device)
        self._spec = self._block(self._torch.uint8, 0, size, size)
        return model.path

    def read(self) -> None:
        self._reader.parallel_read_into_storage(self._path, [self._spec], [self._to], self._device)

    def placed(self) -> list[Placed]:
        return [Placed(0, self._to.numel(), self._to.data_ptr())]


class _Tensors:
    """The common part of loaders of tensors: it finds where tensors of PyTorch are."""

    module = ""
    package = ""

    def __init__(self, memory: Memory, device: str) -> None:
        self._torch: Any = import_module("torch")
        self._library: Any = import_module(self.module)
        self._device = device
        self._torch.cuda.init()
        self._tensors: dict[str, Any] = {}
        self._settings: Settings = {}

    def version(self) -> str:
        return version_of(self.package)

    def open(self, model: ModelFile, settings: Settings) -> Path:
        self._model, self._settings = model, settings
        return model.path

    def drop(self) -> None:
        self._tensors = {}

    def placed(self) -> list[Placed]:
        out = []
        for name, span in self._model.spans.items():
            tensor = self._tensors[name]
            if not tensor.is_cuda or not tensor.is_contiguous():
                raise RuntimeError(f"{name} does not lie in the device's memory in one piece")
            size = tensor.numel() * tensor.element_size()
            at = self._model.data_offset + span.begin
            out.append(Placed(at, size, tensor.data_ptr()))
        return out


class InstantTensor(_Tensors):
    """All tensors by InstantTensor. Settings: safe_open's."""

    module = package = "instanttensor"

    def read(self) -> None:
        settings = dict(self._settings)
        if "backend" in settings:
            settings["backend"] = self._library.Backend[settings["backend"]]
        path, device = str(self._model.path), self._device
        with self._library.safe_open(path, "pt", device, **settings) as opened:
            self._tensors = dict(opened.tensors())


class SafeTensors(_Tensors):
    """All tensors by the reference's own load to a device. Settings: load_file's."""

    module, package = "safetensors.torch", "safetensors"

    def read(self) -> None:
        path = self._model.path
        self._tensors = self._library.load_file(path, device=self._device, **self._settings)


class FastSafeTensors(_Tensors):
    """All tensors by fastsafetensors. Settings: SafeTensorsFileLoader's."""

    module = package = "fastsafetensors"

    def read(self) -> None:
        loader = self._library.SafeTensorsFileLoader(None, self._device, **self._settings)
        loader.add_filenames({0: [str(self._model.path)]})
        buffers = loader.copy_files_to_device()
        self._tensors = {name: buffers.get_tensor(name) for name in self._model.spans}
        # Tensors share the memory and keep it.
        buffers.close()
        loader.close()


class RunAi(_Tensors):
    """All tensors by Run:ai's streamer, each copied as it comes. Settings: its variables."""

    module, package = "runai_model_streamer", "runai-model-streamer"

    def __init__(self, memory: Memory, device: str) -> None:
        super().__init__(memory, device)
        self._variables = _Variables()

    def open(self, model: ModelFile, settings: Settings) -> Path:
        self._variables.set(settings)
        return super().open(model, settings)

    def read(self) -> None:
        with self._library.SafetensorsStreamer() as streamer:
            streamer.stream_file(str(self._model.path), device=self._device)
            for name, tensor in streamer.get_tensors():
                self._tensors[name] = tensor.to(self._device)


class FlashPack(_Tensors):
    """All tensors by flashpack, from a file of its own format, written before."""

    module, package = "flashpack", "flashpack"

    def __init__(self, memory: Memory, device: str) -> None:
        super().__init__(memory, device)
        self._reader: Any = import_module("flashpack.deserialization")
        self._variables = _Variables()

    def open(self, model: ModelFile, settings: Settings) -> Path:
        super().open(model, settings)
        self._variables.set(settings)
        self._path = model.path.with_suffix(".flashpack")
        if not self._path.exists():
            tensors = import_module("safetensors.torch").load_file(model.path)
            self._library.pack_to_file(tensors, str(self._path), None)
        return self._path

    def read(self) -> None:
        storage, metadata = self._reader.read_flashpack_file(str(self._path), self._device)
        self._tensors = dict(self._reader.iterate_from_flash_tensor(storage, metadata))
