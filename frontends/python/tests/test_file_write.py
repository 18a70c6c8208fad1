"""Goal: what penstock.File writes is what a flat bytearray would hold, from every kind of buffer.

Modes are those of Python's own open; what they forbid, and what cannot be written from, is refused
and touches nothing.
"""

from __future__ import annotations

import array
import errno
import functools
import itertools
import os
import random
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

import penstock

MIB = 1 << 20
MODES = ["".join(one) for one in itertools.product("rwax", ["", "+"])]


def content(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(content(3 * MIB + 13, 1))
    return path


class Wrapped:
    """An object that has no buffer protocol, only what it is given."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def put(data: bytearray, offset: int, part: bytes) -> None:
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(part)] = part


def one_step(chance: random.Random, file: penstock.File, data: bytearray) -> None:
    how: dict[str, Any] = {
        "cache": chance.choice([None, "auto", "keep", "drop", "bypass"]),
        "route": chance.choice([None, "auto", "cached", "direct"]),
    }
    pieces: list[tuple[Any, int]] = []
    at = chance.randrange(len(data) + 1000)
    for _ in range(chance.choice([1, 1, 3])):
        part = chance.randbytes(chance.choice([0, 7, 4096, 70_000, chance.randrange(3 * MIB)]))
        if chance.random() < 0.5:
            at = (at + 4095) // 4096 * 4096  # pieces do not overlap
        memory = penstock.empty(max(len(part), 1), "cpu")
        memoryview(memory)[: len(part)] = part
        source = chance.choice([part, bytearray(part), memory[: len(part)]])
        pieces.append((source, at))
        if part:
            put(data, at, part)
        at += len(part) + chance.choice([0, 100])
    size = sum(len(source) for source, _ in pieces)
    if len(pieces) > 1:
        begun = file.pwritev(pieces, **how)
        assert begun.result() == size
        assert begun.report.bytes == size
        assert sum(begun.report.routes.values()) == size
    elif chance.random() < 0.5:
        assert file.write(pieces[0][0], None, pieces[0][1], **how) == size
    else:
        assert file.pwrite(pieces[0][0], None, pieces[0][1], **how).result() == size


def test_random_programs(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for seed in range(1, 9):
        chance = random.Random(seed)
        with penstock.open(path, "r+", threads=2) as file:
            for _ in range(15):
                one_step(chance, file, data)
                if chance.random() < 0.2:
                    size = chance.randrange(4 * MIB)
                    file.truncate(size)
                    put(data, size, b"")
                    del data[size:]
                if chance.random() < 0.1:
                    file.fsync(chance.random() < 0.5)
                assert file.size == len(data)
                back = bytearray(chance.randrange(MIB))
                offset = chance.randrange(len(data) + 1)
                arrived = file.read(back, None, offset)
                assert back[:arrived] == data[offset : offset + len(back)], seed
        assert path.read_bytes() == data, seed


def test_modes_are_those_of_open(tmp_path: Path) -> None:
    for mode, there in itertools.product(MODES, [False, True]):
        ours, theirs = tmp_path / "ours", tmp_path / "theirs"
        for one in (ours, theirs):
            one.unlink(missing_ok=True)
            if there:
                one.write_bytes(b"before")
        if mode[0] == ("x" if there else "r"):
            kind = FileExistsError if there else FileNotFoundError
            with pytest.raises(kind), theirs.open(mode + "b"):
                pass
            with pytest.raises(kind):
                penstock.open(ours, mode)  # type: ignore[arg-type]
            continue
        with theirs.open(mode + "b") as expected:
            can_read, can_write = expected.readable(), expected.writable()
        with penstock.open(ours, mode) as file:  # type: ignore[arg-type]
            assert file.mode == mode
            assert ours.read_bytes() == theirs.read_bytes()
            if can_read:
                assert file.read(bytearray(10)) == file.size
            else:
                with pytest.raises(penstock.ModeError, match=r"Bad file .* for writing only"):
                    file.read(bytearray(10))
                with pytest.raises(penstock.ModeError):
                    file.pread(bytearray(10))
            if can_write:
                written = ours.read_bytes()
                assert file.write(b"after", file_offset=None if mode[0] == "a" else 1) == 5
                if mode[0] == "a":
                    assert ours.read_bytes() == written + b"after"
                file.truncate(4)
                left = (written + b"after" if mode[0] == "a" else b"?after")[1:4]
                assert ours.read_bytes()[1:] == left
            else:
                for call in (
                    functools.partial(file.write, b"x"),
                    functools.partial(file.pwrite, b"x"),
                    functools.partial(file.truncate, 0),
                ):
                    with pytest.raises(penstock.ModeError, match="for reading only"):
                        call()
    for mode in ("rb", "rb+", "r+b", "w+b", "ab"):
        penstock.open(tmp_path / "ours", mode).close()  # type: ignore[arg-type]
    for mode in ("", "rw", "r++", "t", "rbb", "+", "rt", "U"):
        with pytest.raises(ValueError, match="none of r, w, a, x"):
            penstock.open(tmp_path / "ours", mode)  # type: ignore[arg-type]


def test_a_descriptor_is_opened_again(path: Path) -> None:
    with path.open("r+b") as plain, penstock.open(plain, "r+") as file:
        assert file.write(b"here", file_offset=5) == 4
        assert plain.read(9)[5:] == b"here"
        assert plain.tell() == 9


def test_every_kind_of_buffer(path: Path) -> None:
    data = content(1000, 2)
    memory = penstock.empty(1000, "cpu")
    memoryview(memory)[:] = data
    kinds: list[Any] = [
        data,
        bytearray(data),
        memoryview(data),
        array.array("B", data),
        memoryview(data).cast("B", (10, 100)),
        memory,
        Wrapped(
            __dlpack__=memory.__dlpack__,
            __dlpack_device__=memory.__dlpack_device__,
        ),
    ]
    with penstock.open(path, "w+") as file:
        for kind in kinds[:-1]:
            assert file.write(kind, None, 3) == 1000
            assert path.read_bytes()[3:] == data
            assert file.pwrite(kind, 500, 100).result() == 500
            assert path.read_bytes()[100:600] == data[:500]
            file.truncate(0)
        for kind in (memoryview(data)[::2], [1, 2], None, "text"):
            with pytest.raises((BufferError, TypeError)):
                file.write(kind)  # type: ignore[arg-type]
        for kind, why in ((memoryview(data)[::2], "contiguous copy"),):
            with pytest.raises(BufferError, match=why):
                file.pwrite(kind)
        assert file.size == 0


def test_numpy_arrays(path: Path) -> None:
    numpy = pytest.importorskip("numpy", reason="NumPy is not installed")
    with penstock.open(path, "w") as file:
        for order in "CF":
            shaped = numpy.arange(160, dtype="<f4").reshape(10, 16).copy(order)
            shaped.flags.writeable = False
            assert file.write(shaped) == shaped.nbytes
            assert path.read_bytes()[: shaped.nbytes] == shaped.tobytes(order)
        with pytest.raises(BufferError):
            file.write(shaped[::2])
        with pytest.raises(TypeError, match="Python objects"):
            file.write(numpy.array([object()]))


def test_bad_requests(path: Path) -> None:
    before = path.read_bytes()
    with penstock.open(path, "r+") as file:
        for offset in (-1, 1 << 63, 1 << 70):
            with pytest.raises(ValueError, match="file_offset"):
                file.write(b"abc", None, offset)
        with pytest.raises(penstock.Error) as told:
            file.write(b"abc", None, (1 << 63) - 2)
        assert told.value.errno == errno.EINVAL
        with pytest.raises(ValueError, match="beyond the buffer"):
            file.pwrite(b"abc", 4)
        for size in (-1, 1 << 64):
            with pytest.raises(ValueError, match="size"):
                file.truncate(size)
        with pytest.raises(penstock.FallbackError):
            file.write(b"abc", route="direct", strict=True)
    for call in (lambda: file.write(b"x"), lambda: file.truncate(1), file.fsync):
        with pytest.raises(penstock.ClosedError):
            call()
    assert path.read_bytes() == before


def test_beyond_the_file_size_limit(tmp_path: Path) -> None:
    program = """
import errno, resource, signal, sys
import penstock
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
with penstock.open(sys.argv[1], "w") as file:
    for size, route in ((10, "auto"), (4 << 20, "auto"), (4 << 20, "direct")):
        try:
            file.write(bytes(size), None, (1 << 20) - 4, route=route)
        except penstock.Error as error:
            assert error.errno == errno.EFBIG, error
            print(error.offset)
    try:
        file.truncate(2 << 20)
    except penstock.Error as error:
        assert error.errno == errno.EFBIG, error
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "file")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 3


