"""Shows the progress of a command as a line on the terminal."""

from __future__ import annotations

import sys
import time


class ProgressLine:
    """A line of standard error that is rewritten, and removed at the end of the `with` block.

    It appears after half a second, and is rewritten at most ten times a second. Nothing is shown
    if standard error is no terminal or `wanted` is false.
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
        """Show `text`, unless the line was written less than a tenth of a second ago."""
        now = time.monotonic()
        if not self.wanted or now - self._last < (0.1 if self._shown else 0.5):
            return
        self._last, self._shown = now, True
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line; the next show() may bring it back."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
