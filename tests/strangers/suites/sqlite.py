"""SQLite: the tests of its pager, its journals, its locks and crashes.

https://sqlite.org/src, or Debian's source of sqlite3, built in its folder:
`./configure --with-tcl=/usr/lib/tcl8.6 && make testfixture`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..suite import FAILED, PASSED, Case, Finished, Outcomes, Suite, missing_paths, words

FILES = words("""
    attach atomic autovacuum backup backup2 boundary1
    crash crash2 crash3 crash5 crash6 crash7 delete exclusive exclusive2 filectrl incrblob
    incrvacuum insert io journal1 journal2 journal3 jrnlmode jrnlmode2 lock lock2 lock3
    lock4 lock5 lock6 lock7 memsubsys1 mmap1 mmap2 mmap3 mmap4 mmapfault multiplex multiplex2 nolock
    notify1 pager1 pager2 pager3 pager4 pagerfault quick rollback savepoint savepoint2 select1
    shared shared2 sort superlock symlink sync sync2 syscall tempdb tempfault temptable thread001
    thread002 thread003 vacuum vacuum2 wal wal2 wal3 wal4 wal5 wal6 wal7 wal8 wal9 walbak walblock
    walcksum walcrash walcrash2 walcrash3 walfault walhook waljournal walmode waloverwrite
    walpersist walprotocol walro walrofault walshared walslow walthread win32lock writecrash
    zerodamage
""")
LINE = re.compile(r"^(\S+)\.\.\.( Ok|.*)$", re.MULTILINE)
FAILURES = re.compile(r"^!Failures on these tests: (.*)$", re.MULTILINE)
SUMMARY = re.compile(r"^(\d+) errors out of (\d+) tests", re.MULTILINE)


def _group(name: str) -> str:
    """Return the first two numbers of a test: how often a loop repeats the others is by chance."""
    return ".".join(name.split(".")[:2])


def _read(done: Finished) -> Outcomes:
    lines = LINE.findall(done.output)
    outcomes: Outcomes = {_group(name): PASSED for name, rest in lines if rest.endswith("Ok")}
    for line in FAILURES.findall(done.output):
        outcomes.update(dict.fromkeys(map(_group, line.split()), FAILED))
    if not SUMMARY.search(done.output) or (done.code != 0 and FAILED not in outcomes.values()):
        outcomes["end"] = FAILED
    return outcomes


def _cases(copies: Path) -> Sequence[Case]:
    tests = copies / "sqlite/test"
    program = str(copies / "sqlite/testfixture")
    return [
        Case(name, [program, str(tests / f"{name}.test")], seconds_max=90, read=_read)
        for name in FILES
        if (tests / f"{name}.test").exists()
    ]


SUITE = Suite("sqlite", _cases, missing=missing_paths("sqlite/testfixture", "sqlite/test"))
