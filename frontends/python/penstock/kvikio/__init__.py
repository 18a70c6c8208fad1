"""KvikIO's names, for programs that were written for it: `import penstock.kvikio as kvikio`.

docs/guide/kvikio.md lists the differences.
"""

from __future__ import annotations

from penstock.kvikio import defaults
from penstock.kvikio.buffers import (
    bounce_buffer_free,
    memory_deregister,
    memory_register,
    stream_deregister,
    stream_register,
)
from penstock.kvikio.cufile import CuFile, IOFutureStream
from penstock.kvikio.defaults import CompatMode
from penstock.kvikio.page_cache import drop_file_page_cache, get_page_cache_info

__all__ = [
    "CompatMode",
    "CuFile",
    "IOFutureStream",
    "bounce_buffer_free",
    "defaults",
    "drop_file_page_cache",
    "get_page_cache_info",
    "memory_deregister",
    "memory_register",
    "stream_deregister",
    "stream_register",
]
