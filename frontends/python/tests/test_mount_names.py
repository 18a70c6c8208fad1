"""Goal: a mount with few descriptors knows any number of names, and finds what they stand for."""

import contextlib
import ctypes
import errno
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mounting import SECONDS_MAX, mounted, needs_mounts, penstock, run, serving

pytestmark = needs_mounts

DESCRIPTORS = 200  # of the process behind the mount; a quarter may be those of names
NAMES = DESCRIPTORS // 4 + 10  # of which some have no descriptor
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@pytest.fixture
def below(tmp_path: Path) -> Path:
    """Return a folder with names whose use closes the descriptors of all others."""
    path = tmp_path / "below"
    (path / "others").mkdir(parents=True)
    for i in range(NAMES):
        (path / "others" / f"{i}").touch()
    return path


def close_descriptors(top: Path) -> None:
    """Let the process close the descriptors of all names but these."""
    for i in range(NAMES):
        os.chmod(top / "others" / f"{i}", 0o640)


@contextlib.contextmanager
def held(path: Path) -> Iterator[int]:
    """Hold what a path stands for. The mount sees no open: the kernel keeps its node."""
    descriptor = os.open(path, os.O_PATH)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def text_of(descriptor: int) -> str:
    """Read a file that is held: the kernel asks the mount for its node."""
    return Path(f"/proc/self/fd/{descriptor}").read_text()


