"""Node: a script of sockets beside files, and the tests of `fs`, streams, pipes and zlib of Node.

https://github.com/nodejs/node, of which `test/` is enough; the program is the installed `node`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..suite import PRELOADED, Case, Suite

PATTERNS = ("test-fs-*", "test-stream-*", "test-file-*", "test-child-process-stdio*", "test-zlib-*")
FLAGS = re.compile(r"^// Flags: (.*)$", re.MULTILINE)  # what a test wants of the program
SCRIPT = Path(__file__).parents[1] / "programs/sockets_and_files.js"


def _missing(_copies: Path) -> str:
    return "" if shutil.which("node") else "node is not installed"


def _cases(copies: Path) -> Sequence[Case]:
    cases = [Case(f"script-{n}", ["node", str(SCRIPT)], seconds_max=30) for n in range(3)]
    tests = copies / "node/test/parallel"
    for pattern in PATTERNS:
        cases.extend(_test(path) for path in sorted(tests.glob(f"{pattern}.js")))
    return cases


def _test(path: Path) -> Case:
    flags = FLAGS.search(path.read_text(errors="replace"))
    words = flags[1].split() if flags else []
    folder = {"NODE_TEST_DIR": "{folder}"}
    return Case(path.stem, ["node", *words, str(path)], seconds_max=30, environment=folder)


SUITE = Suite("node", _cases, ways=(*PRELOADED, "mount"), missing=_missing)
