"""Probes what `penstock mount` needs of FUSE, and what the running kernel does well there."""

from __future__ import annotations

import ctypes
import os
import re

from penstock.probes.finding import LIMITED, MISSING, OK, Finding

_GROUP = "mounts"
_DEVICE = "/dev/fuse"
_LIBRARY = "libfuse3.so.3"
_VERSION_MIN = (3, 12)
_DIRECT_WRITES = (6, 18)  # as in frontends/cache/mount/mount.cc
_COST = "penstock mount does not work; penstock run --cache does"


def _version(text: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _library() -> Finding:
    remedy = "apt-get install libfuse3-3 fuse3"
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return Finding(_GROUP, "libfuse", MISSING, f"no {_LIBRARY}", _COST, remedy)
    library.fuse_pkgversion.restype = ctypes.c_char_p
    version = library.fuse_pkgversion().decode()
    if _version(version) < _VERSION_MIN:
        return Finding(_GROUP, "libfuse", LIMITED, f"{version}, older than 3.12", _COST, remedy)
    return Finding(_GROUP, "libfuse", OK, version)


def _device() -> Finding:
    if not os.path.exists(_DEVICE):
        return Finding(_GROUP, _DEVICE, MISSING, "not there", _COST, "modprobe fuse")
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        remedy = "in a container: --device /dev/fuse --cap-add SYS_ADMIN"
        return Finding(_GROUP, _DEVICE, MISSING, "may not be opened", _COST, remedy)
    return Finding(_GROUP, _DEVICE, OK, "can be opened; requests of up to 1 MiB")


def _direct_writes() -> Finding:
    kernel = os.uname().release
    if _version(kernel) >= _DIRECT_WRITES:
        value = "files opened only to write go past the kernel's pages"
        return Finding(_GROUP, "direct writes", OK, value)
    cost = "a write through a mount is copied once more, and asks for attributes"
    value = f"Linux {kernel} would leave readers old pages"
    return Finding(_GROUP, "direct writes", LIMITED, value, cost, "Linux 6.18")


def findings() -> list[Finding]:
    """Return what there is for mounts."""
    return [_device(), _library(), _direct_writes()]