def test_who_is_told_of_writes(path: Path) -> None:
    told: list[tuple[str, int, int | None, int]] = []

    def ended(transfer: penstock.Transfer, report: penstock.Report) -> None:
        told.append((transfer.operation, transfer.size, transfer.offset, report.bytes))

    with penstock.open(path, "r+") as file, penstock.on_transfer(ended=ended):
        file.write(b"abc", None, 5)
        file.writev([(b"abc", 7), (b"defg", 1)])
        file.write(bytes(2 * MIB), None, 1)
    assert told == [("write", 3, 5, 3), ("writev", 7, 7, 7), ("write", 2 * MIB, 1, 2 * MIB)]


def test_writes_that_are_not_waited_for_are_told_too(path: Path) -> None:
    begun: list[str] = []
    with (
        penstock.open(path, "r+") as file,
        penstock.on_transfer(lambda transfer: begun.append(transfer.operation)),
    ):
        file.pwrite(b"abc").result()
        file.pwritev([(b"abc", 7)]).result()
    assert begun == ["pwrite", "pwritev"]


def test_a_write_is_not_told_as_a_read(path: Path) -> None:
    with penstock.open(path, "r+", threads=1, throttle_latency_us=200_000) as file:
        futures = [file.pwrite(bytes(MIB), None, 0, cache="bypass") for _ in range(20)]
        with pytest.raises(TimeoutError, match=r"the read or write of .* is still under way"):
            futures[-1].result(0)
        assert futures[-1].cancel()
        with pytest.raises(CancelledError, match=r"the read or write of .* was cancelled"):
            futures[-1].result()
        for future in reversed(futures):
            future.cancel()
        penstock.wait(futures)


def test_threads_on_parts_of_their_own(path: Path) -> None:
    part = MIB // 2
    data = content(4 * part, 3)
    with penstock.open(path, "w", threads=2) as file:

        def write(number: int) -> None:
            chance = random.Random(number)
            at = number * part
            while at < (number + 1) * part:
                size = min(chance.randrange(1, 90_000), (number + 1) * part - at)
                assert file.pwrite(data[at : at + size], None, at).result() == size
                at += size

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        file.fsync()
    assert path.read_bytes() == data


def test_a_child_writes_what_its_parent_opened(path: Path) -> None:
    file = penstock.open(path, "w")
    file.write(b"parent")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if file.write(b"child", file_offset=6) == 5 else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert path.read_bytes() == b"parentchild"  # opened again, and not cut again
