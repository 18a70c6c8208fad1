"""Finds devices: the permits of the CPU backend, and the devices of the CUDA driver, if any."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.probes.finding import LIMITED, MISSING, OK, Finding, size_text

_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76
_DRIVER_VERSION = 13000  # kernels built with nvcc 13.0 need it
_CAPABILITY = (7, 5)  # the oldest architecture that kernels are compiled for

_COST = "kernels run on the CPU backend: the same results, at the speed of the CPUs"


@dataclass(frozen=True)
class Cuda:
    """The driver's answer: a line for each usable device, or the reason why there is none."""

    devices: tuple[str, ...]
    why_none: str
    remedy: str
    driver_version: int = 0


def _error_text(driver: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    driver.cuGetErrorString(code, ctypes.byref(text))
    return text.value.decode() if text.value else f"error {code}"


def _device_line(driver: ctypes.CDLL, ordinal: int) -> str:
    name = ctypes.create_string_buffer(128)
    size = ctypes.c_size_t()
    major, minor = ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGetName(name, len(name), ordinal)
    driver.cuDeviceTotalMem_v2(ctypes.byref(size), ordinal)
    driver.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, ordinal)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, ordinal)
    line = f"cuda:{ordinal} {name.value.decode()}, {size_text(size.value)}"
    line += f", sm_{major.value}{minor.value}"
    if (major.value, minor.value) < _CAPABILITY:
        line += " (too old: kernels are compiled from sm_75 on)"
    return line


def cuda() -> Cuda:
    """Return the driver's answer; no device is opened."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        if os.path.exists("/dev/nvidiactl"):
            remedy = "mount the driver's libraries too (docker run --gpus all)"
            return Cuda((), "an NVIDIA device is there, but libcuda.so.1 is not", remedy)
        return Cuda(
            (), "no NVIDIA driver (libcuda.so.1 is not there)", "a machine with an NVIDIA GPU"
        )
    code = driver.cuInit(0)
    if code != 0:
        remedy = "look at nvidia-smi; in a container: docker run --gpus all"
        return Cuda((), f"cuInit: {_error_text(driver, code)}", remedy)
    version, count = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGetCount(ctypes.byref(count))
    devices = tuple(_device_line(driver, ordinal) for ordinal in range(count.value))
    if not devices:
        return Cuda(
            (), "the driver lists no device", "set CUDA_VISIBLE_DEVICES to one", version.value
        )
    return Cuda(devices, "", "", version.value)


def permits() -> int:
    """Return how many blocks the CPU backend runs at once by default."""
    return len(os.sched_getaffinity(0))


def findings(found: Cuda) -> Iterator[Finding]:
    """Yield the devices as findings."""
    yield Finding("devices", "cpu", OK, f"cpu:{permits()}, {permits()} blocks at once")
    if not found.devices:
        yield Finding("devices", "cuda", MISSING, found.why_none, _COST, found.remedy)
        return
    for line in found.devices:
        name, _, rest = line.partition(" ")
        yield Finding("devices", name, OK, rest)
    if found.driver_version < _DRIVER_VERSION:
        major, minor = found.driver_version // 1000, found.driver_version % 1000 // 10
        yield Finding(
            "devices",
            "cuda driver",
            LIMITED,
            f"for CUDA {major}.{minor}",
            "kernels compiled by nvcc 13 do not load",
            "a driver from 580 on, or build with the nvcc of that CUDA",
        )


def picked() -> tuple[str, str]:
    """Pick the device as if none was named; return it, and why."""
    from penstock import _core

    asked = os.environ.get("PENSTOCK_DEVICE", "auto")
    name, why_not_gpu = _core.pick_device("")
    if asked not in ("", "auto"):
        return name, f"PENSTOCK_DEVICE={asked} says so"
    if not why_not_gpu:
        return name, "it is there and runs the kernels of this program"
    reads, _ = _core.pick_device("", runs_kernels=False)
    return name, why_not_gpu if reads == name else f"{why_not_gpu}; host reads take {reads}"
