"""Goal: real programs work through `penstock mount`, and find right bytes below after `umount`."""

import contextlib
import errno
import fcntl
import mmap
import os
import re
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounting import SECONDS_MAX, mounted, needs_mounts, penstock, run, serving

from penstock.benchmarks.harness import slow_storage

pytestmark = needs_mounts


def fill(folder: Path, files: int = 40) -> None:
    """Make a tree of files of many sizes, with links, a hole and old times."""
    for i in range(files):
        path = folder / f"{i % 4}" / f"file {i}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(i * i * 191))
        os.utime(path, ns=(i * 10**15, i * 10**15 + 123_456_789))
        path.chmod(0o600 + i % 8)
    (folder / "link").symlink_to("0/file 0")
    os.link(folder / "0/file 0", folder / "hard")
    with open(folder / "sparse", "wb") as file:
        file.seek(3_000_000)
        file.write(b"end")


@pytest.fixture
def below(tmp_path: Path) -> Path:
    """Return an empty folder that may be mounted."""
    path = tmp_path / "below"
    path.mkdir()
    return path


def test_cp_and_tar_copy_trees_in_and_out(tmp_path: Path, below: Path) -> None:
    fill(tmp_path / "tree")
    with mounted(below):
        run("cp", "-a", tmp_path / "tree", below / "copy")
        run("diff", "-r", "--no-dereference", tmp_path / "tree", below / "copy")
        run("tar", "--format=posix", "-C", below, "-cf", below / "copy.tar", "copy")
        run("tar", "-C", tmp_path, "-xf", below / "copy.tar")
        os.rename(tmp_path / "copy", tmp_path / "out")
    run("diff", "-r", "--no-dereference", tmp_path / "tree", tmp_path / "out")
    told = [
        subprocess.check_output(
            ["find", ".", "-mindepth", "1", "-printf", "%P %m %s %l %n %T@\\n"], cwd=tmp_path / one
        )
        for one in ("tree", "out", "below/copy")
    ]
    assert sorted(told[0].splitlines()) == sorted(told[1].splitlines())
    assert sorted(told[0].splitlines()) == sorted(told[2].splitlines())


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_sqlite_keeps_a_database(below: Path, journal: str) -> None:
    with mounted(below):
        base = sqlite3.connect(below / "data.db")
        assert base.execute(f"pragma journal_mode = {journal}").fetchone() == (journal,)
        base.execute("create table t (k integer primary key, v blob)")
        other = sqlite3.connect(below / "data.db", timeout=10)
        for i in range(40):
            with base if i % 2 else other as one:
                one.executemany("insert into t (v) values (?)", [(os.urandom(900),)] * 25)
        with base:
            base.execute("delete from t where k % 3 = 0")
        base.execute("vacuum")
        assert base.execute("pragma integrity_check").fetchone() == ("ok",)
        base.close()
        other.close()
    check = sqlite3.connect(below / "data.db")
    assert check.execute("pragma integrity_check").fetchone() == ("ok",)
    assert check.execute("select count(*) from t").fetchone() == (667,)
    check.close()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_keeps_a_repository(below: Path) -> None:
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.fsync=all")
    with mounted(below):
        run("git", "init", "-q", ".", cwd=below)
        for i in range(3):
            fill(below / f"part {i}", 12)
            run(*git, "add", ".", cwd=below)
            run(*git, "commit", "-qm", "one", cwd=below)
        run(*git, "gc", "-q", cwd=below)
        assert run("git", "status", "--porcelain", cwd=below) == ""
        run("git", "fsck", "--full", cwd=below)
    run("git", "fsck", "--full", cwd=below)
    assert run("git", "status", "--porcelain", cwd=below) == ""


