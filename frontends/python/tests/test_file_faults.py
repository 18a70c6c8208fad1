"""Goal: nothing that a user, a disk or the end of a process can do gives wrong bytes or a hang.

Files that are closed, gone, cut short or fail in places; forks, Ctrl-C, and the end of the
interpreter while reads are under way. Long, since all of them share a faulty file and its checks.
"""

from __future__ import annotations

import errno
import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import penstock

MIB = 1 << 20
LIMIT = 60  # seconds that no child may need


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * (16 * MIB // 256))
    return path


def child(code: str, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", code]
        + [str(word) for word in words],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
        env={**os.environ, **variables},
    )


def test_a_closed_file(file: Path) -> None:
    opened = penstock.open(file)
    opened.close()
    for use in (
        lambda: opened.read(bytearray(1)),
        lambda: opened.pread(bytearray(1)),
        lambda: opened.read(bytearray(2 * MIB)),
        lambda: opened.preadv([]),
        lambda: opened.size,
    ):
        with pytest.raises(penstock.ClosedError, match="closed") as caught:
            use()
        assert caught.value.errno == errno.EBADF
        assert caught.value.filename == str(file)
        assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("missing", FileNotFoundError),
        ("folder", IsADirectoryError),
        ("inside", NotADirectoryError),
        ("pipe", OSError),
        ("device", OSError),
    ],
)
def test_what_is_no_regular_file(kind: str, error: type[OSError], tmp_path: Path) -> None:
    path = tmp_path / "it"
    if kind == "folder":
        path.mkdir()
    elif kind == "inside":
        path.write_bytes(b"")
        path /= "that"
    elif kind == "pipe":
        reader, _ = os.pipe()
        with pytest.raises(penstock.Error) as caught:
            penstock.open(reader)
        assert caught.value.filename == reader
        return
    elif kind == "device":
        path = Path("/dev/zero")
    with pytest.raises(penstock.Error) as caught:
        penstock.open(path)
    assert isinstance(caught.value, error)
    assert caught.value.filename == str(path)
    assert caught.value.offset is None


