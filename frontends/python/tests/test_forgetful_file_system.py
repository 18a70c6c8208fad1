"""Goal: the forgetful disk, which crash tests rely on, is a right file system until it forgets.

Then it keeps what was synced, and of the rest just what its model says: pages of writes each by
itself, and changes of names in their order.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from forgetting import ForgetfulDisk, needs_fuse

pytestmark = needs_fuse

PAGE = 4096
SEEDS = range(1, 9)


def write(path: Path, data: bytes, offset: int = 0, sync: bool = False) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(descriptor, data, offset)
    if sync:
        os.fsync(descriptor)
    os.close(descriptor)


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)


def link(path: Path, new_path: Path) -> None:
    """Make a hard link; the disk's symbolic links have one name."""
    if not path.is_symlink():
        os.link(path, new_path)


def tree(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    """Return kind, mode and content of everything below a folder."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        mode = path.lstat().st_mode
        if path.is_symlink():
            found[name] = (mode, os.readlink(path))
        else:
            found[name] = (mode, path.read_bytes() if path.is_file() else b"")
    return found


@pytest.fixture
def place(tmp_path: Path) -> Callable[..., ForgetfulDisk]:
    def make(seed: int, *options: str) -> ForgetfulDisk:
        return ForgetfulDisk(tmp_path / "below", tmp_path / "mount", seed, *options)

    return make


class Pair:
    """Random calls on the disk and on a plain folder; each pair of results has to be the same."""

    def __init__(self, roots: tuple[Path, Path], seed: int) -> None:
        self.roots = roots
        self.random = random.Random(seed)
        self.open: list[tuple[int, int]] = []
        self.names = ["a", "b", "c", "d/a", "d/b", "d/e/a"]
        self.folders = ["d", "d/e", "f"]

    def both(self, call: Callable[[Path], object]) -> list[object]:
        """Return the two results of a call, an errno where it failed."""
        results: list[object] = []
        for root in self.roots:
            try:
                results.append(call(root))
            except OSError as error:
                results.append(f"errno {error.errno}")
        return results

    def open_one(self) -> None:
        """Open a file by a random name with random flags."""
        name = self.random.choice(self.names)
        flags = os.O_RDWR
        for flag in (os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND):
            flags |= flag if self.random.random() < (0.7 if flag == os.O_CREAT else 0.2) else 0
        results = self.both(lambda root: os.open(root / name, flags, 0o640))
        if isinstance(results[0], int) and isinstance(results[1], int):
            self.open.append((results[0], results[1]))
            results = []
        self.same(f"open {name} {flags:x}", results)
        if len(self.open) > 8:
            for descriptor in self.open.pop(self.random.randrange(8)):
                os.close(descriptor)

    def use_one(self) -> None:
        """Make a random call on an open file."""
        if not self.open:
            return
        pair = dict(zip(self.roots, self.random.choice(self.open), strict=True))
        offset = self.random.randrange(40_000)
        size = self.random.randrange(1, 10_000)
        data = self.random.randbytes(size)
        calls: list[Callable[[Path], object]] = [
            lambda root: os.pwrite(pair[root], data, offset),
            lambda root: os.pread(pair[root], size, offset),
            lambda root: os.ftruncate(pair[root], offset),
            lambda root: os.fsync(pair[root]),
            lambda root: os.fstat(pair[root]).st_size,
            lambda root: os.fstat(pair[root]).st_nlink,
            lambda root: os.posix_fallocate(pair[root], offset, size),
        ]
        number = self.random.choice([0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6])
        self.same(f"call {number} at {offset}, {size} bytes", self.both(calls[number]))

    def change_names(self) -> None:
        """Make a random call on names."""
        first, second = (self.random.choice(self.names + self.folders) for _ in range(2))
        name, folder = self.random.choice(self.names), self.random.choice(self.folders)
        calls: list[Callable[[Path], object]] = [
            lambda root: os.rename(root / first, root / second),
            lambda root: os.unlink(root / name),
            lambda root: link(root / name, root / second),
            lambda root: os.symlink("a", root / name),
            lambda root: os.mkdir(root / folder),
            lambda root: os.rmdir(root / folder),
            lambda root: sorted(os.listdir(root / folder)),
            lambda root: os.chmod(root / name, 0o600),
        ]
        number = self.random.randrange(len(calls))
        told = f"call {number} on names {first}, {second}, {name}, {folder}"
        self.same(told, self.both(calls[number]))

    def same(self, told: str, results: list[object]) -> None:
        """Fail if there are two results, and they differ."""
        assert len(results) < 2 or results[0] == results[1], told

    def run(self, operations: int) -> None:
        """Make random calls, then close what is open."""
        for _ in range(operations):
            step = self.random.choice(
                [self.open_one, self.use_one, self.use_one, self.change_names]
            )
            step()
        for pair in self.open:
            for descriptor in pair:
                os.close(descriptor)


@pytest.mark.parametrize("seed", range(3))
def test_random_calls_give_what_a_plain_folder_gives(
    place: Callable[..., ForgetfulDisk], tmp_path: Path, seed: int
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    with place(1) as disk:
        Pair((disk.place, plain), seed).run(2000)
        assert tree(disk.place) == tree(plain)
    assert tree(disk.folder) == tree(plain)  # the end made it durable


def test_files_of_the_folder_below_are_shown(
    place: Callable[..., ForgetfulDisk], tmp_path: Path
) -> None:
    below = tmp_path / "below"
    (below / "d").mkdir(parents=True)
    (below / "d/a").write_bytes(b"old" * 5000)
    (below / "link").symlink_to("d/a")
    os.link(below / "d/a", below / "same")
    with place(1) as disk:
        assert tree(disk.place) == tree(below)
        assert (disk.place / "same").stat().st_ino == (disk.place / "d/a").stat().st_ino
        copied = subprocess.run(["cp", "-a", disk.place, tmp_path / "copy"], check=False)
        assert copied.returncode == 0
        assert tree(tmp_path / "copy") == tree(below)


def test_what_was_not_synced_is_in_memory_only(place: Callable[..., ForgetfulDisk]) -> None:
    with place(0) as disk:
        write(disk.place / "a", b"new")
        assert (disk.place / "a").read_bytes() == b"new"
        assert tree(disk.folder) == {}
        lost = disk.lose_power()
        assert lost == {"pages": 1, "pages_lost": 1, "names": 1, "names_lost": 1}
        assert tree(disk.place) == tree(disk.folder) == {}


def test_open_files_fail_after_the_loss(place: Callable[..., ForgetfulDisk]) -> None:
    with place(0) as disk:
        write(disk.place / "a", b"new", sync=True)
        descriptor = os.open(disk.place / "a", os.O_RDWR)
        disk.lose_power()
        with pytest.raises(OSError, match="Stale"):
            os.pwrite(descriptor, b"more", 0)
        os.close(descriptor)
        assert (disk.place / "a").read_bytes() == b"new"


def test_fsync_keeps_bytes_size_and_name(place: Callable[..., ForgetfulDisk]) -> None:
    with place(0) as disk:
        (disk.place / "d").mkdir()
        write(disk.place / "d/a", b"1" * 10_000, sync=True)
        write(disk.place / "d/a", b"2" * 10_000, offset=5_000)
        write(disk.place / "d/b", b"3")
        os.truncate(disk.place / "d/a", 100)
        disk.lose_power()
        assert set(tree(disk.place)) == {"d", "d/a"}
        assert (disk.place / "d/a").read_bytes() == b"1" * 10_000


def test_sync_of_a_folder_keeps_names_alone(place: Callable[..., ForgetfulDisk]) -> None:
    with place(0) as disk:
        write(disk.place / "a", b"1" * 10, sync=True)
        os.rename(disk.place / "a", disk.place / "b")
        write(disk.place / "c", b"2")
        sync_folder(disk.place)
        os.unlink(disk.place / "b")
        disk.lose_power()
        assert {name: data for name, (_, data) in tree(disk.folder).items()} == {
            "b": b"1" * 10,
            "c": b"",
        }


def test_names_survive_up_to_the_last_that_concerns_the_file(
    place: Callable[..., ForgetfulDisk],
) -> None:
    with place(0) as disk:
        (disk.place / "d").mkdir()
        sync_folder(disk.place)
        write(disk.place / "first", b"")
        write(disk.place / "d/a", b"", sync=True)
        write(disk.place / "last", b"")
        disk.lose_power()
        assert set(tree(disk.folder)) == {"d", "d/a", "first"}


def test_pages_survive_each_by_itself(place: Callable[..., ForgetfulDisk]) -> None:
    """Half of the pages of one write are there, the others are old; the seed selects."""
    counts = []
    for seed in SEEDS:
        with place(seed) as disk:
            write(disk.place / "a", b"1" * (64 * PAGE), sync=True)
            write(disk.place / "a", b"2" * (63 * PAGE), offset=PAGE // 2)
            lost = disk.lose_power()
            data = (disk.place / "a").read_bytes()
        assert len(data) == 64 * PAGE
        assert data[: PAGE // 2] == b"1" * (PAGE // 2)
        edges = [0, PAGE // 2, *range(PAGE, 64 * PAGE, PAGE), 64 * PAGE - PAGE // 2, 64 * PAGE]
        pieces = [set(data[a:b]) for a, b in itertools.pairwise(edges)]
        assert all(len(piece) == 1 for piece in pieces)
        assert lost["pages"] == 64
        counts.append(sum(piece == {ord("2")} for piece in pieces))
        assert counts[-1] == 64 - lost["pages_lost"]
    assert all(10 < count < 54 for count in counts), counts
    assert len(set(counts)) > 1


def test_a_prefix_of_the_names_survives(place: Callable[..., ForgetfulDisk]) -> None:
    counts = set()
    for seed in SEEDS:
        with place(seed) as disk:
            for number in range(10):
                write(disk.place / f"{seed}-{number}", b"")
            disk.lose_power()
            found = sorted(name for name in tree(disk.folder) if name.startswith(f"{seed}-"))
        assert found == [f"{seed}-{number}" for number in range(len(found))]
        counts.add(len(found))
    assert len(counts) > 2


def test_a_truncation_may_be_lost(place: Callable[..., ForgetfulDisk]) -> None:
    sizes = set()
    for seed in range(1, 17):
        with place(seed) as disk:
            write(disk.place / "a", b"1" * 10_000, sync=True)
            os.truncate(disk.place / "a", 5_000)
            disk.lose_power()
            data = (disk.folder / "a").read_bytes()
            assert data == b"1" * len(data)
            sizes.add(len(data))
    assert sizes == {5_000, 10_000}


def test_a_killed_disk_has_what_was_synced(place: Callable[..., ForgetfulDisk]) -> None:
    disk = place(1)
    write(disk.place / "a", b"1" * 10_000, sync=True)
    write(disk.place / "a", b"2" * 10_000)
    disk.server.kill()
    disk.stop()
    assert (disk.folder / "a").read_bytes() == b"1" * 10_000


def test_a_disk_that_lies_keeps_nothing(place: Callable[..., ForgetfulDisk]) -> None:
    with place(0, "--ignore-fsync") as disk:
        write(disk.place / "a", b"1" * 10_000, sync=True)
        disk.lose_power()
        assert tree(disk.folder) == {}
