"""Runs a command with a limit of time, and leaves no process of it behind.

Processes of a case are found by a variable in their environment, so that daemons which left the
session and the group are found too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

MARK = "PENSTOCK_STRANGERS_CASE"
OUTPUT_BYTES_MAX = 64 << 20  # of a case that are read; a suite that prints more is cut
ASKING_SECONDS = 1.0  # that processes have to clean up after SIGTERM, before they are killed
ENDING_SECONDS = 5.0  # that killed processes may take to go; one in an uninterruptible call stays


def marked(mark: str) -> list[int]:
    """Return the processes, this one left out, whose environment has the mark."""
    found = []
    wanted = f"{MARK}={mark}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.append(int(name))
    return found


def end(mark: str) -> int:
    """End all processes with the mark; return how many there were."""
    seen: set[int] = set()
    begun = time.monotonic()
    deadline = begun + ENDING_SECONDS
    while time.monotonic() < deadline:
        processes = marked(mark)
        if not processes:
            break
        asks = time.monotonic() < begun + ASKING_SECONDS
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                if asks and process not in seen:
                    os.kill(process, signal.SIGTERM)
                elif not asks:
                    os.kill(process, signal.SIGKILL)
        seen |= set(processes)
        time.sleep(0.05)
    return len(seen)


class Result:
    """How a command ended: its code, or that its time was up; and its output, also of errors."""

    def __init__(self, code: int, hung: bool, output: str, left: int, seconds: float) -> None:
        self.code = code
        self.hung = hung
        self.output = output
        self.left = left  # processes that were still there when the command had ended
        self.seconds = seconds


def run(
    command: Sequence[str],
    folder: Path,
    seconds_max: float,
    environment: Mapping[str, str],
) -> Result:
    """Run a command in `folder`, with nothing as its input."""
    mark = uuid.uuid4().hex
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        hung = False
        try:
            process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            hung = True
        except BaseException:
            end(mark)
            raise
        seconds = time.monotonic() - begun
        left = end(mark)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_SECONDS)
        output.seek(0)
        text = output.read(OUTPUT_BYTES_MAX).decode(errors="replace")
    code = process.returncode if process.returncode is not None else -signal.SIGKILL
    return Result(code, hung, text, left, seconds)
