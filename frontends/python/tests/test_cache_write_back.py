"""Goal: with --write-back writes stay in the cache, and whoever looks by libc sees them."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from caching import SANDBOX, Cache, needs_cache, settled

pytestmark = needs_cache


# Random calls that read and change three files. Prints what each returned.
CALLS = """
import mmap, os, random, subprocess, sys
folder, seed = sys.argv[1], int(sys.argv[2])
r = random.Random(seed)
fds = {}
def text(w): return w.hex()[:48] + "+" + str(len(w)) if isinstance(w, bytes) else w
def say(*what): print(*map(text, what))
for step in range(500):
    op, which, at = r.randrange(24), r.randrange(4), r.randrange(300_000)
    size = r.choice([1, 7, 100, 4096, 65536, 100_000])
    path = f"{folder}/f{which % 3}"
    data = r.randbytes(size)
    if which not in fds:
        fds[which] = os.open(path, r.choice([os.O_RDWR, os.O_RDWR, os.O_RDWR | os.O_CREAT]))
    fd = fds[which]
    if op < 4:
        say("pwrite", os.pwrite(fd, data, at))
    elif op < 7:
        say("write", os.write(fd, data), os.lseek(fd, 0, os.SEEK_CUR))
    elif op < 10:
        say("pread", os.pread(fd, size, at))
    elif op == 10:
        say("read", os.read(fd, size))
    elif op == 11:
        say("seek", os.lseek(fd, at, os.SEEK_SET))
    elif op == 12:
        say("end", os.lseek(fd, 0, os.SEEK_END), os.fstat(fd).st_size, os.stat(path).st_size)
    elif op == 13 and r.randrange(2):
        os.ftruncate(fd, at)
        say("truncate", os.fstat(fd).st_size)
    elif op == 14:
        os.fsync(fd) if r.randrange(2) else os.fdatasync(fd)
    elif op == 15:
        os.close(fd)
        del fds[which]
    elif op == 16 and r.randrange(3) == 0:
        other = os.open(path, os.O_WRONLY | os.O_APPEND)
        say("append", os.write(other, data[:500]), os.fstat(fd).st_size)
        os.close(other)
    elif op == 17 and r.randrange(3) == 0:
        with open(path, "rb") as other:
            other.seek(at)
            say("reader", other.read(1000))
    elif op == 18 and r.randrange(4) == 0:
        child = os.fork()
        if child == 0:
            os.pwrite(fd, b"child", at)
            os._exit(0)
        os.waitpid(child, 0)
        say("child", os.pread(fd, 5, at))
    elif op == 19 and r.randrange(4) == 0:
        say("cksum", subprocess.run(["cksum", path], capture_output=True).stdout.split()[0])
    elif op == 20 and os.fstat(fd).st_size > 10 and r.randrange(4) == 0:
        with mmap.mmap(fd, 0) as mapped:
            say("mapped", bytes(mapped[:10]))
            mapped[3:6] = b"map"
        say("pread", os.pread(fd, 10, 0))
    elif op == 21:
        one, two = data[: size // 2], data[size // 2 :]
        say("pwritev", os.pwritev(fd, [one, two], at), os.preadv(fd, [bytearray(10)], at))
        one, two = bytearray(100), bytearray(70_000)
        say("preadv", os.preadv(fd, [one, two], at), bytes(one), bytes(two))
        copy = os.memfd_create("copy")
        say("sendfile", os.sendfile(copy, fd, at, 100_000), os.pread(copy, 100_000, 0))
        os.close(copy)
    elif op == 22 and r.randrange(4) == 0:
        other = os.dup(fd)
        say("dup", os.write(other, data[:50]), os.write(fd, data[:20]), os.lseek(fd, 0, 1))
        gone = r.choice([fd, other])
        os.close(gone)
        fds[which] = fd = fd + other - gone
        say("left", os.write(fd, data[:30]), os.lseek(fd, 0, 1), os.pread(fd, 20, 0))
    elif op == 23 and r.randrange(4) == 0:
        other = os.open(path, os.O_RDWR | os.O_TRUNC)
        say("cut", os.fstat(fd).st_size, os.write(other, b"again"), os.pread(fd, 10, 0))
        os.close(other)
for which in range(3):
    with open(f"{folder}/f{which}", "rb") as file:
        say("whole", file.read())
"""


@pytest.mark.parametrize("seed", range(12 if "PENSTOCK_NIGHTLY" not in os.environ else 400))
def test_random_changes_are_seen_as_alone(cache: Cache, tmp_path: Path, seed: int) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    for i in range(3):
        for folder in (cache.folder, plain):
            (folder / f"f{i}").write_bytes(bytes([i + 1]) * (50_000 * i))
    settled()
    cache.serve()
    alone = subprocess.run(
        [sys.executable, "-c", CALLS, str(plain), str(seed)],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    cached = cache.run(sys.executable, "-c", CALLS, cache.folder, str(seed), write_back=True).stdout
    for number, (one, other) in enumerate(
        zip(cached.splitlines(), alone.splitlines(), strict=False)
    ):
        assert one == other, f"line {number}"
    assert cached == alone
    for i in range(3):
        assert (cache.folder / f"f{i}").read_bytes() == (plain / f"f{i}").read_bytes()


def test_writes_stay_in_the_cache(cache: Cache) -> None:
    cache.serve()
    script = """
import ctypes, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b"x" * 1_000_000)
print(os.fstat(fd).st_size, os.stat(sys.argv[1]).st_size)
status = ctypes.create_string_buffer(256)  # as programs of an old glibc ask
version = int(os.uname().machine == "x86_64")
assert ctypes.CDLL(None).__fxstat64(version, fd, status) == 0
print(struct.unpack_from("q", status, 48)[0])
print(os.popen(f"/usr/bin/env -u LD_PRELOAD stat -c %s {sys.argv[1]}").read().strip())
"""
    told = cache.run(sys.executable, "-c", script, cache.folder / "a", write_back=True).stdout
    assert told.splitlines() == ["1000000 1000000", "1000000", "1000000"]
    assert cache.statistics()["bytes_written"] == 1_000_000
    assert (cache.folder / "a").read_bytes() == b"x" * 1_000_000


def test_real_programs(cache: Cache, tmp_path: Path) -> None:
    cache.serve("--cache-size", "128M")
    script = """
