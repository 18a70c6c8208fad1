"""The parts of `penstock.Future` that need not be fast: await, errors, and waits for several.

`wait` and `as_completed` are as in `concurrent.futures`, whose functions take only its own futures.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION
from typing import TYPE_CHECKING, Any

from penstock._core import Endings, Future, is_completing

if TYPE_CHECKING:
    import asyncio

# A cancelled task waits at most so long for operations that have begun and cannot be dropped.
STOP_LIMIT_SECONDS = 5.0

if sys.version_info >= (3, 11):
    _TimeoutError = TimeoutError
else:

    class _TimeoutError(concurrent.futures.TimeoutError, TimeoutError):
        """Before Python 3.11 these were two classes; users may expect either."""


def cancelled_error(subject: object) -> BaseException:
    """Return the error that result() of a cancelled read or write raises."""
    return concurrent.futures.CancelledError(f"the read or write of {subject!r} was cancelled")


def timeout_error(subject: object) -> BaseException:
    """Return the error that result() raises when its timeout ends before the read or write."""
    return _TimeoutError(f"the read or write of {subject!r} is still under way")


def not_done_error(subject: object) -> BaseException:
    """Return the error that `report` raises before the read or write has ended."""
    text = f"the read or write of {subject!r} is still under way"
    return concurrent.futures.InvalidStateError(text)


def wait_in_loop(future: Future) -> Generator[Any, None, int]:
    """Await `future` in the running asyncio loop; a cancelled task stops the read or write."""
    return _result_in_loop(future).__await__()


async def _result_in_loop(future: Future) -> int:
    import asyncio

    if not future.done():
        if is_completing():
            raise RuntimeError("a callback of a future cannot await another one: use result()")
        ended = _end_in_loop(future, asyncio.get_running_loop())
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            # The caller may reuse the buffer, so nothing more may be written to it.
            future.stop()
            await _wait_until(ended, time.monotonic() + STOP_LIMIT_SECONDS)
            raise
    return future.result()


def _end_in_loop(future: Future, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
    """Return a future of the asyncio loop that is done when `future` is."""
    waiter = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def ended(_: Future) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed, so no task waits
            loop.call_soon_threadsafe(wake)

    future.add_done_callback(ended)
    return waiter


async def _wait_until(ended: asyncio.Future[None], end: float) -> None:
    """Wait for `ended`, even if the task is cancelled again, as at the end of the loop."""
    import asyncio

    while not ended.done() and (left := end - time.monotonic()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([ended], timeout=left)


def _remaining(end: float | None) -> float | None:
    return None if end is None else max(0.0, end - time.monotonic())


def as_completed(futures: Iterable[Future], timeout: float | None = None) -> Iterator[Future]:
    """Yield futures as they end; futures that have ended come first.

    Raises TimeoutError if a future is still under way `timeout` seconds after the call.
    """
    end = None if timeout is None else time.monotonic() + timeout
    given = list(dict.fromkeys(futures))
    endings = Endings(given)
    for left in range(len(given), 0, -1):
        number = endings.next(_remaining(end))
        if number is None:
            raise _TimeoutError(f"{left} of {len(given)} reads and writes are still under way")
        yield given[number]


def wait(
    futures: Iterable[Future], timeout: float | None = None, return_when: str = ALL_COMPLETED
) -> tuple[set[Future], set[Future]]:
    """Wait until futures end; return the set of ended futures and the set of the others.

    Parameters
    ----------
    futures : iterable of Future
    timeout : float, optional
        Limit of the wait in seconds. None is no limit.
    return_when : str
        ALL_COMPLETED, FIRST_COMPLETED or FIRST_EXCEPTION of `concurrent.futures`.
    """
    if return_when not in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
        raise ValueError(f"return_when: {return_when!r}")
    pending = set(futures)
    done: set[Future] = set()

    def enough(future: Future) -> bool:
        if return_when == FIRST_COMPLETED:
            return True
        if return_when == FIRST_EXCEPTION:
            return not future.cancelled() and future.exception() is not None
        return False

    with contextlib.suppress(TimeoutError):
        for future in as_completed(set(pending), timeout):
            done.add(future)
            pending.remove(future)
            if enough(future):
                break
    for future in [one for one in pending if one.done()]:
        done.add(future)
        pending.remove(future)
    return done, pending
