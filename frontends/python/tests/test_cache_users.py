"""What other users get from a file cache: nothing that they may not read themselves."""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from caching import Cache, needs_cache

from penstock.cache_places import REPLY, VERSION

pytestmark = needs_cache
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which becomes another user")

NOBODY = 65534
HELLO, OPEN, DROP = 0, 1, 14
REQUEST = struct.Struct("<IIIIQQQQ")
BYTES = bytes(range(256)) * 1000


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    """Yield a cache of a folder that other users may enter."""
    folder = tmp_path / "files"
    (tmp_path / "run").mkdir()
    folder.mkdir()
    cache = Cache(folder, tmp_path / "run")
    cache.serve()
    yield cache
    cache.end()


@pytest.fixture
def secret(cache: Cache) -> Path:
    """Return a file of the cache that its owner alone may read."""
    file = cache.folder / "secret"
    file.write_bytes(BYTES)
    file.chmod(0o600)
    return file


def path_of(cache: Cache) -> str:
    return cache.program_environment()["PENSTOCK_CACHE"].rpartition(":")[0]


def connected(cache: Cache, path: str = "") -> socket.socket:
    path = path or path_of(cache)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(10)
    connection.connect(path)
    return connection


def ask(
    connection: socket.socket, kind: int, *descriptors: int, writes: int = 0, size: int = 48
) -> int:
    """Return the error that the service answers with; -1: it ends the connection."""
    request = REQUEST.pack(kind, VERSION, 0, writes, 0, 0, 0, 0)[:size]
    sent = array.array("i", descriptors)
    with_them = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)] if descriptors else []
    try:
        connection.sendmsg([request], with_them)
        answer = connection.recv(100)
    except (BrokenPipeError, ConnectionResetError):
        return -1
    return int(REPLY.unpack(answer)[0]) if answer else -1


