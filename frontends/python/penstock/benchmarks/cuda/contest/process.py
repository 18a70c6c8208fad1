"""The parent's side of a worker process: starts it, sends requests, and limits its time."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import penstock

WORKER = "penstock.benchmarks.cuda.contest.worker"
_TOLD_MAX = 200  # characters of what a dead worker said last


class Limits(NamedTuple):
    """Seconds after which a worker that does not answer is ended."""

    start: float = 180  # libraries load
    open: float = 300  # a file may be converted
    read: float = 120


class WorkerError(Exception):
    """A worker failed a request. The text says why, in one line."""


class Process:
    """A worker process with one loader ("module:class"). Use as a context manager."""

    def __init__(self, loader: str, device: str, limits: Limits) -> None:
        self._limits = limits
        self._told = tempfile.TemporaryFile("w+b")  # noqa: SIM115 (end() closes it)
        place = str(Path(penstock.__file__).absolute().parent.parent)
        paths = [place, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", WORKER, loader, device],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._told,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        self._rest = b""
        self.version = ""
        self.opened_with: dict[str, Any] | None = None  # settings
        self.reads = Path()  # the file that read() reads

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """Wait until the worker's loader is ready. Raises WorkerError."""
        self.version = self._reply(self._limits.start)["version"]

    @property
    def alive(self) -> bool:
        """Whether the worker can take requests."""
        return self._process.poll() is None

    def maps(self, path: Path) -> bool:
        """Whether the worker keeps a file mapped, which keeps the file's pages in the cache."""
        try:
            return str(path) in Path(f"/proc/{self._process.pid}/maps").read_text()
        except OSError:
            return False

    def open(self, path: Path, settings: dict[str, Any]) -> None:
        """Let the worker open a file. Raises WorkerError."""
        request = {"do": "open", "path": str(path), "settings": settings}
        self.opened_with = None
        self.reads = Path(self._ask(request, self._limits.open)["path"])
        self.opened_with = settings

    def read(self) -> dict[str, Any]:
        """Let the worker read, and return its answer (see worker.py). Raises WorkerError."""
        return self._ask({"do": "read"}, self._limits.read)

    def end(self) -> None:
        """End the worker, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._told.close()

    def _ask(self, request: dict[str, Any], seconds_max: float) -> dict[str, Any]:
        pipe = self._process.stdin
        if pipe is None or pipe.closed:
            raise WorkerError("it has ended")
        try:
            pipe.write(json.dumps(request).encode() + b"\n")
        except OSError:
            raise WorkerError(self._ended()) from None
        return self._reply(seconds_max)

    def _reply(self, seconds_max: float) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(self._line(seconds_max))
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply

    def _line(self, seconds_max: float) -> bytes:
        pipe = self._process.stdout
        if pipe is None or pipe.closed:
            raise WorkerError("it has ended")
        end = monotonic() + seconds_max
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not ready.select(max(0, end - monotonic())):
                    self._process.kill()
                    self._process.wait()
                    raise WorkerError(f"no answer within {seconds_max:g} s")
                part = os.read(pipe.fileno(), 1 << 16)
                if not part:
                    raise WorkerError(self._ended())
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ended(self) -> str:
        """Return how the worker ended."""
        code = self._process.wait()
        how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        self._told.seek(0)
        lines = self._told.read().decode(errors="replace").strip().splitlines()
        return f"{how}: {lines[-1][:_TOLD_MAX]}" if lines else how
