"""Goal: what penstock.File reads is what plain reads give, whatever is asked, and reports add up.

Random programs over offsets, sizes, alignments, buffers and policies are held against the bytes of
the file, and against what lay around the buffers before.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock

MIB = 1 << 20
PATTERN = 0xA5
POLICIES = ("auto", "keep", "drop", "bypass")
ROUTES = (None, "auto", "cached", "direct")


def content(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(content(3 * MIB + 13, 1))
    return path


def check_report(report: penstock.Report, asked: int, arrived: int) -> None:
    assert report.bytes_asked == asked
    assert report.bytes == arrived
    assert sum(report.routes.values()) == arrived
    assert sum(report.reasons.values()) == arrived
    assert sum(report.residency.values()) == arrived
    assert report.error_number == 0
    assert dict(report) == report.as_dict()
    assert min(report.queue_ns, report.plan_ns, report.read_ns, report.copy_ns) >= 0
    assert report.predicted_ns >= 0
    assert report.direct_depth > 0 or "direct" not in report.routes
    assert report.plan_ns > 0 or report.predicted_ns == 0


class Memory:
    """Memory with a pattern in it: what is read into the middle must not touch the rest."""

    def __init__(self, chance: random.Random, size: int) -> None:
        shift = chance.choice([0, 0, 1, 13, 512, 4096])
        kind = chance.choice(["bytearray", "device"])
        if kind == "device":
            self.whole = memoryview(penstock.empty(size + shift + 64, "cpu"))
        else:
            self.whole = memoryview(bytearray(size + shift + 64))
        self.whole[:] = bytes([PATTERN]) * len(self.whole)
        self.begin, self.end = shift, shift + size
        self.part = self.whole[self.begin : self.end]

    def check(self, expected: bytes) -> None:
        """See that `expected` arrived, and nothing else."""
        arrived = len(expected)
        assert self.part[:arrived] == expected
        for rest in (self.whole[: self.begin], self.part[arrived:], self.whole[self.end :]):
            assert rest == bytes([PATTERN]) * len(rest)


def one_step(chance: random.Random, file: penstock.File, data: bytes) -> None:
    how = {
        "cache": chance.choice([None, *POLICIES]),
        "route": chance.choice(ROUTES),
    }
    unit = chance.choice([1, 512, 4096, 65536])
    count = chance.choice([1, 1, 1, 2, 7])
    pieces = []
    for _ in range(count):
        size = chance.choice([0, 1, 100, 4096, 70_000, 300_000, 2 * MIB]) // count
        offset = chance.randrange(len(data) + 2 * unit) // unit * unit
        pieces.append((Memory(chance, size), offset))
    asked = [len(memory.part) for memory, _ in pieces]
    expected = [
        data[offset : offset + size] for (_, offset), size in zip(pieces, asked, strict=True)
    ]
    operation = chance.choice(["read", "pread"] if count == 1 else ["readv", "preadv"])
    if count == 1:
        memory, offset = pieces[0]
        arguments: tuple[Any, ...] = (memory.part, chance.choice([None, asked[0]]), offset)
    else:
        arguments = ([(memory.part, offset) for memory, offset in pieces],)
    answer = getattr(file, operation)(*arguments, **how)
    arrived = sum(map(len, expected))
    if isinstance(answer, penstock.Future):
        assert answer.result(60) == arrived
        check_report(answer.report, sum(asked), arrived)
        if how["route"] == "cached":
            assert set(answer.report.routes) <= {"cached"}
    else:
        assert answer == arrived
    for (memory, _), part in zip(pieces, expected, strict=True):
        memory.check(part)


@pytest.mark.parametrize("storage", ["auto", "posix"])
@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int, storage: str, tmp_path: Path) -> None:
    chance = random.Random(seed)
    data = content(chance.choice([1, 4095, 4096, 100_000, 3 * MIB + 13, 8 * MIB]), seed)
    path = tmp_path / "file"
    path.write_bytes(data)
    if chance.random() < 0.5:
        with path.open("rb") as plain:
            os.fsync(plain.fileno())
            os.posix_fadvise(plain.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    policy: Any = chance.choice(POLICIES)
    kind: Any = storage
    with penstock.open(path, cache=policy, storage=kind) as file:
        for _ in range(40):
            one_step(chance, file, data)


def test_many_reads_at_once(file: Path) -> None:
    data = file.read_bytes()
    with penstock.open(file) as opened:
        buffers = [bytearray(700) for _ in range(10_000)]
        futures = [
            opened.pread(buffer, None, i * 307 % (3 * MIB)) for i, buffer in enumerate(buffers)
        ]
        assert sum(future.result(60) for future in futures) == 7_000_000
    for i, buffer in enumerate(buffers):
        at = i * 307 % (3 * MIB)
        assert buffer == data[at : at + 700]


def test_whole_file_and_end_of_file(file: Path) -> None:
    data = file.read_bytes()
    buffer = bytearray(len(data) + 1000)
    with penstock.open(file) as opened:
        assert opened.size == len(data)
        assert opened.read(buffer) == len(data)
        assert buffer[: len(data)] == data
        assert opened.read(buffer, 10, len(data)) == 0
        assert opened.read(buffer, 10, len(data) - 3) == 3
        assert opened.read(buffer, 10, 1 << 40) == 0
        assert opened.read(bytearray()) == 0
        assert opened.pread(buffer, 0).result() == 0
        assert opened.preadv([]).result() == 0


@pytest.mark.parametrize("form", ["str", "bytes", "path", "descriptor", "file", "raw"])
def test_what_can_be_opened(form: str, file: Path) -> None:
    data = file.read_bytes()
    descriptor = os.open(file, os.O_RDONLY)
    plain = os.fdopen(descriptor, "rb")
    plain.seek(77)
    given: Any = {
        "str": str(file),
        "bytes": os.fsencode(file),
        "path": file,
        "descriptor": descriptor,
        "file": plain,
        "raw": plain.raw,
    }[form]
    opened = penstock.CuFile(given, "r")
    assert os.lseek(descriptor, 0, os.SEEK_CUR) == plain.raw.tell()
    plain.close()
    buffer = bytearray(1000)
    with opened:
        assert opened.read(buffer, 1000, 5) == 1000
        assert not opened.closed
        assert repr(opened).startswith("<penstock.File ")
    assert buffer == data[5:1005]
    assert opened.closed
    if form in ("str", "path"):
        assert opened.name == str(file)


def test_a_deleted_file_is_read_by_its_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "gone"
    path.write_bytes(b"still here")
    with path.open("rb") as plain:
        path.unlink()
        buffer = bytearray(10)
        assert penstock.open(plain).read(buffer) == 10
    assert buffer == b"still here"


def test_a_relative_path_is_that_of_the_open(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.chdir(file.parent)
    opened = penstock.open("file")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert opened.read(bytearray(10)) == 10
    assert opened.size == 3 * MIB + 13


def test_kvikio_calls_work_unchanged(file: Path) -> None:
    data = file.read_bytes()
    a, b = bytearray(100), bytearray(50)
    with penstock.CuFile(file, "r") as opened:
        future = opened.pread(a, 100, 7, 4 * MIB)
        assert future.get() == 100
        assert opened.read(b, size=50, file_offset=9, task_size=65536) == 50
    assert a == data[7:107]
    assert b == data[9:59]


def test_threads_of_the_caller_share_a_file(file: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    data = file.read_bytes()

    def some(seed: int) -> bool:
        chance = random.Random(seed)
        for _ in range(50):
            size, at = chance.choice([100, 5000, 2 * MIB]), chance.randrange(MIB)
            buffer = bytearray(size)
            opened.read(buffer, None, at)
            if buffer != data[at : at + size]:
                return False
        return True

    with penstock.open(file) as opened, ThreadPoolExecutor(4) as pool:
        assert all(pool.map(some, range(8)))


def test_a_route_that_is_asked_for_is_taken_or_the_reason_told(file: Path) -> None:
    with penstock.open(file, route="cached") as opened:
        future = opened.pread(bytearray(2 * MIB))
        future.result()
        report = future.report
        assert report.routes == {"cached": 2 * MIB}
        assert report.reasons == {"asked": 2 * MIB}
        assert (opened.route, opened.cache, opened.strict) == ("cached", "auto", False)
    with penstock.open(file) as opened:
        memory = penstock.empty(4 * MIB, "cpu")
        future = opened.pread(memory[1 : 2 * MIB], None, 0, route="direct")
        future.result()
        # Whether direct I/O can is the file system's business; what it cannot has its reason.
        told = future.report
        others = sum(told.reasons.values()) - told.reasons.get("asked", 0)
        assert others == told.routes.get("cached", 0)


def test_a_peer_route_that_is_not_to_be_had_is_told(file: Path) -> None:
    memory = penstock.empty(4 * MIB, "cpu")
    with penstock.open(file, route="peer", cache="bypass") as opened:
        future = opened.pread(memory[: 2 * MIB])
        assert future.result() == 2 * MIB
        assert future.report.reasons == {"no-peer": 2 * MIB}


def test_strict_raises_where_a_fallback_would_be(file: Path) -> None:
    memory = penstock.empty(4 * MIB, "cpu")
    with penstock.open(file, route="peer", strict=True) as opened:  # no PCI peer in host memory
        with pytest.raises(penstock.FallbackError) as caught:
            opened.read(memory[: 2 * MIB])
        assert caught.value.filename == str(file)
        assert isinstance(caught.value, OSError)
        assert opened.read(memory[: 2 * MIB], strict=False) == 2 * MIB


def test_what_stays_against_drop_is_told_and_strict_refuses_it(file: Path) -> None:
    with penstock.open(file, route="cached", cache="drop") as opened:
        future = opened.pread(bytearray(2 * MIB))
        assert future.result() == 2 * MIB
        told = future.report.reasons
        strict = opened.pread(bytearray(2 * MIB), strict=True)
        # Whether it stays is the kernel's and the file system's business.
        if "no-drop" in told:
            assert told == {"no-drop": 2 * MIB}
            with pytest.raises(penstock.FallbackError) as caught:
                strict.result()
            assert caught.value.route == "cached"
        else:
            assert strict.result() == 2 * MIB


IN_ENVIRONMENT = """
import sys, penstock
file = penstock.open(sys.argv[1])
future = file.pread(bytearray(2 << 20))
future.result()
print(file.route, file.strict, dict(future.report.reasons), penstock.open(sys.argv[1],
      route="auto").route)
