"""Measure what reads of a file system cost, so that each byte range takes the cheapest route.

The command times reads of 4 KiB to 1 MiB on a scratch file beside PATH, with the threads and queue
depth that reads use: past the OS page cache (direct), out of it (cached), and through it for bytes
that it does not hold (buffered). It stores the fitted costs for this user, file system and device
memory, in $XDG_CONFIG_HOME/penstock/calibration.json or ~/.config/penstock/calibration.json. Files
that are opened afterwards use them; without them there are defaults. It takes about 10 s. The
scratch file has 16 to 512 MiB and no name, so its space is freed however the command ends. Other
load on the machine changes the result: costs that do not fit the measured times, or that were
measured while other programs used the CPUs, are not stored, and those of before stay. `--show`
lists what is stored, and `--reset` removes it.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
from typing import Any

from penstock import calibrations
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
  $ penstock calibrate --show
  ext4 dfa2e0afa46d6f45 into host memory: 5 minutes old, error 6.8 %
    direct    error 4.4 %
    cached    error 3.0 %
    buffered  error 6.8 %
  stored in ~/.config/penstock/calibration.json
  $ penstock calibrate --reset ~/models
"""

_THREADS_MAX = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock calibrate`."""
    parser.add_argument("path", metavar="PATH", nargs="?", help="a folder, or a file in it")
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--show", action="store_true", help="print what is stored, for PATH or for all, and exit"
    )
    action.add_argument(
        "--reset", action="store_true", help="remove what is stored, for PATH or for all, and exit"
    )
    action.add_argument(
        "--force", action="store_true", help="store also costs that do not fit the measured times"
    )
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


def _shown(text: str) -> str:
    return os.fsencode(text).decode("utf-8", "backslashreplace")


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
        print(f"stored in {_shown(told['stored_in'])}")


def _refusal(told: dict[str, Any], arguments: argparse.Namespace) -> str:
    if not told["refusal"] or arguments.force:
        return ""
    line = f"{arguments.path}: not stored: {told['refusal']}; what was stored before stays"
    return f"{line} (try on a quiet machine, or with more --seconds)"


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    from penstock import _core

    try:
        with ProgressLine() as line:
            return _core.calibrate(
                os.fsencode(arguments.path),
                device=chosen_device(arguments.device),
                threads=arguments.threads,
                store=not arguments.dry_run,
                force=arguments.force,
                seconds=arguments.seconds,
                progress=lambda what, share: line.show(f"{what}: {100 * share:.0f} %"),
            )
    except OSError as error:
        subject = arguments.path
        if error.errno == errno.ENODEV and arguments.device:
            subject = arguments.device
        raise CommandError(subject, error.strerror or str(error)) from None


def _file_system(path: str) -> str:
    try:
        return str(calibrations.in_use(path, "cpu")["file_system"])
    except OSError as error:
        raise CommandError(path, error.strerror or str(error)) from None


def _show(arguments: argparse.Namespace) -> int:
    from penstock import _core

    stored = _core.stored_calibrations()
    entries = [calibrations.with_age(one) for one in stored["entries"]]
    if arguments.path is not None:
        wanted = _file_system(arguments.path)
        entries = [one for one in entries if one["file_system"] == wanted]
    if arguments.json:
        answer = {"stored_in": stored["path"], "complaint": stored["complaint"], "entries": entries}
        print(json.dumps(answer, indent=2))
        return 0
    for one in entries:
        into = "host memory" if one["memory"] == "host" else one["memory"]
        by = "" if one["storage"] == "auto" else f" by {one['storage']}"
        print(f"{one['file_system']} into {into}{by}: {calibrations.stored_text(one)}")
        for name in ("direct", "cached", "buffered"):
            route = one[name]
            error = "not measured"
            if route is not None:
                known = route["error"] is not None
                error = f"error {100 * route['error']:.1f} %" if known else "error not stored"
            print(f"  {name:<10}{error}")
    if stored["complaint"]:
        print(f"penstock: {_shown(stored['complaint'])}", file=sys.stderr)
    elif entries:
        print(f"stored in {_shown(stored['path'])}")
    else:
        print("nothing is stored: default costs are used, which follow the reads")
    return 0


def _reset(arguments: argparse.Namespace) -> int:
    from penstock import _core

    try:
        count = _core.reset_calibrations(os.fsencode(arguments.path or ""))
    except OSError as error:
        raise CommandError(arguments.path or "calibration", error.strerror or str(error)) from None
    if arguments.json:
        print(json.dumps({"removed": count}))
    else:
        print(f"removed {count} calibration{'' if count == 1 else 's'}")
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Measure, store and print; or show or remove what is stored."""
    if arguments.show:
        return _show(arguments)
    if arguments.reset:
        return _reset(arguments)
    if arguments.path is None:
        raise UsageError("PATH", "name a folder to measure in, or give --show or --reset")
    if not 0 <= arguments.threads <= _THREADS_MAX:
        raise UsageError("--threads", f"from 1 to {_THREADS_MAX}")
    if not 0 <= arguments.seconds <= 3600:
        raise UsageError("--seconds", "from 0 to 3600")
    told = _measure(arguments)
    if arguments.json:
        print(json.dumps(told, indent=2))
    else:
        _print(told)
    for line in (told["complaint"], _refusal(told, arguments)):
        if line:
            print(f"penstock: {_shown(line)}", file=sys.stderr)
    return 0 if told["stored_in"] or arguments.dry_run else 1
