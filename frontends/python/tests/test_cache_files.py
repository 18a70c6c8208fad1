"""Goal: `penstock warm` brings files into a cache, and `penstock drop` takes them out."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from caching import Cache, making, needs_cache, write
from mounting import needs_mounts

pytestmark = needs_cache


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with making(tmp_path, "cpu") as made:
        yield made


@contextlib.contextmanager
def shown(cache: Cache, how: str, *options: str) -> Iterator[Path]:
    """Serve the cache's folder, or mount it over itself or elsewhere. Gives where files are."""
    if how == "serve":
        cache.serve("--cache-size", "64M", *options)
        yield cache.folder
        cache.command("serve", "--cache", cache.folder, "--stop")
        return
    where = cache.folder
    if how == "mount elsewhere":
        where = cache.folder.parent / "shown"
        where.mkdir()
    cache.command("mount", cache.folder, where, "--cache-size", "64M", *options)
    try:
        yield where
        cache.command("umount", where)
    finally:
        subprocess.run(["umount", "-l", where], check=False, capture_output=True)


WAYS = [
    "serve",
    pytest.param("mount", marks=needs_mounts),
    pytest.param("mount elsewhere", marks=needs_mounts),
]


def told(cache: Cache, *words: str | Path, check: bool = True) -> dict[str, Any]:
    return dict(json.loads(cache.command(*words, "--json", check=check).stdout))


def read_through(cache: Cache, how: str, path: Path) -> bytes:
    if how == "serve":
        return bytes(cache.run("cat", path, text=False).stdout)
    return path.read_bytes()


def write_below(path: Path, data: bytes) -> None:
    """Change a file below a mount, and leave it the size and the time that it has."""
    state = path.stat()
    with open(path, "r+b", buffering=0) as file:
        file.write(data)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


@pytest.mark.parametrize("how", WAYS)
def test_what_is_warm_is_not_read_from_storage(cache: Cache, how: str) -> None:
    sizes = {"a": 3_000_000, "folder/b": 100, "folder/c": 0, "folder/deep/d": 70_000}
    files = {}
    for seed, (name, size) in enumerate(sizes.items()):
        path = cache.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        files[name] = write(path, size, seed)
    (cache.folder / "link").symlink_to("a")
    os.mkfifo(cache.folder / "fifo")
    with shown(cache, how) as where:
        done = told(cache, "warm", where / "folder")
        assert (done["files"], done["bytes"], done["errors"]) == (3, 70_100, [])
        for path in (where, cache.folder):  # a mount is found by both
            done = told(cache, "warm", path)
            assert (done["files"], done["bytes"], done["busy_files"]) == (4, 3_070_100, 0)
        assert told(cache, "warm", where / "a")["bytes"] == 3_000_000
        before = cache.statistics()["bytes_read"]
        assert before >= 3_070_100
        for name, data in files.items():
            assert read_through(cache, how, where / name) == data
        assert cache.statistics()["bytes_read"] == before
        text = cache.command("warm", where).stdout
        assert text == f"{where}: 4 files are cached, 2.9 MiB\n"


@pytest.mark.parametrize("how", WAYS)
def test_what_was_dropped_is_read_again(cache: Cache, how: str) -> None:
    old = write(cache.folder / "a", 1_000_000, 1)
    new = bytes(reversed(old))
    (cache.folder / "b").write_bytes(b"b" * 1000)
    with shown(cache, how) as where:
        told(cache, "warm", where)
        cached = cache.statistics()["clean_size"]
        assert cached >= 1_000_000
        with open(where / "a", "rb") as file, mmap.mmap(file.fileno(), 0, prot=1) as memory:
            assert memory[:10] == old[:10]
            changes = how == "mount elsewhere"
            if changes:
                write_below(cache.folder / "a", new)
            done = told(cache, "drop", where)
            assert (done["files"], done["errors"]) == (2, [])
            assert changes or done["bytes"] == cached
            assert cache.statistics()["clean_size"] == 0
            expected = new if changes else old
            assert os.pread(file.fileno(), 10, 0) == expected[:10]
            assert memory[:] == expected
        assert read_through(cache, how, where / "a") == expected
        told(cache, "warm", where)
        text = cache.command("drop", where / "b").stdout
        assert text == f"{where / 'b'}: dropped 64.0 KiB of 1 files\n"