"""


IN_CHILD = """
import os, sys, penstock
file = penstock.open(sys.argv[1])
os.environ["PENSTOCK_ROUTE"] = "fast"
if os.fork() == 0:
    future = file.pread(bytearray(2 << 20))
    future.result()
    print(file.route, dict(future.report.reasons), flush=True)
    os._exit(0)
os.wait()
"""


def environment_run(
    path: Path, code: str = IN_ENVIRONMENT, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_environment_names_route_and_strict(file: Path) -> None:
    done = environment_run(file, PENSTOCK_ROUTE="cached", PENSTOCK_STRICT="yes")
    assert done.stdout == "cached True {'asked': 2097152} None\n"
    assert done.stderr == ""
    wrong = environment_run(file, PENSTOCK_ROUTE="fast")
    assert "PENSTOCK_ROUTE: 'fast' is not one of auto, cached, direct, peer" in wrong.stderr
    wrong = environment_run(file, PENSTOCK_STRICT="maybe")
    assert "PENSTOCK_STRICT: 'maybe' is neither 1 nor 0" in wrong.stderr


def test_a_file_keeps_what_the_environment_said_when_it_was_opened(file: Path) -> None:
    done = environment_run(file, IN_CHILD, PENSTOCK_ROUTE="cached")
    assert done.stdout == "cached {'asked': 2097152}\n"
    assert done.stderr == ""


def test_importing_loads_nothing() -> None:
    code = "import sys; before = set(sys.modules); import penstock; print(set(sys.modules) - before"
    code += " - {'__future__'})"
    new = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert new == "{'penstock'}\n"


def test_every_public_name_is_there() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
        assert name in dir(penstock)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        penstock.nonsense  # noqa: B018
