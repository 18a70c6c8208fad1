"""Rounds of: a workload on a forgetful disk, a kill at a random point, a loss of power, a check.

A trouble may begin before the kill, and some rounds may do without the loss of power, or end the
service in good order.

A `Service` stands between the workload and the disk, and is what is killed. Without one the
workload itself is killed, on the disk as it is.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import crash_checker
from crash_workload import name_of
from forgetting import ForgetfulDisk

WORKLOAD = Path(__file__).with_name("crash_workload.py")
OPERATIONS = 1500  # of a workload that is not killed
CALLS_MAX = 250  # before the kill
DELAY_S_MAX = 0.004  # from the last of these calls to the kill
SECONDS_MAX = 60.0  # of a round's workload: what takes longer hangs


class Service(Protocol):
    """A running file system over a folder."""

    folder: Path  # where the workload finds the files

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait for its end."""

    def stop(self) -> int:
        """Let it end in good order; return its exit code."""

    def clear(self) -> None:
        """Take away what is left of it."""


Start = Callable[[Path], Service]


@dataclass
class Outcome:
    """What rounds found, and whether they tested anything."""

    problems: list[str] = field(default_factory=list)
    rounds: int = 0
    kills: int = 0
    losses: int = 0  # of power
    failed: int = 0  # rounds in which a call of the workload failed
    calls: int = 0
    syncs: int = 0
    cut_off: int = 0  # rounds in which a call was under way at the kill
    pages: int = 0  # that were not synced at a loss of power
    pages_lost: int = 0


@dataclass(frozen=True)
class Ends:
    """How rounds end, beside by a kill and a loss of power."""

    trouble: Callable[[random.Random], None] | None = None  # which begins during the workload
    power_every: int = 1  # of so many rounds, one loses power
    stop_every: int = 0  # one ends in good order; 0: none


class Matrix:
    """Rounds on one forgetful disk."""

    def __init__(
        self,
        disk: ForgetfulDisk,
        seed: int,
        start: Start | None,
        recover: Callable[[Path], None] | None = None,
        ends: Ends = Ends(),
    ) -> None:
        self.disk = disk
        self.ends = ends
        self.recover = recover  # what the next start does before it serves
        self.seed = seed
        self.random = random.Random(seed)
        self.start = start
        self.files = crash_checker.make_files()
        self.outcome = Outcome()

    def run(self, rounds: int, stop_at: int = 1) -> Outcome:
        """Do `rounds`, or fewer if as many as `stop_at` of them have found problems."""
        found = 0
        for _ in range(rounds):
            problems = self._round()
            number = self.outcome.rounds
            self.outcome.rounds += 1
            self.outcome.problems += [f"seed {self.seed}, round {number}: {p}" for p in problems]
            found += bool(problems)
            if found >= stop_at:
                break
        return self.outcome

    def _round(self) -> list[str]:
        number = self.outcome.rounds + 1
        service = self.start(self.disk.place) if self.start is not None else None
        try:
            log = self._work(self.disk.place if service is None else service.folder, service)
        finally:
            if service is not None:
                service.kill()
                service.clear()
        lost = {"pages": 0, "pages_lost": 0}
        if number % self.ends.power_every == 0:
            lost = self.disk.lose_power()
            self.outcome.losses += 1
        if self.recover is not None:
            self.recover(self.disk.place)
        told = crash_checker.replay(log, self.files)
        self.outcome.failed += told.failed != 0
        self.outcome.calls += told.calls
        self.outcome.syncs += told.syncs
        self.outcome.cut_off += told.cut_off
        self.outcome.pages += lost["pages"]
        self.outcome.pages_lost += lost["pages_lost"]
        problems = told.problems
        for file in self.files:
            path = self.disk.place / name_of(file.number)
            content = path.read_bytes() if path.exists() else None
            problems += file.check(content)
            file.settle(content)
        self.disk.be("durable")
        return problems

    def _work(self, folder: Path, service: Service | None) -> str:
        """Run a workload and kill the service, or the workload; return its log."""
        number = self.outcome.rounds
        words = [folder, self.random.randrange(1 << 32), number * 10_000, OPERATIONS]
        words += ["--refusing"] if self.ends.trouble is not None else []
        workload = subprocess.Popen(
            [sys.executable, "-I", "-S", str(WORKLOAD), *map(str, words)], stdout=subprocess.PIPE
        )
        assert workload.stdout is not None
        # The end of both ends each wait below.
        hung = threading.Event()
        timer = threading.Timer(SECONDS_MAX, self._end, (hung, workload, service))
        timer.start()
        calls = self.random.randrange(CALLS_MAX)
        begin = self.random.randrange(calls + 1)
        lines = [workload.stdout.readline() for _ in range(2 * begin)]
        if self.ends.trouble is not None:
            self.ends.trouble(self.random)
        lines += [workload.stdout.readline() for _ in range(2 * (calls - begin))]
        time.sleep(self.random.random() * DELAY_S_MAX)
        if service is None:
            workload.kill()
        elif self.ends.stop_every and number % self.ends.stop_every == 1:
            service.stop()
        else:
            self.outcome.kills += 1
            service.kill()
        lines.append(workload.stdout.read())
        workload.wait()
        timer.cancel()
        workload.stdout.close()
        log = b"".join(lines).decode()
        return log + ("wrong the workload hangs\n" if hung.is_set() else "")

    def _end(
        self, hung: threading.Event, workload: subprocess.Popen[bytes], service: Service | None
    ) -> None:
        hung.set()
        workload.kill()
        if service is not None:
            service.kill()
