"""What command lines share: parsers of devices, sizes and numbers of threads, and sizes as text."""

from __future__ import annotations

import argparse
import contextlib
import os
import re

from penstock.errors import UsageError

TYPE_CHECKING = False  # typing's, whose loading is a tenth of a short command's time
if TYPE_CHECKING:
    from typing import Any


def device_name(text: str) -> str:
    """Return `text` if it names a device: auto, cpu, cpu:N, cuda or cuda:N."""
    if not re.fullmatch(r"auto|cpu(:[1-9]\d*)?|cuda(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not auto, cpu, cpu:N (N from 1) or cuda:N")
    return text


def device_names(text: str) -> str:
    """Return `text` if it names one device, or several with commas between, each once."""
    names = text.split(",")
    for name in names:
        device_name(name)
    if len(set(names)) < len(names) or (len(names) > 1 and "auto" in names):
        raise argparse.ArgumentTypeError(f"{text!r} names a device twice, or auto among others")
    return text


def devices_text(size: int, names: str) -> str:
    """Return how much memory of which devices a cache takes, `size` bytes of each."""
    each = "each of " if "," in names else ""
    return f"{size_text(size)} of {each}{names.replace(',', ', ')}"


def chosen_device(option: str | None) -> str:
    """Return the device that `option`, or else PENSTOCK_DEVICE, names; empty if neither does."""
    if option:
        return option
    named = os.environ.get("PENSTOCK_DEVICE", "")
    try:
        return named and device_name(named)
    except argparse.ArgumentTypeError as error:
        raise UsageError("PENSTOCK_DEVICE", str(error)) from None


TRACE_HELP = "write all reads and their times as a Chrome trace (chrome://tracing, Perfetto)"


def traced(path: str | None) -> contextlib.AbstractContextManager[Any]:
    """Return a context manager that writes a trace of its reads to `path`; none if it is None."""
    if path is None:
        return contextlib.nullcontext()
    from penstock import trace

    return trace(path)


_THREADS_MAX = 64  # the limit of penstock.open


def thread_count(text: str) -> int:
    """Return the number of threads that `text` gives."""
    count = int(text) if re.fullmatch(r"\d{1,9}", text) else 0
    if not 1 <= count <= _THREADS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {_THREADS_MAX}")
    return count


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def byte_size(text: str) -> int:
    """Return the number of bytes that `text` gives: 4096, 4K, 16M, 2G, 1T (powers of 1024)."""
    match = re.fullmatch(r"(\d{1,19})([KMGT]?)(iB)?", text)
    size = int(match[1]) * _UNITS[match[2]] if match else 1 << 63
    if size >= 1 << 63:
        raise argparse.ArgumentTypeError(f"{text!r} is no size in bytes (4096, 4K, 16M, 2G)")
    return size


_CACHE_SIZE_MAX = 1 << 50  # of what a cache's process takes as a size
_CHUNK_SIZE = 64 << 10
CHUNKS_MIN = 1024  # of a cache, in each device


def cache_size(text: str) -> int:
    """Return the number of bytes that `text` gives for a part of a cache; 0 is none."""
    size = byte_size(text)
    if size == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is too small (omit it for the default)")
    if size > _CACHE_SIZE_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 1024T")
    return size


def chunk_size(text: str) -> int:
    """Return the number of bytes that `text` gives if a cache may have chunks of so many."""
    size = byte_size(text)
    if size.bit_count() != 1 or not 4 << 10 <= size <= 1 << 20:
        raise argparse.ArgumentTypeError(f"{text!r} is no power of two from 4K to 1M")
    return size


def check_cache_size(option: str, size: int, chunk: int = _CHUNK_SIZE) -> None:
    """Raise UsageError, which names the option, for a cache that has too few chunks."""
    if size < CHUNKS_MIN * chunk:
        raise UsageError(
            option,
            f"{size_text(size)} is too small: a cache has at least {CHUNKS_MIN} chunks of"
            f" {size_text(chunk)}, {size_text(CHUNKS_MIN * chunk)} of each device",
        )


_SIZE_SUFFIXES = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(count: int) -> str:
    """Return a number of bytes as text: 12 bytes, 1.5 MiB (powers of 1024)."""
    if count < 1024:
        return f"{count} bytes"
    power = min((count.bit_length() - 1) // 10, len(_SIZE_SUFFIXES))
    return f"{count / 1024**power:.1f} {_SIZE_SUFFIXES[power - 1]}"


def add_tier(parser: argparse.ArgumentParser) -> None:
    """Add the options of a file cache's tier."""
    parser.add_argument(
        "--tier",
        metavar="FOLDER",
        help="a folder on a quick disk: what was read from PATH is kept there too, and is read"
        " from there when memory has lost it",
    )
    parser.add_argument(
        "--tier-size",
        type=cache_size,
        default=0,
        metavar="SIZE",
        help="space to take there, at least 1024 chunks (16G, or half of what is free)",
    )
    parser.add_argument(
        "--tier-writes",
        action="store_true",
        help="with --tier: fsync returns when its bytes are durable there; PATH gets them some"
        " seconds later",
    )


def chosen_tier(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what these options give to a cache's process."""
    if arguments.tier is None:
        for option, given in (
            ("--tier-size", arguments.tier_size),
            ("--tier-writes", arguments.tier_writes),
        ):
            if given:
                raise UsageError(option, "needs --tier FOLDER")
        return {}
    return {
        "tier": os.path.abspath(arguments.tier),
        "tier_size": arguments.tier_size,
        "tier_writes": arguments.tier_writes,
    }