def exchange(one: Path, other: Path) -> None:
    """Exchange two names."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    done = libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    assert done == 0, os.strerror(ctypes.get_errno())


def test_more_names_than_descriptors(below: Path) -> None:
    paths = [below / f"{i % 7}" / f"{i % 3}" / f"{i}" for i in range(3 * DESCRIPTORS)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    with serving(below, descriptors=DESCRIPTORS) as service:
        for _ in range(2):
            for path in paths:
                assert os.stat(path).st_size == len(path.name)
            for path in reversed(paths):
                os.chmod(path, 0o600)
                assert path.read_text() == path.name
        # A quarter may be of names, a quarter of files that stay open, some are of the folder.
        links = list(Path(f"/proc/{service}/fd").iterdir())
        assert sum(str(one.readlink()).startswith(str(below)) for one in links) <= 110
        for path in paths:
            path.unlink()
        assert penstock("umount", below).returncode == 0


def test_nodes_follow_their_names(below: Path) -> None:
    with mounted(below, descriptors=DESCRIPTORS):
        (below / "a/b/c").mkdir(parents=True)
        (below / "x").mkdir()
        for name in ("a/b/c/one", "a/two", "x/three", "x/four"):
            (below / name).write_text(name)
        with contextlib.ExitStack() as stack:
            names = ("a/b/c/one", "a/two", "x/three", "x/four", "a/b/c")
            one, two, three, four, folder = (
                stack.enter_context(held(below / name)) for name in names
            )
            close_descriptors(below)
            os.rename(below / "a", below / "moved")
            os.rename(below / "moved/b", below / "x/b")
            exchange(below / "x/three", below / "moved/two")
            os.link(below / "x/four", below / "linked")
            os.unlink(below / "x/four")
            for _ in range(2):
                close_descriptors(below)
                assert text_of(one) == "a/b/c/one"
                assert text_of(two) == "a/two"
                assert text_of(three) == "x/three"
                assert text_of(four) == "x/four"
                assert os.listdir(f"/proc/self/fd/{folder}") == ["one"]
            exchange(below / "x", below / "moved")
            close_descriptors(below)
            assert text_of(one) == "a/b/c/one"
            assert text_of(three) == "x/three"
    assert (below / "moved/b/c/one").read_text() == "a/b/c/one"


def test_what_has_no_name_any_more_goes_on(below: Path) -> None:
    for name in ("open", "held", "replaced", "new"):
        (below / name).write_text(name)
    (below / "folder").mkdir()
    with mounted(below, descriptors=DESCRIPTORS):
        with (
            open(below / "open", "r+") as file,
            held(below / "held") as kept,
            held(below / "replaced") as replaced,
            held(below / "folder") as folder,
        ):
            close_descriptors(below)
            os.unlink(below / "open")
            os.unlink(below / "held")
            os.rename(below / "new", below / "replaced")
            os.rmdir(below / "folder")
            close_descriptors(below)
            assert text_of(kept) == "held"
            assert text_of(replaced) == "replaced"
            os.ftruncate(file.fileno(), 2)
            os.fchmod(file.fileno(), 0o604)
            with open(f"/proc/self/fd/{file.fileno()}") as again:
                file.close()
                close_descriptors(below)
                assert again.read() == "op"
                told = os.fstat(again.fileno())
                assert (told.st_mode & 0o777, told.st_nlink, told.st_size) == (0o604, 0, 2)
            assert os.listdir(f"/proc/self/fd/{folder}") == []
        assert (below / "replaced").read_text() == "new"


def test_what_is_held_without_a_name_is_not_kept_without_end(below: Path) -> None:
    count, kept = DESCRIPTORS, DESCRIPTORS // 16
    with mounted(below, descriptors=DESCRIPTORS), contextlib.ExitStack() as stack:
        files = []
        for i in range(count):
            os.mknod(below / "file", 0o600 | stat.S_IFREG)
            (below / "folder").mkdir()
            files.append(stack.enter_context(held(below / "file")))
            stack.enter_context(held(below / "folder"))
            os.unlink(below / "file")
            os.rmdir(below / "folder")
            if i == kept // 2 - 1:
                assert text_of(files[0]) == ""  # it is among the files that stay open then
        assert len(os.listdir(below / "others")) == NAMES
        assert text_of(files[-1]) == ""
        for lost in files[1 : -kept // 2]:
            with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
                text_of(lost)


def test_names_that_change_below_are_found_again(below: Path, tmp_path: Path) -> None:
    (below / "a/b").mkdir(parents=True)
    (below / "a/b/file").write_text("text")
    top = tmp_path / "top"
    top.mkdir()
    with mounted(below, top, descriptors=DESCRIPTORS), held(top / "a/b/file") as file:
        close_descriptors(top)
        os.rename(below / "a/b", below / "b")
        os.rename(below / "a", below / "b/a")  # the folder lies in what lay in it
        os.rename(below / "b/file", below / "b/a/renamed")
        with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
            text_of(file)
        assert (top / "b/a/renamed").read_text() == "text"
        close_descriptors(top)
        assert text_of(file) == "text"
        assert not (top / "a").exists()


def test_a_folder_that_goes_below_into_one_of_its_own(below: Path, tmp_path: Path) -> None:
    (below / "a/b").mkdir(parents=True)
    (below / "a/file").write_text("text")
    top = tmp_path / "top"
    top.mkdir()
    with mounted(below, top, descriptors=DESCRIPTORS), held(top / "a/b") as inner:
        os.rename(below / "a/b", below / "b")
        os.rename(below / "a", below / "b/a")
        # Only the inner folder is asked, so its own new name is not known. The kernel refuses to
        # show it, when the mount has found it.
        with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
            os.stat("a/file", dir_fd=inner)
        close_descriptors(top)
        assert os.listdir(f"/proc/self/fd/{inner}") == ["a"]
        assert (top / "b/a/file").read_text() == "text"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root binds folders")
def test_a_folder_that_a_mount_below_shows_in_itself(below: Path, tmp_path: Path) -> None:
    (below / "a/b/c").mkdir(parents=True)
    (below / "a/loop").mkdir()
    (below / "a/b/loop").mkdir()
    top = tmp_path / "top"
    top.mkdir()
    with contextlib.ExitStack() as stack:
        for name, later in (("a/loop", "a/loop"), ("a/b/loop", "a/moved/loop")):
            run("mount", "--bind", below / "a", below / name)
            stack.callback(run, "umount", below / later)
        stack.enter_context(mounted(below, top, descriptors=DESCRIPTORS))
        assert (top / "a/b/c").is_dir()
        for loop in (top / "a/loop", top / "a/b/loop"):
            with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
                loop.stat()
            close_descriptors(top)
            assert sorted(os.listdir(top / "a")) == ["b", "loop"]
        os.rename(top / "a/b", top / "a/moved")
        close_descriptors(top)
        assert sorted(os.listdir(top / "a/moved")) == ["c", "loop"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts an overlay")
def test_a_folder_that_an_overlay_copies_stays_the_same(below: Path, tmp_path: Path) -> None:
    (below / "folder").mkdir()
    (below / "folder/file").write_text("text")
    layers = tmp_path / "layers"
    run("mkdir", "-p", layers / "upper", layers / "work", layers / "all")
    options = f"lowerdir={below},upperdir={layers}/upper,workdir={layers}/work"
    made = subprocess.run(
        ["mount", "-t", "overlay", "none", "-o", options, layers / "all"], check=False
    )
    if made.returncode != 0:
        pytest.skip("no overlay can be mounted here")
    top = tmp_path / "top"
    top.mkdir()
    try:
        with (
            mounted(layers / "all", top, descriptors=DESCRIPTORS),
            held(top / "folder") as folder,
            held(top / "folder/file") as file,
        ):
            (top / "folder/new").touch()
            os.truncate(top / "folder/file", 2)
            close_descriptors(top)
            assert sorted(os.listdir(f"/proc/self/fd/{folder}")) == ["file", "new"]
            assert text_of(file) == "te"
    finally:
        run("umount", layers / "all")
    assert (layers / "upper/folder/file").read_text() == "te"


def test_a_name_that_stands_for_another_file_below(below: Path, tmp_path: Path) -> None:
    (below / "file").write_text("old")
    (below / "other").write_text("new")
    top = tmp_path / "top"
    top.mkdir()
    with mounted(below, top, descriptors=DESCRIPTORS), held(top / "file") as file:
        close_descriptors(top)
        os.rename(below / "other", below / "file")
        with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
            text_of(file)
        assert (top / "file").read_text() == "new"


def test_a_number_that_another_file_has_got(below: Path, tmp_path: Path) -> None:
    old = below / "old"
    old.write_text("of the old one")
    top = tmp_path / "top"
    top.mkdir()
    with mounted(below, top, descriptors=DESCRIPTORS), held(top / "old") as file:
        close_descriptors(top)
        number = old.stat().st_ino
        old.unlink()
        for i in range(1000):
            name = f"new {i}"
            (below / name).write_text("other text")
            if (below / name).stat().st_ino == number:
                break
        else:
            pytest.skip("this file system gives numbers once, or much later")
        assert (top / name).read_text() == "other text"
        with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
            text_of(file)
        assert (top / name).read_text() == "other text"


# Opens all files of a folder by several threads, as the user that it is told if that is not 0, and
# closes them when its input ends.
GREEDY = """
import json, os, sys, threading
folder, count, user = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.chdir(folder)
if user:
    os.setuid(user)
