"""Other libraries that load safetensors files into host memory, or why they do not run.

Each library runs at its defaults, by the calls that its own documentation names. This module does
not know penstock's loaders.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

Put = Callable[[str, Any], object]  # takes the name of a tensor, and an array to copy at once
Load = Callable[[Path, Put], None]


class Rival(NamedTuple):
    """A library that a user would pick instead."""

    package: str  # in the package index
    module: str
    needs: tuple[str, ...]  # modules that it imports and that do not come with it everywhere
    load: Load | None = None  # None: it cannot take part here
    cause: str = ""  # why


def _load_fastsafetensors(path: Path, put: Put) -> None:
    library: Any = import_module("fastsafetensors")
    with library.fastsafe_open([str(path)], nogds=True, device="cpu") as opened:
        for name in opened.keys():  # noqa: SIM118 (it is no dictionary)
            put(name, opened.get_tensor(name).numpy())


def _load_runai(path: Path, put: Put) -> None:
    library: Any = import_module("runai_model_streamer")
    with library.SafetensorsStreamer() as streamer:
        streamer.stream_file(str(path))
        for name, tensor in streamer.get_tensors():
            put(name, tensor.numpy())


RIVALS = (
    Rival("fastsafetensors", "fastsafetensors", ("torch",), _load_fastsafetensors),
    Rival("runai-model-streamer", "runai_model_streamer", ("torch",), _load_runai),
    Rival(
        "instanttensor",
        "instanttensor",
        ("torch",),
        cause="needs a GPU: it reads into memory of CUDA devices only",
    ),
    Rival(
        "flashpack",
        "flashpack",
        ("torch", "accelerate"),
        cause="reads files of its own format only, no safetensors",
    ),
)


def why_not(rival: Rival) -> str:
    """Return why a rival is not run here; empty if it can be tried."""
    missing = [module for module in (rival.module, *rival.needs) if find_spec(module) is None]
    causes = [f"no module {', '.join(missing)}"] if missing else []
    return "; ".join(causes + ([rival.cause] if rival.cause else []))


def version_of(package: str) -> str:
    """Return the version of a package that is installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "of unknown version"
