"""Goal: calls of unmodified programs return under `penstock run --cache` what they return alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from caching import Cache, needs_cache, write

pytestmark = needs_cache


SENDFILE = """
import os, sys
copy = os.memfd_create("copy")
os.sendfile(copy, os.open(sys.argv[1], 0), None, 1 << 20)
sys.stdout.buffer.write(os.pread(copy, 1 << 20, 0))
"""


@pytest.mark.parametrize(
    "command",
    [
        ["dd", "if=FILE", "bs=30k", "status=none"],  # duplicates the descriptor
        ["sh", "-c", "cat < FILE"],
        ["cp", "FILE", "/dev/stdout"],
        [sys.executable, "-c", SENDFILE, "FILE"],
    ],
)
def test_a_program_reads_no_storage(cache: Cache, command: list[str]) -> None:
    data = write(cache.folder / "a", 1_000_000)
    cache.serve()
    words = [word.replace("FILE", str(cache.folder / "a")) for word in command]
    for _ in range(2):
        assert cache.run(*words, text=False).stdout == data
    assert cache.statistics()["bytes_served"] >= 2 * len(data)


# Random calls on a few descriptors. Prints what each returned.
CALLS = """
import fcntl, os, random, socket, subprocess, sys
null = os.open("/dev/null", os.O_RDONLY)
folder, seed = sys.argv[1], int(sys.argv[2])
r = random.Random(seed)
files = {}
def names(): return sorted(files)
def say(*what): print(*[w.hex()[:64] + str(len(w)) if isinstance(w, bytes) else w for w in what])
for step in range(400):
    op = r.randrange(14)
    name = r.randrange(6)
    at, size = r.randrange(400_000), r.choice([1, 100, 4096, 65536, 150_000])
    if name not in files:
        path = f"{folder}/f{r.randrange(3)}"
        files[name] = (open(path, "rb", buffering=r.choice([0, -1])) if op < 3 else
                       os.open(path, os.O_RDONLY))
    f = files[name]
    fd = f if isinstance(f, int) else f.fileno()
    if op == 0:
        os.close(fd) if isinstance(f, int) else f.close()
        del files[name]
    elif op in (1, 2, 3):
        say("read", os.read(fd, size) if isinstance(f, int) else f.read(size))
    elif op in (4, 5):
        say("pread", os.pread(fd, size, at))
    elif op == 6:
        where = os.lseek(fd, at, os.SEEK_SET) if isinstance(f, int) else f.seek(at)
        say("seek", where)
    elif op == 7 and isinstance(f, int):
        say("seek", os.lseek(fd, -5, os.SEEK_END), os.lseek(fd, 3, os.SEEK_CUR))
        say("ends", os.read(fd, 100), os.read(fd, 100))
    elif op == 8 and isinstance(f, int):
        one, two = bytearray(100), bytearray(5000)
        say("readv", os.readv(fd, [one, two]), bytes(one), bytes(two))
        say("readv", os.readv(fd, [two]), bytes(two))
        say("preadv", os.preadv(fd, [one, bytearray(), two], at), bytes(one), bytes(two))
    elif op == 9 and isinstance(f, int):
        other = os.dup(fd)
        say("dup", os.read(other, 1000), os.read(fd, 10), os.read(other, 7))
        if r.randrange(3) == 0:
            third = fcntl.fcntl(other, fcntl.F_DUPFD, 0)
            gone = r.choice([other, third])
            os.close(gone)
            other += third - gone
            say("third", os.read(fd, 10))
        drop = r.choice([fd, other])
        os.close(drop)
        files[name] = fd = fd + other - drop
        say("left", os.read(fd, 500), os.lseek(fd, 0, os.SEEK_CUR), os.read(fd, 500))
    elif op == 10 and isinstance(f, int) and r.randrange(4) == 0:
        child = os.fork()
        if child == 0:
            os.read(fd, 777)
            os._exit(0)
        os.waitpid(child, 0)
        say("after fork", os.read(fd, 50))
    elif op == 11 and isinstance(f, int) and r.randrange(4) == 0:
        how = r.randrange(3)
        if how == 0:
            out = subprocess.run(["head", "-c", "1000"], stdin=fd, capture_output=True).stdout
        elif how == 1:
            os.set_inheritable(fd, True)
            out = b""
            os.system(f"head -c 100 <&{fd} >/dev/null")
        else:
            out = subprocess.run(["dd", "bs=100", "count=1"], stdin=fd, capture_output=True,
                                 close_fds=False).stdout
        say("program", out, os.lseek(fd, 0, os.SEEK_CUR), os.read(fd, 10))
    elif op == 12 and isinstance(f, int):
        a, b = os.pipe()
        sent = os.sendfile(b, fd, None, 3000)
        say("sendfile", sent, os.read(a, 4000) if sent else b"", os.lseek(fd, 0, os.SEEK_CUR))
        os.close(a); os.close(b)
        copy = os.memfd_create("copy")
        sent = os.sendfile(copy, fd, r.choice([None, at]), r.choice([70_000, 1_000_000]))
        say("copy", sent, os.pread(copy, 1_000_000, 0), os.lseek(fd, 0, os.SEEK_CUR))
        os.close(copy)
        a, b = socket.socketpair()
        b.setblocking(False)
        a.setblocking(False)
        try: sent = os.sendfile(b.fileno(), fd, None, 1_000_000)
        except BlockingIOError: sent = None
        b.close()
        got = b""
        try:
            while part := a.recv(1 << 20): got += part
        except OSError: pass
        where = os.lseek(fd, 0, os.SEEK_CUR)
        assert sent is None or len(got) == sent, (len(got), sent)
        assert not sent or os.pread(fd, sent, where - sent) == got
        os.lseek(fd, at, os.SEEK_SET)
        a.close()
    elif op == 13 and isinstance(f, int):
        other = os.dup2(fd, r.choice([0, 60 + name]))
        say("dup2", os.read(other, 20), os.read(fd, 20))
        if other == 0:
            if r.randrange(2) == 0: os.close(fd); fd = os.dup(0)
            say("input", os.read(0, size), sys.stdin.buffer.raw.seek(5, 1), os.read(0, 70_000))
            os.dup2(null, 0)
            files[name] = fd
        elif other != fd:
            os.close(fd)
            files[name] = other
            say("moved", os.read(other, 700))
