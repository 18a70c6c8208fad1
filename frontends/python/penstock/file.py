"""Opening files for host reads and writes: `penstock.open`."""

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
        A descriptor's file is opened again; its position is not touched and it may be closed.
    mode : str
        r: read; w: write, cut to nothing or made; a: write, made if it is missing; x: write, and
        FileExistsError if it is there; with + both. b may be added. Reads and writes go where
        their offset says, whatever the mode.
    device : str, optional
        auto, cpu, cpu:N or cuda:N, whose memory is read into or written. None: host memory, and
        the CUDA device of each buffer that lies on one.
    cache : str
        What reads do to the OS page cache. auto: what is cached is used and stays, what is not
        takes the cheapest route; keep: everything goes through the cache and stays; drop: what
        was not there is not left there, as far as the kernel lets it (reads below 32 KiB, writes,
        and what cannot be read direct, stay before Linux 6.14 and on file systems that do not
        take RWF_DONTCACHE, as FUSE: the report's reason for them is no-drop); bypass: direct
        wherever that can be. What is written goes through the cache unless it says bypass, which
        sends whole pages past it.
    route : str, optional
        cached, direct or peer: take this route wherever it can be taken. None: what PENSTOCK_ROUTE
        says. auto: the cheapest, whatever it says.
    strict : bool, optional
        Raise FallbackError where `route` cannot be taken, bytes cannot go past the OS page cache
        with bypass, or would stay there with drop (small reads go past it then). None: what
        PENSTOCK_STRICT says.
    threads : int, optional
        That read and write, beside the caller, 1 to 64. None: what PENSTOCK_THREADS says, else as
        many as CPUs, at most 16.
    storage : str
        What moves the bytes: uring (io_uring), posix, or auto, which takes uring where it is there.
    throttle_latency_us, throttle_bandwidth_mbs : float
        For studies: every storage operation takes at least so long, all together move at most so
        many 10^6 bytes a second. 0: not slowed.

    Returns
    -------
    File
        A context manager; any thread may use it.

    Raises
    ------
    Error
        As the OSError of open(2), and of the same class; also for directories, pipes and devices.
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
