"""Penstock against rivals, each in its own process, from the same states of a file.

Trials, which do not count, choose the fastest rival for a state, among all rivals and settings.
Then it and Penstock run in turn. A rival that cannot be loaded, fails, hangs or reads wrong bytes
is left out, and the report says why. Wrong bytes in a run that counts make the row unverified.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, NamedTuple

from penstock.benchmarks.cuda.contest.process import Limits, Process, WorkerError
from penstock.benchmarks.harness import page_cache
from penstock.benchmarks.harness.report import Report, take_pairs
from penstock.errors import CommandError

FINALISTS = 6
RESTARTS_MAX = 2  # of a rival that died, without the setting that it died of
TRIALS = 3  # of each finalist, with the first one

State = Callable[[Path], bool]  # sets the state of a file's page cache; returns whether it holds


def hot(path: Path) -> bool:
    """Cache the whole file; return whether that worked."""
    cached, pages = page_cache.cached_pages(path)
    return cached == pages or page_cache.warm(path)


def cold(path: Path) -> bool:
    """Evict the whole file; return whether that worked."""
    return page_cache.evict(path)


class Rival(NamedTuple):
    """A way to load that a user would pick instead."""

    name: str
    loader: str  # module:class
    settings: Sequence[dict[str, Any]] = ({},)  # those that are tried; {}: its defaults


class Cast(NamedTuple):
    """The participants of a contest."""

    ours: Rival
    rivals: Sequence[Rival]  # the fastest of them is chosen
    baselines: Sequence[Rival] = ()  # have rows of their own


@dataclass
class Entry:
    """A rival with one of its settings."""

    rival: Rival
    settings: dict[str, Any]
    seconds: list[float] = field(default_factory=list)  # of trials
    failed: bool = False

    def is_as(self, other: Entry) -> bool:
        """Return whether `other` is the same rival with the same setting."""
        return self.rival is other.rival and self.settings == other.settings

    def __str__(self) -> str:
        told = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        return f"{self.rival.name} ({told or 'defaults'})"


class Run(NamedTuple):
    """The result of one read."""

    seconds: float
    cpu_seconds: float
    right: bool  # every byte arrived
    ready: bool  # the page cache was in the state before


@dataclass
class Judged:
    """Pairs that were taken against one entry."""

    entry: Entry
    pairs: list[tuple[float, float]]
    verified: bool
    cpu_seconds: float  # of this library's runs


class Contest:
    """Processes of a cast on one file. Use as a context manager."""

    def __init__(
        self,
        cast: Cast,
        path: Path,
        device: str,
        report: Report,
        limits: Limits = Limits(),  # noqa: B008 (it is a tuple)
    ) -> None:
        self.ours = Entry(cast.ours, {})
        self._path = path
        self._device = device
        self._limits = limits
        self._report = report
        self._stack = ExitStack()
        self._processes: dict[str, Process] = {}
        self._left_out: dict[str, str] = {}
        self._mapping: list[Entry] = []  # that keep the file mapped after a read
        self._restarts: Counter[str] = Counter()
        self._entries = [Entry(rival, one) for rival in cast.rivals for one in rival.settings]
        self._cast = (cast.ours, *cast.baselines, *cast.rivals)
        self.best: list[Entry] = []  # of each rival the setting that was fastest in the last trial
        for rival in self._cast:  # their libraries load at the same time
            self._launch(rival)
        for rival in self._cast:
            self._start(rival)

    def __enter__(self) -> Contest:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _launch(self, rival: Rival) -> None:
        process = Process(rival.loader, self._device, self._limits)
        self._processes[rival.name] = self._stack.enter_context(process)

    def _start(self, rival: Rival) -> None:
        process = self._processes[rival.name]
        try:
            process.start()
        except WorkerError as error:
            if rival is self.ours.rival:
                raise CommandError(rival.name, str(error)) from None
            self.leave_out(rival, str(error))
        else:
            self._report.environment[f"rival {rival.name}"] = process.version or "ran"

    def leave_out(self, rival: Rival, cause: str) -> None:
        """Leave out a rival from now on, and report it."""
        self._left_out[rival.name] = cause
        self._entries = [entry for entry in self._entries if entry.rival is not rival]
        environment = self._report.environment
        environment[f"rival {rival.name}"] = f"left out: {cause}"
        told = "; ".join(f"{name}: {why}" for name, why in self._left_out.items())
        environment["rivals left out"] = told
        print(f"rival {rival.name} left out: {cause}", file=sys.stderr, flush=True)

    def bring(self, state: State, path: Path) -> bool:
        """Bring a file into a state; return whether it holds. Restart workers that map the file."""
        if state(path):
            return True
        for rival in self._cast:
            if self._processes[rival.name].maps(path):
                self._processes[rival.name].end()
                self._launch(rival)
                self._start(rival)
        if state(path):
            return True
        cached, pages = page_cache.cached_pages(path)
        told = f"{cached} of {pages} pages of {path.name} are cached"
        self._report.environment["a state that was not reached"] = told
        return False

    def _opened(self, entry: Entry) -> Process:
        process = self._processes[entry.rival.name]
        if process.opened_with != entry.settings:
            process.open(self._path, entry.settings)
        return process

    def run(self, entry: Entry, state: State) -> Run:
        """Read once from a state. Raises WorkerError."""
        process = self._opened(entry)
        ready = self.bring(state, process.reads)
        process = self._opened(entry)  # perhaps it was begun anew
        found = process.read()
        return Run(found["seconds"], found["cpu_seconds"], found["right"], ready)

    def _try(self, entry: Entry, state: State) -> bool:
        """Run an entry for its figure; return whether it stays in the contest."""
        rival = entry.rival
        if rival.name in self._left_out or entry.failed:
            return False
        if state is not hot and any(one.is_as(entry) for one in self._mapping):
            return self._pass_over(entry)
        process = self._processes[rival.name]
        mapped = process.maps(process.reads)
        try:
            found = self.run(entry, state)
        except WorkerError as error:
            return self._drop(entry, str(error))
        if not found.right:
            self.leave_out(rival, "it brought wrong bytes")
            return False
        now = self._processes[rival.name]
        if now.maps(now.reads) and not (mapped and now is process):
            self._mapping.append(entry)
            if state is not hot:
                return self._pass_over(entry)
        if found.ready:  # else the file was not in the state that is tried
            entry.seconds.append(found.seconds)
        return True

    def _pass_over(self, entry: Entry) -> bool:
        """Skip a setting in states in which a file is not, or not wholly, cached; return False."""
        cause = "it keeps the file mapped, whose pages cannot leave the page cache then"
        self._report.environment[f"only run on cached files: {entry}"] = cause
        entry.failed = True
        return False

    def _drop(self, entry: Entry, cause: str) -> bool:
        """Drop a setting, and its rival if it has no other; return False."""
        rival = entry.rival
        entry.failed = True
        self._report.environment[f"setting left out: {entry}"] = cause
        self._entries = [one for one in self._entries if not one.is_as(entry)]
        if not any(one.rival is rival for one in self._entries) or not self._revive(rival):
            self.leave_out(rival, cause)
        return False

    def _revive(self, rival: Rival) -> bool:
        """Restart a rival's process if it has ended; return whether it can take requests."""
        if self._processes[rival.name].alive:
            return True
        self._restarts[rival.name] += 1
        if self._restarts[rival.name] > RESTARTS_MAX:
            return False
        self._launch(rival)
        self._start(rival)
        return rival.name not in self._left_out

    def trial(self, name: str, state: State, pool: Sequence[Entry] | None = None) -> list[Entry]:
        """Return the entries that are fastest from a state, the best one first."""
        left = [Entry(one.rival, one.settings) for one in (self._entries if pool is None else pool)]
        seen: set[str] = set()
        for entry in left:
            if entry.rival.name not in seen:  # once to warm up
                seen.add(entry.rival.name)
                self._try(entry, state)
                entry.seconds.clear()
            self._try(entry, state)
        left = [entry for entry in left if entry.seconds]
        finalists = sorted(left, key=lambda entry: entry.seconds[0])[:FINALISTS]
        for _ in range(TRIALS - 1):
            for entry in finalists:
                self._try(entry, state)
        self._tell(name, left)
        gone = self._left_out
        usable = [one for one in finalists if one.rival.name not in gone and not one.failed]
        return sorted(usable, key=lambda entry: median(entry.seconds))

    def _tell(self, name: str, entries: list[Entry]) -> None:
        """Put the best setting of each rival, and its defaults, into the report."""
        best: dict[str, Entry] = {}
        for entry in entries:
            for key in (entry.rival.name, *([str(entry)] if not entry.settings else [])):
                if key not in best or median(entry.seconds) < median(best[key].seconds):
                    best[key] = entry
        told = {str(entry): f"{median(entry.seconds) * 1e3:.1f} ms" for entry in best.values()}
        text = "; ".join(f"{entry} {took}" for entry, took in told.items())
        self._report.environment[f"trial {name}"] = f"{text or 'no rival'}, of {len(entries)}"
        self.best = [best[one] for one in {entry.rival.name: None for entry in entries}]

    def judge(self, pairs: int, state: State, ranked: Sequence[Entry]) -> Judged | None:
        """Take pairs against the first of `ranked` that does not fail; None if all fail."""
        for entry in ranked:
            if entry.rival.name in self._left_out:
                continue
            spent: list[float] = []
            right = True

            def one(who: Entry, spent: list[float] = spent) -> float:
                nonlocal right
                found = self.run(who, state)
                right = right and found.right and found.ready
                if who is self.ours:
                    spent.append(found.cpu_seconds)
                return found.seconds

            def own() -> float:
                try:
                    return one(self.ours)
                except WorkerError as error:
                    raise CommandError(self.ours.rival.name, str(error)) from None

            try:
                taken = take_pairs(pairs, own, lambda entry=entry: one(entry))  # type: ignore[misc]
            except WorkerError as error:
                self.leave_out(entry.rival, str(error))
                continue
            return Judged(entry, taken, right, sum(spent[1:]))
        return None
