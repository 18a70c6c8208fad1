"""Makes libraries that use safetensors read their files with Penstock."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.safetensors.loading import FRAMEWORKS, SafetensorsFile
from penstock.safetensors.torch import HOST_NAMES, load, load_file, torch_device

if TYPE_CHECKING:
    import os

_lock = threading.Lock()
_installed: list[str | None] = []  # devices of the open contexts; the last one is used
_replaced: dict[int, Any] = {}  # objects of safetensors, by the id of our replacement


def _is_ours(framework: str, device: object) -> bool:
    """Return whether Penstock reads such tensors; otherwise safetensors does."""
    try:
        torch_device(device)
    except ValueError:
        return False
    return FRAMEWORKS.get(framework) == "torch"


def _chosen(device: object) -> object:
    """Return the device to read into: for host memory, the device of the open context."""
    wanted = _installed[-1] if _installed else None
    return wanted if wanted is not None and str(device) in HOST_NAMES else device


class safe_open(SafetensorsFile):  # noqa: N801 (the name that it stands for)
    """safetensors.safe_open: Penstock reads files for torch, safetensors for other frameworks."""

    def __new__(
        cls,
        filename: str | os.PathLike[str],
        framework: str = "pt",
        device: Any = "cpu",
        **options: Any,
    ) -> Any:
        """Return an open file of Penstock or of safetensors."""
        if _is_ours(framework, device):
            return super().__new__(cls)
        return _theirs("safe_open")(filename, framework, device, **options)

    def __init__(
        self,
        filename: str | os.PathLike[str],
        framework: str = "pt",
        device: Any = "cpu",
        **_options: Any,
    ) -> None:
        super().__init__(filename, framework, _chosen(device))


def _load_file(filename: str | os.PathLike[str], device: Any = "cpu", **options: Any) -> Any:
    """Load as safetensors.torch.load_file."""
    if not _is_ours("pt", device):
        return _theirs("load_file")(filename, device, **options)
    return load_file(filename, _chosen(device))


def _load(data: bytes) -> Any:
    """Load as safetensors.torch.load."""
    return load(data)


_OURS = {"safe_open": safe_open, "load_file": _load_file, "load": _load}


def _theirs(name: str) -> Any:
    return _replaced[id(_OURS[name])]


def _originals() -> dict[str, Any]:
    import safetensors
    from safetensors import torch

    return {"safe_open": safetensors.safe_open, "load_file": torch.load_file, "load": torch.load}


def _exchange(swaps: dict[int, Any]) -> None:
    """Replace objects by others, by their id, in every module that holds them."""
    # A script that holds safetensors' own function shall keep it.
    spared = (globals(), getattr(sys.modules.get("__main__"), "__dict__", None))
    for module in list(sys.modules.values()):
        held = getattr(module, "__dict__", None)
        if type(held) is not dict or any(held is one for one in spared):
            continue
        for name, value in list(held.items()):
            if id(value) in swaps:
                held[name] = swaps[id(value)]


@contextlib.contextmanager
def installed(device: str | None = None) -> Iterator[None]:
    """Make transformers, diffusers and others load torch tensors with Penstock, in a `with`.

    The context replaces safetensors.safe_open, safetensors.torch.load_file and
    safetensors.torch.load in every module but __main__, in modules that are imported meanwhile too,
    and restores them at its end. It affects the whole process. Contexts may be nested and may
    overlap. safetensors still reads tensors of other frameworks, and tensors on devices that are
    neither cpu nor CUDA.

    Parameters
    ----------
    device : str, optional
        cuda or cuda:N: tensors that are requested on the cpu are read into this device. It is for
        loaders that open files for the cpu and move each tensor later, as transformers does with
        `device_map`.

    Raises
    ------
    ImportError
        safetensors or torch is missing.
    ValueError
        `device` is neither cpu nor a CUDA device.
    """
    wanted = torch_device(device)
    with _lock:
        if not _installed:
            found = _originals()
            _replaced.update({id(_OURS[name]): found[name] for name in found})
            _exchange({id(found[name]): _OURS[name] for name in found})
        _installed.append(wanted)
    try:
        yield
    finally:
        with _lock:
            _installed.remove(wanted)
            if not _installed:
                _exchange(_replaced)
