"""Goal: a mount has the options that its user asks for, and a program finds that it has them."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from mounting import mounted, needs_mounts, penstock, run

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
    state = (below / "a").stat()
    with mounted(below, shown, "--read-only"):
        assert "ro" in options_of(shown)
        assert (shown / "a").read_bytes() == b"bytes" * 30_000
        assert os.getxattr(shown / "a", "user.note") == b"note"
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
