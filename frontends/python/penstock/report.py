"""The report of a read or write: which bytes took which route and why, and the times."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Report(Mapping[str, Any]):
    """The report of one read or write; also a mapping of its fields.

    The values of `routes`, of `reasons` and of `residency` each add up to `bytes`. Names that have
    no bytes are left out.

    Attributes
    ----------
    bytes, bytes_asked : int
        Number of bytes that arrived, and that were requested. Fewer arrive at the end of the file,
        or after an error.
    offset : int
        Where in the file the first byte is. In mode "a", where the bytes went.
    routes : dict of str to int
        Bytes by route: cached (through the OS page cache), direct (past it), peer (DMA).
    reasons : dict of str to int
        Bytes by the reason for their route: resident (copied), missing (direct), swallowed (cached,
        but cheaper to read again together with their neighbours), unknown (the OS does not tell
        what is cached, as for files of other users), small, dirty, unaligned, asked ...; no-drop
        (went through the OS page cache and stay there, although `cache` is drop).
    residency : dict of str to int
        Bytes by their state in the OS page cache before: missing, cached, dirty, mixed, unknown.
    transfers : int
        Number of storage operations.
    direct_depth : int
        The largest number of direct operations in flight when one of this call started. It counts
        all reads of the same file system with the same device memory, storage, throttle and number
        of threads. 0 if there was no direct operation.
    predicted_ns : int
        Time that plans predicted for the read, summed over its parts. 0 if nothing was planned.
    queue_ns, plan_ns, read_ns, copy_ns : int
        Time until the first byte was requested; time to look at residency and to plan; time from
        then until the last byte was in host memory; time from then until it was in device memory.
    error_number, error_offset, error_route
        Errno, offset and route of the first failed extent; 0, None and None if none failed.
    """

    bytes: int
    bytes_asked: int
    offset: int
    routes: dict[str, int]
    reasons: dict[str, int]
    residency: dict[str, int]
    transfers: int
    direct_depth: int
    predicted_ns: int
    queue_ns: int
    plan_ns: int
    read_ns: int
    copy_ns: int
    error_number: int
    error_offset: int | None
    error_route: str | None

    def __getitem__(self, key: str) -> Any:
        if key not in self.__dataclass_fields__:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dataclass_fields__)

    def __len__(self) -> int:
        return len(self.__dataclass_fields__)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can express."""
        return dataclasses.asdict(self)

    def explain(self) -> str:
        """Return one line: bytes by route and by reason, and the times."""
        routes = ", ".join(f"{count} {name}" for name, count in self.routes.items())
        reasons = ", ".join(f"{name} {count}" for name, count in self.reasons.items())
        parts = [f"{self.bytes} of {self.bytes_asked} bytes: {routes or 'none'}"]
        if reasons:
            parts.append(f"because {reasons}")
        depth = f" at depth {self.direct_depth}" if self.direct_depth else ""
        parts.append(
            f"{self.transfers} transfers{depth}, queue {self.queue_ns / 1e6:.3f} ms, plan"
            f" {self.plan_ns / 1e6:.3f} ms, read {self.read_ns / 1e6:.3f} ms, copy"
            f" {self.copy_ns / 1e6:.3f} ms"
        )
        if self.error_number:
            import os

            parts.append(
                f"{os.strerror(self.error_number)} at offset {self.error_offset}"
                f" ({self.error_route})"
            )
        return "; ".join(parts)
