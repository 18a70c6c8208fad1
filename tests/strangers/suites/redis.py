"""redis: those of its tests that store, load, replicate and rewrite files.

https://github.com/redis/redis, or Debian's source of redis, of which `tests/` is enough. The server
is the installed one, of the same version.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..suite import FAILED, PASSED, SKIPPED, Case, Finished, Outcomes, Place, Suite, words

UNITS = words("""
    integration/aof integration/aof-multi-part integration/rdb
    integration/convert-zipmap-hash-on-load
    integration/corrupt-dump integration/psync2-reg integration/redis-benchmark
    integration/redis-cli integration/logging integration/dismiss-mem integration/shutdown
    integration/replication-4 integration/block-repl unit/aofrw unit/dump unit/expire unit/info
    unit/introspection unit/multi unit/other unit/shutdown unit/type/string unit/type/list
    unit/type/set unit/type/zset unit/type/hash unit/type/stream unit/pubsub unit/scripting
    unit/functions unit/networking unit/limits unit/protocol unit/keyspace
""")
PROGRAMS = ("redis-server", "redis-cli", "redis-benchmark", "redis-check-rdb", "redis-check-aof")
LINE = re.compile(r"\[(ok|err|exception|skip|ignore)\]: (.*?)(?: \(\d+ ms\))?(?:\x1b\[0m)?$", re.M)
WORDS = {"ok": PASSED, "err": FAILED, "exception": FAILED, "skip": SKIPPED, "ignore": SKIPPED}


def _read(done: Finished) -> Outcomes:
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.output)
    outcomes: Outcomes = {}
    for line in LINE.finditer(text):
        name = re.sub(r"\d{3,}", "N", line[2].split(" in tests/")[0])
        if outcomes.get(name) != FAILED:
            outcomes[name] = WORDS[line[1]]
    outcomes["end"] = PASSED if done.code == 0 else FAILED
    return outcomes


def _missing(copies: Path) -> str:
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    if absent or not shutil.which("tclsh"):
        return f"{absent[0] if absent else 'tclsh'} is not installed"
    found = (copies / "redis/tests/test_helper.tcl").exists()
    return "" if found else f"there is no {copies}/redis/tests"


def _prepare(copies: Path, place: Place) -> None:
    folder = place.folder / "redis"
    shutil.copytree(copies / "redis/tests", folder / "tests")
    shutil.copy(copies / "redis/redis.conf", folder)
    (folder / "src").mkdir()
    for name in PROGRAMS:
        (folder / "src" / name).symlink_to(shutil.which(name) or name)


def _cases(copies: Path) -> Sequence[Case]:
    return [
        Case(
            unit,
            ["tclsh", "tests/test_helper.tcl", "--clients", "1", "--single", unit],
            seconds_max=240,
            read=_read,
            folder="redis",
        )
        for unit in UNITS
        if (copies / f"redis/tests/{unit}.tcl").exists()
    ]


SUITE = Suite("redis", _cases, missing=_missing, prepare=_prepare)
