"""Files for GPU kernels: a page cache in GPU memory, readahead, one source for CPU and CUDA.

`penstock.open(path).pread(buffer)` reads a file into host or device memory. Each byte range takes
the cheapest route, and the `report` of the returned future says which. An import of the package
loads only this file; each name is loaded at its first use.
"""

from __future__ import annotations

from os import environ as _environ

__version__ = "0.1.0"

# The CUDA driver reads this when it starts. With its default, copies that a program queues after
# its kernels share few queues, and delay copies of other streams.
_environ.setdefault("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "32")

TYPE_CHECKING = False  # as typing has it; loading typing takes longer than all of this file
if TYPE_CHECKING:
    from penstock import kvikio as kvikio
    from penstock import safetensors as safetensors
    from penstock._core import DeviceMemory, File, Future, empty
    from penstock.errors import ClosedError, Error, FallbackError, ModeError
    from penstock.file import open  # noqa: A004 (as gzip.open)
    from penstock.futures import as_completed, wait
    from penstock.kvikio.cufile import CuFile
    from penstock.report import Report
    from penstock.tracing import Transfer, on_transfer, trace

# The module that defines each public name.
_HOMES = {
    "ClosedError": "errors",
    "CuFile": "kvikio.cufile",
    "DeviceMemory": "_core",
    "Error": "errors",
    "FallbackError": "errors",
    "File": "_core",
    "Future": "_core",
    "ModeError": "errors",
    "Report": "report",
    "Transfer": "tracing",
    "as_completed": "futures",
    "empty": "_core",
    "on_transfer": "tracing",
    "open": "file",
    "trace": "tracing",
    "wait": "futures",
}

_MODULES = {"kvikio", "safetensors"}

__all__ = [
    "ClosedError",
    "CuFile",
    "DeviceMemory",
    "Error",
    "FallbackError",
    "File",
    "Future",
    "ModeError",
    "Report",
    "Transfer",
    "as_completed",
    "empty",
    "on_transfer",
    "open",
    "trace",
    "wait",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None and name not in _MODULES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    from importlib import import_module

    if home is None:
        return import_module(f"penstock.{name}")
    value: object = getattr(import_module(f"penstock.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
