"""Goal: `penstock scan --follow` tells each line once, as soon as it is whole, as `tail -F`."""

from __future__ import annotations

import json
import os
import queue
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

PENSTOCK = [str(Path(__file__).parents[3] / ".venv/bin/penstock"), "scan", "--follow"]
WAIT = 30.0  # seconds in which a line has to come, on a busy machine too
QUIET = 1.5  # seconds in which a line that must not come would have come


def _collect(stream: IO[bytes], lines: queue.Queue[bytes]) -> None:
    for line in stream:
        lines.put(line)


# Starts a program, from which root has taken the right to read files of mode 0.
_READ_AS_OTHERS_DO = """
import ctypes, os, sys
drop, override, read_search = 24, 1, 2  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
for capability in (override, read_search):
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(drop, capability, 0, 0, 0) != 0:
        sys.exit("a capability cannot be given up")
os.execv(sys.argv[1], sys.argv[1:])
"""


class Follow:
    """A scan that follows files, with its output line by line."""

    def __init__(
        self, *words: str, env: dict[str, str] | None = None, before: tuple[str, ...] = ()
    ) -> None:
        command = [*before, *PENSTOCK, *words]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
        )
        self.lines: queue.Queue[bytes] = queue.Queue()
        self.errors: queue.Queue[bytes] = queue.Queue()
        pairs = ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        self._threads = [threading.Thread(target=_collect, args=pair) for pair in pairs]
        for thread in self._threads:
            thread.start()

    def line(self) -> bytes:
        """Return the next line of standard output."""
        return self.lines.get(timeout=WAIT).rstrip(b"\n")

    def error(self) -> str:
        """Return the next line of standard error."""
        return self.errors.get(timeout=WAIT).decode().rstrip("\n")

    def nothing(self) -> bool:
        """Return whether no line comes."""
        try:
            self.lines.get(timeout=QUIET)
        except queue.Empty:
            return True
        return False

    def interrupt(self) -> int:
        """Press Ctrl-C and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.ended()

    def ended(self) -> int:
        """Return the exit code, once the scan has ended."""
        code = self.process.wait(timeout=WAIT)
        for thread in self._threads:
            thread.join(timeout=WAIT)
        return code

    def kill(self) -> None:
        """End the scan if it runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.ended()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    path.write_bytes(b"first needle\nhay\n")
    return path


@pytest.fixture
def follow() -> Iterator[type[Follow]]:
    """Return a class whose processes end with the test."""
    started: list[Follow] = []

    class Started(Follow):
        def __init__(self, *words: str, **options: Any) -> None:
            super().__init__(*words, **options)
            started.append(self)

    yield Started
    for one in started:
        one.kill()


def append(path: Path, data: bytes) -> None:
    with open(path, "ab", buffering=0) as file:
        file.write(data)


def test_what_is_there_and_what_comes(log: Path, follow: type[Follow]) -> None:
    scan = follow(str(log), "--pattern", "needle")
    assert scan.line() == b"1:first needle"
    append(log, b"hay\n\nneedle two\n")
    assert scan.line() == b"5:needle two"
    append(log, b"needle three\n")
    assert scan.line() == b"6:needle three"
    assert scan.interrupt() == 130
    summary = scan.error()
    assert summary.startswith("3 lines in 1 files, 46 bytes, followed for ")
    assert scan.lines.empty()
    assert scan.errors.empty()


def test_a_line_in_pieces_is_told_once_and_whole(log: Path, follow: type[Follow]) -> None:
    log.write_bytes(b"needle begins here")
    scan = follow(str(log), "--pattern", "needle in two", "--pattern", "begins")
    assert scan.nothing()
    append(log, b" and ends\nthe nee")
    assert scan.line() == b"1:needle begins here and ends"
    append(log, b"dle i")
    append(log, b"n t")
    assert scan.nothing()
    append(log, b"wo\n")
    assert scan.line() == b"2:the needle in two"
    long = b"x" * 300_000
    for piece in (long, b"needle in", b" two", long, b"\nhay\n"):
        append(log, piece)
        time.sleep(0.05)
    assert scan.line() == b"3:" + long + b"needle in two" + long
    assert scan.interrupt() == 130


