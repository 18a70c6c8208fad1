"""Programs that this package starts with its preload library loaded into them."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import stat
import struct
import subprocess
from pathlib import Path

from penstock import _core
from penstock.errors import CommandError, ProgramError, UsageError

_LIBRARY = "libpenstock-preload.so"
_ELF_CLASS_64 = 2
_PT_INTERP = 3
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_SHELLS = {"ash", "bash", "busybox", "dash", "fish", "ksh", "mksh", "sh", "yash", "zsh"}


def installed_file(name: str) -> str:
    """Return the path of a compiled file: in this package, or where the library itself is."""
    folders = [Path(__file__).parent, Path(_core.__file__).parent]
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        folders += [
            Path(line.split(maxsplit=5)[5]).parent for line in maps if "/libpenstock." in line
        ]
    for folder in folders:
        if (folder / name).is_file():
            return str((folder / name).resolve())
    raise CommandError(name, f"is not installed (looked in {folders[0]})")


def preload_library() -> str:
    """Return the path of the preload library."""
    return installed_file(_LIBRARY)


def _why_not_preloaded(path: str) -> str:
    """Return why the loader would not preload into a program; empty if it does."""
    status = os.stat(path)
    if status.st_mode & (stat.S_ISUID | stat.S_ISGID) and os.geteuid() != 0:
        return "is set-user-ID or set-group-ID: the loader preloads nothing into it"
    with open(path, "rb") as program:
        head = program.read(64)
        if not head.startswith(b"\x7fELF") or len(head) < 64:
            return ""  # a script: its interpreter is loaded
        if head[4] != _ELF_CLASS_64:
            return "is a 32-bit program; the preload library has 64 bits"
        offset, entry_size, count = (
            *struct.unpack_from("<Q", head, 32),
            *struct.unpack_from("<HH", head, 54),
        )
        program.seek(offset)
        table = program.read(entry_size * count)
    kinds = {struct.unpack_from("<I", table, entry_size * i)[0] for i in range(count)}
    return "" if _PT_INTERP in kinds else "is linked statically: nothing can be preloaded into it"


def find_program(name: str) -> str:
    """Return the path of a program that the preload library can be loaded into."""
    path = shutil.which(name)
    if path is None:
        known = os.path.exists(name) and "/" in name
        cause = os.strerror(errno.EACCES if known else errno.ENOENT)
        raise ProgramError(name, cause, found=known)
    try:
        why = _why_not_preloaded(path)
    except PermissionError:  # it may be run, not read
        return path
    if why:
        raise ProgramError(path, why, found=True)
    return path


def program_words(words: list[str], usage: str) -> list[str]:
    """Return a command line's program and arguments, without a `--` in front."""
    found = words[words[:1] == ["--"] :]
    if not found:
        raise UsageError("PROGRAM", f"is missing ({usage})")
    return found


def environment(**settings: str) -> dict[str, str]:
    """Return this process's environment with the preload library first, and `settings`."""
    others = os.environ.get("LD_PRELOAD", "")
    library = preload_library()
    return {**os.environ, **settings, "LD_PRELOAD": f"{library}:{others}" if others else library}


def _ignored_by_shell() -> int:
    """Return the mask of the signals that the shell ignores that started this process.

    Python forgets which signals were ignored that it ignores itself. Shells pass on what they
    ignore; other programs, such as sshd and Node, ignore signals for themselves alone.
    """
    parent = f"/proc/{os.getppid()}"
    with contextlib.suppress(OSError):
        if os.path.basename(os.readlink(f"{parent}/exe")) in _SHELLS:
            for line in Path(parent, "status").read_text(errors="replace").splitlines():
                if line.startswith("SigIgn:"):
                    return int(line.split()[1], 16)
    return 0


def give_back_signals() -> None:
    """Take back what Python has changed of the signals: this process becomes a program."""
    _take_back(_ignored_by_shell())


def _take_back(ignored: int) -> None:
    for number in _IGNORED_BY_PYTHON:
        keeps = ignored & 1 << (number - 1)
        signal.signal(number, signal.SIG_IGN if keeps else signal.SIG_DFL)


def run_to_end(words: list[str], path: str, variables: dict[str, str]) -> int:
    """Run a program and return its exit code, as a shell gives it.

    Ctrl-C goes to the program, which shares the terminal; SIGTERM and SIGHUP are passed on.
    """
    old = signal.signal(signal.SIGINT, signal.SIG_IGN)
    ignored = _ignored_by_shell()
    # Where it is ignored the kernel tells no exit code.
    children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def become() -> None:
        _take_back(ignored)
        for number, before in ((signal.SIGINT, old), (signal.SIGCHLD, children)):
            signal.signal(number, signal.SIG_IGN if before == signal.SIG_IGN else signal.SIG_DFL)

    try:
        program = subprocess.Popen(
            words,
            executable=path,
            env=variables,
            preexec_fn=become,  # noqa: PLW1509
            close_fds=False,  # the program gets what the shell has opened for it
        )
    except OSError as error:
        cause = error.strerror or str(error)
        raise ProgramError(path, cause, found=error.errno != errno.ENOENT) from None
    finally:
        signal.signal(signal.SIGINT, old)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    passed = {
        number: signal.signal(number, lambda got, _: program.send_signal(got))
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        code = program.wait()
    finally:
        signal.signal(signal.SIGINT, old)
        for number, handler in passed.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code
