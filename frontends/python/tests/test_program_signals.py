"""Goal: a program starts with the signals ignored that were ignored before, and with no others."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from preloading import LIBRARY

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="built without the preload library")

PENSTOCK = f"{shlex.quote(sys.executable)} -m penstock"
IGNORED = "grep SigIgn /proc/self/status"
SIGNALS = ["PIPE", "XFSZ", "INT", "HUP", "TERM", "QUIT", "CHLD", "USR1", "TSTP"]
CACHE = LIBRARY.with_name("penstock-cache")
WAYS = ["run --", "run --trace TRACE --", "trace -o TRACE", "run --cache FOLDER=64M --"]


def ran(script: str) -> str:
    """Return what a shell script prints on standard output."""
    done = subprocess.run(
        ["sh", "-c", f"{script}\ntrue"], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the begin of a command line that starts a program."""
    folder, trace = tmp_path / "data", tmp_path / "t"
    if "FOLDER" in request.param and not CACHE.exists():
        pytest.skip("built without the cache")
    folder.mkdir()
    return f"{PENSTOCK} {request.param}".replace("TRACE", str(trace)).replace("FOLDER", str(folder))


def test_ignored_signals_stay_ignored_and_others_do_not(way: str) -> None:
    for traps in ("", *(f"trap '' {name};" for name in SIGNALS), f"trap '' {' '.join(SIGNALS)};"):
        assert ran(f"{traps} {way} {IGNORED}") == ran(f"{traps} {IGNORED}"), traps


def test_nohup_keeps_its_program(way: str) -> None:
    assert ran(f"nohup {way} {IGNORED}") == ran(f"nohup {IGNORED}")


def test_an_exit_code_is_told_where_the_end_of_children_is_ignored(way: str) -> None:
    assert ran(f"trap '' CHLD; {way} sh -c 'exit 7'; echo $?") == "7\n"


@pytest.mark.parametrize(("trap", "code"), [("", 141), ("trap '' PIPE;", 1)])
def test_a_pipe_that_closes_ends_a_program(way: str, trap: str, code: int) -> None:
    script = f"{trap} {{ {{ {way} yes 2>/dev/null; echo $? >&3; }} | true; }} 3>&1"
    assert ran(script) == f"{code}\n"


@pytest.mark.parametrize(("state", "told"), [("SIG_IGN", "survived\n"), ("SIG_DFL", "")])
def test_an_interrupt_of_all_ends_a_program_unless_it_is_ignored(
    way: str, state: str, told: str
) -> None:
    program = "echo ready; sleep 1; echo survived"
    code = (
        f"import os, signal; signal.signal(signal.SIGINT, signal.{state});"
        f"os.execv('/bin/sh', ['sh', '-c', {f'{way} sh -c {shlex.quote(program)}; true'!r}])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60)[0] == told
