"""Goal: attributes below a mount are those that the file system below has and keeps."""

import contextlib
import errno
import os
import stat
import struct
import subprocess
from pathlib import Path

import pytest
from mounting import mounted, needs_mounts, penstock, run

pytestmark = needs_mounts
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def below(tmp_path: Path) -> Path:
    """Return an empty folder that may be mounted."""
    path = tmp_path / "below"
    path.mkdir()
    return path


@needs_root
def test_links_have_extended_attributes_of_their_own(below: Path) -> None:
    with mounted(below):
        (below / "file").write_bytes(b"x")
        (below / "folder").mkdir()
        for place in (below, below / "folder"):
            link = place / "link"
            link.symlink_to(below / "file")
            assert os.listxattr(link, follow_symlinks=False) == []
            os.setxattr(link, "trusted.note", b"of the link", follow_symlinks=False)
            os.setxattr(link, "trusted.more", b"x" * 900, follow_symlinks=False)
            with pytest.raises(OSError, match="exists") as error:
                os.setxattr(link, "trusted.note", b"", os.XATTR_CREATE, follow_symlinks=False)
            assert error.value.errno == errno.EEXIST
            os.removexattr(link, "trusted.more", follow_symlinks=False)
            assert os.listxattr(link, follow_symlinks=False) == ["trusted.note"]
            moved = link.rename(place / "moved")
            assert os.getxattr(moved, "trusted.note", follow_symlinks=False) == b"of the link"
            with pytest.raises(PermissionError):  # Linux has none of these for links
                os.setxattr(moved, "user.note", b"x", follow_symlinks=False)
            held = os.open(moved, os.O_PATH | os.O_NOFOLLOW)
            moved.unlink()
            os.close(held)
        assert os.listxattr(below / "file") == []


ACCESS_LIST = "system.posix_acl_access"
USER, GROUP, OTHERS = 1, 4, 32  # of <linux/posix_acl.h>


def access_list(mode: int) -> bytes:
    """Return the list that says what the bits of a mode say."""
    entries = ((USER, mode >> 6), (GROUP, mode >> 3), (OTHERS, mode))
    return struct.pack("<I", 2) + b"".join(
        struct.pack("<HHi", tag, bits & 7, -1) for tag, bits in entries
    )


@needs_root
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_change_of_access_takes_the_set_group_id_bit_of_foreign_groups(
    below: Path, kind: str
) -> None:
    """As the kernel does for a chmod: the caller owns the object, whose group it is not in."""
    for folder in below.parents:
        if folder.stat().st_uid == 0 and len(folder.parts) > 2:
            folder.chmod(0o755)
    code = "import os, sys; os.setxattr(sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3]))"
    python = "/usr/bin/python3"  # a user may have no access to the one that runs the tests
    if not os.access(python, os.X_OK):
        pytest.skip(f"there is no {python}")
    with mounted(below):
        made = below / kind
        if kind == "folder":
            made.mkdir()
        else:
            made.touch()
        os.chown(made, 1100, 1100)
        for user, groups, kept in (
            (1100, [1100], True),
            (1100, [1101], False),
            (1100, [1101, 1100], True),
            (0, [0], True),
        ):
            made.chmod(0o2755)
            words = [python, "-c", code, str(made), ACCESS_LIST, access_list(0o777).hex()]
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                check=False,
                user=user,
                group=groups[0],
                extra_groups=groups[1:],
            )
            if "not supported" in done.stderr:
                pytest.skip("the file system below has no lists of access")
            assert done.returncode == 0, done.stderr
            mode = stat.S_IMODE(made.stat().st_mode)
            assert mode == (0o2777 if kept else 0o777), (user, groups)
        words[-1] = access_list(0o700).hex()
        refused = subprocess.run(words, capture_output=True, text=True, check=False, user=1101)
        assert "Operation not permitted" in refused.stderr


@needs_root
def test_files_of_a_file_system_below_are_taken_for_no_others(tmp_path: Path, below: Path) -> None:
    """Two new file systems number their files alike, and a mount of both seems to be one."""
    shown, nested = tmp_path / "shown", below / "nested"
    shown.mkdir()
    run("mount", "-t", "tmpfs", "none", below)
    try:
        nested.mkdir()
        run("mount", "-t", "tmpfs", "none", nested)
        try:
            for i in range(5):
                (below / f"{i}").write_text(f"above {i}")
                (nested / f"{i}").write_text(f"nested {i}")
            numbers = {path.stat().st_ino for path in below.glob("?")}
            assert numbers & {path.stat().st_ino for path in nested.glob("?")}
            with mounted(below, shown):
                names = [*shown.glob("?"), *shown.glob("nested/?")]
                assert len({path.stat().st_ino for path in names}) == 10
                for folder in (shown, shown / "nested"):
                    for entry in os.scandir(folder):
                        assert entry.name == "nested" or entry.inode() == entry.stat().st_ino
                with contextlib.ExitStack() as files:
                    for path in shown.glob("?"):
                        files.enter_context(path.open("rb"))
                    for order in (names, names[::-1]):
                        words: list[str | bytes | Path] = ["run", "--cache", shown, "cat", *order]
                        done = penstock(*words)
                        expected = "".join(path.read_text() for path in order)
                        assert (done.returncode, done.stdout) == (0, expected)
                run("cp", shown / "1", shown / "nested/2")
                run("mv", shown / "3", shown / "nested/1")
                assert (shown / "nested/2").read_text() == "above 1"
            assert (nested / "1").read_text() == "above 3"
        finally:
            run("umount", nested)
    finally:
        run("umount", below)
