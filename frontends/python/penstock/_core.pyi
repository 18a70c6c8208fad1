"""The compiled part of the package: frontends/python/*.cc."""

from collections.abc import Callable
from typing import Any

def scan(
    device: str,
    pattern_list: bytes | None,
    pattern_texts: list[bytes],
    paths: list[bytes],
    *,
    lines: bool = False,
    with_path: bool = False,
    output: int = -1,
    progress: Callable[[int, int, int, float], None] | None = None,
) -> dict[str, Any]: ...
def write_access_log(
    path: str,
    size: int,
    *,
    suspicious_count: int = 100,
    hit_share: float = 0.01,
    seed: int = 1,
) -> str: ...
def residency(
    path: bytes,
    *,
    offset: int = 0,
    size: int = ...,
    runs_max: int = 65536,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]: ...
def pick_device(name: str = "") -> tuple[str, str]: ...

class SignatureReader:
    def read(self, chunk: bytes) -> None: ...
    def finish(self) -> None: ...
    def step(self) -> bool: ...
    @property
    def steps(self) -> int: ...
    @property
    def source(self) -> dict[str, Any]: ...
    @property
    def streams(self) -> list[dict[str, Any]]: ...
    def programs(self, *, binary: bool = False) -> bytes: ...
    def plot(self, columns: int, rows: int, *, over_time: bool = False) -> dict[str, Any]: ...
