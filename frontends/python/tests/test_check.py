"""`penstock check` tells the truth: here, on other file systems, and inside containers.

Docker's default seccomp profile is stood for by a filter that answers EPERM or ENOSYS to the calls
that it forbids.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.probes import calls, devices, mounts, storage, system

COMMAND = [sys.executable, "-m", "penstock", "check", "--json"]
STATES = {"ok", "limited", "missing", "unknown"}
FORBIDDEN_BY_DOCKER = (425, 426, 427, 451)  # io_uring_setup, _enter, _register, cachestat


def check(path: str, setup: Callable[[], None] | None = None, **more: str) -> dict[str, Any]:
    done = subprocess.run(
        [*COMMAND, path],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=setup,
        env=os.environ | more,
    )
    assert done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def named(answer: dict[str, Any], name: str) -> dict[str, str]:
    found: dict[str, str] = next(one for one in answer["findings"] if one["name"] == name)
    return found


def seccomp_filter(error_number: int) -> Callable[[], None]:
    """Return a function that forbids the calls from then on, as a container does."""
    load, equal, give = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
    program = [struct.pack("HBBI", load, 0, 0, 0)]  # the system call's number
    for number in FORBIDDEN_BY_DOCKER:
        program.append(struct.pack("HBBI", equal, 0, 1, number))
        program.append(struct.pack("HBBI", give, 0, 0, 0x00050000 | error_number))
    program.append(struct.pack("HBBI", give, 0, 0, 0x7FFF0000))  # allowed
    code = ctypes.create_string_buffer(b"".join(program))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)

    def install() -> None:
        _ = code  # stays alive
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, header, 0, 0):
            raise OSError(ctypes.get_errno(), "seccomp")

    return install


def test_every_finding_says_what_its_absence_costs(tmp_path: Path) -> None:
    answer = check(str(tmp_path))
    assert answer["backend"]["auto"]
    assert answer["backend"]["why"]
    for finding in answer["findings"]:
        assert finding["state"] in STATES
        assert finding["value"]
        if finding["state"] in ("missing", "limited"):
            assert finding["cost"], finding
            assert finding["remedy"], finding


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is for x86-64")
@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_in_a_container_the_profile_is_named(tmp_path: Path, number: int) -> None:
    answer = check(str(tmp_path), seccomp_filter(number))
    for name in ("io_uring", "cachestat"):
        finding = named(answer, name)
        assert finding["state"] == "missing"
        assert "seccomp" in finding["value"]
        assert "docker run" in finding["remedy"]
    assert named(answer, "O_DIRECT")["state"] in STATES


def test_tmpfs_has_no_uncached_reads() -> None:
    if storage.file_system("/dev/shm") != "tmpfs" or not os.access("/dev/shm", os.W_OK):
        pytest.skip("no writable tmpfs at /dev/shm")
    finding = named(check("/dev/shm"), "RWF_DONTCACHE")
    assert finding["state"] == "missing"
    assert "tmpfs" in finding["value"]


def test_overlayfs_answers_cachestat_wrong(tmp_path: Path) -> None:
    # A mount namespace of its own; where that is not allowed, nothing can be shown.
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    options = ",".join(f"{name}dir={tmp_path}/{name}" for name in ("lower", "upper", "work"))
    merged = tmp_path / "merged"
    script = f"mount -t overlay overlay -o {options} {merged} && {' '.join(COMMAND)} {merged}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no overlayfs here: {done.stderr.strip()}")
    answer = json.loads(done.stdout)
    assert answer["file_system"] == "overlay"
    finding = named(answer, "cachestat")
    assert finding["state"] in ("missing", "ok")  # a later kernel may mend it
    if finding["state"] == "missing" and "seccomp" not in finding["value"]:
        assert "answers 0" in finding["value"] or "kernel" in finding["value"]


def test_a_file_that_is_not_ours_is_not_trusted(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    tmp_path.chmod(0o755)
    (tmp_path / "data").write_bytes(b"x" * 10000)
    probed = storage.Probed(str(tmp_path / "data"), "storage", 10000, False)
    states = {finding.name: finding.state for finding in storage._ask(probed)}
    assert states["cachestat"] != "ok"


def test_a_read_only_folder_is_asked_through_its_files() -> None:
    if not os.path.isfile("/proc/version"):
        pytest.skip("no /proc")
    names = {finding.name: finding for finding in storage.findings("/sys/kernel")}
    assert names["write access"].state == "limited"


def test_an_odd_path_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    done = subprocess.run(
        [*COMMAND, str(tmp_path / "fifo")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.strip().endswith("fifo: not a regular file")


def test_the_device_that_the_environment_names_is_picked(tmp_path: Path) -> None:
    answer = check(str(tmp_path), PENSTOCK_DEVICE="cpu:3")
    assert answer["backend"]["auto"] == "cpu:3"


def test_io_uring_refusals_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"/proc/sys/kernel/io_uring_disabled": "0"}
    monkeypatch.setattr(system, "read_text", lambda path: settings.get(path, ""))
    monkeypatch.setattr(system, "seccomp_filtered", lambda: False)

    def refuse(number: int) -> str:
        def setup() -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(calls, "io_uring_setup", setup)
        return system.io_uring().value

    assert "not in this kernel" in refuse(errno.ENOSYS)
    assert "locked memory" in refuse(errno.ENOMEM)
    assert "refused" in refuse(errno.EPERM)
    settings["/proc/sys/kernel/io_uring_disabled"] = "2"
    assert "switched off by sysctl" in refuse(errno.EPERM)
    monkeypatch.setattr(system, "seccomp_filtered", lambda: True)
    settings["/proc/sys/kernel/io_uring_disabled"] = "0"
    assert "seccomp" in refuse(errno.EPERM)
    assert "seccomp" in refuse(errno.ENOSYS)


def test_no_cuda_says_why() -> None:
    found = devices.cuda()
    assert bool(found.devices) != bool(found.why_none)


def test_mounts_say_what_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_LIBRARY", "libfuse3-of-no-machine.so.3")
    monkeypatch.setattr(mounts, "_DEVICE", "/dev/no-fuse")
    monkeypatch.setattr(mounts, "_DIRECT_WRITES", (99, 0))
    device, library, writes = mounts.findings()
    assert (device.state, library.state, writes.state) == ("missing", "missing", "limited")
    assert "modprobe fuse" in device.remedy
    assert "apt-get install" in library.remedy
    monkeypatch.setattr(mounts, "_DIRECT_WRITES", (1, 0))
    assert mounts.findings()[2].state == "ok"
