"""What became of a read: which bytes took which route and why, and where the time went."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Report(Mapping[str, Any]):
    """The report of one read; also a mapping of its fields.

    The values of `routes`, of `reasons` and of `residency` each add up to `bytes`. Names that have
    no bytes are left out.

    Attributes
    ----------
    bytes, bytes_asked : int
        That arrived, and that were asked for. Fewer arrive at the end of the file, or on errors.
    routes : dict of str to int
        Bytes by route: cached (through the OS page cache), direct (round it), peer (DMA).
    reasons : dict of str to int
        Bytes by why they took their route: resident (copied), missing (direct), swallowed (cached,
        but cheaper to read again with what lies beside them), unknown (the kernel does not tell
        what is cached, as of other users' files), small, dirty, unaligned, asked ...; no-drop:
        through the OS page cache, where they stay although cache="drop" was asked for.
    residency : dict of str to int
        Bytes by what the OS page cache held of them before: missing, cached, dirty, mixed, unknown.
    transfers : int
        Storage operations.
    direct_depth : int
        The most direct operations in flight when one of these was started, over all reads of the
        same file system with the same device memory, storage, throttle and number of threads; 0:
        none was.
    predicted_ns : int
        What plans expected reading to take, summed over the parts of the read; 0: not planned.
    queue_ns, plan_ns, read_ns, copy_ns : int
        Until the first byte was asked for; looking at residency and planning; from then until the
        last byte was in host memory; from then until it was in device memory.
    error_number, error_offset, error_route
        The first extent that failed; 0, None and None: none did.
    """

    bytes: int
    bytes_asked: int
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
        """Return the fields as a dict that can be written as JSON."""
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