def test_ten_megabytes_at_once_and_in_bursts(log: Path, follow: type[Follow]) -> None:
    scan = follow(str(log), "--pattern", "needle")
    assert scan.line() == b"1:first needle"
    lines = [b"needle %d" % i if i % 10 == 0 else b"hay " * 20 + b"%d" % i for i in range(140_000)]
    data = b"\n".join(lines) + b"\n"
    assert len(data) > 10_000_000
    expected = [b"%d:" % (i + 3) + line for i, line in enumerate(lines) if i % 10 == 0]
    append(log, data)
    assert [scan.line() for _ in expected] == expected
    for begin in range(0, len(data), 77_777):
        append(log, data[begin : begin + 77_777])
    later = [b"%d:" % (i + 140_003) + line for i, line in enumerate(lines) if i % 10 == 0]
    assert [scan.line() for _ in later] == later
    assert scan.interrupt() == 130


def test_a_line_comes_within_a_tenth_of_a_second(log: Path, follow: type[Follow]) -> None:
    scan = follow(str(log), "--pattern", "needle")
    scan.line()
    seconds = []
    for i in range(15):
        time.sleep(0.11)
        begin = time.monotonic()
        append(log, b"needle %d\n" % i)
        scan.line()
        seconds.append(time.monotonic() - begin)
    assert statistics.median(seconds) < 0.1  # the timer alone would take 0.5 s


