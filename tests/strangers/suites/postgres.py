"""PostgreSQL: pgbench, a crash, its recovery, and its own checks of all pages and indexes.

The server refuses root, and a cache serves its own user's programs alone. So it runs as `postgres`,
in the ways that serve other users too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..suite import Case, Place, Suite

SCRIPT = Path(__file__).parents[1] / "programs/postgres.sh"
SETTINGS: dict[str, list[str]] = {
    "plain": [],
    "open-sync": ["wal_sync_method = open_datasync"],
    "fsync": ["wal_sync_method = fsync", "full_page_writes = off"],
    "no-recycling": ["wal_recycle = off", "wal_init_zero = off"],
    "mapped": ["dynamic_shared_memory_type = mmap"],
}
AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


def _missing(_copies: Path) -> str:
    if os.geteuid() != 0:
        return "it needs root"
    found = next(Path("/usr/lib/postgresql").glob("*/bin/pgbench"), None)
    return "" if found and shutil.which("setpriv") else "postgresql is not installed"


def _prepare(_copies: Path, place: Place) -> None:
    place.folder.chmod(0o777)
    shutil.copy(SCRIPT, place.folder / "postgres.sh")


def _cases(_copies: Path) -> Sequence[Case]:
    run = [*AS_POSTGRES, "bash", "{folder}/../postgres.sh"]
    make = 'mkdir "$0/of" && chown postgres "$0/of" && exec "$@"'
    return [
        Case(
            name,
            ["sh", "-c", make, "{folder}", *run, "{folder}/of", *settings],
            seconds_max=120,
        )
        for name, settings in SETTINGS.items()
    ]


SUITE = Suite(
    "postgres", _cases, ways=("run", "trace", "mount"), missing=_missing, prepare=_prepare
)
