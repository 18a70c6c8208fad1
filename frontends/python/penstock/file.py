"""Opens files for host reads and writes: `penstock.open`."""

from __future__ import annotations

from penstock._core import File

TYPE_CHECKING = False  # typing's; loading that takes longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from penstock._core import Cache, FileName, Mode, Route, Storage


def open(  # noqa: A001, PLR0913, PLR0917 (as gzip.open; each has its paragraph below)
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
) -> File:
    """Open a regular file, to move bytes between it and host or device memory.

    Parameters
    ----------
    file : path, int, or object with fileno()
        The file of a descriptor is opened again. The descriptor's position does not change, and
        the caller may close it.
    mode : str
        r reads; w writes, and truncates or creates the file; a writes, each time to the end that
        the file has then, and creates the file if it is missing; x writes, and raises
        FileExistsError if the file exists. With + the file can be read and written. b may be added.
        Reads and writes have their own offset, but for writes in mode a, which take none.
    device : str, optional
        auto, cpu, cpu:N or cuda:N: the device whose memory is read into or written from. None
        stands for host memory, and for the CUDA device of each buffer that is on one.
    cache : str
        What reads do to the OS page cache. auto: cached bytes are used and stay; other bytes take
        the cheapest route. keep: all bytes go through the cache and stay. drop: bytes that were
        not cached do not stay, as far as the OS allows. bypass: all bytes that can be read direct
        are. Before Linux 6.14, and on file systems without RWF_DONTCACHE (as FUSE), drop leaves
        reads below 32 KiB, writes, and bytes that cannot be read direct in the cache; the report's
        reason for them is no-drop. Writes go through the cache; with bypass, whole pages go past
        it.
    route : str, optional
        cached, direct or peer: the route to take wherever it is possible. auto is the cheapest
        route, whatever PENSTOCK_ROUTE says. None is the value of PENSTOCK_ROUTE.
    strict : bool, optional
        Raise FallbackError if `route` is not possible, if bytes cannot go past the OS page cache
        with bypass, or if they would stay there with drop (small reads go past it then). None is
        the value of PENSTOCK_STRICT.
    threads : int, optional
        Number of threads that read and write, beside the caller, 1 to 64. None is the value of
        PENSTOCK_THREADS, or else the number of CPUs, at most 16.
    storage : str
        The interface to the OS: uring (io_uring), posix, or auto, which is uring if available.
    throttle_latency_us, throttle_bandwidth_mbs : float
        For studies: the least duration of every storage operation, in microseconds, and the
        bandwidth limit of all operations together, in 10^6 bytes a second. 0 sets no limit.

    Returns
    -------
    File
        A context manager; any thread may use it.

    Raises
    ------
    Error
        The OSError of open(2), and of the same class; also for directories, pipes and devices.
    """
    places = (file, mode, device, cache, route, strict, threads)
    named: dict[str, Any] = {
        "storage": storage,
        "throttle_latency_us": throttle_latency_us,
        "throttle_bandwidth_mbs": throttle_bandwidth_mbs,
    }
    try:
        return File(*places, **named)
    except TypeError as error:
        if "incompatible function arguments" not in str(error):
            raise
        from penstock.errors import misuse

        raise misuse(File.__init__, [None, *places], named, "open") from None
