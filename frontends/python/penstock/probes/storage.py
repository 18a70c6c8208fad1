"""Finds what the file system at a path can do: direct I/O, exact residency, uncached reads.

The probes write a scratch file of 1 MiB in the folder, so that the answers are true for it. If they
may not write there, they use an existing file, and report as unknown what needs a file of our own:
cachestat answers only the owner.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from penstock import calibrations
from penstock.errors import CommandError, require_regular
from penstock.probes import calls
from penstock.probes.finding import LIMITED, MISSING, OK, UNKNOWN, Finding
from penstock.probes.system import read_text, seccomp_filtered

_SCRATCH_SIZE = 1 << 20  # bytes
_RWF_DONTCACHE = 0x80


@dataclass(frozen=True)
class Probed:
    """The file that is probed. `mine`: we own it, so its residency can be trusted."""

    path: str
    group: str
    size: int
    mine: bool


def file_system(path: str) -> str:
    """Return the type of the file system that holds `path`: ext4, overlay, tmpfs, nfs4 ..."""
    real = os.path.realpath(path)
    best, kind = "", "unknown"
    for line in read_text("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        mount = before.split()[4].encode().decode("unicode_escape")
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, after.split()[0]
    return kind


def _direct_io(probed: Probed) -> Finding:
    cost = "every read goes through the page cache: one more copy, and it evicts other data"
    remedy = "keep the files on ext4, xfs or btrfs (a volume, not a container's own layer)"
    try:
        descriptor = os.open(probed.path, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        return Finding(probed.group, "O_DIRECT", MISSING, error.strerror or "", cost, remedy)
    try:
        try:
            alignment = calls.direct_io_alignment(descriptor)
        except OSError:  # an old kernel or container: fall back to the page size
            alignment = None
        if alignment == (0, 0):
            return Finding(probed.group, "O_DIRECT", MISSING, "not for this file", cost, remedy)
        with mmap.mmap(-1, mmap.PAGESIZE) as page:
            os.preadv(descriptor, [page], 0)
    except OSError as error:
        value = f"opens, but a read says: {error.strerror}"
        return Finding(probed.group, "O_DIRECT", MISSING, value, cost, remedy)
    finally:
        os.close(descriptor)
    if alignment is None:
        value = f"works; statx tells no alignment, so {mmap.PAGESIZE} bytes are kept to"
    else:
        value = f"works; alignment {alignment[0]} bytes in memory, {alignment[1]} in the file"
    return Finding(probed.group, "O_DIRECT", OK, value)


def _cachestat(probed: Probed) -> Finding:
    cost = "what is cached is told by mincore (slower, owner only) or by timing"
    descriptor = os.open(probed.path, os.O_RDONLY)
    try:
        os.pread(descriptor, probed.size, 0)
        told = calls.cachestat(descriptor, probed.size)
        resident = calls.mincore(descriptor, probed.size) if probed.mine else None
    except OSError as error:
        return _cachestat_refused(probed, error, cost)
    finally:
        os.close(descriptor)
    if resident is None:
        value = f"answers {told} pages; unchecked, because the file is not ours"
        return Finding(probed.group, "cachestat", UNKNOWN, value, cost, "name a folder you own")
    if resident > 0 and told == 0:
        value = f"wrong here: it answers 0 where mincore sees {resident} cached pages"
        remedy = "keep the files on ext4, xfs, tmpfs or NFS; overlayfs answers 0 always"
        return Finding(probed.group, "cachestat", MISSING, value, cost, remedy)
    value = f"right here ({told} pages, mincore {resident})"
    if abs(told - resident) * 4 > max(told, resident):  # other programs may evict in between
        return Finding(probed.group, "cachestat", UNKNOWN, "differs: " + value, cost, "try again")
    return Finding(probed.group, "cachestat", OK, value)


def _cachestat_refused(probed: Probed, error: OSError, cost: str) -> Finding:
    filtered = seccomp_filtered()
    if error.errno == errno.EPERM and not probed.mine:
        value, remedy = "refused: the file is not ours", "run as the owner of the files"
        return Finding(probed.group, "cachestat", UNKNOWN, value, cost, remedy)
    if error.errno in (errno.EPERM, errno.ENOSYS) and filtered:
        value = f"forbidden by the container's seccomp profile ({error.strerror})"
        remedy = (
            "docker run --security-opt seccomp=PROFILE.json, with a profile that allows cachestat"
        )
    elif error.errno == errno.ENOSYS:
        value, remedy = "not in this kernel", "a kernel from 6.5 on"
    else:
        value, remedy = f"refused: {error.strerror}", "see cachestat(2) for the errno"
    return Finding(probed.group, "cachestat", MISSING, value, cost, remedy)


def _uncached_reads(probed: Probed) -> Finding:
    cost = "one-shot reads fill the page cache and evict what others use"
    descriptor = os.open(probed.path, os.O_RDONLY)
    try:
        with mmap.mmap(-1, mmap.PAGESIZE) as page:
            os.preadv(descriptor, [page], 0, _RWF_DONTCACHE)
        return Finding(probed.group, "RWF_DONTCACHE", OK, "works")
    except OSError as error:
        value = error.strerror or ""
        if error.errno == errno.EOPNOTSUPP:
            value = f"not on this file system ({file_system(probed.path)}) or kernel"
        remedy = "a kernel from 6.14 on, and ext4, xfs or btrfs; else O_DIRECT serves large reads"
        return Finding(probed.group, "RWF_DONTCACHE", MISSING, value, cost, remedy)
    finally:
        os.close(descriptor)


def _calibration(path: str, group: str) -> Finding:
    """Say which costs choose the routes of reads there."""
    cost = "routes are chosen by default costs, which follow the reads"
    try:
        used = calibrations.in_use(path, "")
    except OSError as error:
        return Finding(group, "calibration", UNKNOWN, error.strerror or str(error), cost)
    if used["complaint"]:
        remedy = f"penstock calibrate {path}, or penstock calibrate --reset"
        return Finding(group, "calibration", LIMITED, used["complaint"], cost, remedy)
    return Finding(group, "calibration", OK, calibrations.in_use_text(used))


def _ask(probed: Probed) -> Iterator[Finding]:
    for name, probe in (
        ("O_DIRECT", _direct_io),
        ("cachestat", _cachestat),
        ("RWF_DONTCACHE", _uncached_reads),
    ):
        try:
            yield probe(probed)
        except (OSError, ValueError) as error:
            yield Finding(probed.group, name, UNKNOWN, str(error))


def _existing(path: str) -> str:
    """Return a readable, regular, non-empty file at or directly in `path`; empty if none."""
    if os.path.isfile(path):
        return path
    with os.scandir(path) as entries:
        for entry in entries:
            good = entry.is_file(follow_symlinks=False) and os.access(entry.path, os.R_OK)
            if good and entry.stat().st_size > 0:
                return entry.path
    return ""


def findings(path: str) -> Iterator[Finding]:
    """Yield what the file system at `path`, a file or a folder, can do."""
    if not os.path.exists(path):
        raise CommandError(path, os.strerror(errno.ENOENT))
    require_regular(path)
    group = f"storage {path} ({file_system(path)})"
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".penstock-check-") as scratch:
            scratch.write(os.urandom(_SCRATCH_SIZE))
            scratch.flush()
            os.fsync(scratch.fileno())
            yield from _ask(Probed(scratch.name, group, _SCRATCH_SIZE, True))
        yield _calibration(path, group)
        return
    except OSError as error:
        reason = error.strerror or str(error)
    existing = _existing(path)
    if not existing:
        raise CommandError(path, f"no file can be written or read there ({reason})")
    about = os.stat(existing)
    yield Finding(
        group,
        "write access",
        LIMITED,
        reason,
        "asked about an existing file instead",
        "name a folder that you may write to",
    )
    size = min(about.st_size, _SCRATCH_SIZE)
    yield from _ask(Probed(existing, group, size, about.st_uid == os.geteuid()))
    yield _calibration(path, group)
