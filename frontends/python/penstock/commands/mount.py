"""Show a folder through a cache of its files in device memory.

Any program that uses the files below MOUNTPOINT is served from the cache: what was read once, and
what was written, which goes to PATH a few seconds later. fsync is durable when it returns. Without
MOUNTPOINT the mount lies over PATH itself, so programs need no other paths. Do not change files
below PATH by another way meanwhile: such a change is seen when a file is opened, not before.
`penstock umount` ends it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal

from penstock.arguments import (
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
from penstock.errors import CommandError, UsageError

EXAMPLE = """\
  $ penstock mount ~/data --cache-size 8G --device cuda:0
  /home/me/data: mounted, 8.0 GiB of cuda:0 cache its files (try: penstock umount /home/me/data)
  $ python train.py ~/data
  $ penstock umount ~/data
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock mount`."""
    parser.add_argument("path", metavar="PATH", help="the folder whose files are cached")
    parser.add_argument(
        "mountpoint", metavar="MOUNTPOINT", nargs="?", help="an existing folder (default: PATH)"
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
    parser.add_argument(
        "--dirty-limit",
        type=cache_size,
        default=0,
        metavar="SIZE",
        help="what may wait to be written to PATH (a quarter of the cache)",
    )
    add_tier(parser)
    parser.add_argument(
        "--read-only", action="store_true", help="let programs change nothing (EROFS)"
    )
    parser.add_argument(
        "--suid",
        action="store_true",
        help="let set-user-ID and set-group-ID bits of programs there count (only root)",
    )
    parser.add_argument(
        "--dev", action="store_true", help="let device files there be devices (only root)"
    )
    parser.add_argument("--foreground", action="store_true", help="stay, until unmounted or Ctrl-C")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _check_writing(arguments: argparse.Namespace) -> None:
    """Raise UsageError for options about writing that can have no effect."""
    if arguments.read_only:
        for option in ("--dirty-limit", "--tier-writes"):
            if getattr(arguments, option.strip("-").replace("-", "_")):
                raise UsageError(option, "has no effect with --read-only (leave one of them out)")
    size = arguments.cache_size * (1 + (arguments.device or "").count(","))
    if arguments.dirty_limit > size:
        cause = f"{size_text(arguments.dirty_limit)} are more than the cache ({size_text(size)})"
        raise UsageError("--dirty-limit", cause)


def _check_rights(arguments: argparse.Namespace) -> None:
    """Raise CommandError for options that give programs rights which this user does not have."""
    for option in ("suid", "dev"):
        if getattr(arguments, option) and os.geteuid() != 0:
            raise CommandError(f"--{option}", "only root's mounts may have it (leave it out)")


def run(arguments: argparse.Namespace) -> int:
    """Start the process behind the mount."""
    from penstock.cache_places import resolved
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
    mountpoint = resolved(arguments.mountpoint) if arguments.mountpoint else path
    if mountpoint == "/":
        cause = "cannot be mounted over: the mount's own process needs its files (try one below)"
        raise CommandError(mountpoint, cause)
    check_cache_size("--cache-size", arguments.cache_size, arguments.chunk_size)
    _check_writing(arguments)
    _check_rights(arguments)
    device = chosen_device(arguments.device) or "auto"
    service = Service(
        path=path,
        mountpoint=mountpoint,
        read_only=arguments.read_only,
        suid=arguments.suid,
        dev=arguments.dev,
        device=device,
        cache_size=arguments.cache_size,
        chunk_size=arguments.chunk_size,
        keep_free=arguments.keep_free,
        **chosen_tier(arguments),
        dirty_size_max=arguments.dirty_limit,
    )
    process = start(service, detached=not arguments.foreground, bound=arguments.foreground)
    with ended_if_interrupted(process):
        device = devices_of(service)
        if arguments.json:
            told = {"path": path, "mountpoint": mountpoint, "pid": process.pid, "device": device}
            told |= {"cache_size": arguments.cache_size, "log": service.log}
            print(json.dumps(told, indent=2), flush=True)
        else:
            print(
                f"{printable(mountpoint)}: mounted, {devices_text(arguments.cache_size, device)}"
                f" cache its files (try: penstock umount {quoted(mountpoint)})",
                flush=True,
            )
    if not arguments.foreground:
        return 0
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process gets it too, and ends
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    tell_systemd()
    return process.wait()
