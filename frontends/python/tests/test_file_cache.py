"""Goal: `penstock run --cache` serves reads of unmodified programs; only their time tells."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from caching import SANDBOX, Cache, needs_cache, settled, write
from mounting import needs_mounts, penstock, serving

pytestmark = needs_cache


def test_the_second_program_reads_no_storage(cache: Cache) -> None:
    data = write(cache.folder / "a", 3_000_001)
    cache.serve()
    for _ in range(2):
        assert cache.run("cat", cache.folder / "a", text=False).stdout == data
    told = cache.statistics()
    assert told["bytes_read"] == len(data)
    assert told["bytes_served"] >= 2 * len(data)
    assert told["files"][0]["path"] == str(cache.folder / "a")
    assert told["files"][0]["cached_bytes"] >= len(data)


def test_a_file_without_a_name_is_closed(cache: Cache) -> None:
    write(cache.folder / "a", 100_000)
    write(cache.folder / "b", 100_000)
    process = cache.serve()
    cache.run("cat", cache.folder / "a", cache.folder / "b", text=False)
    opened = Path(f"/proc/{process}/fd")

    def is_open(name: str) -> bool:
        paths = []
        for each in opened.iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                paths.append(os.readlink(each))
        return any(path.startswith(str(cache.folder / name)) for path in paths)

    assert is_open("a")
    assert is_open("b")
    (cache.folder / "a").unlink()
    limit = time.monotonic() + 30
    while is_open("a"):
        assert time.monotonic() < limit
        time.sleep(0.1)
    assert is_open("b")


def test_a_cache_of_its_own_ends_with_the_program(cache: Cache) -> None:
    data = write(cache.folder / "a", 100_000)
    done = cache.command("run", "--cache", f"{cache.folder}=64M", "cksum", cache.folder / "a")
    assert done.stdout.split()[1] == str(len(data))
    assert cache.command("stats").stdout.startswith("no cache")


# Reads a file that the same process changes in a way that nobody sees: by stdio and by a mapping.
CHANGED = """
import ctypes, mmap, os, sys
path = sys.argv[1]
reader = os.open(path, os.O_RDONLY)
def seen(): return os.pread(reader, 5, 70_000)
print(seen())
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.fseek.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_int]
libc.fputs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
file = libc.fopen(path.encode(), b"r+")
libc.fseek(file, 70_000, 0)
libc.fputs(b"stdio", file)
libc.fclose(file)
print(seen())
with open(path, "r+b") as other, mmap.mmap(other.fileno(), 0) as mapped:
    mapped[70_000:70_005] = b"mmap!"
    print(seen())
os.system(f"printf shell | dd of={path} bs=1 seek=70000 conv=notrunc status=none")
print(seen())
os.truncate(path, 70_003)
print(seen())
for i in range(70): last = seen()
print(last)
"""


def test_a_change_is_seen_at_once_whoever_makes_it(cache: Cache) -> None:
    data = write(cache.folder / "a", 200_000)
    cache.serve()
    told = cache.run(sys.executable, "-c", CHANGED, cache.folder / "a").stdout.splitlines()
    expected = [data[70_000:70_005], b"stdio", b"mmap!", b"shell", b"she", b"she"]
    assert told == [str(one) for one in expected]
    assert cache.statistics()["hits"] > 0


def test_a_file_that_is_open_for_writing_is_not_served(cache: Cache) -> None:
    write(cache.folder / "a", 100_000)
    cache.serve()
    with (cache.folder / "a").open("r+b") as file:
        file.write(b"new")
        file.flush()
        assert cache.run("head", "-c", "3", cache.folder / "a").stdout == "new"
    assert cache.statistics()["bytes_served"] == 0


# Reads again and again until a line comes in, and tells whether the bytes were right.
LONG = """
import os, select, sys
data = open(sys.argv[1], "rb").read()
fd = os.open(sys.argv[1], os.O_RDONLY)
print("begun", flush=True)
while not select.select([0], [], [], 0)[0]:
    assert os.pread(fd, len(data), 0) == data
    again = os.open(sys.argv[1], os.O_RDONLY)
    assert os.read(again, len(data)) == data
    os.close(again)