def test_a_mapped_file_is_read_and_written(below: Path) -> None:
    (below / "a").write_bytes(bytes(200_000))
    with mounted(below):
        with open(below / "a", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            memory[100_000:100_003] = b"new"
            memory.flush()
            assert os.pread(file.fileno(), 3, 100_000) == b"new"
            os.pwrite(file.fileno(), b"more", 150_000)
            assert memory[150_000:150_004] == b"more"
        assert (below / "a").read_bytes()[100_000:100_003] == b"new"
    assert (below / "a").read_bytes()[99_999:100_004] == b"\0new\0"


def test_a_program_runs_from_it(below: Path) -> None:
    with mounted(below):
        shutil.copy("/bin/ls", below / "ls")
        assert run(below / "ls", below) == "ls\n"
        script = below / "script"
        script.write_text("#!/bin/sh\necho hello\n")
        script.chmod(0o755)
        assert run(script) == "hello\n"


def test_names_move_and_go_under_open_files(below: Path) -> None:
    with mounted(below):
        with open(below / "a", "w+b") as gone:
            gone.write(b"kept")
            gone.flush()
            os.unlink(below / "a")
            assert os.fstat(gone.fileno()).st_nlink == 0
            assert os.pread(gone.fileno(), 9, 0) == b"kept"
            os.pwrite(gone.fileno(), b"more", 4)
            assert os.pread(gone.fileno(), 9, 0) == b"keptmore"
        (below / "old").write_bytes(b"old bytes")
        with open(below / "old", "rb") as old:
            (below / "new").write_bytes(b"new")
            os.rename(below / "new", below / "old")
            assert (below / "old").read_bytes() == b"new"
            assert old.read() == b"old bytes"
    assert os.listdir(below) == ["old"]
    assert (below / "old").read_bytes() == b"new"


def test_appends_of_two_processes_keep_every_line(below: Path) -> None:
    code = (
        "import os, sys\n"
        "file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
        "for i in range(500): os.write(file, f'{sys.argv[2]} {i}\\n'.encode())\n"
    )
    with mounted(below):
        programs = [
            subprocess.Popen([sys.executable, "-c", code, below / "log", name]) for name in "ab"
        ]
        assert [program.wait(SECONDS_MAX) for program in programs] == [0, 0]
        lines = (below / "log").read_text().splitlines()
    expected = {f"{name} {i}" for name in "ab" for i in range(500)}
    assert (len(lines), set(lines)) == (1000, expected)
    assert (below / "log").read_text().splitlines() == lines


def test_holes_truncation_and_copies_in_the_kernel(below: Path) -> None:
    with mounted(below):
        with open(below / "a", "w+b") as file:
            number = file.fileno()
            os.pwrite(number, b"x" * 300_000, 1 << 20)
            assert os.lseek(number, 0, os.SEEK_DATA) == 1 << 20
            assert os.lseek(number, 1 << 20, os.SEEK_HOLE) == (1 << 20) + 300_000
            os.ftruncate(number, (1 << 20) + 5)
            os.ftruncate(number, (1 << 20) + 10)
            assert os.pread(number, 100, 1 << 20) == b"xxxxx\0\0\0\0\0"
            os.posix_fallocate(number, 2 << 20, 100)
            assert os.fstat(number).st_size == (2 << 20) + 100
            punch = "fallocate", "-p", "-o", str(1 << 20), "-l", "4096"
            run(*punch, below / "a")
            assert os.pread(number, 10, 1 << 20) == bytes(10)
            os.pwrite(number, b"begin", 0)
            with open(below / "b", "w+b") as copy:
                assert os.copy_file_range(number, copy.fileno(), 1 << 20, 0, 0) == 1 << 20
                assert os.pread(copy.fileno(), 9, 0) == b"begin\0\0\0\0"
        with open(below / "b", "wb"):
            assert os.stat(below / "b").st_size == 0
        with pytest.raises(FileExistsError):
            open(below / "b", "xb")  # noqa: SIM115


def test_two_thousand_small_files(below: Path) -> None:
    with mounted(below):
        for i in range(2000):
            (below / f"{i}").write_bytes(b"%d" % i * 50)
        assert len(os.listdir(below)) == 2000
        assert all((below / f"{i}").read_bytes() == b"%d" % i * 50 for i in range(0, 2000, 7))
    assert all((below / f"{i}").read_bytes() == b"%d" % i * 50 for i in range(2000))


def test_hostile_names_and_attributes(below: Path) -> None:
    names = [b"new\nline", b"x" * 255, b"\xff\xfe invalid", b"comma,\\back", b" ", b"-rf"]
    place = os.fsencode(below) + b"/odd\n,\\ \xff"
    os.mkdir(place)
    made = penstock("mount", place, "--device", "cpu:1", "--cache-size", "64M")
    assert made.returncode == 0, made.stderr
    for name in names:
        with open(place + b"/" + name, "wb") as file:
            file.write(name)
        os.setxattr(place + b"/" + name, "user.note", name)
    with pytest.raises(OSError, match="File name too long"):
        open(place + b"/" + b"y" * 256, "wb")  # noqa: SIM115
    assert penstock("umount", place).returncode == 0
    assert sorted(os.listdir(place)) == sorted(names)
    for name in names:
        with open(place + b"/" + name, "rb") as file:
            assert file.read() == os.getxattr(place + b"/" + name, "user.note") == name


def test_a_change_below_is_seen_at_the_next_open(tmp_path: Path, below: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    (below / "a").write_bytes(b"first" * 1000)
    time.sleep(0.05)
    with mounted(below, shown):
        with open(shown / "a", "rb") as file:
            assert file.read() == b"first" * 1000
            (below / "a").write_bytes(b"other" * 1000)
            (below / "b").write_bytes(b"made below")
            time.sleep(1.1)
            assert (shown / "a").read_bytes() == b"other" * 1000
        (below / "a").write_bytes(b"longer" * 2000)
        time.sleep(1.1)
        assert (shown / "a").stat().st_size == 12_000
        assert (shown / "a").read_bytes() == b"longer" * 2000
        assert (shown / "b").read_bytes() == b"made below"


def opened_below(service: int, inode: int) -> list[int]:
    """Return how a service has a file open, but for nodes of the mount: the flags of each."""
    found = []
    for each in Path(f"/proc/{service}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            flags = Path(f"/proc/{service}/fdinfo/{each.name}").read_text().split()[3]
            if each.stat().st_ino == inode and not int(flags, 8) & os.O_PATH:
                found.append(int(flags, 8))
    return found


def test_a_file_that_stays_open_below_is_in_no_programs_way(tmp_path: Path, below: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    script, inode = shown / "script", 0

    def append(text: str) -> None:
        with open(script, "a") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    with serving(below, shown) as service:
        append("#!/bin/sh\necho one\n")
        inode = script.stat().st_ino
        script.chmod(0o755)
        assert script.read_text().endswith("one\n")
        append("echo two\n")
        assert script.read_text().endswith("two\n")
        assert script.read_text().endswith("two\n")
        opens = opened_below(service, inode)
        assert opens
        assert not [flags for flags in opens if flags & os.O_ACCMODE != os.O_RDONLY]
        assert run(below / "script") == "one\ntwo\n"
        script.unlink()
        assert opened_below(service, inode) == []
        assert penstock("umount", shown).returncode == 0


def test_locks_exclude_other_processes(below: Path) -> None:
    code = "import fcntl, sys; fcntl.{}(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    (below / "a").write_bytes(b"x")
    with mounted(below), open(below / "a", "r+b") as file:
        for name in ("flock", "lockf"):
            take: list[str | Path] = [sys.executable, "-c", code.format(name), below / "a"]
            getattr(fcntl, name)(file, fcntl.LOCK_EX)
            assert subprocess.run(take, capture_output=True, check=False).returncode == 1
            getattr(fcntl, name)(file, fcntl.LOCK_UN)
            assert subprocess.run(take, capture_output=True, check=False).returncode == 0


def test_a_second_read_and_a_write_need_no_storage(tmp_path: Path, below: Path) -> None:
    """The file below shows when bytes arrive."""
    shown = tmp_path / "shown"
    shown.mkdir()
    with mounted(below, shown):
        (shown / "a").write_bytes(b"later" * 1000)
        assert (below / "a").read_bytes() == b""
        with open(shown / "a", "r+b") as file:
            os.fsync(file.fileno())
        assert (below / "a").read_bytes() == b"later" * 1000
        (shown / "b").write_bytes(b"never")
        os.unlink(shown / "b")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files as others")
def test_files_belong_to_who_makes_them_and_permissions_count(below: Path) -> None:
    below.chmod(0o777)
    for folder in below.parents:
        if folder.stat().st_uid == 0 and len(folder.parts) > 2:
            folder.chmod(0o755)

    def as_user(code: str) -> int:
        return subprocess.run(
            ["sh", "-c", f"umask 027; {code}"],
            cwd=below,
            check=False,
            capture_output=True,
            user=1234,
            group=2345,
            extra_groups=[3456],
        ).returncode

    with mounted(below):
        (below / "secret").write_bytes(b"x")
        (below / "secret").chmod(0o600)
        (below / "team").mkdir()
        os.chown(below / "team", 0, 3456)
        (below / "team").chmod(0o770)
        assert as_user("echo x > made && mkdir folder") == 0
        assert as_user("echo x > team/made") == 0
        assert as_user("cat secret") == 1
        assert as_user("echo x > secret") != 0
        assert as_user("rm -f secret") == 0  # the folder is everybody's
        state = (below / "made").stat()
        assert (state.st_uid, state.st_gid, stat.S_IMODE(state.st_mode)) == (1234, 2345, 0o640)
        state = (below / "folder").stat()
        assert (state.st_uid, stat.S_IMODE(state.st_mode)) == (1234, 0o750)


def wait_for_error(path: Path) -> int:
    """Return the errno that a look at `path` gives in the end."""
    end = time.monotonic() + SECONDS_MAX
    while time.monotonic() < end:
        try:
            path.stat()
        except OSError as error:
            return error.errno or 0
    return 0


def test_a_killed_service_gives_errors_and_a_new_mount_works(below: Path) -> None:
    (below / "a").write_bytes(b"kept" * 10_000)
    with serving(below) as pid, open(below / "a", "rb") as file:
        assert file.read(4) == b"kept"
        os.kill(pid, signal.SIGKILL)
        assert wait_for_error(below / "a") in {errno.ENOTCONN, errno.ECONNABORTED}
        ended = penstock("umount", below)
        assert (ended.returncode, "not written back is lost" in ended.stderr) == (1, True)
    with serving(below) as pid:
        os.kill(pid, signal.SIGKILL)
    with mounted(below):
        assert (below / "a").read_bytes() == b"kept" * 10_000


def test_a_mount_stays_that_cannot_be_written_back(below: Path, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()

    @contextlib.contextmanager
    def limited(pid: int) -> Iterator[None]:
        """Let the process of a mount write no file beyond a MiB."""
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 20, -1))
        yield
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)

    with serving(below, shown) as pid, limited(pid):
        with open(shown / "big", "wb", buffering=0) as file:
            file.write(bytes(8 << 20))
            with pytest.raises(OSError, match="File too large") as raised:
                os.fsync(file.fileno())
            assert raised.value.errno == errno.EFBIG
            os.ftruncate(file.fileno(), 1 << 20)
            os.fsync(file.fileno())
        assert (below / "big").stat().st_size == 1 << 20
        (shown / "more").write_bytes(bytes(8 << 20))
        ended = penstock("umount", shown)
        assert (ended.returncode, "and the mount stays" in ended.stderr) == (1, True)
        with pytest.MonkeyPatch.context() as other:  # as from another session of this user
            other.setenv("XDG_RUNTIME_DIR", str(tmp_path))
            refused = penstock("umount", shown)
        assert (refused.returncode, "the mount stays" in refused.stderr) == (1, True)
        data = os.urandom(1 << 20)
        (shown / "late").write_bytes(data)
        (shown / "more").unlink()
        assert penstock("umount", shown).returncode == 0  # ends well when all can be written
        assert (below / "late").read_bytes() == data
    with serving(below, shown) as pid:
        (shown / "more").write_bytes(bytes(8 << 20))
        with limited(pid):
            forced = penstock("umount", "--force", shown)
    assert (forced.returncode, "the mount is gone" in forced.stderr) == (1, True), forced.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts read-only")
def test_a_read_only_path_is_read(below: Path, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    (below / "a").write_bytes(b"bytes")
    run("mount", "--bind", below, below)
    run("mount", "-o", "remount,bind,ro", below)
    try:
        with mounted(below, shown):
            assert (shown / "a").read_bytes() == b"bytes"
            for step in (
                lambda: (shown / "a").write_bytes(b"x"),
                lambda: os.unlink(shown / "a"),
                lambda: os.truncate(shown / "a", 1),
            ):
                with pytest.raises(OSError, match="Read-only file system"):
                    step()
    finally:
        run("umount", below)


def test_a_device_that_was_chosen_is_named(below: Path) -> None:
    made = penstock("mount", below, "--device", "auto", "--cache-size", "64M")
    assert penstock("umount", below).returncode == 0
    assert re.search(r"mounted, 64\.0 MiB of (cpu|cuda):\d+( .+)? cache its files", made.stdout)


def test_what_cannot_be_mounted_says_why(below: Path) -> None:
    small = "--device", "cpu:1", "--cache-size", "64M"
    (below / "file").write_bytes(b"")
    (below / "folder").mkdir()
    for words, told in (
        ((below / "missing", *small), "No such file"),
        ((below / "file", *small), "Not a directory"),
        ((below, below / "missing", *small), "No such file"),
        ((below, below / "folder", *small), "lies inside"),
        ((below, "--device", "cpu:1", "--cache-size", "900T"), "memory of this machine"),
        ((below, "--device", "cuda:77", "--cache-size", "64M"), "cuda:77"),
    ):
        made = penstock("mount", *words)
        assert (made.returncode, made.stderr.count("\n")) == (1, 1), made.stderr
        assert told in made.stderr
    with mounted(below):
        assert "already" in penstock("mount", below, *small).stderr
        with open(below / "file", "rb"):
            busy = penstock("umount", below)
            assert (busy.returncode, "in use" in busy.stderr) == (1, True)
    assert "no file cache" in penstock("umount", below).stderr
    assert penstock("mount").returncode == 2
    for sizes, told in (
        (("--cache-size", "0"), "argument --cache-size: '0' is too small"),
        (("--cache-size", "1M"), "--cache-size: 1.0 MiB is too small: a cache has at least 1024"),
        (("--cache-size", "2000T"), "argument --cache-size: '2000T' is more than"),
        (("--chunk-size", "5000"), "argument --chunk-size: '5000' is no power of two"),
        (("--dirty-limit", "0"), "argument --dirty-limit: '0' is too small"),
        (("--dirty-limit", "2G"), "--dirty-limit: 2.0 GiB are more than the cache (1.0 GiB)"),
    ):
        made = penstock("mount", below, *sizes)
        assert (made.returncode, made.stderr.count("\n")) == (2, 1), made.stderr
        assert made.stderr.startswith(f"penstock: {told}")


@pytest.mark.skipif(bool(slow_storage.why_not()), reason=slow_storage.why_not() or "it works")
def test_storage_without_a_call_fails_each_fsync(tmp_path: Path, below: Path) -> None:
    """The slow file system has no writes. The kernel asks no more after it is told ENOSYS."""
    (below / "a").write_bytes(b"old")
    folder = tmp_path / "mount"
    folder.mkdir()
    with (
        slow_storage.mounted(below, tmp_path / "slow"),
        mounted(tmp_path / "slow", folder, umount_fails="not all is written"),
    ):
        file = os.open(folder / "a", os.O_RDWR)
        assert os.write(file, b"new") == 3
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output error"):
                os.fsync(file)
        with pytest.raises(OSError, match="Input/output error"):
            os.close(file)  # storage has not promised to take the bytes


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_mount_that_a_container_has_a_copy_of_ends(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    with serving(tmp_path / "below"):
        command = ["unshare", "-m", "sh", "-c", "echo; exec sleep 60"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as container:
            assert container.stdout
            container.stdout.readline()
            (tmp_path / "below" / "a").write_text("written")
            done = penstock("umount", tmp_path / "below")
            container.kill()
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "below" / "a").read_text() == "written"
