"""The command `penstock`: finds the verb, runs it, turns errors into one line and an exit code.

A verb is a module `penstock/commands/VERB.py` and a line in `VERBS`. The module has `EXAMPLE`,
`add_arguments(parser)` and `run(arguments) -> int`. It is imported only when its verb is run.

Exit codes: 0 done, 1 failed, 2 usage, 130 after Ctrl-C, as shells expect. It is no failure if the
reader of the output closes it early, as `head` does. With --json a failure is also a JSON object.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import importlib
import io
import os
import sys

import penstock
from penstock.errors import STANDARD_OUTPUT, CommandError, UsageError

TYPE_CHECKING = False  # typing's, whose loading is a tenth of a short command's time
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from typing_extensions import Buffer

VERBS = {
    "check": "check what this machine offers, which backend is picked, and what is missing",
    "scan": "find the lines of files that contain any of a set of strings",
    "read": "read a file into device memory, and say how fast and by which routes",
    "residency": "show what the OS page cache holds of files, as a bar or as runs",
    "calibrate": "measure what reads of a file system cost, for choosing their routes",
    "serve": "keep files of a folder in device memory, for programs that penstock run starts",
    "warm": "bring files of a folder into its cache, before programs read them",
    "drop": "drop what a cache has of files, after storage has got other bytes",
    "stats": "show what a file cache holds and serves",
    "run": "run an unmodified program, reading ahead of it where storage is slow",
    "mount": "show a folder through a cache of its files in device memory",
    "umount": "end such a mount, when all that was written is in the files below",
    "trace": "record what a program reads and writes",
    "signature": "describe a recorded trace of accesses by access programs, text and picture",
    "preempt": "write the form of CUDA kernels whose blocks leave the GPU while they wait",
    "bench": "run a benchmark and write its raw pairs as JSON",
    "completion": "print a script that completes verbs and options in bash or zsh",
}


def _columns() -> int:
    """Return the width of the terminal. It is as shutil's, which takes milliseconds to load."""
    try:
        return int(os.environ["COLUMNS"]) or 80
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal, with descriptions as they are written."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


class _PlainHelp(argparse.HelpFormatter):
    """Help as wide as the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"penstock: {message} (try: {self.prog} --help)\n")


def _main_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="penstock",
        description=(penstock.__doc__ or "").splitlines()[0],
        formatter_class=_PlainHelp,
    )
    parser.add_argument("--version", action="version", version=f"penstock {penstock.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for verb, summary in VERBS.items():
        verbs.add_parser(verb, help=summary, add_help=False)
    parser.epilog = (
        "penstock VERB --help explains a verb, with an example. Exit codes: 0 done, also if the"
        " reader of the output ends early (| head); 1 failed; 2 wrong usage; 130 ended by Ctrl-C."
    )
    return parser


def verb_parser(verb: str) -> tuple[argparse.ArgumentParser, object]:
    """Return the parser and the module of a verb."""
    module = importlib.import_module(f"penstock.commands.{verb}")
    parser = _Parser(
        prog=f"penstock {verb}",
        description=(module.__doc__ or "").strip(),
        epilog=f"example:\n{module.EXAMPLE}",
        formatter_class=_Help,
    )
    module.add_arguments(parser)
    return parser, module


def _dispatch(words: Sequence[str]) -> int:
    if not words or words[0] not in VERBS:
        parser = _main_parser()
        parser.parse_args(words)
        parser.print_help(sys.stderr)
        return 2
    parser, module = verb_parser(words[0])
    arguments = parser.parse_args(words[1:])
    try:
        return int(module.run(arguments))  # type: ignore[attr-defined]
    except (CommandError, OSError) as error:
        if getattr(arguments, "json", None) is True:  # a benchmark's is the name of a file
            _print_json(error, arguments)
        raise


def _words() -> Sequence[str] | None:
    """Return the command line, also where mount(8) has run this; None: nothing is to be done."""
    if os.path.basename(sys.argv[0]).startswith(("mount.", "umount.")):
        from penstock.mount_helper import words_of

        return words_of(sys.argv[0], sys.argv[1:])
    return sys.argv[1:]


def _subject_and_cause(error: CommandError | OSError) -> tuple[str, str]:
    if isinstance(error, CommandError):
        return error.subject, error.cause
    return str(error.filename or ""), error.strerror or str(error)


def _print_json(error: CommandError | OSError, arguments: argparse.Namespace) -> None:
    """Print the error of a verb as a JSON object where its answer goes, but not wrong usage."""
    subject, cause = _subject_and_cause(error)
    if isinstance(error, UsageError) or subject == STANDARD_OUTPUT:
        return
    import json

    path = getattr(arguments, "path", "")
    told = {"path": path} if path else {}
    told["error"] = cause if subject in {"", path} else f"{subject}: {cause}"
    bytes_on_output = getattr(arguments, "output", None) == "-"
    print(json.dumps(told, indent=2), file=sys.stderr if bytes_on_output else sys.stdout)


class _StandardOutput(io.FileIO):
    """File descriptor 1, whose errors name it."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from None


def _name_output() -> None:
    """Make errors of `sys.stdout` name it, if it is the process's own standard output."""
    if sys.stdout is None:
        raise CommandError(STANDARD_OUTPUT, "is closed")
    old = sys.__stdout__
    if old is None or sys.stdout is not old:
        return
    old.flush()
    raw = _StandardOutput(old.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=old.encoding,
        errors=old.errors,
        line_buffering=old.line_buffering,
    )


def _silence_output() -> None:
    """Redirect standard output and error to /dev/null, so that nothing is written at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):
            os.dup2(nothing, stream.fileno())


def _fail(text: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(f"penstock: {text}", file=sys.stderr or sys.__stderr__)
    return code


def _attempt(step: Callable[[], object]) -> int:
    """Run `step` and return its exit code; print its error, if any, as one line."""
    try:
        return int(step() or 0)  # type: ignore[call-overload, no-any-return]
    except SystemExit as ending:  # argparse raises it
        return int(ending.code or 0)
    except CommandError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        _silence_output()
        return 0
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except OSError as error:
        subject, cause = _subject_and_cause(error)
        code = _fail(f"{subject}: {cause}" if subject else cause, 1)
        if error.filename == STANDARD_OUTPUT:
            _silence_output()
        return code


def _leave(code: int) -> NoReturn:
    """End the process without freeing its memory, which saves some milliseconds of each command."""
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.flush()
    os._exit(code)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line `words` and return its exit code. If None, run argv and exit with it."""

    def run() -> int:
        _name_output()
        given = _words() if words is None else words
        return 0 if given is None else _dispatch(given)

    code = _attempt(run)
    # Flush here: an error of a flush at exit would be reported by Python in its own form.
    ended = _attempt(lambda: sys.stdout.flush() if sys.stdout is not None else None)
    code = code or ended
    return code if words is not None else _leave(code)
