"""Goal: a mount has the options that its user asks for, and a program finds that it has them."""

import errno
import importlib
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from mounting import mounted, needs_mounts, penstock, run

from penstock import cli
from penstock.errors import CommandError

pytestmark = needs_mounts
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may ask for it")


@pytest.fixture
def below(tmp_path: Path) -> Path:
    """Return an empty folder that may be mounted."""
    path = tmp_path / "below"
    path.mkdir()
    return path


def options_of(mountpoint: Path) -> list[str]:
    """Return the options of a mount, as the kernel tells them."""
    return run("findmnt", "-n", "-o", "OPTIONS", mountpoint).strip().split(",")


def changes_of(folder: Path) -> dict[str, Callable[[], object]]:
    """Return what would change the file `a` and the folder `b` in `folder`."""
    a, b = folder / "a", folder / "b"
    return {
        "write": lambda: a.write_bytes(b"x"),
        "open": lambda: os.open(a, os.O_RDWR),
        "append": lambda: os.open(a, os.O_WRONLY | os.O_APPEND),
        "truncate": lambda: os.truncate(a, 1),
        "create": (folder / "new").touch,
        "nameless": lambda: os.open(folder, os.O_TMPFILE | os.O_RDWR),
        "mkdir": (folder / "new").mkdir,
        "mknod": lambda: os.mkfifo(folder / "new"),
        "link": lambda: os.link(a, folder / "new"),
        "symlink": lambda: (folder / "new").symlink_to("a"),
        "unlink": a.unlink,
        "rmdir": b.rmdir,
        "rename": lambda: a.rename(folder / "new"),
        "chmod": lambda: a.chmod(0o600),
        "utime": lambda: os.utime(a, (1, 1)),
        "setxattr": lambda: os.setxattr(a, "user.x", b"x"),
        "removexattr": lambda: os.removexattr(a, "user.note"),
    }


def done(changes: dict[str, Callable[[], object]]) -> list[str]:
    """Return the names of the changes that do not fail with EROFS."""
    names = []
    for name, change in changes.items():
        try:
            change()
            names.append(name)
        except OSError as error:
            if error.errno != errno.EROFS:
                names.append(f"{name}: {error}")
    return names


def test_nothing_is_changed_through_a_mount_that_is_read_only(tmp_path: Path, below: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    (below / "a").write_bytes(b"bytes" * 30_000)
    (below / "b").mkdir()
    os.setxattr(below / "a", "user.note", b"note")
    for one in ("a", "b", "."):  # so old that a read would renew the time of access
        os.utime(below / one, (1, 2))
    state = (below / "a").stat()
    with mounted(below, shown, "--read-only"):
        assert "ro" in options_of(shown)
        assert sorted(os.listdir(shown)) == ["a", "b"]
        assert os.listdir(shown / "b") == []
        assert (shown / "a").read_bytes() == b"bytes" * 30_000
        assert os.getxattr(shown / "a", "user.note") == b"note"
        assert [os.stat(below / one).st_atime for one in ("a", "b", ".")] == [1, 1, 1]
        assert done(changes_of(shown)) == []
        (below / "a").write_bytes(b"changed below")
        os.utime(below / "a", ns=(state.st_atime_ns, state.st_mtime_ns))
        with open(shown / "a", "rb") as file:
            assert file.read() == b"changed below"
    assert sorted(os.listdir(below)) == ["a", "b"]
    assert os.stat(below / "a").st_mtime_ns == state.st_mtime_ns


@needs_root
def test_a_read_only_mount_stays_so_when_root_mounts_it_again(below: Path) -> None:
    (below / "a").write_bytes(b"bytes")
    (below / "b").mkdir()
    os.setxattr(below / "a", "user.note", b"note")
    with mounted(below, below, "--read-only"):
        run("mount", "-i", "-o", "remount,rw", below)
        assert "rw" in options_of(below)
        changes = changes_of(below)
        del changes["nameless"]  # the kernel says that there are none
        assert done(changes) == []


def test_options_without_effect_on_a_read_only_mount_are_refused(below: Path) -> None:
    for more in (("--dirty-limit", "8M"), ("--tier", "/tmp", "--tier-writes")):
        refused = penstock("mount", below, "--read-only", *more)
        told = f"{more[-1] if len(more) > 2 else more[0]}: has no effect with --read-only"
        assert (refused.returncode, told in refused.stderr) == (2, True), refused.stderr


@needs_root
def test_set_user_id_bits_count_where_root_asks_for_them(tmp_path: Path, below: Path) -> None:
    """`id` is a program whose bit gives it the rights of its owner."""
    for folder in below.parents:
        if folder.stat().st_uid == 0 and len(folder.parts) > 2:
            folder.chmod(0o755)

    def user_of_program() -> str:
        done = subprocess.run(
            [below / "id", "-u"], capture_output=True, text=True, check=True, user=1234, group=1234
        )
        return done.stdout.strip()

    shutil.copy("/usr/bin/id", below / "id")
    (below / "id").chmod(0o4755)
    with mounted(below):
        assert "nosuid" in options_of(below)
        assert user_of_program() == "1234"
    with mounted(below, below, "--suid"):
        assert {"nodev"} == {"nosuid", "nodev"} & set(options_of(below))
        assert user_of_program() == "0"


@needs_root
def test_device_files_are_devices_where_root_asks_for_them(below: Path) -> None:
    with mounted(below):
        os.mknod(below / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        with pytest.raises(PermissionError):
            (below / "null").write_bytes(b"lost")
    with mounted(below, below, "--dev"):
        assert {"nosuid"} == {"nosuid", "nodev"} & set(options_of(below))
        (below / "null").write_bytes(b"lost")
        assert (below / "null").read_bytes() == b""
        os.mknod(below / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        with open(below / "zero", "rb", buffering=0) as zero:
            assert zero.read(5) == bytes(5)


@pytest.mark.parametrize("option", ["--suid", "--dev"])
def test_other_users_have_no_such_mounts(
    below: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    arguments = cli.verb_parser("mount")[0].parse_args([str(below), option])
    with pytest.raises(CommandError, match="only root's mounts may have it"):
        importlib.import_module("penstock.commands.mount").run(arguments)
