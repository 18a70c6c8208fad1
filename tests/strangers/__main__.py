"""Runs other people's suites alone and under Penstock, and prints a table of what they say.

    PENSTOCK_STRANGERS=FOLDER .venv/bin/python -m tests.strangers [options]

Copies of the suites lie in FOLDER; a suite without a copy is left out, and named. The exit code is
1 if a test differs without a reason in `expected.txt`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import signal
import sys
from pathlib import Path

from . import suites
from .differences import EXPECTED, Row, read_expected, table
from .runner import SuiteRun
from .suite import ALONE, WAYS, Suite


def all_suites() -> list[Suite]:
    """Return the suites of the modules of `suites/`, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(suites.__path__))
    modules = [importlib.import_module(f"{suites.__name__}.{name}") for name in names]
    return [module.SUITE for module in modules]


def parse(words: list[str] | None) -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(prog="tests.strangers", description=__doc__)
    parser.add_argument("--only", metavar="SUITE,...", help="these suites alone")
    parser.add_argument("--ways", metavar="WAY,...", help=f"of {', '.join(WAYS[1:])}")
    parser.add_argument("--case", metavar="PATTERN", default="*", help="these programs alone")
    parser.add_argument(
        "--minutes", metavar="N", type=float, default=float("inf"), help="of a suite in a way"
    )
    parser.add_argument(
        "--patience", metavar="N", type=float, default=1, help="times the limits, on a busy machine"
    )
    parser.add_argument("--work", metavar="FOLDER", type=Path, help="(PENSTOCK_STRANGERS/.work)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the table there too")
    parser.add_argument("--list", action="store_true", help="say which suites can run here")
    return parser.parse_args(words)


def say(line: str) -> None:
    """Say how the run goes on."""
    print(line, file=sys.stderr, flush=True)


def main(words: list[str] | None = None) -> int:
    """Run the suites; return the exit code."""
    arguments = parse(words)
    place = os.environ.get("PENSTOCK_STRANGERS", "")
    if not place:
        say("PENSTOCK_STRANGERS names no folder with copies of the suites")
        return 2
    copies = Path(place).resolve()
    only = arguments.only.split(",") if arguments.only else None
    chosen = arguments.ways.split(",") if arguments.ways else [way for way in WAYS if way != ALONE]
    known = all_suites()
    unknown = set(only or []) - {suite.name for suite in known} | set(chosen) - set(WAYS)
    if unknown:
        say(f"there is no {', '.join(sorted(unknown))}")
        return 2
    runs: list[SuiteRun] = []
    left_out: dict[str, str] = {}
    try:
        for suite in known:
            if only is not None and suite.name not in only:
                continue
            missing = suite.missing(copies)
            if missing:
                left_out[suite.name] = missing
                say(f"{suite.name}: left out, {missing}")
            elif arguments.list:
                say(f"{suite.name}: {', '.join(suite.ways)}")
            else:
                work = (arguments.work or copies / ".work").resolve()
                runs.append(SuiteRun(suite, copies, work, read_expected(EXPECTED), say))
                runs[-1].seconds_max = 60 * arguments.minutes
                runs[-1].patience = arguments.patience
                runs[-1].run(chosen, arguments.case)
    finally:  # also of a run that is stopped
        rows = [row for run in runs for row in run.rows]
        if not arguments.list:
            report(rows, left_out, arguments.json)
    return 1 if any(row.unexpected for row in rows) else 0


def report(rows: list[Row], left_out: dict[str, str], path: Path | None) -> None:
    """Print the table and the differences; write them as JSON too if that is asked for."""
    print(table(rows))
    for row in rows:
        if row.broken:
            print(f"{row.suite} {row.way}: {row.broken}")
        for difference in row.differences:
            print(difference)
    if path:
        document = {"rows": [row.as_json() for row in rows], "left_out": left_out}
        path.write_text(json.dumps(document, indent=1) + "\n")


def stop(*_: object) -> None:
    """End what was started, and the run; a second signal does not disturb that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    sys.exit(main())
