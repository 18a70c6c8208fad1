"""The command `penstock`: finds the verb, runs it, turns errors into one line and an exit code.

A verb is a module `penstock/commands/VERB.py` and a line in `VERBS`. The module has `EXAMPLE`,
`add_arguments(parser)` and `run(arguments) -> int`; it is imported only when its verb is asked for.

Exit codes: 0 done, 1 failed, 2 usage; 130 after Ctrl-C, as shells expect.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import penstock
from penstock.errors import CommandError

VERBS = {
    "check": "what this machine offers, which backend is picked, and what is missing",
    "scan": "find the lines of files that contain any of a set of strings",
    "read": "read a file into device memory, and say how fast and by which routes",
    "residency": "what the OS page cache holds of files, as a bar or as runs",
    "calibrate": "measure what reads of a file system cost, for choosing their routes",
    "signature": "what a recorded trace of accesses is, as access programs, text and picture",
    "bench": "run a benchmark and write its raw pairs as JSON",
}


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"penstock: {message} (try: {self.prog} --help)\n")


def _main_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="penstock", description=(penstock.__doc__ or "").splitlines()[0])
    parser.add_argument("--version", action="version", version=f"penstock {penstock.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for verb, summary in VERBS.items():
        verbs.add_parser(verb, help=summary, add_help=False)
    parser.epilog = "penstock VERB --help explains a verb, with an example."
    return parser


def _verb_parser(verb: str) -> tuple[argparse.ArgumentParser, object]:
    module = importlib.import_module(f"penstock.commands.{verb}")
    parser = _Parser(
        prog=f"penstock {verb}",
        description=(module.__doc__ or "").strip(),
        epilog=f"example:\n{module.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return parser, module


def _dispatch(words: Sequence[str]) -> int:
    if not words or words[0] not in VERBS:
        parser = _main_parser()
        parser.parse_args(words)
        parser.print_help(sys.stderr)
        return 2
    parser, module = _verb_parser(words[0])
    code = module.run(parser.parse_args(words[1:]))  # type: ignore[attr-defined]
    sys.stdout.flush()
    return int(code)


def _silence_output() -> None:
    """Whoever read our output is gone: let nothing more be written, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line `words` (default: the process's) and return the exit code."""
    try:
        return _dispatch(sys.argv[1:] if words is None else words)
    except CommandError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        _silence_output()
        return 1
    except KeyboardInterrupt:
        print("penstock: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        subject = f"{error.filename}: " if error.filename else ""
        print(f"penstock: {subject}{error.strerror or error}", file=sys.stderr)
        return 1