@needs_mounts
def test_a_drop_loses_nothing_that_is_being_written(cache: Cache) -> None:
    code = (
        "import os, sys\n"
        "file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "for i in range(3000): os.pwrite(file, b'%08d' % i * 37, i * 296)\n"
    )
    with shown(cache, "mount elsewhere") as where:
        writers = [
            subprocess.Popen([sys.executable, "-c", code, where / name]) for name in ("a", "b")
        ]
        drops = 0
        while any(writer.poll() is None for writer in writers) or drops < 3:
            done = cache.command("drop", where, "--json", check=False)
            drops += 1
            errors = json.loads(done.stdout)["errors"]
            assert errors == []
        assert [writer.returncode for writer in writers] == [0, 0]
        expected = b"".join(b"%08d" % i * 37 for i in range(3000))
        assert (where / "a").read_bytes() == (where / "b").read_bytes() == expected
    assert (cache.folder / "a").read_bytes() == (cache.folder / "b").read_bytes() == expected


def test_a_drop_takes_granted_writes_along(cache: Cache) -> None:
    """Another program under the cache has written, and storage has not got it yet."""
    code = (
        "import os, sys\n"
        "file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "os.write(file, b'first' * 1000)\n"
        "print('written', flush=True)\n"
        "sys.stdin.readline()\n"
        "os.write(file, b'second' * 1000)\n"
    )
    with shown(cache, "serve"):
        words = ["run", "--cache", str(cache.folder), "--write-back", sys.executable, "-c", code]
        with subprocess.Popen(
            [sys.executable, "-m", "penstock", *words, cache.folder / "a"],
            env=cache.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "written\n"
            assert told(cache, "drop", cache.folder)["errors"] == []
            assert (cache.folder / "a").read_bytes() == b"first" * 1000
            program.communicate("\n", timeout=30)
        assert program.returncode == 0
    assert (cache.folder / "a").read_bytes() == b"first" * 1000 + b"second" * 1000


def test_files_that_do_not_fit_are_left_out(cache: Cache) -> None:
    for i in range(5):
        with open(cache.folder / f"{i}", "wb") as file:
            file.truncate(16 << 20)
    (cache.folder / "small").write_bytes(b"x")
    with shown(cache, "serve"):
        done = told(cache, "warm", cache.folder)
        assert (done["left_files"], done["left_bytes"]) == (2, (16 << 20) + 1)
        assert (done["files"], done["bytes"]) == (4, 64 << 20)
        assert "2 files of 16.0 MiB do not fit into 64.0 MiB" in (
            cache.command("warm", cache.folder).stdout
        )


def test_files_that_cannot_be_read_are_named(cache: Cache, tmp_path: Path) -> None:
    (cache.folder / "a").write_bytes(b"x" * 1000)
    for verb in ("warm", "drop"):
        for words, told_ in (
            ((cache.folder,), "has no cache (try: penstock serve --cache PATH)"),
            ((tmp_path / "missing",), "has no cache"),
        ):
            done = cache.command(verb, *words, check=False)
            assert (done.returncode, done.stderr.count("\n")) == (1, 1)
            assert told_ in done.stderr
    process = cache.serve()
    for verb in ("warm", "drop"):
        done = cache.command(verb, cache.folder / "missing", check=False)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert "No such file" in done.stderr
        with open(cache.folder / "a", "r+b"):
            done = cache.command(verb, cache.folder)
            assert done.returncode == 0
            assert ("1 files are being changed, or" in done.stdout) == (verb == "warm")
    shutil.rmtree(cache.folder)
    cache.folder.mkdir()
    assert told(cache, "warm", cache.folder)["files"] == 0
    os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize("how", WAYS[1:])
def test_a_flush_writes_all_back(cache: Cache, how: str) -> None:
    with shown(cache, how) as where:
        for i in range(20):
            (where / f"{i}").write_bytes(b"%d" % i * 5000)
        assert cache.statistics()["dirty_size"] > 0
        text = cache.command("serve", "--cache", where, "--flush").stdout
        assert text == f"{cache.folder}: all that was written is on storage\n"
        assert cache.statistics()["dirty_size"] == 0
        if how == "mount elsewhere":
            assert all((cache.folder / f"{i}").read_bytes() == b"%d" % i * 5000 for i in range(20))
        assert told(cache, "serve", "--cache", where, "--flush") == {"path": str(cache.folder)}
    refused = cache.command("serve", "--cache", cache.folder, "--flush", check=False)
    assert (refused.returncode, "has no cache" in refused.stderr) == (1, True)
