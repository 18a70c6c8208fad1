"""perl: the tests of its input and output, and of its operators on files and processes.

https://github.com/Perl/perl5, or Debian's source of perl, of which `t/` and `lib/` are enough. The
program is the installed perl, of the same version.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from ..suite import Case, Place, Suite, missing_paths, tap, words

PATTERNS = ("io/*.t", "run/*.t", "lib/*.t", "uni/*.t")
OPERATORS = words("""
    alarm append chdir chop die_exit do each eval exec fh filehandle filetest filetest_t fork
    getpid getppid glob goto heredoc inccode kill0 lfs magic mkdir print pwent rand read readdir
    readline require_errors select sleep sort sprintf sselect stash stat stat_errors sysio taint
    threads tie tiehandle time unlink utf8decode waitpid write
""")
# Of the installed perl: its own modules, compiled ones too. The tests find them as `../lib`.
MODULES = ("/usr/share/perl/5.*.*", "/usr/lib/*-linux-gnu/perl/5.*.*", "/usr/lib/*/perl-base")


def _prepare(copies: Path, place: Place) -> None:
    shutil.copytree(copies / "perl/t", place.folder / "t")
    (place.folder / "lib").mkdir()
    for pattern in MODULES:
        for path in sorted(Path("/").glob(pattern[1:])):
            shutil.copytree(path, place.folder / "lib", dirs_exist_ok=True)


def _cases(copies: Path) -> Sequence[Case]:
    tests = copies / "perl/t"
    paths = [path for pattern in PATTERNS for path in sorted(tests.glob(pattern))]
    paths += [tests / f"op/{name}.t" for name in OPERATORS]
    names = [str(path.relative_to(tests)) for path in paths]
    # Some tests remove `perl`, which others start.
    run = 'ln -sf /usr/bin/perl perl && exec ./perl -I../lib "$0"'
    return [Case(name, ["sh", "-c", run, name], read=tap, folder="t") for name in names]


SUITE = Suite("perl", _cases, missing=missing_paths("perl/t/io/fs.t"), prepare=_prepare)
