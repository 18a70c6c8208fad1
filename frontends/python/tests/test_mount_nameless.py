"""Goal: a file that a program makes without a name works through a mount, and goes with it."""

import contextlib
import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest
from mounting import mounted, needs_mounts, serving
from mounting import penstock as command

pytestmark = needs_mounts


@pytest.fixture
def below(tmp_path: Path) -> Path:
    """Return an empty folder that may be mounted, on a file system that has such files."""
    path = tmp_path / "below"
    path.mkdir()
    try:
        os.close(os.open(path, os.O_TMPFILE | os.O_RDWR))
    except OSError as error:
        pytest.skip(f"the file system of {path} has no O_TMPFILE: {error.strerror}")
    return path


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """Return an empty folder to mount at."""
    path = tmp_path / "shown"
    path.mkdir()
    return path


def nameless(folder: Path, flags: int = os.O_RDWR, mode: int = 0o640) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | flags, mode)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            pytest.skip("libfuse or the kernel is too old for O_TMPFILE")
        raise


def give_name(file: int, path: Path) -> None:
    # With a descriptor of a folder, which is not used here, os.link follows the link.
    os.link(f"/proc/self/fd/{file}", path, src_dir_fd=file, follow_symlinks=True)


def held_below(process: int, folder: Path) -> list[str]:
    """Return the files without a name below `folder` that a process has open."""
    found = []
    for each in Path(f"/proc/{process}/fd").iterdir():
        try:
            target = os.readlink(each)
        except FileNotFoundError:
            continue
        if target.startswith(str(folder)) and target.endswith(" (deleted)"):
            found.append(target)
    return found


@pytest.mark.parametrize("size", [0, 1, 5000, 300_000, 3_000_000])
def test_it_is_read_written_and_linked(below: Path, shown: Path, size: int) -> None:
    data = os.urandom(size)
    with mounted(below, shown):
        file = nameless(shown)
        assert os.write(file, data) == size
        os.fsync(file)
        assert os.pread(file, size + 1, 0) == data
        state = os.fstat(file)
        assert (state.st_nlink, state.st_size, state.st_mode & 0o7777) == (0, size, 0o640)
        assert os.listdir(shown) == os.listdir(below) == []
        give_name(file, shown / "linked")
        assert os.fstat(file).st_nlink == 1
        assert os.pwrite(file, b"more", size) == 4
        assert (shown / "linked").read_bytes() == data + b"more"
        assert (shown / "linked").stat().st_ino == state.st_ino
        os.close(file)
        assert (shown / "linked").read_bytes() == data + b"more"
        with pytest.raises(FileExistsError):
            give_name(again := nameless(shown), shown / "linked")
        os.close(again)
    assert (below / "linked").read_bytes() == data + b"more"
    assert os.listdir(below) == ["linked"]


def test_it_goes_at_its_close(below: Path, shown: Path) -> None:
    with serving(below, shown) as process:
        for written in (b"", b"bytes" * 100_000):
            file = nameless(shown)
            os.write(file, written)
            assert len(held_below(process, below)) > 0
            os.close(file)
            assert os.listdir(shown) == []
            os.stat(shown / ".")  # the kernel forgets a file after its close
            assert held_below(process, below) == []
        assert command("umount", shown).returncode == 0
    assert os.listdir(below) == []


def test_many_at_once_and_one_that_is_never_linked(below: Path, shown: Path) -> None:
    with mounted(below, shown):
        files = [nameless(shown) for _ in range(200)]
        for i, file in enumerate(files):
            os.write(file, b"%d" % i * 500)
        for i, file in enumerate(files):
            if i % 3 == 0:
                give_name(file, shown / f"{i}")
        assert all(os.pread(file, 5000, 0) == b"%d" % i * 500 for i, file in enumerate(files))
        for file in files:
            os.close(file)
        secret = nameless(shown, os.O_RDWR | os.O_EXCL)
        with pytest.raises(FileNotFoundError):
            give_name(secret, shown / "secret")
        os.close(secret)
    assert sorted(os.listdir(below), key=int) == [f"{i}" for i in range(0, 200, 3)]
    assert all((below / f"{i}").read_bytes() == b"%d" % i * 500 for i in range(0, 200, 3))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files as others")
def test_it_belongs_to_who_makes_it(below: Path, shown: Path) -> None:
    below.chmod(0o777)
    for folder in below.parents:
        if folder.stat().st_uid == 0 and len(folder.parts) > 2:
            folder.chmod(0o755)
    code = (
        "import os, sys\n"
        "os.umask(0o027)\n"
        "file = os.open(sys.argv[1], os.O_TMPFILE | os.O_WRONLY, 0o666)\n"
        "os.write(file, b'mine')\n"
        "os.link(f'/proc/self/fd/{file}', sys.argv[1] + '/mine', src_dir_fd=file)\n"
    )
    with mounted(below, shown):
        os.close(nameless(shown))
        python = "/usr/bin/python3"  # a user may have no access to the one that runs the tests
        if not os.access(python, os.X_OK):
            pytest.skip(f"there is no {python}")
        subprocess.run([python, "-c", code, shown], check=True, user=1234, group=2345)
        state = (shown / "mine").stat()
        assert (state.st_uid, state.st_gid, state.st_mode & 0o7777) == (1234, 2345, 0o640)
    assert (below / "mine").read_bytes() == b"mine"


def test_a_log_of_writes_keeps_only_what_got_a_name(
    tmp_path: Path, below: Path, shown: Path
) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    options = ("--tier", str(tier), "--tier-size", "64M", "--tier-writes")
    with serving(below, shown, *options) as process:
        named, lost = nameless(shown), nameless(shown)
        for file in (named, lost):
            for i in range(5):
                os.pwrite(file, b"%d" % i * 1000, i * 1000)
                os.fsync(file)
        give_name(named, shown / "named")
        for i in range(5, 8):
            os.pwrite(named, b"%d" % i * 1000, i * 1000)
            os.fsync(named)
        os.kill(process, signal.SIGKILL)
        command("umount", shown)
        for file in (named, lost):
            with contextlib.suppress(OSError):  # its mount is gone
                os.close(file)
    with mounted(below, shown, *options):
        assert (shown / "named").read_bytes() == b"".join(b"%d" % i * 1000 for i in range(8))
    assert os.listdir(below) == ["named"]
    assert [name for name in os.listdir(tier) if "kept" in name] == []
