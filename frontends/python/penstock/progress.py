"""The line on a terminal that says how far a command is."""

from __future__ import annotations

import sys
import time


class ProgressLine:
    """One line of standard error, rewritten as it goes, removed at the end of the `with` block.

    It appears after half a second, and is rewritten ten times a second at most. Nothing is shown
    where standard error is no terminal or `wanted` is false.
    """

    def __init__(self, wanted: bool = True) -> None:
        self.wanted = wanted and sys.stderr.isatty()
        self.begin = self._last = time.monotonic()
        self._shown = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Say `text`, unless something was said just now."""
        now = time.monotonic()
        if not self.wanted or now - self._last < (0.1 if self._shown else 0.5):
            return
        self._last, self._shown = now, True
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line; the next show() may bring it back."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
