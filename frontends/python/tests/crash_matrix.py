"""Rounds of: a workload on a forgetful disk, a kill at a random point, a loss of power, a check.

A trouble may begin before the end, and some rounds may do without the loss of power.

A `Service` stands between the workload and the disk. A round kills it, or the workload, or both, or
ends it in good order. Without one the workload itself is killed, on the disk as it is. Where the
service ends in good order and says that all is written, and the power stays, each byte must be
there whose write returned.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import crash_checker
from crash_workload import name_of

WORKLOAD = Path(__file__).with_name("crash_workload.py")
OPERATIONS = 1500  # of a workload that is not killed
CALLS_MAX = 250  # before the kill
DELAY_S_MAX = 0.004  # from the last of these calls to the kill
LAST_CALLS = 16  # that are told of a round with problems; with the lines of their ends
SECONDS_MAX = 60.0  # of a round's workload: what takes longer hangs


class Disk(Protocol):
    """Where the files are at last: forgetting.ForgetfulDisk, or a PlainFolder."""

    place: Path

    def lose_power(self) -> dict[str, int]:
        """Lose what was not synced; return how many pages there were, and were lost."""

    def be(self, mode: str) -> None:
        """Be in this mode from now on."""


class PlainFolder:
    """A folder of this machine, which loses nothing."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir(exist_ok=True)

    def lose_power(self) -> dict[str, int]:
        """Refuse to."""
        raise AssertionError("a folder of this machine keeps its power")

    def be(self, mode: str) -> None:
        """Be as ever."""
        assert mode in ("well", "durable")


class Service(Protocol):
    """A running cache of a folder."""

    folder: Path  # where the workload finds the files
    environment: dict[str, str]  # what the workload needs, beside that of the test

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait for its end."""

    def stop(self) -> int:
        """Let it end in good order; return its exit code. 0: it says that all is written."""

    def clear(self) -> None:
        """Take away what is left of it."""


Start = Callable[[Path], Service]
# What a start has kept aside, because storage did not take it, by the numbers of files.
Kept = dict[int, list[bytes]]


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
    complete: int = 0  # rounds after which each byte had to be there
    pages: int = 0  # that were not synced at a loss of power
    pages_lost: int = 0


# What a round kills. "stop": nothing, the service ends in good order beside the workload.
Victim = Literal["service", "program", "both", "stop"]


@dataclass(frozen=True)
class Ends:
    """How rounds end: by default each by a kill of the service and a loss of power."""

    trouble: Callable[[random.Random], None] | None = None  # which begins during the workload
    power_every: int = 1  # of so many rounds, one loses power; 0: none does
    victims: tuple[Victim, ...] = ("service",)  # in turn


class Matrix:
    """Rounds on one forgetful disk."""

    def __init__(
        self,
        disk: Disk,
        seed: int,
        start: Start | None,
        recover: Callable[[Path], Kept] | None = None,
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
            log, complete = self._work(service)
        finally:
            if service is not None:
                service.kill()
                service.clear()
        lost = {"pages": 0, "pages_lost": 0}
        if self.ends.power_every and number % self.ends.power_every == 0:
            lost = self.disk.lose_power()
            self.outcome.losses += 1
            complete = False
        kept = self.recover(self.disk.place) if self.recover is not None else {}
        self.outcome.complete += complete
        told = crash_checker.replay(log, self.files, complete=complete)
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
            problems += file.check(content, kept.get(file.number, []))
            file.settle(content)
        self.disk.be("durable")
        if problems:
            problems.append("the last calls: " + "; ".join(log.splitlines()[-LAST_CALLS:]))
        return problems

    def _work(self, service: Service | None) -> tuple[str, bool]:
        """Run a workload until something ends; return its log, and whether all must be there."""
        workload = self._start_workload(service)
        assert workload.stdout is not None
        # The end of both ends each wait below.
        hung = threading.Event()
        timer = threading.Timer(SECONDS_MAX, self._end, (hung, workload, service))
        timer.start()
        calls = self.random.randrange(CALLS_MAX)
        begin = self.random.randrange(calls + 1)
        # With its first line it has entered the folder. If a mount there ended in good order
        # before, it would enter the folder below.
        lines = [workload.stdout.readline()]
        lines += [workload.stdout.readline() for _ in range(2 * begin)]
        if self.ends.trouble is not None:
            self.ends.trouble(self.random)
        lines += [workload.stdout.readline() for _ in range(2 * (calls - begin))]
        time.sleep(self.random.random() * DELAY_S_MAX)
        complete = self._end_one(workload, service)
        lines.append(workload.stdout.read())
        workload.wait()
        if complete is None:
            assert service is not None
            complete = service.stop() == 0
        timer.cancel()
        workload.stdout.close()
        log = b"".join(lines).decode()
        return log + ("wrong the workload hangs\n" if hung.is_set() else ""), complete

    def _start_workload(self, service: Service | None) -> subprocess.Popen[bytes]:
        folder = self.disk.place if service is None else service.folder
        number = self.outcome.rounds
        words = [folder, self.random.randrange(1 << 32), number * 10_000, OPERATIONS]
        words += ["--refusing"] if self.ends.trouble is not None else []
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(WORKLOAD), *map(str, words)],
            stdout=subprocess.PIPE,
            env=None if service is None else {**os.environ, **service.environment},
        )

    def _end_one(self, workload: subprocess.Popen[bytes], service: Service | None) -> bool | None:
        """End what this round ends; return whether all must be there. None: ask the service."""
        victim = self.ends.victims[self.outcome.rounds % len(self.ends.victims)]
        if service is not None and victim == "stop":
            return service.stop() == 0
        self.outcome.kills += service is not None
        both = [] if service is None else [service.kill]
        if service is None or victim in ("program", "both"):
            both.append(workload.kill)
        if victim == "program":
            del both[:-1]
        self.random.shuffle(both)
        for kill in both:
            kill()
        return None if service is not None and victim == "program" else service is None

    def _end(
        self, hung: threading.Event, workload: subprocess.Popen[bytes], service: Service | None
    ) -> None:
        hung.set()
        workload.kill()
        if service is not None:
            service.kill()
