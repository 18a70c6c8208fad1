"""Goal: mode "a" writes to the end that the file has at that time, as POSIX says of O_APPEND.

By every call and from every buffer, in the order of the calls, beside other processes. Reports tell
where the bytes went, and offsets are refused.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import kvikio

MIB = 1 << 20
HEADER = struct.Struct("<QQQ")  # process, number, size of what follows


def test_random_programs_equal_a_flat_bytearray(tmp_path: Path) -> None:
    for seed in range(6):
        chance = random.Random(seed)
        path = tmp_path / f"file{seed}"
        data = bytearray(chance.randbytes(chance.choice([0, 5000])))
        path.write_bytes(data)
        begun: list[tuple[penstock.Future, int, int]] = []
        with penstock.open(path, "a+", threads=chance.choice([None, 1, 3])) as file:
            for _ in range(40):
                how: dict[str, Any] = {
                    "cache": chance.choice([None, "auto", "keep", "drop", "bypass"]),
                    "route": chance.choice([None, "auto", "cached", "direct"]),
                }
                part = chance.randbytes(chance.choice([1, 7, 4096, 70_000, 3 * MIB]))
                memory = penstock.empty(len(part), "cpu")
                memoryview(memory)[:] = part
                source: Any = chance.choice([part, bytearray(part), memory])
                kind = chance.randrange(4)
                if kind == 0:
                    assert file.write(source, **how) == len(part)
                elif kind == 1:
                    half = len(part) // 2
                    whole: list[Any] = [(part[:half], None), (source, None, len(part))]
                    assert file.writev(whole, **how) == half + len(part)
                    part = part[:half] + part
                elif kind == 2:
                    begun.append((file.pwrite(source, **how), len(data), len(part)))
                else:
                    begun.append((file.pwritev([(source, None)], **how), len(data), len(part)))
                data += part
            for future, offset, size in begun:
                assert future.result(60) == size
                assert (future.report.offset, future.report.bytes) == (offset, size)
            assert file.size == len(data)
            there = bytearray(len(data))
            assert file.read(there) == len(data)
            assert there == data
        assert path.read_bytes() == data


def test_offsets_are_refused_in_one_line_and_touch_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before")
    with penstock.open(path, "a") as file:
        refused: list[Any] = [
            lambda: file.write(b"x", None, 0),
            lambda: file.write(b"x", file_offset=6),
            lambda: file.pwrite(b"x", file_offset=0),
            lambda: file.writev([(b"x", None), (b"y", 3)]),
            lambda: file.pwritev([(b"x", 0)]),
            lambda: file.write(bytes(2 * MIB), file_offset=0),
        ]
        for call in refused:
            with pytest.raises(ValueError, match="mode 'a' writes to the end") as caught:
                call()
            assert "\n" not in str(caught.value)
        assert path.read_bytes() == b"before"
        assert file.write(b" after") == 6
    assert path.read_bytes() == b"before after"
    with penstock.open(path, "r+") as file:
        assert file.write(b"B", None, None) == 1
        with pytest.raises(TypeError):
            file.writev([(b"x", None)])
    assert path.read_bytes() == b"Before after"


def test_each_write_goes_to_the_end_of_that_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with penstock.open(path, "ab") as file:
        assert file.mode == "a"
        file.write(b"one ")
        with path.open("ab") as other:  # of another program
            other.write(b"two ")
        future = file.pwrite(b"three ")
        assert (future.result(), future.report.offset) == (6, 8)
        os.truncate(path, 4)
        file.write(b"four")
    assert path.read_bytes() == b"one four"


def test_a_descriptor_that_appends_and_a_fork(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with penstock.open(descriptor, "a") as file:
        file.write(b"parent ")
        child = os.fork()
        if child == 0:
            file.write(b"child ")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        file.write(b"parent")
    os.close(descriptor)
    assert path.read_bytes() == b"parent child parent"


APPENDING = """
import random, struct, sys
import penstock
path, process, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(process)
futures = []
with penstock.open(path, "a+", cache=chance.choice(["auto", "bypass", "drop"])) as file:
    for number in range(count):
        size = chance.choice([0, 10, 5000, 300_000, 2 << 20])
        record = struct.pack("<QQQ", process, number, size) + bytes([process]) * size
        if chance.random() < 0.5:
            futures.append((file.pwrite(record), record))
        else:
            file.write(record)
    for future, record in futures:
        assert future.result() == len(record)
        there = bytearray(len(record))
        assert file.read(there, None, future.report.offset) == len(record)
        assert there == record
"""


def test_two_processes_append_and_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    count = 60
    command = [sys.executable, "-c", APPENDING, str(path)]
    both = [subprocess.Popen([*command, str(process), str(count)]) for process in (1, 2)]
    assert [process.wait(120) for process in both] == [0, 0]
    data = path.read_bytes()
    seen = {1: 0, 2: 0}
    at = 0
    while at < len(data):
        process, number, size = HEADER.unpack_from(data, at)
        assert number == seen[process]
        seen[process] += 1
        at += HEADER.size
        assert data[at : at + size] == bytes([process]) * size
        at += size
    assert seen == {1: count, 2: count}


def test_what_hooks_and_explain_tell(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100)
    begun: list[penstock.Transfer] = []
    ended: list[penstock.Report] = []
    over = threading.Event()

    def end(_: penstock.Transfer, report: penstock.Report) -> None:
        ended.append(report)
        if len(ended) == 2:
            over.set()

    with penstock.open(path, "a") as file, penstock.on_transfer(begun.append, end):
        file.write(b"abc")
        file.pwrite(b"de").result()
        assert over.wait(60)
    assert [one.offset for one in begun] == [None, None]
    assert [one.offset for one in ended] == [100, 103]
    script = f"import penstock\nwith penstock.open({str(path)!r}, 'a') as f: f.write(b'fg')\n"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PENSTOCK_EXPLAIN": "1"},
    )
    assert f"{path}: write 2 bytes at 105: 2 of 2 bytes" in done.stderr


def test_strict_bypass_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before")
    with penstock.open(path, "a", cache="bypass") as file:
        with pytest.raises(penstock.FallbackError):
            file.write(b"x" * 8192, strict=True)
        assert file.size == 6
        future = file.pwrite(b"y" * 8192)
        assert future.result() == 8192
        assert set(future.report.routes) == {"cached"}


def test_kvikio_files_append_too(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before ")
    with kvikio.CuFile(path, "a") as file:
        assert file.open_flags() & os.O_APPEND
        assert file.pwrite(b"after").get() == 5
        os.write(file.fileno(), b" all")
        with pytest.raises(ValueError, match="writes to the end"):
            file.write(b"x", file_offset=0)
    assert path.read_bytes() == b"before after all"
