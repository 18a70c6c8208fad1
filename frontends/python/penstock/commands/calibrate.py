"""Measure what reads of a file system cost, so that each byte range takes the cheapest route.

The command times reads of 4 KiB to 1 MiB on a scratch file beside PATH, with the threads and queue
depth that reads use: past the OS page cache (direct), out of it (cached), and through it for bytes
that it does not hold (buffered). It stores the fitted costs for this user, file system and device
memory, in $XDG_CONFIG_HOME/penstock/calibration.json or ~/.config/penstock/calibration.json. Files
that are opened afterwards use them; without them there are defaults. It takes about 10 s. The
scratch file has 16 to 512 MiB and no name, so its space is freed however the command ends. Other
load on the machine changes the result.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
from typing import Any

from penstock.arguments import chosen_device, device_name
from penstock.errors import CommandError, UsageError
from penstock.progress import ProgressLine

EXAMPLE = """\
  $ penstock calibrate ~/models
  ext4 dfa2e0afa46d6f45 into host memory: 2 threads, 16 operations each, 128 MiB in 5.1 s
    direct    23 us up to 6 KiB, then 3.1 GB/s; 41 us once       R2 0.999, mean error 2.3 %
    cached    1.7 us, then 6.5 GB/s                              R2 0.999, mean error 1.7 %
    buffered  79 us more, then 1.1 GB/s                          R2 0.996, mean error 4.0 %
  stored in ~/.config/penstock/calibration.json
  $ penstock calibrate . --json --dry-run
"""

_THREADS_MAX = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock calibrate`."""
    parser.add_argument("path", metavar="PATH", help="a folder, or a file in it")
    parser.add_argument(
        "--device",
        type=device_name,
        default=None,
        metavar="D",
        help="auto, cpu, cpu:N or cuda:N (default: PENSTOCK_DEVICE, else auto)",
    )
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="threads that read")
    parser.add_argument(
        "--seconds", type=float, default=10.0, metavar="S", help="approximate duration (10)"
    )
    parser.add_argument("--dry-run", action="store_true", help="measure, and store nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _time(ns: float) -> str:
    return f"{ns / 1e3:.3g} us" if ns < 1e6 else f"{ns / 1e6:.3g} ms"


def _rate(told: dict[str, Any], threads: int) -> str:
    """Return the bytes a second of all threads together."""
    return f"{threads / told['ns_per_byte']:.3g} GB/s"


def _row(name: str, told: dict[str, Any], threads: int) -> str:
    if not told["measured"]:
        return f"  {name:<10}not measured: {told['reason']}"
    rate = _rate(told, threads)
    if name == "direct":
        cutoff = f" up to {told['cutoff_size'] / 1024:.3g} KiB" if told["cutoff_size"] else ""
        text = f"{_time(told['ns'])}{cutoff}, then {rate}; {_time(told['start_ns'])} once"
    elif name == "cached":
        text = f"{_time(told['ns'])}, then {rate}"
    else:
        text = f"{_time(told['ns'])} more, then {rate}"
    quality = f"R2 {told['r_squared']:.3f}, mean error {100 * told['error_mean']:.1f} %"
    return f"  {name:<10}{text:<52} {quality}"


def _print(told: dict[str, Any]) -> None:
    into = "host memory" if told["memory"] == "host" else told["memory"]
    print(
        f"{told['file_system']} into {into}: {told['threads']} threads, {told['depth']} operations"
        f" each, {told['scratch_size'] >> 20} MiB in {told['seconds']:.1f} s"
    )
    for name in ("direct", "cached", "buffered"):
        print(_row(name, told[name], told["threads"]))
    if told["stored_in"]:
        print(f"stored in {os.fsencode(told['stored_in']).decode('utf-8', 'backslashreplace')}")


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    from penstock import _core

    try:
        with ProgressLine() as line:
            return _core.calibrate(
                os.fsencode(arguments.path),
                device=chosen_device(arguments.device),
                threads=arguments.threads,
                store=not arguments.dry_run,
                seconds=arguments.seconds,
                progress=lambda what, share: line.show(f"{what}: {100 * share:.0f} %"),
            )
    except OSError as error:
        subject = arguments.path
        if error.errno == errno.ENODEV and arguments.device:
            subject = arguments.device
        raise CommandError(subject, error.strerror or str(error)) from None


def run(arguments: argparse.Namespace) -> int:
    """Measure, store and print."""
    if not 0 <= arguments.threads <= _THREADS_MAX:
        raise UsageError("--threads", f"from 1 to {_THREADS_MAX}")
    if not 0 <= arguments.seconds <= 3600:
        raise UsageError("--seconds", "from 0 to 3600")
    told = _measure(arguments)
    if arguments.json:
        print(json.dumps(told, indent=2))
    else:
        _print(told)
    if told["complaint"]:
        line = os.fsencode(told["complaint"]).decode("utf-8", "backslashreplace")
        print(f"penstock: {line}", file=sys.stderr)
    return 0 if told["stored_in"] or arguments.dry_run else 1