print(len(names()))
"""


@pytest.mark.parametrize("seed", range(6 if "PENSTOCK_NIGHTLY" not in os.environ else 200))
def test_random_calls_return_what_they_return_alone(cache: Cache, seed: int) -> None:
    for i in range(3):
        write(cache.folder / f"f{i}", 200_000 + i * 70_000, seed + i)
    cache.serve()
    script = [sys.executable, "-c", CALLS, str(cache.folder), str(seed)]
    alone = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    for _ in range(2):
        assert cache.run(*script).stdout == alone
    assert cache.statistics()["hits"] > 50


# Calls at the limits of what may be served. Prints what each returned, and the positions.
EDGES = """
import ctypes, errno, mmap, os, socket, sys
path = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open(path, os.O_RDONLY)
os.read(fd, 1 << 20)
buffer = ctypes.create_string_buffer(5000)
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
def pieces(*sizes):
    return (Piece * len(sizes))(*[Piece(ctypes.addressof(buffer), size) for size in sizes])
def call(name, *arguments):
    function = getattr(libc, name)
    function.restype = ctypes.c_ssize_t
    got = function(*arguments)
    known = errno.errorcode.get(ctypes.get_errno()) if got < 0 else got
    print(name, known, os.lseek(fd, 0, os.SEEK_CUR))
long, size_t = ctypes.c_long, ctypes.c_size_t
huge = (1 << 64) - 1
os.lseek(fd, 0, os.SEEK_SET)
for at in (-1, -5): call("preadv", fd, pieces(100), 1, long(at))
for at in (-1, -5): call("preadv2", fd, pieces(100), 1, long(at), 0)
call("preadv", fd, pieces(100, huge), 2, long(0))
call("readv", fd, pieces(huge), 1)
call("sendfile", os.memfd_create("x"), fd, None, size_t(huge))
fixed = libc.mmap
fixed.restype = ctypes.c_void_p
at = fixed(None, size_t(4096), 1, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, long(0))
call("sendfile", os.memfd_create("x"), fd, ctypes.c_void_p(at), size_t(100_000))
into, out = os.pipe()
call("sendfile", out, fd, None, size_t(1 << 20))
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
call("sendfile", one.fileno(), fd, None, size_t(150_000))
print(len(other.recv(1 << 20)), len(other.recv(1 << 20)))
copied = os.open(path + "-copy", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.write(copied, os.pread(fd, 300_000, 0))
os.pread(copied, 300_000, 0)
os.lseek(copied, 5000, os.SEEK_SET)
print(os.sendfile(copied, copied, 100_000, 80_000))
print(os.pread(copied, 80_000, 5000) == os.pread(fd, 80_000, 100_000))
only_written = os.open(path + "-copy", os.O_WRONLY)
os.pwrite(only_written, b"x" * 100, 0)
for arguments in ((buffer, size_t(10), long(0)), (pieces(10), 1, long(0))):
    call("pread" if arguments[0] is buffer else "preadv", only_written, *arguments)
call("sendfile", os.memfd_create("x"), only_written, None, size_t(100_000))
os.close(0)
assert os.open(path, os.O_RDONLY) == 0
print(os.read(0, 10), libc.getchar(), os.lseek(0, 0, os.SEEK_CUR), os.read(0, 10))
"""


@pytest.mark.parametrize("write_back", [False, True])
def test_calls_at_the_limits_return_what_they_return_alone(cache: Cache, write_back: bool) -> None:
    write(cache.folder / "a", 400_000)
    cache.serve()
    script = [sys.executable, "-c", EDGES, str(cache.folder / "a")]
    alone = subprocess.run(script, capture_output=True, text=True, check=True, timeout=60).stdout
    assert cache.run(*script, write_back=write_back).stdout == alone
