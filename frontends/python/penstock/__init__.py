"""Files for GPU kernels: a page cache in GPU memory, readahead, one source for CPU and CUDA.

Importing this loads nothing but this file; each name is loaded when it is first used.
"""

from __future__ import annotations

__version__ = "0.1.0"