print("done")
"""


def test_a_service_that_is_killed_is_not_missed(cache: Cache) -> None:
    write(cache.folder / "a", 1_000_000)
    process = cache.serve()
    reader = subprocess.Popen(
        [sys.executable, "-c", LONG, str(cache.folder / "a")],
        env=cache.program_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    assert reader.stdout.readline() == "begun\n"
    os.kill(process, signal.SIGKILL)
    time.sleep(0.3)
    (cache.folder / "a").touch()  # nobody leases it now
    cache.serve()
    limit = time.monotonic() + 10
    while cache.statistics()["hits"] < 10 and time.monotonic() < limit:
        time.sleep(0.1)
    assert cache.statistics()["hits"] >= 10, "the program has not found the new one"
    assert reader.communicate("\n", timeout=30)[0] == "done\n"
    assert reader.returncode == 0


def test_a_service_that_hangs_holds_nobody_up(cache: Cache) -> None:
    data = write(cache.folder / "a", 1_000_000)
    process = cache.serve()
    environment = cache.program_environment()
    os.kill(process, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        done = subprocess.run(
            ["cat", cache.folder / "a"],
            env=environment,
            capture_output=True,
            timeout=60,
            check=True,
        )
        assert done.stdout == data
        assert time.monotonic() - begun < 30
    finally:
        os.kill(process, signal.SIGCONT)


@pytest.mark.parametrize("write_back", [False, True])
def test_a_sandbox_that_forbids_copies_is_served(cache: Cache, write_back: bool) -> None:
    data = write(cache.folder / "a", 300_001)
    cache.serve()
    command = [sys.executable, "-c", SANDBOX, "cat", str(cache.folder / "a")]
    assert cache.run(*command, text=False, write_back=write_back).stdout == data
    assert cache.statistics()["bytes_served"] == len(data)
    command[3:] = ["dd", f"if={cache.folder}/a", f"of={cache.folder}/b", "bs=10k", "status=none"]
    cache.run(*command, write_back=write_back)
    assert (cache.folder / "b").read_bytes() == data


@pytest.mark.parametrize("sandbox", [[], [sys.executable, "-c", SANDBOX]])
def test_memory_that_cannot_be_written_is_an_error_and_no_crash(
    cache: Cache, sandbox: list[str]
) -> None:
    write(cache.folder / "a", 100_000)
    cache.serve()
    script = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open(sys.argv[1], os.O_RDONLY)
os.read(fd, 100)
for at in (0, 4096, id(libc.__class__) & 0 or 1):
    print(libc.pread(fd, ctypes.c_void_p(at), 50, 0), ctypes.get_errno())
print(len(os.read(fd, 100)), os.lseek(fd, 0, 1))
"""
    command = [*sandbox, sys.executable, "-c", script, str(cache.folder / "a")]
    assert cache.run(*command).stdout.splitlines() == ["-1 14", "-1 14", "-1 14", "100 200"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_user_is_not_served_and_not_disturbed(cache: Cache, tmp_path: Path) -> None:
    data = write(cache.folder / "a", 50_000)
    (cache.folder / "secret").write_bytes(b"secret")
    (cache.folder / "secret").chmod(0o600)
    settled()
    cache.serve()
    cache.run("cat", cache.folder / "secret", cache.folder / "a", text=False)
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_mode & 0o55 != 0o55:
            path.chmod(path.stat().st_mode | 0o55)
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", "cat", cache.folder / "secret",
         cache.folder / "a"],
        env=cache.program_environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )  # fmt: skip
    assert done.stdout == data, done.stderr
    assert b"Permission denied" in done.stderr


