"""Goal: hooks and traces have every read once, PENSTOCK_EXPLAIN tells each in a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import _core

MIB = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * MIB))
    return path


class Log:
    """What a hook was told."""

    def __init__(self, expected: int) -> None:
        self.begun: list[penstock.Transfer] = []
        self.ended: list[tuple[penstock.Transfer, penstock.Report]] = []
        self.expected = expected
        self.all = threading.Event()

    def end(self, transfer: penstock.Transfer, report: penstock.Report) -> None:
        """Take note of the end of a read."""
        self.ended.append((transfer, report))
        if len(self.ended) == self.expected:
            self.all.set()


def all_ways_to_read(opened: penstock.File) -> None:
    opened.read(bytearray(100), None, 7)
    opened.read(bytearray(2 * MIB))
    opened.pread(bytearray(300), None, 9).result()
    opened.pread(bytearray(2 * MIB)).result()
    opened.preadv([(bytearray(10), 50), (bytearray(20), 90)]).result()
    opened.readv([(bytearray(10), 60)])


def test_hooks_are_told_of_every_read(file: Path) -> None:
    log = Log(6)
    with penstock.open(file) as opened:
        with penstock.on_transfer(log.begun.append, log.end):
            all_ways_to_read(opened)
            assert log.all.wait(60)
        all_ways_to_read(opened)
    told = [(one.operation, one.size, one.offset, one.name) for one in log.begun]
    assert told == [
        ("read", 100, 7, str(file)),
        ("read", 2 * MIB, 0, str(file)),
        ("pread", 300, 9, str(file)),
        ("pread", 2 * MIB, 0, str(file)),
        ("preadv", 30, 50, str(file)),
        ("readv", 10, 60, str(file)),
    ]
    assert {one.number for one in log.begun} == {one.number for one, _ in log.ended}
    for transfer, report in log.ended:
        assert report.bytes == transfer.size
        assert transfer.thread == threading.get_native_id()


def test_hooks_are_told_of_failures(file: Path) -> None:
    log = Log(3)
    opened = penstock.open(file)
    memory = penstock.empty(2 * MIB, "cpu")
    with penstock.on_transfer(ended=log.end):
        for read in (
            lambda: opened.read(bytearray(100), None, (1 << 63) - 2),
            lambda: opened.pread(bytearray(100), None, (1 << 63) - 2),
            lambda: opened.read(memory[1:], route="peer", strict=True),
        ):
            with pytest.raises(penstock.Error):
                read()
        assert log.all.wait(60)
    assert all(report.error_number != 0 for _, report in log.ended)


def test_several_hooks_and_their_errors(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda event: told.append(type(event.exc_value)))
    opened = penstock.open(file)
    counted: list[penstock.Transfer] = []

    def wrong(*_: object) -> None:
        raise ArithmeticError

    with penstock.on_transfer(counted.append), penstock.on_transfer(None, wrong):
        assert opened.read(bytearray(100)) == 100
    with penstock.on_transfer(wrong), pytest.raises(ArithmeticError):
        opened.read(bytearray(100))
    assert opened.read(bytearray(100)) == 100
    assert (len(counted), told) == (1, [ArithmeticError])
    monkeypatch.undo()


def test_a_trace_has_every_read_with_its_phases(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    with penstock.open(file) as opened, penstock.trace(out):
        all_ways_to_read(opened)
        opened.pread(bytearray(MIB))  # nobody waits for this one
    events = json.loads(out.read_text())["traceEvents"]
    assert events[0]["ph"] == "M"
    begun = [event for event in events if event["ph"] == "b" and "args" in event]
    assert len(begun) == 7
    for event in begun:
        assert event["args"]["bytes"] == sum(event["args"]["routes"].values())
        own = [one for one in events[1:] if one["id"] == event["id"]]
        assert len(own) % 2 == 0
        assert own[0]["ph"] == "b"
        assert (own[-1]["ph"], own[-1]["name"]) == ("e", event["name"])
        times = [one["ts"] for one in own]
        assert times == sorted(times)
    names = {event["name"] for event in events}
    assert {"queue", "read"} <= names
    assert f"preadv 30 bytes of {file}" in names


def scan(path: Path) -> dict[str, Any]:
    return _core.scan("cpu:2", b"needle\n", [], [os.fsencode(path)], lines=False, explain=True)


def test_a_trace_has_what_kernels_read(tmp_path: Path) -> None:
    text, out = tmp_path / "text", tmp_path / "trace.json"
    text.write_bytes(b"a line of text\n" * 300_000)
    before = time.perf_counter_ns() / 1000
    with penstock.trace(out), penstock.open(text) as opened:
        opened.read(bytearray(100))
        result = scan(text)
    after = time.perf_counter_ns() / 1000
    events = json.loads(out.read_text())["traceEvents"][1:]
    assert all(before <= event["ts"] <= after for event in events)
    begun = [event for event in events if event["ph"] == "b" and "block" in event.get("args", {})]
    kinds = {event["name"].partition(" ")[0] for event in begun}
    assert "window" in kinds
    assert kinds <= {"window", "demand"}
    assert all(event["name"].endswith(str(text)) for event in begun)
    assert sum(event["args"]["pages"] for event in begun) == result["requests"]
    for event in begun:
        end = [one for one in events if one["id"] == event["id"]][1]
        assert (end["ph"], end["name"]) == ("e", event["name"])
        assert end["ts"] >= event["ts"]
        assert event["args"]["error_number"] == 0
    counted = [event["args"] for event in events if event["name"] == "pages wanted by kernels"]
    assert counted[-1] == {name: result["page_cache"][name] for name in counted[-1]}
    assert sum(counted[-1].values()) == result["page_cache"]["pages"]
    waited = [event["args"] for event in events if event["name"] == "waited for pages"]
    assert waited[-1] == {"seconds": result["page_cache"]["stalled_seconds"]}
    assert any(event["name"].startswith("read 100 bytes") for event in events)


def test_a_trace_has_what_became_of_each_files_pages(tmp_path: Path) -> None:
    folder, out = tmp_path / "texts", tmp_path / "trace.json"
    folder.mkdir()
    for number in range(3):
        (folder / f"text{number}").write_bytes(b"a line of text\n" * 200_000 * (number + 1))
    with penstock.trace(out):
        result = scan(folder)
    counters: dict[str, dict[str, float]] = {}  # the last of each name
    for event in json.loads(out.read_text())["traceEvents"]:
        if event["ph"] == "C":
            counters[event["name"]] = event["args"]
    assert len(result["files"]) == 3
    for told in [*result["files"], result]:
        pages = told["page_cache"]
        of_file = f" of {told['path']}" if "path" in told else ""
        wanted = counters[f"pages{of_file}" if of_file else "pages wanted by kernels"]
        assert wanted == {name: pages[name] for name in wanted}
        assert sum(wanted.values()) == pages["pages"] > 0
        prefetched = counters[f"pages prefetched{of_file}"]
        assert prefetched["used"] == pages["window_hits"] + pages["window_late"]
        # A file's windows may go on when the file has been told: pages land, and are given up.
        assert prefetched["wasted"] >= pages["wasted"]
        assert sum(prefetched.values()) >= pages["prefetched"]
        assert counters[f"waited for pages{of_file}"] == {"seconds": pages["stalled_seconds"]}
    assert result["page_cache"]["prefetched"] > 0


def test_hooks_of_reads_are_not_told_of_kernels(file: Path) -> None:
    told: list[Any] = []
    with penstock.on_transfer(told.append, lambda *ended: told.append(ended)):
        assert scan(file)["bytes"] == 4 * MIB
    assert told == []


def test_a_trace_that_cannot_be_written_fails_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), penstock.trace(tmp_path / "no" / "trace"):
        raise AssertionError("it was entered")


EXPLAINED = """
import sys, penstock
with penstock.open(sys.argv[1]) as file:
    file.read(bytearray(100), None, 7)
    file.pread(bytearray(2 << 20)).result()
with penstock.open(sys.argv[1]) as again:
    again.read(bytearray(100), None, 8)
"""


def test_explain_prints_a_line_for_each_read(file: Path) -> None:
    def lines(wish: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", EXPLAINED, str(file)],
            env={**os.environ, "PENSTOCK_EXPLAIN": wish},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == ""
        return sorted(done.stderr.splitlines())

    told = lines("1")
    assert len(told) == 3
    assert told[0].startswith(f"penstock: {file}: pread 2097152 bytes at 0: 2097152 of 2097152")
    assert told[1].startswith(f"penstock: {file}: read 100 bytes at 7: 100 of 100 bytes: 100 cach")
    assert "because small 100; 1 transfers, queue " in told[1]
    assert lines("0") == lines("") == []
