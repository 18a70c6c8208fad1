"""Ends a benchmark at Ctrl-C, SIGTERM and SIGHUP as at an error, so that it clears up.

The first signal raises KeyboardInterrupt, and the rest are ignored.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _end(_number: int, _frame: object) -> None:
    for number in _ENDS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def caught() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block for any signal that ends programs."""
    before = {number: signal.signal(number, _end) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def deferred() -> Iterator[None]:
    """Let signals wait until the block, which starts something, has told how to end it."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda got, _: came.append(got)) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])
