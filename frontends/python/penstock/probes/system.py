"""Probes the kernel, CPUs, memory, huge pages, locked memory, shared memory and container."""

from __future__ import annotations

import mmap
import os
import resource
from collections.abc import Iterator
from typing import NamedTuple

from penstock.probes import calls
from penstock.probes.finding import LIMITED, MISSING, OK, UNKNOWN, Finding, size_text

_CAP_IPC_LOCK = 14
_REGISTERED_SIZE = 64 << 20  # bytes of staging that io_uring would register
_SHARED_SIZE = 1 << 30  # bytes of /dev/shm; with less, shared caches have little room


def read_text(path: str) -> str:
    """Return the file's text, stripped; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def status_field(name: str) -> str:
    """Return a field of /proc/self/status."""
    for line in read_text("/proc/self/status").splitlines():
        if line.startswith(name + ":"):
            return line.split(":", 1)[1].strip()
    return ""


def seccomp_filtered() -> bool:
    """Return whether a seccomp filter restricts our system calls, as in a container."""
    return status_field("Seccomp") == "2"


def container() -> str:
    """Return the kind of container we run in, or an empty string."""
    if os.path.exists("/.dockerenv"):
        return "docker"
    if os.path.exists("/run/.containerenv"):
        return "podman"
    groups = read_text("/proc/1/cgroup")
    return next((name for name in ("kubepods", "docker", "lxc") if name in groups), "")


def _kernel() -> Finding:
    system = os.uname()
    value = f"{system.sysname} {system.release} {system.machine}"
    inside = container()
    if inside:
        value += f", inside {inside}"
    if seccomp_filtered():
        value += ", system calls filtered (seccomp)"
    return Finding("machine", "kernel", OK, value)


def cpu_quota() -> float | None:
    """Return the number of CPUs that the control group grants, or None for no limit."""
    quota, _, period = read_text("/sys/fs/cgroup/cpu.max").partition(" ")
    if not period:
        quota = read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    if quota.isdigit() and period.isdigit() and int(period) > 0:
        return int(quota) / int(period)
    return None


def _cpus() -> Finding:
    usable = len(os.sched_getaffinity(0))
    total = os.cpu_count() or usable
    value = f"{usable} of {total}" if usable != total else f"{usable}"
    quota = cpu_quota()
    if quota is not None and quota < usable:
        return Finding(
            "machine",
            "cpus",
            LIMITED,
            f"{value}, held to {quota:g} by the control group",
            "more blocks run at once than CPUs: barriers and waits of kernels get slow",
            f"set PENSTOCK_DEVICE=cpu:{max(1, round(quota))}, or raise the container's CPU limit",
        )
    return Finding("machine", "cpus", OK, value)


class Memory(NamedTuple):
    """Bytes of memory of this machine."""

    total: int
    available: int
    limit: int | None  # of the control group; None: it sets none below the total


def memory() -> Memory:
    """Return the sizes of memory; 0 if the kernel does not tell."""
    sizes = {}
    for line in read_text("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        sizes[name] = int(rest.split()[0]) * 1024
    total = sizes.get("MemTotal", 0)
    told = read_text("/sys/fs/cgroup/memory.max") or read_text(
        "/sys/fs/cgroup/memory/memory.limit_in_bytes"
    )
    limited = told.isdigit() and int(told) < total
    return Memory(total, sizes.get("MemAvailable", 0), int(told) if limited else None)


def _memory() -> Finding:
    total, available, limit = memory()
    value = f"{size_text(total)}, {size_text(available)} available"
    if limit is not None:
        return Finding(
            "machine",
            "memory",
            LIMITED,
            f"{value}; the control group allows {size_text(limit)}",
            "device memory and page cache of the CPU backend must fit below the limit",
            "raise the container's memory limit",
        )
    return Finding("machine", "memory", OK, value)


def _huge_bytes_of_process() -> int:
    lines = read_text("/proc/self/smaps").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("AnonHugePages:"))


def _transparent_huge_bytes() -> int:
    """Return how many bytes of a touched 8 MiB mapping the kernel put on huge pages."""
    size = 8 << 20
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        before = _huge_bytes_of_process()
        for offset in range(0, size, mmap.PAGESIZE):
            memory[offset] = 1
        return _huge_bytes_of_process() - before


def _huge_pages() -> Finding:
    setting = read_text("/sys/kernel/mm/transparent_hugepage/enabled")
    chosen = setting.partition("[")[2].partition("]")[0]
    cost = "direct reads into staging and device memory run up to 2.5 times slower"
    remedy = "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
    try:
        size = _transparent_huge_bytes()
    except (OSError, ValueError) as error:
        return Finding("machine", "huge pages", MISSING, f"madvise: {error}", cost, remedy)
    if size > 0:
        return Finding("machine", "huge pages", OK, f"transparent ({chosen}), given when asked for")
    if chosen == "never":
        return Finding("machine", "huge pages", MISSING, "switched off (never)", cost, remedy)
    return Finding(
        "machine",
        "huge pages",
        LIMITED,
        f"transparent ({chosen or 'setting unknown'}), but none given when asked for",
        cost,
        "free memory is fragmented: as root: echo 1 > /proc/sys/vm/compact_memory",
    )


def _locked_memory() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    capabilities = int(status_field("CapEff") or "0", 16)
    if capabilities >> _CAP_IPC_LOCK & 1:
        return Finding("machine", "locked memory", OK, "unlimited (CAP_IPC_LOCK)")
    if soft == resource.RLIM_INFINITY or soft >= _REGISTERED_SIZE:
        value = "unlimited" if soft == resource.RLIM_INFINITY else size_text(soft)
        return Finding("machine", "locked memory", OK, value)
    return Finding(
        "machine",
        "locked memory",
        LIMITED,
        size_text(soft),
        "io_uring cannot register more than that: reads pin their buffers one by one",
        "ulimit -l unlimited (docker run --ulimit memlock=-1)",
    )


def _shared_memory() -> Finding:
    cost = "caches shared between processes have no room"
    remedy = "mount a tmpfs there (docker run --shm-size=1g)"
    try:
        room = os.statvfs("/dev/shm")
    except OSError as error:
        return Finding("machine", "/dev/shm", MISSING, error.strerror or "", cost, remedy)
    free = room.f_bavail * room.f_frsize
    if not os.access("/dev/shm", os.W_OK):
        return Finding("machine", "/dev/shm", MISSING, "not writable", cost, remedy)
    state = OK if free >= _SHARED_SIZE else LIMITED
    value = f"{size_text(free)} free"
    if state == OK:
        return Finding("machine", "/dev/shm", OK, value)
    return Finding("machine", "/dev/shm", state, value, cost, remedy)


def io_uring() -> Finding:
    """Find whether a ring can be set up, and if not, what forbids it."""
    cost = "storage falls back to a thread for each read in flight: fewer reads at once, more CPU"
    try:
        calls.io_uring_setup()
        return Finding("machine", "io_uring", OK, "a ring can be set up")
    except OSError as error:
        number, text = error.errno or 0, os.strerror(error.errno or 0)
    setting = read_text("/proc/sys/kernel/io_uring_disabled")
    group = read_text("/proc/sys/kernel/io_uring_group")
    if number == 1 and setting == "2":
        value, remedy = "switched off by sysctl", "as root: sysctl kernel.io_uring_disabled=0"
    elif number == 1 and setting == "1":
        value = f"for CAP_SYS_ADMIN and group {group} only, by sysctl"
        remedy = "as root: sysctl kernel.io_uring_disabled=0"
    elif number in (1, 38) and seccomp_filtered():
        value = f"forbidden by the container's seccomp profile ({text})"
        remedy = (
            "docker run --security-opt seccomp=PROFILE.json, with a profile that allows io_uring_*"
        )
    elif number == 38:
        value, remedy = "not in this kernel", "a kernel from 5.6 on with CONFIG_IO_URING=y"
    elif number == 12:
        value = "not enough locked memory for a ring"
        remedy = "ulimit -l unlimited (docker run --ulimit memlock=-1)"
    else:
        value, remedy = f"refused: {text}", "see the manual page of io_uring_setup(2) for the errno"
    return Finding("machine", "io_uring", MISSING, value, cost, remedy)


def findings() -> Iterator[Finding]:
    """Yield all findings of this module; no probe raises."""
    probes = (_kernel, _cpus, _memory, _huge_pages, _locked_memory, _shared_memory, io_uring)
    for probe in probes:
        try:
            yield probe()
        except (OSError, ValueError) as error:
            name = probe.__name__.strip("_").replace("_", " ")
            yield Finding("machine", name, UNKNOWN, str(error))
