"""Says in words which calibration is stored or used, how old it is, and how large its error."""

from __future__ import annotations

import os
import time
from typing import Any

_UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60))


def age_text(seconds: float) -> str:
    """Return an age in the largest unit of which it has two: 3 days, 90 minutes."""
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} old"
    return f"{max(seconds, 0):.0f} seconds old"


def with_age(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a stored calibration with its age in seconds, for JSON."""
    return {**stored, "age_seconds": max(time.time() - stored["measured_at"], 0.0)}


def stored_text(stored: dict[str, Any]) -> str:
    """Return age and error of a stored calibration: 3 days old, error 4.1 %."""
    routes = [stored[name] for name in ("direct", "cached", "buffered") if stored[name]]
    unknown = any(route["error"] is None for route in routes)
    error = f"{100 * stored['error']:.1f} %" + (" (not stored: assumed)" if unknown else "")
    return f"{age_text(time.time() - stored['measured_at'])}, error {error}"


def in_use(path: str, device: str) -> dict[str, Any]:
    """Return what files at `path` use, for reads into memory of `device`. Raises OSError."""
    from penstock import _core

    used = _core.calibration_in_use(os.fsencode(path), device=device)
    if used["stored"] is not None:
        used["stored"] = with_age(used["stored"])
    return used


def in_use_text(used: dict[str, Any]) -> str:
    """Return one line about in_use()."""
    if used["stored"] is None:
        return "none: default costs, which follow the reads"
    into = "host memory" if used["memory"] == "host" else used["memory"]
    return f"{used['file_system']} into {into}, {stored_text(used['stored'])}"