def test_a_service_ends_when_it_is_told_to(cache: Cache) -> None:
    process = cache.serve()
    sized = cache.command("run", "--cache", f"{cache.folder}=1G", "true")
    assert "has a cache already, of 64.0 MiB: it keeps that size" in sized.stderr
    assert cache.command("run", "--cache", f"{cache.folder}=64M", "true").stderr == ""
    done = cache.command("serve", "--cache", cache.folder, "--stop", "--json")
    assert json.loads(done.stdout) == {"path": str(cache.folder)}
    status = Path(f"/proc/{process}/status")  # its parent is gone: nobody may wait for it
    assert not status.exists() or "\nState:\tZ" in status.read_text()
    again = cache.command("serve", "--cache", cache.folder, "--stop", check=False)
    assert again.returncode == 1
    assert "has no cache" in again.stderr


# Changes a file through the mount and reads it back by the table, and by a descriptor for both.
MOUNTED = """
import os, sys
path = sys.argv[1]
both = os.open(path, os.O_RDWR)
reader = os.open(path, os.O_RDONLY)
for i in range(300):
    at = i * 641
    word = b"%08d" % i
    if i % 3 == 0:
        os.pwrite(both, word, at)
    elif i % 3 == 1:
        os.lseek(both, at, os.SEEK_SET)
        assert os.read(both, 4) == os.pread(reader, 4, at)
        os.write(both, word[4:])
        assert os.pread(reader, 4, at + 4) == word[4:]
        os.pwrite(both, word[:4], at)
    else:
        with open(path, "r+b") as other:
            other.seek(at)
            other.write(word)
    assert os.pread(reader, 8, at) == word
    assert os.pread(both, 8, at) == word
os.ftruncate(both, 100)
assert os.pread(reader, 1000, 0) == os.pread(both, 100, 0)
assert os.read(reader, 200) == os.pread(both, 100, 0)
os.write(both, b"grown")
size = os.fstat(both).st_size
assert len(os.pread(reader, 1 << 20, 0)) == size
print(size)
"""


@needs_mounts
def test_a_mount_shares_its_cache_with_programs(cache: Cache, tmp_path: Path) -> None:
    data = write(cache.folder / "a", 300_000)
    shown = tmp_path / "shown"
    shown.mkdir()
    cache.command("mount", cache.folder, shown, "--cache-size", "64M")
    try:
        by_mount = Cache(shown, Path(cache.environment["XDG_RUNTIME_DIR"]))
        by_mount.environment = cache.environment
        for _ in range(2):
            assert by_mount.run("cat", shown / "a", text=False).stdout == data
        before = by_mount.statistics()
        assert before["bytes_served"] >= 2 * len(data)
        assert before["bytes_read"] <= len(data)
        size = by_mount.run(sys.executable, "-c", MOUNTED, shown / "a").stdout
        assert by_mount.statistics()["hits"] > before["hits"] + 300
    finally:
        cache.command("umount", shown)
    assert (cache.folder / "a").stat().st_size == int(size)


READ_ALL = """
import os, sys
for i in range(int(sys.argv[2])):
    with open(f"{sys.argv[1]}/{i}", "rb", buffering=0) as file:
        assert file.read() == b"%d" % i
"""


