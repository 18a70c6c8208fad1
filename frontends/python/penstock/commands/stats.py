"""Show what file caches hold and serve: of PATH, or of all that this user's processes have.

On a terminal the table is renewed each second until Ctrl-C. Each read looks up the chunks that it
touches: hits are those in the cache, misses those that storage had to read. A cache whose process
does not answer within 2 seconds has one line, after the others, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from penstock.arguments import size_text
from penstock.errors import CommandError

EXAMPLE = """\
  $ penstock stats /mnt/nfs/images --once
  $ penstock stats --json
  $ penstock stats --format prometheus > /var/lib/node_exporter/penstock.prom
"""

_NAME_COLUMNS = 40
_ANSWER_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock stats`."""
    parser.add_argument("path", metavar="PATH", nargs="?", help="a folder with a cache, or below")
    parser.add_argument("--once", action="store_true", help="print the table once, also here")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print one JSON object, once")
    forms.add_argument(
        "--format",
        choices=["table", "prometheus"],
        default="table",
        help="prometheus: print metrics as Prometheus reads them, once",
    )


def _shortened(name: str, root: str) -> str:
    from penstock.cache_service import printable

    name = printable(name.removeprefix(root.rstrip("/") + "/"))
    return name if len(name) <= _NAME_COLUMNS else "..." + name[3 - _NAME_COLUMNS :]


def _devices(told: dict[str, Any]) -> list[str]:
    """Return a line for each device of several, and for memory that a cache does not have."""
    lines = []
    for device in told["devices"] if len(told["devices"]) > 1 else []:
        used = device["size"] - device["free_size"]
        state = "lost" if device["lost"] else f"{size_text(device['dirty_size'])} dirty"
        lines.append(
            f"  {device['name']:<9} {size_text(used):>12} of {size_text(device['size'])}, {state}"
        )
    if told["given_back_size"]:
        lines.append(f"  gone      {size_text(told['given_back_size']):>12} to other programs")
    if told["bytes_lost"]:
        lines.append(f"  lost      {size_text(told['bytes_lost']):>12} that were not written")
    return lines + _tier(told)


def _tier(told: dict[str, Any]) -> list[str]:
    """Return the lines of a cache's tier."""
    if not told.get("tier"):  # a process that was started before an update tells none
        return []
    if told["tier_error"]:
        return [f"  tier      is no longer used: {told['tier_error']}"]
    lines = [f"  kept      {line}" for line in told["tier_kept"]]
    if told["tier_log_error"]:
        lines.append(f"  log       {told['tier_log_error']}")
    elif told["tier_bytes_logged"]:
        lines.append(
            f"  log       {size_text(told['tier_log_size']):>12} to be written to storage,"
            f" {size_text(told['tier_bytes_logged'])} logged"
        )
    lines.append(
        f"  tier      {size_text(told['tier_used_size']):>12} of {size_text(told['tier_size'])},"
        f" {size_text(told['tier_bytes_read'])} read"
    )
    return lines


def _waiting(told: dict[str, Any]) -> list[str]:
    """Return the lines of what waits for storage, and of the files that it does not take."""
    from penstock.cache_service import printable

    if "failing" not in told:  # a process that was started before an update
        return []
    lines = []
    if told["dirty_age_ms"]:
        lines.append(f"  waits     {told['dirty_age_ms'] / 1000:>10.1f} s, the oldest dirty byte")
    for file in told["failing"]:
        name = _shortened(file["path"], told["path"]) if file["path"] else "a file without a name"
        lines.append(
            f"  fails     {name}: {file['error']} ({size_text(file['dirty_size'])},"
            f" {file['dirty_age_ms'] / 1000:.0f} s old, again in {file['retry_ms'] / 1000:.0f} s)"
        )
    if told["failing_count"] > len(told["failing"]):
        lines.append(f"  fails     {told['failing_count'] - len(told['failing']):,} more files")
    if told["log"]:
        lines.append(f"  messages  in {printable(told['log'])}")
    return lines


def table(told: dict[str, Any]) -> list[str]:
    """Return the lines of a cache."""
    from penstock.cache_service import printable

    looked = told["hits"] + told["misses"]
    share = 100 * told["hits"] / looked if looked else 0.0
    used = told["size"] - told["free_size"]
    where = f", mounted at {printable(told['mountpoint'])}" if told["mountpoint"] else ""
    count = len(told["devices"])
    device = told["device"] if count == 1 else f"{count} devices"
    lines = [
        f"{printable(told['path'])}: process {told['pid']}, {device}{where}",
        f"  hits      {told['hits']:>12,} of {looked:,} look-ups ({share:.1f} %)",
        f"  served    {size_text(told['bytes_served']):>12}",
        f"  read      {size_text(told['bytes_read']):>12} from storage",
        f"  written   {size_text(told['bytes_written']):>12} to storage",
        f"  in use    {size_text(used):>12} of {size_text(told['size'])},"
        f" {size_text(told['dirty_size'])} dirty",
        *_devices(told),
    ]
    if told["bytes_bypassed"]:
        lines.append(f"  bypassed  {size_text(told['bytes_bypassed']):>12} (no room)")
    if told["write_errors"]:
        lines.append(f"  errors    {told['write_errors']:>12,} of write-backs")
    lines += _waiting(told)
    if told["files"]:
        lines.append(f"  {'file':<{_NAME_COLUMNS}} {'hits':>10} {'served':>10} {'cached':>10}")
    return lines + [
        f"  {_shortened(file['path'], told['path']):<{_NAME_COLUMNS}} {file['hits']:>10,}"
        f" {size_text(file['bytes_served']):>10} {size_text(file['cached_bytes']):>10}"
        for file in told["files"]
    ]


def _all(path: str | None) -> tuple[list[dict[str, Any]], list[CommandError]]:
    """Return what caches tell, and the errors of those that do not answer.

    `path` has no links; None: all caches.
    """
    from penstock import cache_places

    if path is None:
        return cache_places.all_statistics(cache_places.living(), _ANSWER_SECONDS)
    place = cache_places.find_resolved(path)
    if place is None:
        cache_places.require_alive(path)
        raise CommandError(path, "has no cache (try: penstock serve --cache PATH)")
    return cache_places.all_statistics([place], _ANSWER_SECONDS)


def run(arguments: argparse.Namespace) -> int:
    """Print the statistics, once or again and again."""
    from penstock.cache_places import resolved

    path = None if arguments.path is None else resolved(arguments.path)
    if arguments.json:
        caches, silent = _all(path)
        if path is not None and silent:
            raise silent[0]
        print(json.dumps({"caches": caches}, indent=2))
        return _told(silent)
    if arguments.format == "prometheus":
        from penstock.metrics import text_of

        caches, silent = _all(path)
        print(text_of(caches, [error.subject for error in silent]), end="")
        return _told(silent)
    live = sys.stdout.isatty() and not arguments.once
    while True:
        caches, silent = _all(path)
        lines = [line for one in caches for line in table(one)]
        if not lines and not silent:
            lines = ["no cache (try: penstock serve --cache PATH)"]
        if not live:
            if lines:
                print("\n".join(lines), flush=True)
            return _told(silent)
        lines += map(str, silent)
        print("\033[H\033[J" + "\n".join(lines), flush=True)
        time.sleep(1)


def _told(silent: list[CommandError]) -> int:
    """Print a line for each cache that does not answer; return the exit code."""
    for error in silent:
        print(f"penstock: {error}", file=sys.stderr)
    return 1 if silent else 0
