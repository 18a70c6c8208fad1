"""One fact about the machine: what it is, what its absence costs, how to get it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

OK = "ok"
LIMITED = "limited"
MISSING = "missing"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """`state` is OK, LIMITED, MISSING or UNKNOWN; `cost` and `remedy` are empty when it is OK."""

    group: str
    name: str
    state: str
    value: str
    cost: str = ""
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the finding as a dict, for --json."""
        return asdict(self)


def size_text(size: float) -> str:
    """Return `size` bytes with a binary unit: 3.0 GiB."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
