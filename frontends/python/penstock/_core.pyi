"""The compiled part of the package: frontends/python/*.cc."""

import os
from collections.abc import Callable, Generator, Iterable, Sequence
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
Source: TypeAlias = tuple[Readable, int | None] | tuple[Readable, int | None, int | None]

class DeviceMemory:
    """Bytes of device memory, zeroed; made by `penstock.empty`.

    Slices share the memory. It is freed when no slice, no view of another library and no read
    under way needs it. A context manager that frees it.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice) -> DeviceMemory: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(self, **arguments: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    @property
    def nbytes(self) -> int:
        """Size in bytes."""
    @property
    def address(self) -> int:
        """Address of the first byte."""
    @property
    def device(self) -> str:
        """Name of the device, as cpu:2 or cuda:0."""
    def tobytes(self) -> bytes:
        """Copy the bytes to the host."""
    def free(self) -> None:
        """Free the memory now. Views and reads under way keep what they need."""
    def __enter__(self) -> DeviceMemory: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
        /,
    ) -> None: ...

def empty(size: int, device: str | None = None) -> DeviceMemory:
    """Allocate zeroed device memory.

    Parameters
    ----------
    size : int
        Bytes.
    device : str, optional
        auto (a CUDA device if there is one, else cpu), cpu, cpu:N or cuda:N. None: what
        PENSTOCK_DEVICE says, else auto.

    Returns
    -------
    DeviceMemory
        Takes part in DLPack, `__cuda_array_interface__` and, on the CPU backend, the buffer
        protocol.
    """

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
    """A read or write under way: what `File.pread`, `preadv`, `pwrite` and `pwritev` return.

    It has the methods of `concurrent.futures.Future`, can be awaited, and has a report. It keeps
    its buffers until the call is done, also if the future itself is dropped; the call goes on.
    `penstock.wait` and `penstock.as_completed` wait for several; those of `concurrent.futures` take
    only futures of its own executors.
    """

    def result(self, timeout: float | None = None) -> int:
        """Wait, and return the number of bytes.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits without limit.

        Returns
        -------
        int
            Bytes that arrived or were written. Fewer than asked arrive only at the end of the file.

        Raises
        ------
        Error
            The read or write failed.
        TimeoutError
            It is still under way; it goes on.
        CancelledError
            `cancel` or `stop` ended it.
        """
    def get(self, timeout: float | None = None) -> int:
        """Return `result(timeout)`; KvikIO's name for it."""
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, and return what `result` would raise, or None."""
    def done(self) -> bool:
        """Whether it ended: the bytes arrived, it failed, or it was cancelled."""
    def running(self) -> bool:
        """Whether it is not done. A call that is queued counts as running."""
    def cancel(self) -> bool:
        """Cancel it if no part of it has begun; return whether that is so."""
    def stop(self) -> None:
        """Cancel the parts that have not begun. It ends as cancelled when the rest is over."""
    def cancelled(self) -> bool:
        """Whether `cancel` or `stop` ended it."""
    def add_done_callback(self, fn: Callable[[Future], object]) -> None:
        """Call `fn(future)` when it is done: on a callback thread, or at once if it is done."""
    @property
    def report(self) -> Report:
        """Bytes by route and by reason, and the times.

        Raises
        ------
        InvalidStateError
            It is not done.
        """
    def __await__(self) -> Generator[Any, None, int]: ...

class Endings:
    def __init__(self, futures: list[Future]) -> None: ...
    def next(self, timeout: float | None = None) -> int | None: ...

def is_completing() -> bool: ...

class File:
    """An open file, made by `penstock.open`. Any thread may use it.

    A context manager that closes the file.
    """

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
    ) -> Future:
        """Begin to read into `buf` and return at once.

        Parameters
        ----------
        buf : buffer
            Writable, contiguous host or device memory: `DeviceMemory`, an object with the buffer
            protocol, DLPack or `__cuda_array_interface__`. No work that is queued later may use
            it before the call is over.
        size : int, optional
            Bytes; by default all of `buf`.
        file_offset : int
            Offset in the file, in bytes.
        task_size : int, optional
            Is ignored; it is there for programs written for KvikIO.
        cache, route, strict : optional
            As in `penstock.open`, for this call only.
        stream : optional
            For device memory: the call begins when the work that is queued on this stream now
            is over. An int, or a stream of torch, CuPy or cuda.core; -1 waits for nothing. By
            default the call waits for the legacy default stream and for the current stream of
            the owner of the buffer.

        Returns
        -------
        Future
            Its result is the number of bytes that arrived.

        Raises
        ------
        Error
            An OSError of the class that Python has for the errno, with offset and route.
        """
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
    ) -> int:
        """Read into `buf`.

        Parameters
        ----------
        buf : buffer
            Writable, contiguous host or device memory: `DeviceMemory`, an object with the buffer
            protocol, DLPack or `__cuda_array_interface__`. No work that is queued later may use
            it before the call is over.
        size : int, optional
            Bytes; by default all of `buf`.
        file_offset : int
            Offset in the file, in bytes.
        task_size : int, optional
            Is ignored; it is there for programs written for KvikIO.
        cache, route, strict : optional
            As in `penstock.open`, for this call only.
        stream : optional
            As in `pread`.

        Returns
        -------
        int
            Bytes that arrived; fewer than asked only at the end of the file. The rest of `buf`
            stays as it is.

        Raises
        ------
        Error
            An OSError of the class that Python has for the errno, with offset and route.

        Notes
        -----
        For at most 1 MiB, a signal handler (Ctrl-C) runs only after the call. During longer and
        vectored calls the handler runs at once. If it raises, the call ends when the parts that
        have begun are over, or 5 seconds later. If storage may hang, wait for a Future instead.
        """
    def preadv(
        self,
        pieces: Iterable[Piece],
        *,
        cache: Cache | None = None,
        route: Route | None = None,
        strict: bool | None = None,
        stream: object = None,
    ) -> Future:
        """Begin to read many pieces and return at once.

        Parameters
        ----------
        pieces : iterable of tuple
            `(buf, file_offset)` or `(buf, file_offset, size)`.
        cache, route, strict : optional
            As in `penstock.open`, for this call only.
        stream : optional
            As in `pread`.

        Returns
        -------
        Future
            Its result is the number of bytes of all pieces.

        Raises
        ------
        Error
            An OSError of the class that Python has for the errno, with offset and route.
        """
    def readv(
        self,
        pieces: Iterable[Piece],
        *,
        cache: Cache | None = None,
        route: Route | None = None,
        strict: bool | None = None,
        stream: object = None,
    ) -> int:
        """Read many pieces.

        Parameters
        ----------
        pieces : iterable of tuple
            `(buf, file_offset)` or `(buf, file_offset, size)`.
        cache, route, strict : optional
            As in `penstock.open`, for this call only.
        stream : optional
            As in `pread`.

        Returns
        -------
        int
            Bytes of all pieces.

        Raises
        ------
        Error
            An OSError of the class that Python has for the errno, with offset and route.

        Notes
        -----
        Signals as in `read`.
        """
    def pwrite(
        self,
        buf: Readable,
        size: int | None = None,
        file_offset: int | None = None,
        task_size: int | None = None,
        *,
        cache: Cache | None = None,
        route: Route | None = None,
        strict: bool | None = None,
        stream: object = None,
    ) -> Future:
        """Begin to write the bytes of `buf` and return at once.

        The file grows beyond its end, with zeros between. By default the bytes are in the OS page
        cache afterwards, and every reader of the file sees them. `fsync` makes them durable.

        Parameters
        ----------
        buf : buffer
            Contiguous host or device memory: `DeviceMemory`, an object with the buffer protocol,
            DLPack or `__cuda_array_interface__`. No work that is queued later may write to it
            before the call is over.
        size : int, optional
            Bytes; by default all of `buf`.
        file_offset : int, optional
            Offset in the file, in bytes; 0 by default. In mode "a" every write goes to the end of
            the file: an offset is a ValueError, and `Report.offset` says where the bytes went.
        task_size : int, optional
            Is ignored; it is there for programs written for KvikIO.
        cache, route, strict : optional
            As in `penstock.open`, for this call only.
        stream : optional
            As in `pread`.

        Returns
        -------
        Future
            Its result is the number of bytes.

        Raises
        ------
        Error
            An OSError of the class that Python has for the errno, with offset and route.
        """
    def write(
        self,
        buf: Readable,
        size: int | None = None,
        file_offset: int | None = None,
        task_size: int | None = None,
        *,
        cache: Cache | None = None,
        route: Route | None = None,
        strict: bool | None = None,
        stream: object = None,
    ) -> int:
        """Write the bytes of `buf`.

        The file grows beyond its end, with zeros between. By default the bytes are in the OS page
        cache afterwards, and every reader of the file sees them. `fsync` makes them durable.

        Parameters
        ----------
        buf : buffer
            Contiguous host or device memory: `DeviceMemory`, an object with the buffer protocol,
            DLPack or `__cuda_array_interface__`. No work that is queued later may write to it
            before the call is over.
        size : int, optional
            Bytes; by default all of `buf`.
        file_offset : int, optional
            Offset in the file, in bytes; 0 by default. In mode "a" every write goes to the end of
            the file: an offset is a ValueError, and `Report.offset` says where the bytes went.
        task_size : int, optional
            Is ignored; it is there for programs written for KvikIO.
        cache, route, strict : optional
            As in `penstock.open`, for this call only.
        stream : optional
            As in `pread`.

        Returns
        -------
        int
            Bytes.

        Raises
        ------
        Error
            An OSError of the class that Python has for the errno, with offset and route.

        Notes
        -----
        Signals as in `read`.
        """
    def pwritev(
        self,
        pieces: Iterable[Source],
        *,
        cache: Cache | None = None,
        route: Route | None = None,
        strict: bool | None = None,
        stream: object = None,
    ) -> Future:
        """Begin to write many pieces and return at once.

        Parameters
        ----------
        pieces : iterable of tuple
            `(buf, file_offset)` or `(buf, file_offset, size)`. In mode "a" the offset is None.
        cache, route, strict : optional
            As in `penstock.open`, for this call only.
        stream : optional
            As in `pread`.

        Returns
        -------
        Future
            Its result is the number of bytes of all pieces.

        Raises
        ------
        Error
            An OSError of the class that Python has for the errno, with offset and route.
        """
    def writev(
        self,
        pieces: Iterable[Source],
        *,
        cache: Cache | None = None,
        route: Route | None = None,
        strict: bool | None = None,
        stream: object = None,
    ) -> int:
        """Write many pieces.

        Parameters
        ----------
        pieces : iterable of tuple
            `(buf, file_offset)` or `(buf, file_offset, size)`. In mode "a" the offset is None.
        cache, route, strict : optional
            As in `penstock.open`, for this call only.
        stream : optional
            As in `pread`.

        Returns
        -------
        int
            Bytes of all pieces.

        Raises
        ------
        Error
            An OSError of the class that Python has for the errno, with offset and route.

        Notes
        -----
        Signals as in `read`.
        """
    def fsync(self, data_only: bool = False) -> None:
        """Make what was written durable: it outlasts a loss of power when this returns.

        This covers the writes of all programs that are done. Writes under way, and futures that are
        not done, may not be covered. An Error may mean that bytes are lost; it is raised only once.

        Parameters
        ----------
        data_only : bool
            As fdatasync(2).
        """
    def prefetch(self, file_offset: int = 0, size: int | None = None) -> None:
        """Tell the OS that these bytes will be read soon.

        It begins to read them into its page cache. Returns without waiting for the bytes.

        Parameters
        ----------
        file_offset : int
            The first byte.
        size : int, optional
            Bytes; without it up to the end of the file.
        """
    def truncate(self, size: int) -> None:
        """Cut the file off at `size` bytes, or extend it with zeros."""
    def close(self) -> None:
        """Close the file. Reads and writes under way go on. Syncs nothing."""
    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
    @property
    def name(self) -> str | bytes | int:
        """The file, as it was given to `penstock.open`."""
    @property
    def mode(self) -> str:
        """The mode that the file was opened with."""
    @property
    def size(self) -> int:
        """The size of the file now, in bytes."""
    @property
    def device(self) -> str:
        """The device whose memory is read into or written; empty for host memory."""
    @property
    def cache(self) -> Cache:
        """The default of `cache` for calls."""
    @property
    def route(self) -> Route | None:
        """The default of `route` for calls."""
    @property
    def strict(self) -> bool:
        """The default of `strict` for calls."""
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
def follow(
    device: str,
    pattern_list: bytes | None,
    pattern_texts: list[bytes],
    paths: list[bytes],
    *,
    lines: bool,
    form: str,
    output: int,
    notice: Callable[[str, str, bool], None],
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
    force: bool = False,
    seconds: float = 10.0,
    progress: Callable[[str, float], None] | None = None,
) -> dict[str, Any]: ...
def stored_calibrations() -> dict[str, Any]: ...
def calibration_in_use(path: bytes, *, device: str = "") -> dict[str, Any]: ...
def reset_calibrations(path: bytes) -> int: ...
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
    def plot(
        self, columns: int, rows: int, *, over_time: bool = False, streams: Sequence[int] = ()
    ) -> dict[str, Any]: ...
