"""The compiled part of the package: frontends/python/*.cc."""

import os
from collections.abc import Callable, Generator, Iterable
from types import TracebackType
from typing import Any, Literal, Protocol, TypeAlias

from typing_extensions import Buffer

from penstock.report import Report

class SupportsDLPack(Protocol):
    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class SupportsCudaArrayInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

class HasFileno(Protocol):
    def fileno(self) -> int: ...

Mode: TypeAlias = Literal[
    "r", "w", "a", "x", "r+", "w+", "a+", "x+",
    "rb", "wb", "ab", "xb", "rb+", "wb+", "ab+", "xb+", "r+b", "w+b", "a+b", "x+b",
]  # fmt: skip
Writable: TypeAlias = DeviceMemory | Buffer | SupportsDLPack | SupportsCudaArrayInterface
FileName: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes] | int | HasFileno
Cache: TypeAlias = Literal["auto", "keep", "drop", "bypass"]
Route: TypeAlias = Literal["auto", "cached", "direct", "peer"]
Storage: TypeAlias = Literal["auto", "posix", "uring"]
Readable: TypeAlias = DeviceMemory | Buffer | SupportsDLPack | SupportsCudaArrayInterface
Piece: TypeAlias = tuple[Writable, int] | tuple[Writable, int, int | None]

class DeviceMemory:
    def __len__(self) -> int: ...
    def __getitem__(self, part: slice) -> DeviceMemory: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(self, **arguments: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def device(self) -> str: ...
    def tobytes(self) -> bytes: ...
    def free(self) -> None: ...
    def __enter__(self) -> DeviceMemory: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
        /,
    ) -> None: ...

def empty(size: int, device: str | None = None) -> DeviceMemory: ...
def tensor_view(
    owner: object,
    address: int,
    shape: list[int],
    type_code: int,
    bits: int,
    device_type: int,
    device_index: int,
) -> Any: ...

class Future:
    def result(self, timeout: float | None = None) -> int: ...
    def get(self, timeout: float | None = None) -> int: ...
    def exception(self, timeout: float | None = None) -> BaseException | None: ...
    def done(self) -> bool: ...
    def running(self) -> bool: ...
    def cancel(self) -> bool: ...
    def stop(self) -> None: ...
    def cancelled(self) -> bool: ...
    def add_done_callback(self, fn: Callable[[Future], object]) -> None: ...
    @property
    def report(self) -> Report: ...
    def __await__(self) -> Generator[Any, None, int]: ...

class Endings:
    def __init__(self, futures: list[Future]) -> None: ...
    def next(self, timeout: float | None = None) -> int | None: ...

def is_completing() -> bool: ...

class File:
    def __init__(
        self,
        file: FileName,
        mode: Mode = "r",
        device: str | None = None,
        cache: Cache = "auto",
        route: Route | None = None,
        strict: bool | None = None,
        threads: int | None = None,
        *,
        storage: Storage = "auto",
        throttle_latency_us: float = 0.0,
        throttle_bandwidth_mbs: float = 0.0,
    ) -> None: ...
    def pread(
        self,
        buf: Writable,
        size: int | None = None,
        file_offset: int = 0,
        task_size: int | None = None,
        *,
        cache: Cache | None = None,
        route: Route | None = None,
        strict: bool | None = None,
        stream: object = None,
    ) -> Future: ...
    def read(
        self,
        buf: Writable,
        size: int | None = None,
        file_offset: int = 0,
        task_size: int | None = None,
        *,
        cache: Cache | None = None,
        route: Route | None = None,
        strict: bool | None = None,
        stream: object = None,
    ) -> int: ...
    def preadv(
        self,
        pieces: Iterable[Piece],
        *,
        cache: Cache | None = None,
        route: Route | None = None,
        strict: bool | None = None,
        stream: object = None,
    ) -> Future: ...
    def readv(
        self,
        pieces: Iterable[Piece],
        *,
        cache: Cache | None = None,
        route: Route | None = None,
        strict: bool | None = None,
        stream: object = None,
    ) -> int: ...
    def pwrite(
        self,
        buf: Readable,
        size: int | None = None,
        file_offset: int = 0,
        task_size: int | None = None,
        *,
        cache: Cache | None = None,
        route: Route | None = None,
        strict: bool | None = None,
        stream: object = None,
    ) -> Future: ...
    def write(
        self,
        buf: Readable,
        size: int | None = None,
        file_offset: int = 0,
        task_size: int | None = None,
        *,
        cache: Cache | None = None,
        route: Route | None = None,
        strict: bool | None = None,
        stream: object = None,
    ) -> int: ...
    def pwritev(
        self,
        pieces: Iterable[Piece],
        *,
        cache: Cache | None = None,
        route: Route | None = None,
        strict: bool | None = None,
        stream: object = None,
    ) -> Future: ...
    def writev(
        self,
        pieces: Iterable[Piece],
        *,
        cache: Cache | None = None,
        route: Route | None = None,
        strict: bool | None = None,
        stream: object = None,
    ) -> int: ...
    def fsync(self, data_only: bool = False) -> None: ...
    def truncate(self, size: int) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def name(self) -> str | bytes | int: ...
    @property
    def mode(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def cache(self) -> Cache: ...
    @property
    def route(self) -> Route | None: ...
    @property
    def strict(self) -> bool: ...
    def __enter__(self) -> File: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
        /,
    ) -> None: ...

class Observer(Protocol):
    def begun(self, operation: str, name: str | bytes | int, size: int, offset: int) -> Any: ...
    def ended(self, token: Any, report: Report) -> None: ...
    @property
    def wants_served(self) -> bool: ...
    def served(self, log: dict[str, Any]) -> None: ...

def observe(observer: Observer | None) -> None: ...
def scan(
    device: str,
    pattern_list: bytes | None,
    pattern_texts: list[bytes],
    paths: list[bytes],
    *,
    lines: bool = False,
    with_path: bool = False,
    output: int = -1,
    progress: Callable[[int, int, int, float], None] | None = None,
    explain: bool = False,
) -> dict[str, Any]: ...
def write_access_log(
    path: str,
    size: int,
    *,
    suspicious_count: int = 100,
    hit_share: float = 0.01,
    seed: int = 1,
) -> str: ...
def calibrate(
    path: bytes,
    *,
    device: str = "",
    threads: int = 0,
    store: bool = True,
    seconds: float = 10.0,
    progress: Callable[[str, float], None] | None = None,
) -> dict[str, Any]: ...
def residency(
    file: bytes | File,
    *,
    offset: int = 0,
    size: int = ...,
    runs_max: int = 65536,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]: ...
def pick_device(name: str = "", runs_kernels: bool = True) -> tuple[str, str]: ...

class SignatureReader:
    def read(self, chunk: bytes) -> None: ...
    def finish(self) -> None: ...
    def step(self) -> bool: ...
    @property
    def steps(self) -> int: ...
    @property
    def source(self) -> dict[str, Any]: ...
    @property
    def streams(self) -> list[dict[str, Any]]: ...
    def programs(self, *, binary: bool = False) -> bytes: ...
    def plot(self, columns: int, rows: int, *, over_time: bool = False) -> dict[str, Any]: ...
