"""KvikIO's CuFile: penstock.File with KvikIO's additional calls."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from types import TracebackType
from typing import Any

from penstock._core import File
from penstock.errors import Error, error_of
from penstock.kvikio import defaults
from penstock.kvikio.buffers import cuda_part


class CuFile(File):
    """An open file with KvikIO's calls. Any thread may use it.

    Parameters
    ----------
    file : path, int, or object with fileno()
    flags : str
        KvikIO's word for `mode`: r, w or a, with + or without.
    device, cache, route, strict, threads
        As in penstock.open. The default of `threads` comes from penstock.kvikio.defaults.
    mode : str, optional
        Replaces `flags`.
    **more
        `storage` and the other arguments of penstock.open.

    Raises
    ------
    Error
        As penstock.open. It is an OSError, and a RuntimeError as in KvikIO.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (those of penstock.open)
        self,
        file: Any,
        flags: Any = "r",
        device: str | None = None,
        cache: Any = "auto",
        route: Any = None,
        strict: bool | None = None,
        threads: int | None = None,
        *,
        mode: Any = None,
        **more: Any,
    ) -> None:
        self._descriptor = -1
        threads = defaults.threads() if threads is None else threads
        try:
            super().__init__(file, mode or flags, device, cache, route, strict, threads, **more)
            self._descriptor = _opened(self, file)
        except Error as error:
            error.strerror = f"Unable to open file: {error.strerror}"
            raise

    def fileno(self) -> int:
        """Return a descriptor of the file; close() closes it."""
        if self._descriptor < 0:
            raise error_of(errno.EBADF, "the file is closed", self.name)
        return self._descriptor

    def open_flags(self) -> int:
        """Return the flags of the descriptor: see open(2)."""
        return fcntl.fcntl(self.fileno(), fcntl.F_GETFL)

    def close(self) -> None:
        """Close the file; reads and writes under way go on."""
        descriptor, self._descriptor = self._descriptor, -1
        super().close()
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> CuFile:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _where: TracebackType | None,
        /,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if self.__dict__.get("_descriptor", -1) >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)

    def is_direct_io_supported(self) -> bool:
        """Return whether the file can be opened for direct I/O."""
        try:
            os.close(os.open(f"/proc/self/fd/{self.fileno()}", os.O_RDONLY | os.O_DIRECT))
        except OSError:
            return False
        return True

    def raw_read(
        self, buf: Any, size: int | None = None, file_offset: int = 0, dev_offset: int = 0
    ) -> int:
        """Read into memory of a CUDA device, from its byte `dev_offset` on; as `read`.

        Raises ValueError for memory of the host, as KvikIO does.
        """
        return self.read(cuda_part(buf, dev_offset), size, file_offset)

    def raw_write(
        self, buf: Any, size: int | None = None, file_offset: int | None = None, dev_offset: int = 0
    ) -> int:
        """Write from memory of a CUDA device, from its byte `dev_offset` on; as `write`."""
        return self.write(cuda_part(buf, dev_offset), size, file_offset)

    def raw_read_async(
        self,
        buf: Any,
        raw_stream: int,
        size: int | None = None,
        file_offset: int = 0,
        dev_offset: int = 0,
    ) -> IOFutureStream:
        """Read after the work that is queued on a stream, and before work that is queued later.

        The call blocks: it waits for the stream, and has read when it returns.
        """
        part = cuda_part(buf, dev_offset)
        _wait_for(raw_stream)
        return IOFutureStream(self.read(part, size, file_offset))

    def raw_write_async(
        self,
        buf: Any,
        raw_stream: int,
        size: int | None = None,
        file_offset: int | None = None,
        dev_offset: int = 0,
    ) -> IOFutureStream:
        """Write after the work that is queued on a stream; the call has written at its return."""
        part = cuda_part(buf, dev_offset)
        _wait_for(raw_stream)
        return IOFutureStream(self.write(part, size, file_offset))


class IOFutureStream:
    """The result of raw_read_async and raw_write_async."""

    def __init__(self, count: int) -> None:
        self._count = count

    def check_bytes_done(self) -> int:
        """Return the number of bytes that were read or written."""
        return self._count


def _opened(opened: File, file: Any) -> int:
    """Return another descriptor of the opened file."""
    flags = os.O_RDWR if "+" in opened.mode else os.O_RDONLY if opened.mode == "r" else os.O_WRONLY
    flags |= os.O_APPEND if opened.mode.startswith("a") else 0
    if isinstance(file, int):
        path: Any = f"/proc/self/fd/{file}"
    elif hasattr(file, "fileno") and not hasattr(file, "__fspath__"):
        path = f"/proc/self/fd/{file.fileno()}"
    else:
        path = file
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError as error:
        raise error_of(error.errno or errno.EIO, "", opened.name) from None


def _wait_for(raw_stream: int) -> None:
    """Wait for the work that is queued on a stream, by the library that is loaded."""
    for name in ("cupy", "torch"):
        library = sys.modules.get(name)
        if library is not None:
            library.cuda.ExternalStream(raw_stream).synchronize()
            return
    raise RuntimeError("neither torch nor cupy is there, which a stream could be waited for with")
