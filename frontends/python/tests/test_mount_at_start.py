"""Goal: /etc/fstab and systemd can make mounts, as the guide says."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from caching import PENSTOCK
from mounting import SECONDS_MAX, mounted, needs_mounts, penstock, serving

from penstock.errors import UsageError
from penstock.mount_helper import words_of

GUIDE = Path(__file__).parents[3] / "docs/guide/file-cache.md"
SMALL = ["cache-size=64M", "device=cpu:1"]


def block_of_guide(language: str) -> str:
    """Return the block of the guide that is in a language."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    (block,) = found
    return str(block)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("rw", []),
        ("rw,nofail,_netdev,x-systemd.mount-timeout=30min,relatime", []),
        ("ro,suid,dev,cache-size=8G", ["--read-only", "--suid", "--dev", "--cache-size=8G"]),
        ("rw,device=cuda:0,cuda:1,tier-writes", ["--device=cuda:0,cuda:1", "--tier-writes"]),
    ],
)
def test_options_of_mount_are_options_of_the_command(options: str, words: list[str]) -> None:
    given = ["/a b", "/c", "-v", "-o", options]
    assert words_of("/sbin/mount.penstock", given) == ["mount", "/a b", "/c", *words]
    assert words_of("/sbin/mount.penstock", [*given, "-f"]) is None