def test_an_idle_scan_uses_next_to_no_time(log: Path, follow: type[Follow]) -> None:
    scan = follow(str(log), "--pattern", "needle")
    scan.line()
    time.sleep(1)

    def ticks() -> int:
        fields = Path(f"/proc/{scan.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(3)
    assert ticks() - before < 0.1 * 3 * os.sysconf("SC_CLK_TCK")


def test_rotation_by_rename(log: Path, follow: type[Follow]) -> None:
    scan = follow(str(log), "--pattern", "needle")
    scan.line()
    writer = os.open(log, os.O_WRONLY | os.O_APPEND)
    old = log.with_suffix(".1")
    log.rename(old)
    assert scan.error() == (
        f"penstock: {log}: has become inaccessible: No such file or directory; waiting"
    )
    os.write(writer, b"needle in the renamed file\n")
    assert scan.line() == b"3:needle in the renamed file"
    log.write_bytes(b"a\nneedle in the new file\n")
    assert scan.error() == f"penstock: {log}: has appeared; following it"
    assert scan.line() == b"2:needle in the new file"
    # A writer is told of the rotation only later.
    os.write(writer, b"needle behind the rotation\nneedle without its newline")
    assert scan.line() == b"4:needle behind the rotation"
    assert scan.line() == b"5:needle without its newline"  # when the old file is given up
    append(log, b"needle\n")
    assert scan.line() == b"3:needle"
    os.close(writer)
    assert scan.interrupt() == 130
    assert scan.error().startswith("6 lines in 2 files")


def test_rotation_by_rename_over_the_name(log: Path, follow: type[Follow]) -> None:
    scan = follow(str(log), "--pattern", "needle")
    scan.line()
    for i in range(30):
        new = log.with_suffix(".new")
        new.write_bytes(b"needle %d\n" % i)
        append(log, b"last needle %d\n" % i)
        new.rename(log)
        assert {scan.line(), scan.line()} == {
            b"1:needle %d" % i,
            b"%d:last needle %d" % (3 if i == 0 else 2, i),
        }
        assert scan.error() == f"penstock: {log}: has been replaced; following the new file"


def test_a_file_that_is_moved_away_and_back_is_not_scanned_again(
    log: Path, follow: type[Follow]
) -> None:
    scan = follow(str(log), "--pattern", "needle", "--quiet")
    scan.line()
    log.rename(log.with_suffix(".away"))
    assert "inaccessible" in scan.error()
    log.with_suffix(".away").rename(log)
    append(log, b"needle\n")
    assert scan.line() == b"3:needle"
    assert scan.interrupt() == 130
    assert scan.errors.empty()


def test_copytruncate(log: Path, follow: type[Follow]) -> None:
    scan = follow(str(log), "--pattern", "needle")
    scan.line()
    shutil.copy(log, log.with_suffix(".1"))
    os.truncate(log, 0)
    assert scan.error() == f"penstock: {log}: was truncated; scanning it anew"
    append(log, b"needle after\n")
    assert scan.line() == b"1:needle after"
    append(log, b"hay" * 1000 + b"\n")
    os.truncate(log, 5)
    assert "truncated" in scan.error()
    assert scan.nothing()
    append(log, b"e again\n")
    assert scan.line() == b"1:needle again"


def test_deletion_and_creation_anew(log: Path, follow: type[Follow]) -> None:
    scan = follow(str(log), "--pattern", "needle")
    scan.line()
    for i in range(3):
        log.unlink()
        assert "has become inaccessible: No such file" in scan.error()
        assert scan.nothing()  # and it is told once
        assert scan.errors.empty()
        log.write_bytes(b"needle %d\n" % i)
        assert scan.line() == b"1:needle %d" % i
        assert "has appeared" in scan.error()


def test_a_missing_file_in_a_missing_folder_is_waited_for(
    tmp_path: Path, follow: type[Follow]
) -> None:
    path = tmp_path / "folder" / "late.log"
    scan = follow(str(path), "--pattern", "needle")
    assert scan.error() == f"penstock: {path}: No such file or directory; waiting"
    path.parent.mkdir()
    path.write_bytes(b"needle\n")
    assert scan.line() == b"1:needle"
    assert "has appeared" in scan.error()


def test_a_link_that_is_turned_to_another_file(log: Path, follow: type[Follow]) -> None:
    link, other = log.with_name("current"), log.with_name("other")
    link.symlink_to(log)
    scan = follow(str(link), "--pattern", "needle")
    scan.line()
    other.write_bytes(b"needle elsewhere\n")
    turned = log.with_name("turned")
    turned.symlink_to(other)
    turned.rename(link)
    assert scan.line() == b"1:needle elsewhere"
    assert "has been replaced" in scan.error()
    append(other, b"needle more\n")
    assert scan.line() == b"2:needle more"


def test_an_unreadable_new_file(log: Path, follow: type[Follow]) -> None:
    before = (sys.executable, "-c", _READ_AS_OTHERS_DO)
    scan = follow(str(log), "--pattern", "needle", before=before)
    scan.line()
    new = log.with_suffix(".new")
    new.write_bytes(b"needle hidden\n")
    new.chmod(0)
    new.rename(log)
    assert scan.error() == (f"penstock: {log}: has become inaccessible: Permission denied; waiting")
    assert scan.nothing()
    log.chmod(0o600)
    assert scan.line() == b"1:needle hidden"


def test_no_line_of_a_writer_that_rotates_is_lost_or_told_twice(
    log: Path, follow: type[Follow]
) -> None:
    seed = int(os.environ.get("PENSTOCK_SEED", "1"))
    chance = random.Random(seed)
    scan = follow(str(log), "--pattern", "needle")
    scan.line()
    writer = os.open(log, os.O_WRONLY | os.O_APPEND)
    count = 0
    for turn in range(200):
        lines = b"".join(b"hay\nneedle %d.\n" % (count + i) for i in range(chance.randrange(40)))
        count += lines.count(b"needle")
        cut = chance.randrange(len(lines) + 1)
        os.write(writer, lines[:cut])
        if turn % 20 == 10:  # as logrotate: the writer learns of it some lines later
            log.rename(log.with_suffix(f".{turn}"))
            log.touch()
        os.write(writer, lines[cut:])
        if turn % 20 == 12:
            os.close(writer)
            writer = os.open(log, os.O_WRONLY | os.O_APPEND)
        time.sleep(chance.random() * 0.01)
    os.close(writer)
    told = [int(scan.line().split(b" ")[1].rstrip(b".")) for _ in range(count)]
    assert sorted(told) == list(range(count)), f"seed {seed}"
    assert scan.interrupt() == 130
    assert scan.lines.empty()


def test_a_folder_or_pipe_that_takes_the_name(log: Path, follow: type[Follow]) -> None:
    scan = follow(str(log), "--pattern", "needle")
    scan.line()
    log.unlink()
    assert "has become inaccessible" in scan.error()
    os.mkfifo(log)
    assert scan.error() == f"penstock: {log}: not a regular file; waiting"
    log.unlink()
    assert scan.error() == f"penstock: {log}: No such file or directory; waiting"
    log.write_bytes(b"needle\n")
    assert scan.line() == b"1:needle"


def test_several_files_are_named(log: Path, follow: type[Follow]) -> None:
    other = log.with_name("other.log")
    other.write_bytes(b"")
    scan = follow(str(log), str(other), "--pattern", "needle")
    assert scan.line() == f"{log}:1:first needle".encode()
    append(other, b"needle\n")
    assert scan.line() == f"{other}:1:needle".encode()
    append(log, b"needle\n")
    assert scan.line() == f"{log}:3:needle".encode()
    assert scan.interrupt() == 130


def test_many_patterns_and_crlf_and_any_bytes(log: Path, follow: type[Follow]) -> None:
    words = [word for i in range(50) for word in ("--pattern", f"word{i}.")]
    scan = follow(str(log), *words)
    append(log, b"a\0b word7.\r\n\xff\xfe word49.\nword50.\n")
    assert scan.line() == b"3:a\0b word7.\r"
    assert scan.line() == b"4:\xff\xfe word49."
    assert scan.nothing()


def test_json_is_an_object_a_line(log: Path, follow: type[Follow]) -> None:
    scan = follow(str(log), "--pattern", "needle", "--json")
    assert json.loads(scan.line()) == {
        "path": str(log),
        "number": 1,
        "offset": 0,
        "line": "first needle",
    }
    append(log, b'needle \xff "\\\t\xc3\xa9\n')
    found = json.loads(scan.line())
    assert found["line"].encode("utf-8", "surrogateescape") == b'needle \xff "\\\t\xc3\xa9'
    assert (found["number"], found["offset"]) == (3, 17)
    assert scan.interrupt() == 130
    last = json.loads(scan.line())
    assert last["interrupted"]
    assert last["matches"] == 2
    assert last["files"] == [{"path": str(log), "bytes": 32, "matches": 2}]
    assert scan.lines.empty()
    assert scan.errors.empty()


def test_counts_are_printed_at_the_end(log: Path, follow: type[Follow]) -> None:
    scan = follow(str(log), "--pattern", "needle", "--count")
    assert scan.nothing()
    append(log, b"needle\nhay\nneedle needle\n")
    time.sleep(0.5)
    assert scan.interrupt() == 130
    assert scan.line() == b"3"


def test_a_closed_pipe_ends_it_quietly(log: Path) -> None:
    command = [*PENSTOCK, str(log), "--pattern", "needle"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as scan:
        assert scan.stdout is not None
        assert scan.stderr is not None
        assert scan.stdout.readline() == b"1:first needle\n"
        scan.stdout.close()
        assert scan.wait(timeout=WAIT) == 0  # without another line to write
        assert scan.stderr.read() == b""


def test_output_into_the_followed_file_is_refused(log: Path) -> None:
    with open(log, "ab") as output:
        command = [*PENSTOCK, str(log), "--pattern", "needle"]
        with subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE) as scan:
            assert scan.stderr is not None
            told = scan.stderr.readline()
            scan.kill()
    assert told.decode() == f"penstock: {log}: the input is also the output; waiting\n"
    assert log.read_bytes() == b"first needle\nhay\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-"], "penstock: -: --follow takes files; without it a pipe is scanned to its end\n"),
        (["FIFO"], "FIFO: --follow takes regular files\n"),
        (["FOLDER"], "FOLDER: --follow takes regular files\n"),
        (
            ["LOG", "--explain"],
            "penstock: scan: --follow goes with neither --explain nor --trace\n",
        ),
    ],
)
def test_what_cannot_be_followed_is_one_line(log: Path, words: list[str], told: str) -> None:
    names = {"FIFO": log.with_name("fifo"), "FOLDER": log.parent, "LOG": log}
    os.mkfifo(names["FIFO"])
    words = [str(names.get(word, word)) for word in words]
    command = [*PENSTOCK, *words, "--pattern", "needle"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT)
    for name, path in names.items():
        told = told.replace(f"{name}:", f"penstock: {path}:")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


def test_without_inotify_files_are_looked_at_once_a_second(
    log: Path, follow: type[Follow], tmp_path: Path
) -> None:
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    source, library = tmp_path / "none.c", tmp_path / "none.so"
    source.write_text("#include <errno.h>\nint inotify_init1(int f) { errno = 38; return -1; }\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    scan = follow(str(log), "--pattern", "needle", env=environment)
    assert scan.error() == ("penstock: inotify: Function not implemented; looking once a second")
    scan.line()
    append(log, b"needle\n")
    assert scan.line() == b"3:needle"
    new = log.with_suffix(".new")
    new.write_bytes(b"needle new\n")
    new.rename(log)
    assert scan.line() == b"1:needle new"
    assert scan.interrupt() == 130