set -e
cd "$1"
dd if=/dev/urandom of=big bs=100k count=90 status=none
cp big copy; cmp big copy
tar cf all.tar big copy; mkdir x; tar xf all.tar -C x; cmp x/big big
gzip -k big; gunzip -c big.gz | cmp - big
seq 1000 | sort -R > lines; sort lines > sorted; sort -c sorted
python3 - <<END
import sqlite3
c = sqlite3.connect("db")
c.execute("create table t(a integer primary key, b text)")
for i in range(300):
    c.execute("insert into t values(?, ?)", (i, "x" * i)); c.commit() if i % 50 == 0 else None
c.commit()
print(*(c.execute(x).fetchone() for x in
        ("select sum(length(b)) from t", "pragma integrity_check")))
END
git init -q g; cd g; cp ../lines .; git add lines
git -c user.name=a -c user.email=a@b commit -qm x
git fsck --strict; git gc -q; git status --porcelain
cat > p.c <<END
int main(void) { return 7; }
END
cc p.c -o p
./p || test $? = 7
"""
    done = cache.run("sh", "-c", script, "sh", cache.folder, write_back=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "(44850,) ('ok',)"
    assert (cache.folder / "big").read_bytes() == (cache.folder / "x/copy").read_bytes()
    check = subprocess.run(
        ["git", "-C", cache.folder / "g", "fsck", "--strict"], capture_output=True, check=False
    )
    assert check.returncode == 0


# Sets the time of a file that it has written, in a way, and perhaps writes on.
TIMES = """
import ctypes, os, struct, sys
way, path = sys.argv[1:]
libc, at, cwd = ctypes.CDLL(None), os.fsencode(path), -100
seconds = struct.pack("4q", 1000, 0, 1000, 0)  # timespec[2], or timeval[2]
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b"written" * 10_000)
if way == "closed":
    os.close(fd)
done = {
    "closed": lambda: libc.utimensat(cwd, at, seconds, 0),
    "futimens": lambda: libc.futimens(fd, seconds),
    "futimes": lambda: libc.futimes(fd, seconds),
    "futimesat": lambda: libc.futimesat(cwd, at, seconds),
    "empty": lambda: libc.utimensat(fd, b"", seconds, 0x1000),
    "utimes": lambda: libc.utimes(at, seconds),
    "lutimes": lambda: libc.lutimes(at, seconds),
    "utime": lambda: libc.utime(at, struct.pack("2q", 1000, 1000)),
    "later": lambda: libc.utimensat(cwd, at, seconds, 0),
}[way]()
assert done == 0, way
if way == "later":
    os.pwrite(fd, b"W", 0)