def test_what_has_no_meaning_is_refused() -> None:
    for option, told in (
        ("noexec", "has no such mounts"),
        ("sync", "has no such mounts"),
        ("nonsense", "no option of penstock mount"),
        ("foreground", "no option of penstock mount"),
        ("cache-size", "takes a value"),
        ("tier-writes=1", "takes no value"),
    ):
        with pytest.raises(UsageError, match=told):
            words_of("mount.penstock", ["/a", "/b", "-o", f"rw,{option}"])
    assert words_of("mount.penstock", ["/a", "/b", "-s", "-o", "nonsense"]) is not None
    umount = "umount.fuse.penstock"
    assert words_of(umount, ["/a", "-f", "-n"]) == ["umount", "/a", "--force"]
    assert words_of(umount, ["/a", "-t", "fuse.penstock"]) == ["umount", "/a"]
    assert words_of("/usr/bin/penstock", ["stats"]) == ["stats"]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder for /sbin, with what is there and the two links of the guide."""
    made = tmp_path / "sbin"
    made.mkdir()
    for one in Path("/usr/sbin").iterdir():
        (made / one.name).symlink_to(tmp_path / "kept" / one.name)
    (tmp_path / "kept").mkdir()
    command = tmp_path / "penstock"
    code = f"import sys\nsys.path.insert(0, {os.environ.get('PYTHONPATH', '')!r})\n"
    code += "from penstock.cli import main\nsys.exit(main())\n"
    command.write_text(f"#!{sys.executable}\n{code}")
    command.chmod(0o755)
    (made / "mount.penstock").symlink_to(command)
    (made / "umount.fuse.penstock").symlink_to(command)
    return made


# Runs in a mount namespace of its own, where /usr/sbin is another folder.
SCRIPT = """
set -eu
cd "$1"
mount --bind /usr/sbin kept
mount --bind sbin /usr/sbin
mount -T fstab -a -t penstock
mount -T fstab -a -t penstock 2>again || true
findmnt -n -o FSTYPE,SOURCE,OPTIONS "$1/data"
printf written > "data/written here"
umount data
findmnt -n data || echo gone
cat "data/written here"
"""


@needs_mounts
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a mount namespace of its own")
@pytest.mark.skipif(not Path("/sbin").is_symlink(), reason="/sbin is not /usr/sbin")
def test_a_line_of_fstab_makes_a_mount(tmp_path: Path, programs: Path) -> None:
    assert programs.name == "sbin"
    (tmp_path / "data").mkdir()
    words = block_of_guide("fstab").split()
    options = [
        one for one in words[3].split(",") if one.partition("=")[0] not in "cache-size device"
    ]
    assert len(words) == 6
    assert "x-systemd.mount-timeout=30min" in options
    line = [str(tmp_path / "data"), str(tmp_path / "data"), words[2], ",".join([*SMALL, *options])]
    (tmp_path / "fstab").write_text(" ".join(line) + " 0 0\n")
    command = ["unshare", "-m", "sh", "-c", SCRIPT, "sh", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=2 * SECONDS_MAX
    )
    if done.stderr.startswith("unshare:"):  # in a chroot
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "mounted, 64.0 MiB of cpu:1 cache its files" in lines[0]
    assert lines[-3].split()[:2] == ["fuse.penstock", str(tmp_path / "data")]
    assert lines[-3].split()[2].startswith("rw,nosuid,nodev")
    assert lines[-2:] == ["gone", "written"]
    assert (tmp_path / "data/written here").read_text() == "written"


def test_systemd_takes_the_unit_of_the_guide(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd is not installed")
    unit = block_of_guide("ini")
    assert unit.count("/usr/local/bin/penstock") == 2
    file = tmp_path / "penstock-data.service"
    file.write_text(unit.replace("/usr/local/bin/penstock", "/bin/true"))
    done = subprocess.run(
        [verify, "verify", "--man=no", file],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    about = [line for line in done.stderr.splitlines() if file.name in line]
    assert (done.returncode, about) == (0, [])


@pytest.fixture
def runtime() -> Iterator[Path]:
    """Return a folder whose path is short enough for sockets."""
    made = Path(tempfile.mkdtemp(prefix="ps", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@needs_mounts
@pytest.mark.parametrize("verb", [["mount", "--foreground"], ["serve", "--cache"]])
@pytest.mark.parametrize("abstract", [True, False])
def test_systemd_is_told_when_it_serves(
    tmp_path: Path, runtime: Path, verb: list[str], abstract: bool
) -> None:
    name = "\0" + runtime.name if abstract else str(runtime / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        manager.settimeout(SECONDS_MAX)
        command = subprocess.Popen(
            [*PENSTOCK, *verb, str(tmp_path), "--device=cpu:1", "--cache-size=64M", "--json"],
            env={**os.environ, "NOTIFY_SOCKET": name.replace("\0", "@")},
            stdout=subprocess.DEVNULL,
        )
        try:
            assert manager.recv(100) == b"READY=1\n"
            assert os.path.ismount(tmp_path) == (verb[0] == "mount")
        finally:
            command.terminate()
            assert command.wait(SECONDS_MAX) == 0


@needs_mounts
def test_a_mount_is_found_from_another_session(tmp_path: Path, runtime: Path) -> None:
    (tmp_path / "a").write_bytes(b"bytes")
    with mounted(tmp_path), pytest.MonkeyPatch.context() as other:
        other.setenv("XDG_RUNTIME_DIR", str(runtime))
        told = json.loads(penstock("stats", tmp_path, "--json").stdout)["caches"]
        assert [one["mountpoint"] for one in told] == [str(tmp_path)]
        assert json.loads(penstock("warm", tmp_path, "--json").stdout)["files"] == 1
    assert penstock("stats", tmp_path).returncode == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may unmount so")
def test_a_mount_follows_one_whose_process_has_not_ended(tmp_path: Path) -> None:
    below = tmp_path / "a b\\c"
    below.mkdir()
    with serving(below) as process:
        (below / "file").write_bytes(b"text")
        os.kill(process, signal.SIGSTOP)  # as one that writes back for long
        assert ctypes.CDLL(None).umount2(os.fsencode(below), 0) == 0
    words = [*PENSTOCK, "mount", str(below), "--device", "cpu:1", "--cache-size", "64M"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as start:
        time.sleep(1)
        os.kill(process, signal.SIGCONT)
        assert start.wait(SECONDS_MAX) == 0
    assert (below / "file").read_bytes() == b"text"
    assert penstock("umount", below).returncode == 0
