"""What the tests of mounts share: a mount of a folder, as the command makes it."""

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

DEVICE = os.environ.get("PENSTOCK_DEVICE") or "cpu:1"
SECONDS_MAX = 30  # that any command of these tests may take


def why_not() -> str:
    """Return why this machine can mount nothing; empty if it can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse that this user may open"
    built = subprocess.run(
        ["pkg-config", "--exists", "fuse3 >= 3.12"], check=False, capture_output=True
    )
    return "" if built.returncode == 0 else "libfuse3 3.12 is not installed"


needs_mounts = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can mount")


def limit_descriptors(count: int) -> None:
    """Let this process, and those that it starts, have so many descriptors, also if it is root."""
    pr_capbset_drop, cap_sys_resource = 24, 24
    ctypes.CDLL(None).prctl(pr_capbset_drop, cap_sys_resource, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def penstock(*words: str | bytes | Path, descriptors: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command, which may have so many descriptors; 0: as many as this process."""
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
        preexec_fn=(lambda: limit_descriptors(descriptors)) if descriptors else None,
    )


def run(*words: str | bytes | Path, cwd: Path | None = None) -> str:
    """Run a program that must succeed; return its output."""
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=SECONDS_MAX, cwd=cwd
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def serving(
    path: Path, mountpoint: Path | None = None, *options: str, descriptors: int = 0
) -> Iterator[int]:
    """Mount a folder, by default over itself. Gives the process. The test unmounts, or fails."""
    where = mountpoint or path
    small = "--device", DEVICE, "--cache-size", "64M"
    made = penstock("mount", path, where, *small, "--json", *options, descriptors=descriptors)
    assert made.returncode == 0, made.stderr
    try:
        yield json.loads(made.stdout)["pid"]
    except BaseException:
        subprocess.run(["umount", "-l", where], check=False)
        raise


@contextlib.contextmanager
def mounted(
    path: Path,
    mountpoint: Path | None = None,
    *options: str,
    umount_fails: str = "",
    descriptors: int = 0,
) -> Iterator[Path]:
    """Mount a folder and unmount it at the end, which fails with a text if that is given."""
    where = mountpoint or path
    with serving(path, where, *options, descriptors=descriptors):
        yield where
        ended = penstock("umount", where)
        assert ended.returncode == (1 if umount_fails else 0), ended.stderr
        assert umount_fails in ended.stderr
        if umount_fails:
            assert "and the mount stays" in ended.stderr
            assert os.path.ismount(where)
            forced = penstock("umount", "--force", where)
            assert (forced.returncode, "the mount is gone" in forced.stderr) == (1, True), (
                forced.stderr
            )
