"""What file caches tell, in the text format that Prometheus reads (version 0.0.4).

A counter only grows while its process lives. Sizes are in bytes. The label `path` is the folder
whose files are cached.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# Name without `penstock_cache_`, and its key in the statistics, its meaning.
_COUNTERS = (
    ("hits_total", "hits", "Look-ups of chunks that were in the cache."),
    ("misses_total", "misses", "Look-ups of chunks that storage had to read."),
    ("served_bytes_total", "bytes_served", "Bytes that programs read from the cache."),
    ("read_bytes_total", "bytes_read", "Bytes that were read from storage into the cache."),
    ("written_bytes_total", "bytes_written", "Bytes that were written back to storage."),
    ("bypassed_bytes_total", "bytes_bypassed", "Bytes moved past the cache, as it had no room."),
    ("evicted_chunks_total", "evicted", "Chunks that made room for others."),
    ("write_errors_total", "write_errors", "Write-backs that failed."),
    ("lost_devices_total", "devices_lost", "Devices whose memory cannot be used any more."),
    ("lost_bytes_total", "bytes_lost", "Bytes that were lost with a device before a write-back."),
    ("tier_read_bytes_total", "tier_bytes_read", "Bytes read from the tier into memory."),
    ("tier_filled_bytes_total", "tier_bytes_filled", "Bytes copied to the tier."),
    ("tier_skipped_chunks_total", "tier_chunks_skipped", "Chunks the tier had no time for."),
    ("tier_logged_bytes_total", "tier_bytes_logged", "Bytes written to the tier's log."),
    ("tier_recovered_bytes_total", "tier_bytes_recovered", "Bytes a log gave at the start."),
)
_GAUGES = (
    ("size_bytes", "size", "Memory of the cache."),
    ("free_bytes", "free_size", "Memory that holds nothing."),
    ("clean_bytes", "clean_size", "Memory with bytes that storage has too."),
    ("dirty_bytes", "dirty_size", "Memory with bytes that storage lacks."),
    ("failing_files", "failing_count", "Files whose last write-back failed."),
    ("given_back_bytes", "given_back_size", "Memory that was given to other programs."),
    ("tier_size_bytes", "tier_size", "Space of the tier."),
    ("tier_used_bytes", "tier_used_size", "Space of the tier that holds something."),
    ("tier_log_bytes", "tier_log_size", "Bytes of the tier's log that storage lacks."),
)


def _label(text: str) -> str:
    """Return a label's value as it stands between quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _metric(name: str, kind: str, meaning: str, samples: Iterable[tuple[str, float]]) -> list[str]:
    name = f"penstock_cache_{name}"
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    return lines + [f'{name}{{path="{path}"}} {value}' for path, value in samples]


def text_of(caches: list[dict[str, Any]], silent: list[str]) -> str:
    """Return the metrics of caches. `silent` are the folders of those that do not answer."""
    from penstock.cache_service import printable

    named = [(_label(printable(one["path"])), one) for one in caches]
    up: list[tuple[str, float]] = [(path, 1) for path, _ in named]
    up += [(_label(printable(path)), 0) for path in silent]
    lines = _metric("up", "gauge", "Whether the process of the cache answers.", up)
    for kind, metrics in (("counter", _COUNTERS), ("gauge", _GAUGES)):
        for name, key, meaning in metrics:
            # A process that was started before an update may lack some.
            samples = [(path, one[key]) for path, one in named if key in one]
            lines += _metric(name, kind, meaning, samples)
    ages = [(path, one["dirty_age_ms"] / 1000) for path, one in named if "dirty_age_ms" in one]
    lines += _metric("dirty_age_seconds", "gauge", "For how long storage has lacked bytes.", ages)
    failed = [(path, int(bool(one.get("tier_error")))) for path, one in named if one.get("tier")]
    lines += _metric("tier_failed", "gauge", "Whether the tier is no longer used.", failed)
    return "\n".join(lines) + "\n"