def test_arguments_of_open_that_make_no_sense(file: Path) -> None:
    for arguments in (
        {"mode": "rw"},
        {"cache": "warm"},
        {"route": "fast"},
        {"storage": "tape"},
        {"threads": 0},
        {"threads": 65},
        {"throttle_latency_us": -1},
        {"throttle_latency_us": math.nan},
        {"throttle_bandwidth_mbs": math.inf},
    ):
        with pytest.raises(ValueError, match=r"mode|not one of|threads|throttle"):
            penstock.open(file, **arguments)
    with pytest.raises(penstock.Error):
        penstock.open(file, device="gpu:7")
    with pytest.raises(penstock.ClosedError):
        penstock.open(12345)
    with pytest.raises(TypeError):
        penstock.open(3.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        penstock.open(file, cache=5)  # type: ignore[arg-type]


def test_a_file_that_shrinks_is_read_to_its_new_end(file: Path) -> None:
    buffer = bytearray(16 * MIB)
    with penstock.open(file, throttle_bandwidth_mbs=100) as slow:
        future = slow.pread(buffer)
        os.truncate(file, MIB + 5)
        arrived = future.result(LIMIT)
        assert MIB + 5 <= arrived <= 16 * MIB
        assert sum(future.report.routes.values()) == future.report.bytes
        assert slow.read(bytearray(2 * MIB), None, MIB) == 5
        assert slow.size == MIB + 5
    plain = bytes(range(256)) * (16 * MIB // 256)
    assert buffer[:arrived] == plain[:arrived]


FAILING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/uio.h>
/* The library reads by syscall(2).
   Reads that touch [BAD, BAD + 4096) of the file fail; up to there they are cut short. */
#define BAD (5 << 20)
static ssize_t allowed(off_t at, size_t size) {
    if (at + (off_t)size <= BAD || at >= BAD + 4096 || size == 0) return (ssize_t)size;
    if (at < BAD) return (ssize_t)(BAD - at);
    errno = EIO;
    return -1;
}
long syscall(long number, ...) {
    static long (*real)(long, ...);
    if (!real) real = dlsym(RTLD_NEXT, "syscall");
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; ++i) a[i] = va_arg(rest, long);
    va_end(rest);
    struct iovec one = {(void*)a[1], (size_t)a[2]};
    const struct iovec* v = &one;
    if (number == SYS_preadv || number == SYS_preadv2)
        v = (const struct iovec*)a[1];
    else if (number != SYS_pread64)
        return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    int n = v == &one ? 1 : (int)a[2];
    ssize_t sum = 0;
    for (int i = 0; i < n; ++i) {
        ssize_t may = allowed(a[3] + sum, v[i].iov_len);
        if (may < 0) return sum > 0 ? sum : -1;
        ssize_t got = real(SYS_pread64, a[0], v[i].iov_base, (size_t)may, a[3] + sum);
        if (got < 0) return sum > 0 ? sum : got;
        sum += got;
        if (got < (ssize_t)v[i].iov_len) break;
    }
    return sum;
}
"""

READ_FAILING = """
import sys, penstock
BAD, SIZE = 5 << 20, 16 << 20
plain = bytes(range(256)) * (SIZE // 256)
with penstock.open(sys.argv[1], storage="posix", cache=sys.argv[2]) as file:
    memory = penstock.empty(SIZE, "cpu")
    future = file.pread(memory)
    error = future.exception()
    assert isinstance(error, penstock.Error), error
    assert error.errno == 5 and error.filename == sys.argv[1]
    assert BAD - (4 << 20) < error.offset <= BAD, error.offset
    assert error.route in ("cached", "direct"), error.route
    assert str(error.offset) in str(error) and error.route in str(error)
    assert repr(future).endswith(", failed>")
    report = future.report
    assert report.error_number == 5 and report.error_offset == error.offset
    assert report.bytes < SIZE and sum(report.routes.values()) == report.bytes
    got = memory.tobytes()
    assert got[: error.offset] == plain[: error.offset]
    lost = sum(got[at : at + 4096] != plain[at : at + 4096] for at in range(0, SIZE, 4096))
    # What fails is one storage operation, of at most 4 MiB.
    assert lost * 4096 <= 4 << 20, f"{lost} pages did not arrive"
    # Of many pieces that which holds the bad page fails alone.
    pieces = [(bytearray(size), at) for at in range(0, SIZE, 1 << 20) for size in (9000, 70_000)]
    pieces[16:16] = [(bytearray(8192), BAD - 4096)]
    error = file.preadv(pieces).exception()
    assert isinstance(error, penstock.Error) and error.errno == 5, error
    assert BAD - 4096 <= error.offset <= BAD, error.offset
    good = [at for part, at in pieces if part == plain[at : at + len(part)]]
    assert len(good) == len(pieces) - 3, good  # two begin there
    assert not {BAD, BAD - 4096} & set(good)
    try:
        file.read(bytearray(100), None, BAD + 7)
    except penstock.Error as small:
        assert small.errno == 5 and small.offset == BAD + 7, small
    else:
        raise AssertionError("EIO was not told")
    assert file.read(bytearray(100), None, 0) == 100
print("ok")
"""


@pytest.mark.parametrize("cache", ["auto", "keep", "bypass"])
def test_eio_in_one_extent_of_many(cache: str, file: Path, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the library that makes reads fail")
    source, library = tmp_path / "failing.c", tmp_path / "failing.so"
    source.write_text(FAILING)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    done = child(READ_FAILING, file, cache, LD_PRELOAD=str(library))
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_errors_can_be_pickled(file: Path) -> None:
    with pytest.raises(penstock.Error) as caught:
        penstock.open(file / "no")
    caught.value.offset, caught.value.route = 7, "direct"
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert str(again) == str(caught.value)
    assert (again.errno, again.offset) == (caught.value.errno, 7)


FORKED = """
import os, sys, threading, penstock
path, how = sys.argv[1:]
plain = open(path, "rb").read(100)
file = penstock.open(path if how != "descriptor" else os.open(path, os.O_RDONLY))
slow = penstock.open(path, throttle_latency_us=300_000)
memory = penstock.empty(3 << 20, "cpu")
before, future = bytearray(1000), slow.pread(bytearray(2 << 20))
file.read(before)
future.add_done_callback(lambda _: None)
child = os.fork()
if child == 0:
    buffer = bytearray(100)
    assert file.read(buffer) == 100 and buffer == plain
    assert file.pread(bytearray(2 << 20)).result() == 2 << 20
    assert file.size == 16 << 20
    called = threading.Event()
    file.pread(bytearray(2 << 20)).add_done_callback(lambda _: called.set())
    assert called.wait(30)
    assert memory.tobytes() == bytes(3 << 20)
    for part in (memory[:1000], memory):
        assert file.read(part, None, 5) == len(part)
        assert part.tobytes()[:95] == plain[5:]
    assert penstock.empty(10, "cpu").tobytes() == bytes(10)
    for ask in (future.result, future.exception):
        try:
            ask(5)
        except penstock.Error as error:
            assert "fork" in str(error), error
        else:
            raise AssertionError("a future of the parent answered")
    assert not future.cancel()
    file.close()
    slow.close()
    del file, slow, future, memory
    print("child", flush=True)
    if how == "exit":
        os._exit(0)
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert future.result() == 2 << 20
assert file.read(before) == 1000
assert memory.tobytes() == bytes(3 << 20)  # the child has its own
print("parent")
"""


@pytest.mark.parametrize("how", ["path", "descriptor", "exit"])
def test_fork_after_use(how: str, file: Path) -> None:
    done = child(FORKED, file, how)
    assert (done.stdout, done.stderr, done.returncode) == ("child\nparent\n", "", 0)


POOLED = """
import multiprocessing, sys, penstock
file = penstock.open(sys.argv[1])
def part(at):
    buffer = bytearray(1000)
    return file.read(buffer, None, at), bytes(buffer)
if __name__ == "__main__":
    plain = open(sys.argv[1], "rb").read()
    assert part(5) == (1000, plain[5:1005])
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for at, got in enumerate(pool.map(part, range(200))):
            assert got == (1000, plain[at : at + 1000])
    print("ok")
"""


def test_workers_of_a_pool_read_the_parents_file(file: Path) -> None:
    done = child(POOLED, file)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_another_file_of_the_same_name_is_not_taken_for_it(file: Path) -> None:
    code = """
import os, sys, penstock
file = penstock.open(sys.argv[1])
child = os.fork()
if child == 0:
    os.rename(sys.argv[1], sys.argv[1] + ".old")
    open(sys.argv[1], "wb").write(b"another")
    try:
        file.read(bytearray(7))
    except penstock.Error as error:
        print(error.strerror, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    done = child(code, file)
    assert "another file has this name now" in done.stdout


AT_EXIT = {
    "held": "futures = [slow.pread(bytearray(1 << 20)) for _ in range(50)]",
    "dropped": "for _ in range(50): slow.pread(bytearray(1 << 20))",
    "device": "m = penstock.empty(1 << 20, 'cpu'); f = [slow.pread(m) for _ in range(50)]",
    "callbacks": "f = slow.pread(bytearray(9)); f.add_done_callback(lambda _: print('called'))",
    "closed": "f = [slow.pread(bytearray(1 << 20)) for _ in range(50)]; slow.close()",
    "ten thousand": "f = [slow.pread(bytearray(16)) for _ in range(10_000)]",
    "cycle": "f = [slow.pread(bytearray(1 << 20)) for _ in range(50)]; f.append(f)",
    "waiting": """
import threading, time
def wait(): slow.pread(bytearray(1 << 20)).result()
def read(): slow.read(bytearray(1 << 20))
def loop():
    while True: slow.read(bytearray(1000))
for each in (wait, read, loop): threading.Thread(target=each, daemon=True).start()
time.sleep(0.1)""",
    "vectored": "f = slow.preadv([(bytearray(5000), 5000 * i) for i in range(3000)])",
    "writes": """
w = penstock.open(sys.argv[1], "r+", threads=2, throttle_latency_us=100_000)
f = [w.pwrite(bytes(1 << 20)) for _ in range(50)]
g = w.pwritev([(bytes(5000), 5000 * i) for i in range(3000)])""",
    "raised": "f = [slow.pread(bytearray(1 << 20)) for _ in range(50)]; raise SystemExit(0)",
    "late": """
import atexit
def late():
    try: slow.read(bytearray(10))
    except RuntimeError as error: print(error)
import sys
atexit.unregister(penstock._core._at_exit); atexit.register(late)
atexit.register(penstock._core._at_exit)
f = slow.pread(bytearray(1 << 20))""",
}


@pytest.mark.parametrize("case", AT_EXIT)
def test_interpreter_exit_with_reads_under_way(case: str, file: Path) -> None:
    code = "import sys, penstock, penstock._core\n"
    code += "slow = penstock.open(sys.argv[1], threads=2, throttle_latency_us=100_000)\n"
    code += AT_EXIT[case]
    begin = time.monotonic()
    done = child(code, file)
    out = {"callbacks": "called\n", "late": "cannot read: the interpreter is ending\n"}
    assert (done.stdout, done.stderr, done.returncode) == (out.get(case, ""), "", 0)
    assert time.monotonic() - begin < LIMIT


INTERRUPTED = """
import sys, signal, time, penstock
signal.signal(signal.SIGINT, signal.default_int_handler)
slow = penstock.open(sys.argv[1], "r+", threads=1, throttle_bandwidth_mbs=8)
buffer = bytearray(16 << 20)
future = slow.pread(buffer) if sys.argv[2] == "result" else None
begin = time.monotonic()
try:
    print("ready", flush=True)
    future.result() if future else getattr(slow, sys.argv[2])(
        [(buffer, 0)] if sys.argv[2].endswith("v") else buffer)
except KeyboardInterrupt:
    print("interrupted", flush=True)
if "write" in sys.argv[2]:
    before = open(sys.argv[1], "rb").read()
    time.sleep(1.2)
    print("still" if before == open(sys.argv[1], "rb").read() else "written later")
elif future is None:
    before = bytes(buffer)
    time.sleep(1.2)
    print("still" if buffer == before else "written to later")
    buffer.extend(b"free")
"""


@pytest.mark.parametrize("call", ["result", "read", "readv", "write", "writev"])
def test_ctrl_c_ends_a_blocking_call(call: str, file: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(file), call],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=LIMIT)
    assert out == ("interrupted\n" if call == "result" else "interrupted\nstill\n")
    assert (errors, process.returncode) == ("", 0)


INTERRUPTED_SHORT = """
import sys, signal, time, penstock
signal.signal(signal.SIGINT, signal.default_int_handler)
slow = penstock.open(sys.argv[1], threads=1, throttle_latency_us=4_000_000)
plain = open(sys.argv[1], "rb").read(1 << 20)
buffer = bytearray(1 << 20)
future = slow.pread(buffer) if sys.argv[2] == "result" else None
print("ready", flush=True)
begin = time.monotonic()
try:
    future.result() if future else slow.read(buffer)
    time.sleep(0)
except KeyboardInterrupt:
    print("at once" if time.monotonic() - begin < 3.5 else "behind it", flush=True)
if future:
    future.result()
print(buffer == plain)
"""


@pytest.mark.parametrize(("call", "when"), [("read", "behind it"), ("result", "at once")])
def test_ctrl_c_does_not_cut_a_short_read_off(call: str, when: str, file: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_SHORT, str(file), call],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(1)  # it is in the read by then
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=LIMIT)
    assert (out, errors, process.returncode) == (f"{when}\nTrue\n", "", 0)


def test_a_signal_handler_runs_while_a_read_is_waited_for(file: Path) -> None:
    called: list[float] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: called.append(time.monotonic()))
    try:
        with penstock.open(file, throttle_latency_us=500_000) as slow:
            future = slow.pread(bytearray(100))
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
            timer.start()
            assert future.result() == 100
            ended = time.monotonic()
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert called
    assert called[0] < ended


def test_threads_that_read_close_and_drop_at_once(file: Path) -> None:
    import random

    stop = time.monotonic() + 2
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        opened = penstock.open(file)
        try:
            while time.monotonic() < stop:
                buffer: Any = bytearray(chance.choice([10, 5000, MIB]))
                future = opened.pread(buffer, None, chance.randrange(15 * MIB))
                if chance.random() < 0.3:
                    future.cancel()
                elif chance.random() < 0.5:
                    future.result()
                if chance.random() < 0.05:
                    opened.close()
                    opened = penstock.open(file)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert errors == []