opened, errors = {}, []
def open_some(first):
    for i in range(first, count, 8):
        try:
            opened[i] = os.open(f"{i}", os.O_RDWR if i % 2 else os.O_RDONLY)
        except OSError as error:
            errors.append(error.errno)
threads = [threading.Thread(target=open_some, args=(first,)) for first in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
right = all(os.pread(opened[i], 20, 0) == b"text %d" % i for i in opened)
print(json.dumps({"opened": len(opened), "errors": errors, "right": right}), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def greedy(folder: Path, count: int, user: int = 0) -> Iterator[dict[str, Any]]:
    """Let a program open more files of a folder than it may have."""
    words = [sys.executable, "-c", GREEDY, str(folder), f"{count}", f"{user}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout is not None
        yield json.loads(program.stdout.readline())
        program.communicate()
    assert program.returncode == 0


def test_a_program_that_opens_too_much_fails_alone(below: Path) -> None:
    count = 400
    for i in range(count):
        (below / f"{i}").write_text(f"text {i}")
        (below / f"{i}").chmod(0o666)
    below.chmod(0o755)
    user = 65534 if os.geteuid() == 0 else 0
    with mounted(below, descriptors=count):
        with greedy(below, count, user) as first, greedy(below, count, user) as second:
            assert first["opened"] >= count * 7 // 10
            # A user's programs share what each user gets in the end; root's do not. A file that
            # another has open for reading, too, takes no descriptor more.
            assert second["opened"] in (range(8) if user else range(16, 24))
            for told in (first, second):
                assert told["errors"] == [errno.EMFILE] * (count - told["opened"])
                assert told["right"]
            with greedy(below, count) as other:
                assert other["opened"] in range(16, 24)
            (below / "mine").write_text("mine")
            assert (below / "mine").read_text() == "mine"
            assert len(os.listdir(below)) == count + 2
        # All is given back, once the kernel has told that it is closed.
        end = time.monotonic() + SECONDS_MAX
        opened = 0
        while opened < count * 7 // 10 and time.monotonic() < end:
            with greedy(below, count, user) as again:
                opened = again["opened"]
        assert opened >= count * 7 // 10
        for i in range(count):
            assert (below / f"{i}").read_text() == f"text {i}"


def test_requests_at_once_find_what_moves(below: Path) -> None:
    (below / "a/deep").mkdir(parents=True)
    for i in range(12):
        (below / "a/deep" / f"{i}").write_text(f"{i}")
    failed: list[BaseException] = []
    over = threading.Event()

    def until_over(act: object) -> None:
        try:
            while not over.is_set():
                assert callable(act)
                act()
        except BaseException as error:
            failed.append(error)

    with mounted(below, descriptors=DESCRIPTORS), contextlib.ExitStack() as stack:
        files = [stack.enter_context(held(below / "a/deep" / f"{i}")) for i in range(12)]

        def read() -> None:
            for i, descriptor in enumerate(files):
                assert text_of(descriptor) == f"{i}"

        acts = [read, read, lambda: close_descriptors(below)]
        threads = [threading.Thread(target=until_over, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        for _ in range(150):
            os.rename(below / "a", below / "b")
            os.rename(below / "b/deep", below / "deep")
            os.rename(below / "deep/3", below / "b/3")
            os.rename(below / "b/3", below / "deep/3")
            os.rename(below / "deep", below / "b/deep")
            os.rename(below / "b", below / "a")
        over.set()
        for thread in threads:
            thread.join()
        assert failed == []