"""


@pytest.mark.parametrize(
    "way",
    ["closed", "futimens", "futimes", "futimesat", "empty", "utimes", "lutimes", "utime", "later"],
)
def test_times_that_a_program_sets_are_kept(cache: Cache, way: str) -> None:
    cache.serve()
    cache.run(sys.executable, "-c", TIMES, way, cache.folder / "a", write_back=True)
    status = (cache.folder / "a").stat()
    assert status.st_size == 70_000
    assert (status.st_mtime == 1000) == (way != "later")
    first = b"W" if way == "later" else b"w"
    assert (cache.folder / "a").read_bytes() == first + (b"written" * 10_000)[1:]


def test_a_full_disk_is_told_by_the_write(cache: Cache) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "x", cache.folder], check=True)
    try:
        cache.serve()
        script = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
print(os.write(fd, b"x" * 3_000_000))
for i in range(2):
    try:
        print(os.write(fd, b"x" * 3_000_000))
    except OSError as error:
        print(error.errno)
    os.fsync(fd)
    os.ftruncate(fd, 1000)
print(os.fstat(fd).st_size)
"""
        done = cache.run(
            sys.executable, "-c", script, cache.folder / "a", write_back=True, check=False
        )
        assert done.stdout.splitlines() == ["1048576", "28", "1044480", "1000"], done.stderr
        cache.end()
        time.sleep(0.2)
    finally:
        subprocess.run(["umount", "-l", cache.folder], check=True)


def test_a_service_that_is_killed_is_told(cache: Cache) -> None:
    process = cache.serve()
    script = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b"kept"); os.fsync(fd)
os.write(fd, b"lost")
print("written", flush=True)
sys.stdin.readline()
try:
    os.fsync(fd); print("synced")
except OSError as error:
    print(error.errno)
print(os.pwrite(fd, b"more", 4)); os.fsync(fd)
print(os.pread(fd, 100, 0))
"""
    program = subprocess.Popen(
        [sys.executable, "-c", script, str(cache.folder / "a")],
        env={**cache.program_environment(), "PENSTOCK_WRITE_BACK": "1"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline() == "written\n"
    os.kill(process, signal.SIGKILL)
    time.sleep(0.3)
    told = program.communicate("\n", timeout=30)[0].splitlines()
    assert told == ["5", "4", "b'keptmore'"]
    assert (cache.folder / "a").read_bytes() == b"keptmore"


def test_a_writer_that_is_killed_leaves_its_grants(cache: Cache) -> None:
    cache.serve()
    script = """
import os, random, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
data = [bytes([i]) * 50_000 for i in range(4)]
print("begun", flush=True)
while True:
    i = random.randrange(200)
    os.pwrite(fd, data[i % 4], i * 50_000)
"""
    environment = {**cache.program_environment(), "PENSTOCK_WRITE_BACK": "1"}
    for _ in range(10):
        program = subprocess.Popen(
            [sys.executable, "-c", script, str(cache.folder / "a")],
            env=environment, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert program.stdout is not None
        program.stdout.readline()
        time.sleep(0.05)
        program.kill()
        program.wait()
    # The chunks can be written again.
    check = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(fd, b"z" * 10_000_000, 0)
os.fsync(fd)
assert os.pread(fd, 10_000_000, 0) == b"z" * 10_000_000
"""
    cache.run(sys.executable, "-c", check, cache.folder / "a", write_back=True)
    assert (cache.folder / "a").read_bytes() == b"z" * 10_000_000


@pytest.mark.parametrize("append", ["echo x >> $0", "exec 3<>$0; echo x >&3", "/bin/echo x >> $0"])
def test_writes_of_a_shell_come_behind_those_in_the_cache(cache: Cache, append: str) -> None:
    """Libc writes them by calls that are not wrapped."""
    path = cache.folder / "a"
    program = 'import sys; open(sys.argv[1], "wb").write(b"a" * 9)'
    script = f"'{sys.executable}' -c '{program}' $0; {append}"
    cache.serve()
    cache.run("bash", "-c", script, path, write_back=True)
    assert path.read_bytes() == (b"x\naaaaaaa" if "<>" in append else b"aaaaaaaaax\n")


def test_a_file_removed_by_others_while_it_is_written(cache: Cache) -> None:
    """The program goes on with it; the process drops it within two seconds."""
    path = cache.folder / "a"
    script = """
import os, subprocess, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(fd, b"a" * 100_000, 0)
subprocess.run(["rm", sys.argv[1]], env={"PATH": os.environ["PATH"]})
for i in range(30):
    os.pwrite(fd, bytes([i]) * 100, i * 1000)
    assert os.pread(fd, 100, i * 1000) == bytes([i]) * 100
    time.sleep(0.1)
os.fsync(fd)
data = os.pread(fd, 200_000, 0)
print(len(data), os.fstat(fd).st_size, data[29_000:29_100] == b"\x1d" * 100)
"""
    cache.serve()
    told = cache.run(sys.executable, "-c", script, path, write_back=True).stdout
    assert told == "100000 100000 True\n"
    assert not path.exists()