@needs_mounts
@pytest.mark.parametrize("cache", ["cpu"], indirect=True)
def test_a_mount_has_what_its_programs_read_closed(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file goes with its name; and all of them where a program needs the descriptors."""
    count, held = 400, 290
    for i in range(count):
        (cache.folder / f"{i}").write_text(f"{i}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", cache.environment["XDG_RUNTIME_DIR"])
    with serving(cache.folder, descriptors=count) as process, contextlib.ExitStack() as stack:
        cache.run(sys.executable, "-c", READ_ALL, cache.folder, f"{count}")

        def opened() -> set[str]:
            paths = set()
            for link in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    paths.add(str(link.readlink()).removeprefix(f"{cache.folder}/"))
            return paths

        kept = {f"{i}" for i in range(count)} & opened()
        assert len(kept) >= count // 4
        os.unlink(cache.folder / max(kept))
        os.rename(cache.folder / min(kept), cache.folder / sorted(kept)[1])
        # The kernel tells later that programs have closed them.
        end = time.monotonic() + 20
        while any(name.endswith(" (deleted)") and name[0] != "/" for name in opened()):
            assert time.monotonic() < end
            time.sleep(0.01)
        others = sorted({f"{i}" for i in range(count)} - kept)
        names = (others + sorted(kept)[2:-1])[:held]
        for name in names:
            stack.enter_context(open(cache.folder / name, "r+b"))
        assert len(os.listdir(cache.folder)) == count - 2
        assert (cache.folder / names[0]).read_text() == names[0]
        stack.close()
        assert penstock("umount", cache.folder).returncode == 0


def test_bad_input_is_one_line(cache: Cache) -> None:
    write(cache.folder / "a", 100)
    inside = cache.folder / "inside"
    inside.mkdir()
    missing = cache.command("serve", "--cache", "/nowhere/at/all", "--detach", check=False)
    assert missing.stderr == "penstock: /nowhere/at/all: No such file or directory\n"
    small = cache.command("serve", "--cache", cache.folder, "--cache-size", "1M", check=False)
    assert small.returncode == 2
    assert small.stderr.count("\n") == 1
    assert "at least 1024 chunks" in small.stderr
    for size in ("0", "1M", "1P"):
        wrong = cache.command("run", "--cache", f"{cache.folder}={size}", "true", check=False)
        assert wrong.returncode == 2
        assert wrong.stderr.startswith("penstock: --cache: ")
        assert wrong.stderr.count("\n") == 1
    huge = cache.command("serve", "--cache", cache.folder, "--cache-size", "900T", check=False)
    assert huge.returncode == 1
    assert huge.stderr.count("\n") == 1
    cache.serve()
    for path in (cache.folder, inside, cache.folder.parent):
        second = cache.command("serve", "--cache", path, "--detach", check=False)
        assert second.returncode == 1
        assert "cache" in second.stderr
        assert second.stderr.count("\n") == 1
    none = cache.command("stats", "/usr", check=False)
    assert none.returncode == 1
    assert "has no cache" in none.stderr
    wrong = cache.command("run", "--cache", f"{cache.folder}/a", "true", check=False)
    assert wrong.returncode == 1
    assert "Not a directory" in wrong.stderr


def test_hostile_names(cache: Cache) -> None:
    names = [b"new\nline", b"x" * 255, b"\xff\xfe", b'quo"te\\', b"tab\t", "ü".encode()]
    for i, name in enumerate(names):
        with open(os.path.join(os.fsencode(cache.folder), name), "wb") as file:
            file.write(bytes([i]) * 1000)
    settled()
    cache.serve()
    for i, name in enumerate(names):
        path = os.path.join(os.fsencode(cache.folder), name)
        assert cache.run("cat", os.fsdecode(path), text=False).stdout == bytes([i]) * 1000
    told = {os.fsencode(os.path.basename(file["path"])) for file in cache.statistics()["files"]}
    assert told == set(names)
    shown = cache.command("stats", "--once")
    assert shown.returncode == 0
    assert "new\\nline" in shown.stdout


def test_a_file_is_written_at_once_when_its_reader_has_ended(cache: Cache) -> None:
    """The kernel waits 45 seconds for a lease that is not given up."""
    data = write(cache.folder / "a", 100_000)
    cache.serve()
    assert cache.run("cat", cache.folder / "a", text=False).stdout == data
    subprocess.run(["timeout", "20", "cp", "/etc/passwd", cache.folder / "a"], check=True)
    assert (cache.folder / "a").read_bytes() == Path("/etc/passwd").read_bytes()
