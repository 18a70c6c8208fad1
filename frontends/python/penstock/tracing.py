"""Observes reads and writes: hooks at their begin and end, a Chrome trace, PENSTOCK_EXPLAIN.

Without a hook `_core` has no observer, and a call costs one comparison more. The begin hook runs
on the calling thread, the end hook on the thread that calls done callbacks, or on the calling
thread. Several hooks may run at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any

from penstock import _core
from penstock.report import Report

_numbers = itertools.count()


@dataclasses.dataclass(frozen=True)
class Transfer:
    """A read or write that hooks observe.

    Attributes
    ----------
    number : int
        Counts the observed reads and writes.
    operation : str
        read, pread, readv or preadv; write, pwrite, writev or pwritev.
    name : str, bytes or int
        The file, as it was given to open.
    size, offset : int
        Bytes requested, and their offset; for several pieces their sum, and the first offset. The
        offset of a write in mode "a" is None: the report has it.
    begin_ns : int
        Time of the begin, by `time.perf_counter_ns`.
    thread : int
        The calling thread, by `threading.get_native_id`.
    """

    number: int
    operation: str
    name: str | bytes | int
    size: int
    offset: int | None
    begin_ns: int
    thread: int


Begun = Callable[[Transfer], None]
Ended = Callable[[Transfer, Report], None]
Served = Callable[[dict[str, Any]], None]


class _Observer:
    """The observer that `_core` calls; it calls the hooks."""

    def __init__(self) -> None:
        self.hooks: tuple[Hook, ...] = ()
        self.lock = threading.Lock()

    def begun(
        self, operation: str, name: str | bytes | int, size: int, offset: int | None
    ) -> Transfer:
        transfer = Transfer(
            next(_numbers),
            operation,
            name,
            size,
            offset,
            time.perf_counter_ns(),
            threading.get_native_id(),
        )
        for hook in self.hooks:
            if hook.begun is not None:
                hook.begun(transfer)
        return transfer

    def ended(self, transfer: Transfer, report: Report) -> None:
        for hook in self.hooks:
            if hook.ended is not None:
                hook.ended(transfer, report)

    @property
    def wants_served(self) -> bool:
        """Whether the service shall keep a log of the reads of kernels."""
        return any(hook.served is not None for hook in self.hooks)

    def served(self, log: dict[str, Any]) -> None:
        for hook in self.hooks:
            if hook.served is not None:
                hook.served(log)

    def add(self, hook: Hook) -> None:
        with self.lock:
            self.hooks = (*self.hooks, hook)
            _core.observe(self)

    def remove(self, hook: Hook) -> None:
        with self.lock:
            self.hooks = tuple(one for one in self.hooks if one is not hook)
            if not self.hooks:
                _core.observe(None)


_observer = _Observer()


class Hook:
    """Functions that are called until `remove()`; a context manager that calls it at its end."""

    def __init__(
        self, begun: Begun | None, ended: Ended | None, served: Served | None = None
    ) -> None:
        self.begun, self.ended, self.served = begun, ended, served

    def remove(self) -> None:
        """Stop calling the functions. Reads under way may still call them at their end."""
        _observer.remove(self)

    def __enter__(self) -> Hook:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def on_transfer(begun: Begun | None = None, ended: Ended | None = None) -> Hook:
    """Register functions that are called when reads and writes of this process begin and end.

    Parameters
    ----------
    begun : callable, optional
        Called with the Transfer on the calling thread. An exception of it ends the read or write.
    ended : callable, optional
        Called with the Transfer and its Report.

    Returns
    -------
    Hook
        `remove()` removes the functions; so does the end of a `with` statement.
    """
    hook = Hook(begun, ended)
    _observer.add(hook)
    return hook


def _shown(name: str | bytes | int) -> str:
    text = f"descriptor {name}" if isinstance(name, int) else os.fsdecode(name)
    return text.encode("utf-8", "backslashreplace").decode()


def _explain(transfer: Transfer, report: Report) -> None:
    line = f"penstock: {_shown(transfer.name)}: {transfer.operation} {transfer.size} bytes at"
    line += f" {report.offset}: {report.explain()}\n"
    with contextlib.suppress(OSError, ValueError):  # standard error is closed
        sys.stderr.write(line)


def explain() -> Hook:
    """Print a line to standard error for every call that ends, as PENSTOCK_EXPLAIN=1 does."""
    return on_transfer(ended=_explain)


class trace:  # noqa: N801 (used as a function)
    """Write the calls of this context as a Chrome trace (chrome://tracing, Perfetto).

    Each read or write is a bar that holds its phases queue, read and copy, and its report. For
    scans that begin and end in the context, each request of a kernel is a bar too: misses, windows
    of readahead, and advised pages. It lasts from when the host took the request to when it had
    read the pages, and holds file, pages and block. Counters show ten times a second what became
    of the pages that calls wanted and of prefetched pages (used, wasted, or left), and how long
    calls waited, for all files and for each.

    Parameters
    ----------
    path : path
        Path of the JSON file, which is written at the end.

    Examples
    --------
    >>> with penstock.trace("reads.json"):
    ...     file.pread(buffer).result()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._events: list[dict[str, Any]] = []
        self._under_way = 0
        self._changed = threading.Condition()
        self._hook: Hook | None = None
        self._file: IO[str] | None = None

    def __enter__(self) -> trace:
        self._file = open(self.path, "w", encoding="utf-8")  # errors show now, not at exit
        self._hook = Hook(self._begun, self._ended, self._served)
        _observer.add(self._hook)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        assert self._hook is not None
        assert self._file is not None
        with self._changed:
            self._changed.wait_for(lambda: self._under_way == 0, timeout=60)
        self._hook.remove()
        process = {"name": "process_name", "ph": "M", "pid": os.getpid()}
        process["args"] = {"name": "penstock"}
        try:
            with self._file as file:
                json.dump({"displayTimeUnit": "ms", "traceEvents": [process, *self._events]}, file)
        except OSError as failed:  # Python does not name the file
            raise OSError(failed.errno, failed.strerror, self.path) from None

    def _begun(self, _: Transfer) -> None:
        with self._changed:
            self._under_way += 1

    def _ended(self, transfer: Transfer, report: Report) -> None:
        title = f"{transfer.operation} {transfer.size} bytes of {_shown(transfer.name)}"
        about = report.as_dict()
        at = transfer.begin_ns
        phases = [("queue", report.queue_ns), ("read", report.read_ns), ("copy", report.copy_ns)]
        end = at + sum(duration for _, duration in phases)
        whose = (transfer.number, transfer.thread)
        events = [_event("b", title, at, whose, about)]
        for name, duration in phases:
            if duration > 0:
                events.append(_event("b", name, at, whose))
                at += duration
                events.append(_event("e", name, at, whose))
        events.append(_event("e", title, end, whose))
        with self._changed:
            self._events += events
            self._under_way -= 1
            self._changed.notify_all()

    def _served(self, log: dict[str, Any]) -> None:
        events = []
        for one in log["events"]:
            whose = (next(_numbers), one["thread"])
            title = f"{one['kind']} of {one['pages']} pages of {_shown(one['file'])}"
            about = {
                "page": one["page"],
                "pages": one["pages"],
                "block": one["block"],
                "error_number": one["error_number"],
            }
            events += [
                _event("b", title, one["taken_ns"], whose, about),
                _event("e", title, one["arrived_ns"], whose),
            ]
        whose = (next(_numbers), 0)
        for one in log["samples"]:
            events += _counters(one, whose, "pages wanted by kernels", "")
        for one in log["file_samples"]:
            of_file = f" of {_shown(one['file'])}"
            events += _counters(one, whose, f"pages{of_file}", of_file)
        if log["lost"]:
            at = log["samples"][-1]["at_ns"]
            events.append(_event("i", f"{log['lost']} more events had no room", at, whose))
        with self._changed:
            self._events += events


# Counters of the page cache in a trace; their sum is the number of pages that calls wanted.
_COUNTED = ("hits", "misses", "window_hits", "window_late")


def _counters(
    sample: dict[str, Any], whose: tuple[int, int], wanted: str, of_file: str
) -> list[dict[str, Any]]:
    """Return counters of what became of pages, of a file or of all files; their parts add up."""
    used = sample["window_hits"] + sample["window_late"]
    # Kernels count while they run: a page may be counted as used before it counts as prefetched.
    left = max(sample["prefetched"] - used - sample["wasted"], 0)
    counters = {
        wanted: {name: sample[name] for name in _COUNTED},
        f"pages prefetched{of_file}": {"used": used, "wasted": sample["wasted"], "left": left},
        f"waited for pages{of_file}": {"seconds": sample["stalled_seconds"]},
    }
    return [_event("C", name, sample["at_ns"], whose, about) for name, about in counters.items()]


def _event(
    phase: str,
    name: str,
    at_ns: int,
    whose: tuple[int, int],
    about: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return an event of a trace; `whose` is its number and thread."""
    event: dict[str, Any] = {
        "name": name,
        "cat": "penstock",
        "ph": phase,
        "id": whose[0],
        "ts": at_ns / 1000,
        "pid": os.getpid(),
        "tid": whose[1],
    }
    if about is not None:
        event["args"] = about
    return event
