"""Keep files of a folder in device memory, for programs that read them again and again.

Programs that `penstock run --cache PATH` starts read files below PATH from that memory: a read of
what is there makes no system call. Several programs share one cache. Writes go to the files at
once. A file that somebody has open for writing is not served meanwhile. Where the file system has
no leases (NFS), or the files are another user's, a change by others is seen when a program opens
the file again. Without --detach the command stays until Ctrl-C. `penstock stats` shows its use.
--give-back and --grow change how much memory a running cache has, and --flush writes back, also
that of a mount.
"""

from __future__ import annotations

import argparse
import json
import os
import signal

from penstock.arguments import (
    CHUNKS_MIN,
    add_tier,
    byte_size,
    cache_size,
    check_cache_size,
    chosen_device,
    chosen_tier,
    chunk_size,
    device_names,
    devices_text,
    size_text,
)

EXAMPLE = """\
  $ penstock serve --cache /mnt/images --cache-size 16G --device cuda:0 --detach
  /mnt/images: served from 16.0 GiB of cuda:0 (try: penstock run --cache /mnt/images PROGRAM)
  $ penstock run --cache /mnt/images python train.py
  $ penstock stats /mnt/images --once
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock serve`."""
    parser.add_argument(
        "--cache", metavar="PATH", dest="path", required=True, help="the folder to cache"
    )
    parser.add_argument(
        "--cache-size",
        type=cache_size,
        default=1 << 30,
        metavar="SIZE",
        help="memory to take of each device, at least 1024 chunks (1G)",
    )
    parser.add_argument(
        "--chunk-size",
        type=chunk_size,
        default=64 << 10,
        metavar="SIZE",
        help="unit of the cache, a power of two from 4K to 1M (64K)",
    )
    parser.add_argument(
        "--device",
        type=device_names,
        default=None,
        metavar="D,...",
        help="auto, or cpu, cpu:N and cuda:N (default: PENSTOCK_DEVICE, else auto)",
    )
    parser.add_argument(
        "--keep-free",
        type=byte_size,
        default=0,
        metavar="SIZE",
        help="memory of each device that other programs shall find free: the cache shrinks for it,"
        " and grows again",
    )
    add_tier(parser)
    ending = parser.add_mutually_exclusive_group()
    ending.add_argument("--detach", action="store_true", help="return when it serves")
    ending.add_argument(
        "--stop", action="store_true", help="end the process that serves PATH, but not a mount"
    )
    ending.add_argument(
        "--give-back",
        type=byte_size,
        metavar="SIZE",
        help="let the cache that serves PATH give memory to other programs",
    )
    ending.add_argument(
        "--grow",
        type=byte_size,
        metavar="SIZE",
        help="let it take such memory again, at most what it had at first",
    )
    ending.add_argument(
        "--flush",
        action="store_true",
        help="let it write to storage all that programs have written, and make that durable",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _stop(path: str, *, as_json: bool) -> int:
    from penstock import cache_places
    from penstock.cache_service import printable, quoted
    from penstock.errors import CommandError

    place = cache_places.find(path)
    if place is None or path not in {place.path, place.mountpoint}:
        raise CommandError(printable(path), "has no cache (try: penstock stats)")
    if place.mountpoint:
        cause = "its cache is mounted (try: penstock umount"
        raise CommandError(printable(path), f"{cause} {quoted(place.mountpoint)})")
    cache_places.stop(place)
    if as_json:
        print(json.dumps({"path": path}, indent=2))
    else:
        print(f"{printable(path)}: its cache has ended")
    return 0


def _flush(path: str, *, as_json: bool) -> int:
    from penstock import cache_places
    from penstock.cache_service import printable
    from penstock.errors import CommandError
    from penstock.progress import ProgressLine

    place = cache_places.find(path)
    if place is None:
        raise CommandError(printable(path), "has no cache (try: penstock stats)")
    with ProgressLine() as progress:
        cache_places.flush(
            place, lambda told: progress.show(f"{size_text(told['dirty_size'])} to write")
        )
        os.sync()  # the file systems below
    if as_json:
        print(json.dumps({"path": place.path}, indent=2))
    else:
        print(f"{printable(place.path)}: all that was written is on storage")
    return 0


def _resize(path: str, arguments: argparse.Namespace) -> int:
    from penstock import cache_places
    from penstock.cache_service import printable
    from penstock.errors import CommandError

    place = cache_places.find(path)
    if place is None:
        raise CommandError(printable(path), "has no cache (try: penstock stats)")
    told = cache_places.statistics(place)
    slab = CHUNKS_MIN * told["chunk_size"]
    in_slabs = f"memory goes in slabs of {size_text(slab)}"
    grows = arguments.grow is not None
    note = ""
    if grows:
        if arguments.grow > 0 and not told["given_back_size"]:
            cause = f"has all that it had at first, {size_text(told['size'])}: it takes no more"
            raise CommandError(printable(place.path), cause)
        if 0 < arguments.grow < slab:
            raise CommandError(printable(place.path), f"{in_slabs}: it takes no less")
        changed = cache_places.grow(place, arguments.grow)
        if changed + slab <= arguments.grow:
            note = f" ({size_text(arguments.grow)} were asked for)"
    else:
        changed = cache_places.give_back(place, arguments.give_back)
        if changed > arguments.give_back:
            note = f" ({in_slabs})"
        elif changed < arguments.give_back:
            note = f" ({size_text(arguments.give_back)} were asked for)"
    told = cache_places.statistics(place)
    if arguments.json:
        sizes = {"grown" if grows else "given_back": changed, "size": told["size"]}
        print(json.dumps({"path": place.path, **sizes}, indent=2))
    else:
        done = "has taken" if grows else "has given back"
        print(
            f"{printable(place.path)}: {done} {size_text(changed)}, caches in"
            f" {size_text(told['size'])}{note}"
        )
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Start the process that owns the memory."""
    from penstock.cache_places import require_alive, resolved
    from penstock.cache_service import (
        Service,
        devices_of,
        ended_if_interrupted,
        printable,
        quoted,
        start,
        tell_systemd,
    )

    path = resolved(arguments.path)
    require_alive(path)
    os.scandir(path).close()  # it exists, and may be read
    if arguments.stop:
        return _stop(path, as_json=arguments.json)
    if arguments.flush:
        return _flush(path, as_json=arguments.json)
    if arguments.give_back is not None or arguments.grow is not None:
        return _resize(path, arguments)
    check_cache_size("--cache-size", arguments.cache_size, arguments.chunk_size)
    device = chosen_device(arguments.device) or "auto"
    service = Service(
        path=path,
        device=device,
        cache_size=arguments.cache_size,
        chunk_size=arguments.chunk_size,
        keep_free=arguments.keep_free,
        **chosen_tier(arguments),
    )
    process = start(service, detached=arguments.detach, bound=not arguments.detach)
    with ended_if_interrupted(process):
        device = devices_of(service)
        size = arguments.cache_size
        if arguments.json:
            told = {"path": path, "pid": process.pid, "device": device, "cache_size": size}
            told["log"] = service.log
            print(json.dumps(told, indent=2), flush=True)
        else:
            print(
                f"{printable(path)}: served from {devices_text(size, device)}"
                f" (try: penstock run --cache {quoted(path)} PROGRAM)",
                flush=True,
            )
    if arguments.detach:
        return 0
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process gets it too, and ends
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    tell_systemd()
    return process.wait()
