"""KvikIO's settings: `set` and `get` store them, and files opened later use `num_threads`.

The other settings have no effect: Penstock itself sizes its reads and its staging.
"""

from __future__ import annotations

import enum
from types import TracebackType
from typing import Any

THREADS_MAX = 64  # the limit of penstock.open


class CompatMode(enum.IntEnum):
    """Whether KvikIO may use GPUDirect Storage."""

    OFF = 0
    ON = 1
    AUTO = 2


_values: dict[str, Any] = {
    "compat_mode": CompatMode.AUTO,
    "num_threads": None,  # the default of penstock.open
    "task_size": 4 << 20,
    "gds_threshold": 16 << 10,
    "bounce_buffer_size": 16 << 20,
    "http_max_attempts": 3,
    "http_status_codes": [429, 500, 502, 503, 504],
    "http_timeout": 60,
    "auto_direct_io_read": False,
    "auto_direct_io_write": False,
}
_POSITIVE = {"num_threads", "task_size", "bounce_buffer_size", "http_max_attempts", "http_timeout"}


def _checked(name: str, value: Any) -> Any:
    if name == "compat_mode":
        return CompatMode(value)
    if name == "http_status_codes":
        if not all(isinstance(code, int) for code in value):
            raise TypeError(f"{name}: a list of numbers is wanted, not {value!r}")
        return list(value)
    if isinstance(_values[name], bool):
        return bool(value)
    if name == "num_threads" and value is None:
        return None
    if value < 0:
        raise OverflowError(f"{name}: can't convert negative value {value}")
    if value == 0 and name in _POSITIVE:
        raise ValueError(f"{name} must be a positive integer greater than zero")
    return int(value)


class _Restored:
    """Sets values, and restores them at the end of a `with` statement."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self._before = {name: _values[name] for name in wanted}
        checked = {name: _checked(name, value) for name, value in wanted.items()}
        _values.update(checked)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        _values.update(self._before)


def set(*config: Any) -> _Restored:  # noqa: A001 (KvikIO's name)
    """Set the names of a dict, or one name; a `with` statement restores them. Raises KeyError."""
    if len(config) == 1 and isinstance(config[0], dict):
        return _Restored(config[0])
    if len(config) == 2 and isinstance(config[0], str):
        return _Restored({config[0]: config[1]})
    raise ValueError("set takes a dict, or a name and a value")


def get(name: str) -> Any:
    """Return the value that was set, or the default. Raises KeyError."""
    return _values[name]


def is_compat_mode_preferred() -> bool:
    """Return True: GPUDirect Storage is not used through cuFile."""
    return True


def threads() -> int | None:
    """Return the number of threads of a file; None is the default of penstock.open."""
    count: int | None = _values["num_threads"]
    return None if count is None else min(count, THREADS_MAX)
