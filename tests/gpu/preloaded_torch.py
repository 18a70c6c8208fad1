"""A tensor of torch on a GPU is filled by the kernel's own pread, under the preload library.

Run by hand with LD_PRELOAD and a Python that has torch; exits 1 when the bytes are wrong.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import time

import torch  # type: ignore[import-not-found]

SIZE = 64 << 20

libc = ctypes.CDLL(None, use_errno=True)
libc.pread.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_longlong]
libc.pread.restype = ctypes.c_ssize_t
wrong = 0
with tempfile.NamedTemporaryFile() as file:
    bytes_ = torch.randint(0, 256, (SIZE,), dtype=torch.uint8)
    file.write(bytes_.numpy().tobytes())
    file.flush()
    for attempt in range(4):
        tensor = torch.zeros(SIZE, dtype=torch.uint8, device="cuda")
        begun = time.monotonic()
        moved = libc.pread(file.fileno(), tensor.data_ptr(), SIZE, 0)
        seconds = time.monotonic() - begun
        right = moved == SIZE and torch.equal(tensor.cpu(), bytes_)
        wrong += not right
        print(
            f"torch {attempt}: {moved} bytes, {'ok' if right else 'WRONG'}, {seconds * 1e3:.1f} ms"
        )
    print(f"errno {os.strerror(ctypes.get_errno())}")
sys.exit(1 if wrong else 0)
