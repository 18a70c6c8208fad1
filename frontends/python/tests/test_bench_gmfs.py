"""Goal: the benchmark of the file cache has its rows, and no figure of what was not served."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from caching import PENSTOCK

from penstock.benchmarks import gmfs
from penstock.benchmarks.file_cache import storage, writes
from penstock.benchmarks.file_cache.rows import Bench, Program, write_file
from penstock.benchmarks.harness import file_caches, programs, slow_storage
from penstock.benchmarks.harness.report import Report, Row

KEYS = ["case", "against", "unit", "pairs", "bytes", "verified", "simulated", "cpu_seconds", "note"]
LIMIT_S = 300
STEPS = ("4k", "64k", "1m")

pytestmark = pytest.mark.skipif(
    programs.find("file_reader") is None, reason="the programs that it runs are not built"
)
needs_mount = pytest.mark.skipif(bool(slow_storage.why_not()), reason=slow_storage.why_not())


def mounts() -> set[str]:
    """Return the mount points of FUSE."""
    lines = Path("/proc/mounts").read_text().splitlines()
    return {line.split()[1] for line in lines if line.split()[2].startswith("fuse")}


def smoke(folder: Path, only: str) -> tuple[dict[str, Any], dict[tuple[str, str], dict[str, Any]]]:
    """Run the smallest form of some rows, and return the JSON and its rows."""
    out = folder / "out.json"
    command = [*PENSTOCK, "bench", "gmfs", "--smoke", "--only", only, "--json", str(out)]
    environment = os.environ | {"TMPDIR": str(folder)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    whole = json.loads(out.read_text())
    assert list(folder.iterdir()) == [out]
    assert not [mount for mount in mounts() if str(folder) in mount]
    for row in whole["rows"]:
        assert list(row) == KEYS
        assert len(row["pairs"]) == 1
        assert min(row["pairs"][0]) > 0
        assert row["verified"]
        assert row["bytes"] > 0
    return whole, {(row["case"], row["against"]): row for row in whole["rows"]}


def test_reads_have_their_rows(tmp_path: Path) -> None:
    _, rows = smoke(tmp_path, "read-")
    wanted = {(f"read-{step}", "tmpfs") for step in STEPS}
    wanted |= {(f"set-read-{step}", "tmpfs") for step in STEPS}
    wanted |= {("read-64m", "pinned-d2h-and-h2d")}
    if not slow_storage.why_not():
        wanted |= {(f"mount-read-{step}", "passthrough-mount") for step in STEPS}
    assert set(rows) == wanted


@needs_mount
def test_writes_have_their_rows(tmp_path: Path) -> None:
    whole, rows = smoke(tmp_path, "write-")
    names = ("write-64k", "write-fsync-64k", "write-below-limit-64k", "write-fsync-below-limit-64k")
    below = {(name, "file-system-below") for name in names}
    below |= {(f"set-write-{step}", "file-system-below") for step in STEPS}
    back = {(f"write-back-{step}", "tmpfs") for step in STEPS}
    if not writes.can_write_back():
        assert "--write-back" in whole["environment"]["left out: write-back-*"]
        back = set()
    small = {(f"small-write-{how}4k", "allocate-copy-free") for how in ("", "mount-")}
    assert set(rows) == below | back | small | {("write-64m", "pinned-d2h-and-h2d")}


@needs_mount
def test_slow_storage_has_its_rows(tmp_path: Path) -> None:
    _, rows = smoke(tmp_path, "epoch")
    ways = ("", "-preload", "-mount")
    assert set(rows) == {(f"second-epoch{way}", "first-epoch") for way in ways}
    for row in rows.values():
        second, first = row["pairs"][0]
        assert second < first


@needs_mount
def test_first_files_of_threads_are_served_from_slow_storage(bench: Bench, tmp_path: Path) -> None:
    samples = storage.write_samples(bench, tmp_path / "samples")
    slow = tmp_path / "slow"
    latency_us = 25_000  # 2.5 s if something is asked of each of 100 files in turn
    words = (samples.folder, slow, str(latency_us), "500")
    with (
        slow_storage.shown(slow, "slow_file_system", *words),
        file_caches.running(slow, "cpu", 0) as cache,
    ):
        for seed in range(2):
            epoch = samples.epoch(slow, seed)
            command = programs.under_penstock(*epoch.words, options=["--cache", slow])
            size = samples.count * storage.SAMPLE_SIZE
            cache.run_served(partial(epoch.run, command), size, from_storage=size * (1 - seed))


@needs_mount
@pytest.mark.parametrize("by_mount", [False, True])
def test_a_second_epoch_asks_storage_for_names_alone(
    bench: Bench, tmp_path: Path, by_mount: bool
) -> None:
    samples = storage.write_samples(bench, tmp_path / "samples")
    slow, log = tmp_path / "slow", tmp_path / "log"
    words = (samples.folder, slow, "0", "500", log)
    with (
        slow_storage.shown(slow, "slow_file_system", *words),
        file_caches.running(slow, "cpu", 0, mount=tmp_path / "at" if by_mount else None) as cache,
    ):
        for seed in range(2):
            time.sleep(seed * storage.NAMES_VALID_S)
            before = len(log.read_text())
            epoch = samples.epoch(cache.shown, seed)
            options: programs.Words = () if by_mount else ("--cache", slow)
            epoch.run(programs.under_penstock(*epoch.words, options=options))
        requests = [line.split() for line in log.read_text()[before:].splitlines()]
    asked = Counter(kind for kind, path in requests if path != "/")
    # A program opens its files itself, but for those of a mount.
    opens = {} if by_mount else {"open": samples.count}
    assert asked == {"attributes": samples.count, **opens}


@needs_mount
def test_a_file_of_twice_the_cache_has_its_rows(tmp_path: Path) -> None:
    _, rows = smoke(tmp_path, "twice")
    ways = ("", "-preload", "-mount")
    assert set(rows) == {(f"twice-the-cache{way}", "file-system-below") for way in ways}


def test_allocations_have_their_rows(tmp_path: Path) -> None:
    _, rows = smoke(tmp_path, "allocate-")
    sizes = {case.partition("-")[2] for case, against in rows if against == "copy"}
    assert sizes == {"4k", "16k", "64k", "256k", "1m"}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Yield what rows are measured with, in a folder of the test."""
    arguments = Namespace(pairs=1, smoke=True, only="", device="cpu", json=None, full=False)
    with tempfile.TemporaryDirectory() as run:  # a short path, for sockets
        monkeypatch.setenv("XDG_RUNTIME_DIR", run)
        yield Bench(arguments, Report("gmfs", "?", arguments), tmp_path, tmp_path)