@pytest.mark.parametrize("sandbox", [[], [sys.executable, "-c", SANDBOX]])
def test_memory_that_cannot_be_read_is_not_written(cache: Cache, sandbox: list[str]) -> None:
    script = """
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b"a" * 20_000)
memory = mmap.mmap(-1, 16384)
memory.write(b"secret" * 2000)
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert libc.mprotect(ctypes.c_void_p(at), 16384, 0) == 0
for _ in range(2):
    print(libc.pwrite(fd, ctypes.c_void_p(at), 4096, 0), ctypes.get_errno())
"""
    cache.serve()
    command = [*sandbox, sys.executable, "-c", script, str(cache.folder / "a")]
    assert cache.run(*command, write_back=True).stdout == "-1 14\n-1 14\n"
    assert (cache.folder / "a").read_bytes() == b"a" * 20_000


# Writes a file, and tells its times in every form of stat: at the write, and after each of syncs.
CHANGE_TIMES = """
import importlib, os, sys, time
folder = sys.argv[1]
sys.path.insert(0, folder)
sys.dont_write_bytecode = False
for number in range(3):  # what is compiled is known by the second and the size of its source
    with open(f"{folder}/module.py", "w") as file:
        file.write(f"value = {number % 10}\\n")
    if number == 0:
        import module
    else:
        importlib.reload(module)
    assert module.value == number % 10, (module.value, number)
    time.sleep(1.1)
path = f"{folder}/f"
fd = os.open(path, os.O_RDWR)
before = os.fstat(fd).st_mtime_ns
time.sleep(0.05)
start = time.time_ns()
os.pwrite(fd, b"bytes", 70_000)
end = time.time_ns()
tick = 20_000_000  # the clock of file systems is that much behind, at most
seen = {os.fstat(fd).st_mtime_ns, os.stat(path).st_mtime_ns, os.lstat(path).st_mtime_ns}
with os.scandir(folder) as entries:
    seen |= {entry.stat().st_mtime_ns for entry in entries if entry.name == "f"}
time.sleep(0.05)
seen.add(os.stat(path).st_mtime_ns)
os.fsync(fd)
seen.add(os.stat(path).st_mtime_ns)
time.sleep(0.05)
assert len(seen) == 1, seen
assert before < min(seen) and start - tick < min(seen) <= end, (before, start, seen, end)
os.utime(path, ns=(1000, 2_000_000_000))
assert os.stat(path).st_mtime_ns == 2_000_000_000
time.sleep(0.05)
os.pwrite(fd, b"more", 0)
print(os.stat(path).st_mtime_ns)
"""


def test_the_time_of_a_change_is_that_of_the_write(cache: Cache) -> None:
    path = cache.folder / "f"
    path.write_bytes(bytes(200_000))
    settled()
    cache.serve()
    done = cache.run(sys.executable, "-c", CHANGE_TIMES, cache.folder, write_back=True, check=False)
    assert done.returncode == 0, done.stderr
    assert path.stat().st_mtime_ns == int(done.stdout)


@contextlib.contextmanager
def waiting_program(cache: Cache, script: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a script under write-back that says a line, and waits for one."""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        env={**cache.program_environment(), "PENSTOCK_WRITE_BACK": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "written\n"
        yield program
        program.kill()


def test_an_error_of_a_write_back_is_told(cache: Cache) -> None:
    script = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(fd, b"far", 2 << 20)
print("written", flush=True)
sys.stdin.readline()
for way in "sync", "sync":
    try:
        os.fsync(fd)
        print("synced", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
    sys.stdin.readline()
"""
    process = cache.serve()
    path = cache.folder / "a"
    with waiting_program(cache, script, path) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        limits = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        print(file=program.stdin, flush=True)
        assert program.stdout.readline() == f"{errno.EFBIG}\n"
        resource.prlimit(process, resource.RLIMIT_FSIZE, limits)
        print(file=program.stdin, flush=True)
        assert program.stdout.readline() == "synced\n"
    assert path.read_bytes()[2 << 20 :] == b"far"


def test_inotify_tells_at_the_write_back(cache: Cache) -> None:
    script = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(fd, b"new", 0)
print("written", flush=True)
sys.stdin.readline()
os.fsync(fd)
sys.stdin.readline()
"""
    modify = 2
    path = cache.folder / "a"
    path.write_bytes(b"old")
    cache.serve()
    libc = ctypes.CDLL(None)
    watch = libc.inotify_init1(os.O_CLOEXEC)
    with waiting_program(cache, script, path) as program:
        assert program.stdin is not None
        assert libc.inotify_add_watch(watch, os.fsencode(path), modify) > 0
        assert select.select([watch], [], [], 0.3)[0] == []
        print(file=program.stdin, flush=True)
        assert select.select([watch], [], [], 30)[0] == [watch]
    os.close(watch)
