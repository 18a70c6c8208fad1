"""What users beside root's mount try: links and FIFOs in the place of folders and files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from mounting import DEVICE, needs_mounts, penstock, serving

from penstock import _core

pytestmark = [
    needs_mounts,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose mount serves other users"),
]
SERVICE = Path(_core.__file__).parent / "penstock-cache"
SECONDS_MAX = 30


@pytest.mark.parametrize("where", ["--path", "--mount"])
def test_a_link_in_the_path_is_not_followed(tmp_path: Path, where: str) -> None:
    """A link is in the path that was not there when the command looked it up."""
    for name in ("home/folder", "plain", "system/folder"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home").rename(tmp_path / "before")
    (tmp_path / "home").symlink_to("system")
    folder, plain = tmp_path / "home/folder", tmp_path / "plain"
    path, mountpoint = (folder, plain) if where == "--path" else (plain, folder)
    done = subprocess.run(
        [SERVICE, "--path", path, "--mount", mountpoint, "--device", DEVICE],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 1
    told = f"{folder}: leads to {tmp_path}/system/folder by now, through a link"
    assert told in done.stderr, done.stderr
    assert not any(os.path.ismount(each) for each in (folder, plain))


def test_nothing_is_mounted_over_what_a_link_leads_to(tmp_path: Path) -> None:
    """The owner of a folder on the way swaps it for a link, again and again, while mounts begin."""
    for name in ("home/folder", "system/folder"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "system/folder/passwd").touch()
    (tmp_path / "link").symlink_to("system")
    home, link, kept = (tmp_path / name for name in ("home", "link", "kept"))
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            home.rename(kept)
            link.rename(home)
            over.wait(0.001)
            home.rename(link)
            kept.rename(home)
            over.wait(0.001)

    attacker = threading.Thread(target=swap)
    for i in range(10):
        over.clear()
        attacker = threading.Thread(target=swap)
        attacker.start()
        if i % 2:
            made = penstock("mount", home / "folder", "--device", DEVICE, "--cache-size", "64M")
        else:
            shown = tmp_path / "shown"
            shown.mkdir(exist_ok=True)
            words = "mount", shown, home / "folder", "--device", DEVICE, "--cache-size", "64M"
            made = penstock(*words)
        over.set()
        attacker.join()
        with open("/proc/self/mountinfo") as mounts:
            places = [line.split()[4] for line in mounts if "fuse.penstock" in line]
        ours = [Path(each) for each in places if each.startswith(str(tmp_path))]
        for each in ours:
            assert penstock("umount", each).returncode == 0
        # The command may have looked up the folder behind the link: then the mount goes there, and
        # the command says so.
        assert len(ours) == (1 if made.returncode == 0 else 0), made.stderr
        told = made.stdout.partition(":")[0] if made.returncode == 0 else ""
        assert [str(each) for each in ours] == ([told] if told else []), made.stdout


CREATES = """
import errno, os, sys
os.setuid(65534)
os.write(1, b"!")
try:
    os.close(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_NONBLOCK, 0o666))
except OSError as error:
    assert error.errno in (errno.ENXIO, errno.EACCES, errno.ESTALE), error
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace, which delays calls")
def test_a_fifo_with_the_name_of_a_file_blocks_nobody(tmp_path: Path) -> None:
    """Others make it where a program makes a file, when the kernel has found that there is none."""
    below, shown = tmp_path / "below", tmp_path / "shown"
    for folder in (below, shown):
        folder.mkdir()
        folder.chmod(0o777)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid():
            parent.chmod(parent.stat().st_mode | 0o011)
    with serving(below, shown) as process:
        delay = ["-e", "trace=openat", "-e", "inject=openat:delay_enter=300000"]  # us
        slow = ["strace", "-f", "-qq", "-o", "/dev/null", *delay, "-p", f"{process}"]
        with subprocess.Popen(slow) as strace:
            time.sleep(1)
            for i in range(5):
                command = [sys.executable, "-c", CREATES, str(shown / f"{i}")]
                with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
                    assert program.stdout
                    program.stdout.read(1)
                    time.sleep(0.45)
                    os.mkfifo(below / f"{i}")
                    (below / f"{i}").chmod(0o622)
                    ends = threading.Timer(SECONDS_MAX, program.kill)  # if it waits
                    ends.start()
                    assert program.wait() == 0
                    ends.cancel()
            strace.terminate()
        assert penstock("umount", shown).returncode == 0