def test_a_row_that_was_not_served_fails(bench: Bench, tmp_path: Path) -> None:
    [reader] = programs.find_all("file_reader")
    folder = tmp_path / "files"
    folder.mkdir()
    expected = write_file(folder / "file", 1 << 20)
    program = Program((reader, folder / "file", "65536", "2", "hot"), expected)
    with file_caches.running(folder, "cpu", 0) as cache:

        def case() -> float:
            return cache.run_served(program.run, 2 << 20)  # without the preload library

        assert bench.compare(Row("read-64k", ""), case, {"tmpfs": program.run}) is None
        command = programs.under_penstock(*program.words, options=["--cache", folder])
        with pytest.raises(file_caches.NotServedError, match="from storage"):
            cache.run_served(lambda: program.run(command), 1 << 20)  # the first time
        assert cache.run_served(lambda: program.run(command), 4 << 20) > 0
    assert bench.failed == ["read-64k"]
    assert bench.report._rows == []
    assert "served 0 of" in bench.report.environment["failed: read-64k"]


def test_a_program_with_wrong_bytes_fails(bench: Bench, tmp_path: Path) -> None:
    [reader] = programs.find_all("file_reader")
    write_file(tmp_path / "file", 1 << 20)
    program = Program((reader, tmp_path / "file", "65536", "1", "hot"), "12345")
    row = Row("read-64k", "")
    assert bench.compare(row, program.run, {"tmpfs": program.run}) is None
    assert "expected 12345" in bench.report.environment["failed: read-64k"]


def test_one_way_to_slow_storage_is_measured_alone(bench: Bench) -> None:
    ways = {}
    for only in ("epoch", "=second-epoch", "=second-epoch-mount", "epoch-preload", "twice"):
        bench.arguments.only = only
        ways[only] = storage.wanted_ways(bench, "second-epoch")
    both = ["second-epoch-preload", "second-epoch-mount"]
    assert ways["epoch"] == ways["=second-epoch"] == both
    assert ways["=second-epoch-mount"] == both[1:]
    assert ways["epoch-preload"] == both[:1]
    assert ways["twice"] == []


@needs_mount
def test_a_write_that_did_not_pass_the_cache_fails(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    expected = writes.expected_of(bench, 1 << 20, 4096, 1)
    words = writes.writer_words(folder / "file", 1 << 20, 4096, 1)
    program = Program(tuple(words), expected)
    with (
        file_caches.running(folder, "cpu", 0, mount=tmp_path / "at") as cache,
        pytest.raises(file_caches.NotServedError, match="0 of 1048576 bytes"),
    ):
        writes.run_through(cache, program, folder / "file")


def test_a_row_that_failed_is_told_by_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(bench: Bench) -> None:
        bench.fail("read-64k", file_caches.NotServedError("file", "its cache served nothing"))

    monkeypatch.setattr(gmfs, "MEASURES", (wrong,))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["gmfs", "--smoke", "--json", str(out)])
    assert gmfs.main() == 1
    assert "read-64k: failed: file: its cache served nothing" in capsys.readouterr().err
    assert json.loads(out.read_text())["rows"] == []


@needs_mount
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_after_an_interruption(tmp_path: Path, number: int) -> None:
    command = [*PENSTOCK, "bench", "gmfs", "--only", "second-epoch-mount"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    bench = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        limit = time.monotonic() + LIMIT_S
        while len([mount for mount in mounts() if str(tmp_path) in mount]) < 2:
            assert time.monotonic() < limit
            assert bench.poll() is None
            time.sleep(0.05)
        if number == signal.SIGINT:
            os.killpg(bench.pid, number)  # as a terminal does
        else:
            bench.send_signal(number)
        _, told = bench.communicate(timeout=LIMIT_S)
    finally:
        bench.kill()
        bench.wait()
    assert bench.returncode == 130
    assert "Traceback" not in told
    assert not [mount for mount in mounts() if str(tmp_path) in mount]
    assert list(tmp_path.iterdir()) == []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert str(tmp_path).encode() not in process.read_bytes()
        except OSError:  # it has ended
            continue