def in_child(task: Callable[[], bool]) -> bool:
    """Return what a task returns in a child of this process."""
    child = os.fork()
    if child == 0:
        done = False
        try:
            done = task()
        finally:
            os._exit(0 if done else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@as_root
@pytest.mark.parametrize("flags", [os.O_PATH, os.O_RDONLY, os.O_RDWR])
def test_an_inherited_connection_is_of_no_use(cache: Cache, secret: Path, flags: int) -> None:
    """The user of a connection is asked for with each request, not when it is made."""
    with connected(cache) as connection:
        file = os.open(secret, flags)

        def asks_as_nobody() -> bool:
            os.setuid(NOBODY)
            return ask(connection, OPEN, file) == -1

        assert in_child(asks_as_nobody)
        os.close(file)


@as_root
def test_a_connection_ends_with_the_rights_of_its_process(cache: Cache, secret: Path) -> None:
    def asks_before_and_after() -> bool:
        with connected(cache) as connection, open(secret, "rb") as file:
            before = ask(connection, OPEN, file.fileno())
            os.setuid(NOBODY)
            return before == 0 and ask(connection, OPEN, file.fileno()) == -1

    assert in_child(asks_before_and_after)


def test_a_request_is_answered_whenever_it_comes(cache: Cache, secret: Path) -> None:
    """Also before the service has accepted the connection, or just then."""
    path = path_of(cache)
    with open(secret, "rb") as file:
        for i in range(3000):
            with connected(cache, path) as connection:
                for _ in range(i % 50 * 10):  # a moment
                    pass
                assert ask(connection, OPEN, file.fileno()) == 0, i


def test_a_connection_is_that_of_one_process(cache: Cache, secret: Path) -> None:
    with connected(cache) as connection, open(secret, "rb") as file:
        assert in_child(lambda: ask(connection, OPEN, file.fileno()) == -1)


@pytest.mark.parametrize(
    ("flags", "writes", "error"),
    [
        (os.O_PATH, 0, errno.EBADF),
        (os.O_PATH, 1, errno.EBADF),
        (os.O_WRONLY, 0, errno.EBADF),
        (os.O_RDONLY, 1, errno.EBADF),
        (os.O_RDONLY, 0, 0),
        (os.O_RDWR, 1, 0),
        (os.O_WRONLY, 1, 0),
    ],
)
def test_a_descriptor_allows_what_is_asked_for(
    cache: Cache, secret: Path, flags: int, writes: int, error: int
) -> None:
    file = os.open(secret, flags)
    with connected(cache) as connection:
        assert ask(connection, OPEN, file, writes=writes) == error
        if flags == os.O_PATH:
            assert ask(connection, DROP, file) == error
    os.close(file)


@pytest.mark.parametrize("kind", [OPEN, DROP])
def test_files_of_other_folders_are_refused(cache: Cache, tmp_path: Path, kind: int) -> None:
    beside = tmp_path / "files of another"  # begins with the name of the folder
    beside.mkdir()
    (beside / "file").write_bytes(BYTES)
    with connected(cache) as connection, open(beside / "file", "rb") as file:
        assert ask(connection, kind, file.fileno()) == errno.EXDEV


def test_malformed_messages_keep_no_descriptors(cache: Cache, secret: Path) -> None:
    with open(secret, "rb") as file:
        number = file.fileno()

        def descriptors() -> int:
            return len(os.listdir(f"/proc/{cache.processes[0]}/fd"))

        with connected(cache) as connection:
            assert ask(connection, OPEN, number) == 0
        before = descriptors()
        for _ in range(20):
            for sent, size in (((number,) * 2, 48), ((number,) * 200, 48), ((number,), 47)):
                with connected(cache) as connection:
                    assert ask(connection, OPEN, *sent, size=size) == -1
        assert descriptors() <= before + 3  # a connection may be about to end


# Writes to a file under a cache, becomes another user, and looks for what is left of the cache.
LEAVES = """
import ctypes, mmap, os, sys
how, name, secret = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
nobody = 65534
SYS_setresuid = 117 if os.uname().machine == "x86_64" else 147
ways = {
    "setuid": lambda: os.setuid(nobody),
    "seteuid": lambda: os.seteuid(nobody),
    "setreuid": lambda: os.setreuid(nobody, nobody),
    "setresuid": lambda: os.setresuid(nobody, nobody, nobody),
    "setfsuid": lambda: libc.setfsuid(nobody),
    "syscall": lambda: libc.syscall(SYS_setresuid, nobody, nobody, nobody),
    "instruction": lambda: by_instruction(),
}
def by_instruction():
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    words = ((0xB8, SYS_setresuid), (0xBF, nobody), (0xBE, nobody), (0xBA, nobody))
    for register, value in words:
        code.write(bytes([register]) + value.to_bytes(4, "little"))
    code.write(bytes([0x0F, 0x05, 0xC3]))  # syscall, ret
    at = ctypes.addressof(ctypes.c_char.from_buffer(code))
    assert ctypes.CFUNCTYPE(ctypes.c_long)(at)() == 0
def mapped():
    with open("/proc/self/maps") as maps:
        return sum("penstock-chunk" in line for line in maps)
def connected():
    return sum(os.readlink(f"/proc/self/fd/{each}").startswith("socket:")
               for each in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{each}"))
file = os.open(name, os.O_RDWR)
kept = os.open(secret, os.O_RDONLY)
other = os.open(name, os.O_RDONLY)  # not read before
assert len(os.pread(kept, 1000, 0)) == 1000
assert os.write(file, b"first") == 5
assert mapped() == 3 and connected() >= 1, (mapped(), connected())
os.setuid(0), os.setresuid(-1, -1, -1)
assert mapped() == 3
if os.fork() == 0:
    ways[how]()
    assert mapped() == 0 and connected() == 0, (mapped(), connected())
    assert os.pread(other, 5, 0) == b"first"
    assert os.write(file, b", second") == 8
    assert len(os.pread(kept, 1000, 1000)) == 1000  # opened before, so it may
    try:
        os.open(secret, os.O_RDONLY)
        assert False
    except PermissionError:
        pass
    os._exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
assert mapped() == 3
assert os.pread(file, 13, 0) == b"first, second"
assert os.write(file, b", third") == 7
"""


@as_root
@pytest.mark.parametrize("write_back", [True, False])
@pytest.mark.parametrize(
    "how", ["setuid", "seteuid", "setreuid", "setresuid", "setfsuid", "syscall", "instruction"]
)
def test_a_program_that_becomes_another_user_leaves_the_cache(
    cache: Cache, secret: Path, how: str, write_back: bool
) -> None:
    if how == "instruction" and os.uname().machine != "x86_64":
        pytest.skip("its instructions are those of x86-64")
    file = cache.folder / "file"
    file.write_bytes(BYTES)
    for parent in (cache.folder, *cache.folder.parents):
        if parent.stat().st_uid == os.geteuid():
            parent.chmod(parent.stat().st_mode | 0o011)
    file.chmod(0o666)
    done = cache.run(
        sys.executable, "-c", LEAVES, how, file, secret, check=False, write_back=write_back
    )
    assert done.returncode == 0, done.stderr
    cache.command("serve", "--cache", cache.folder, "--stop")
    assert file.read_bytes() == b"first, second, third" + BYTES[20:]
