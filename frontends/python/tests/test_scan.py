"""Goal: `penstock scan` answers what grep answers, and what is wrong with its input in one line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

PAGE = 64 << 10  # of the cache that scan has
SIZE = r"[\d.]+ (?:bytes|[KM]iB)"
PENSTOCK = [str(Path(__file__).parents[3] / ".venv/bin/penstock"), "scan"]


def _scan(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PENSTOCK, *words], input=stdin, capture_output=True, check=False, timeout=60
    )


def _grep(*words: str) -> bytes:
    environment = os.environ | {"LC_ALL": "C"}
    command = ["grep", "-a", "-F", *words]
    return subprocess.run(command, env=environment, capture_output=True, check=False).stdout


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text with the bytes that trip naive scanners."""
    path = tmp_path / "text"
    path.write_bytes(b"one\r\ntwo\0three\n\xff\xfe\n" + b"long" * 300_000 + b"end\nlast three")
    return path


@pytest.mark.parametrize("pattern", ["three", "one", "g", "", "longend", "\0three"[1:], "absent"])
def test_counts_and_lines_are_greps(text: Path, pattern: str) -> None:
    count = _scan(str(text), "--pattern", pattern, "--count")
    assert count.returncode == 0
    assert count.stdout == _grep("-c", "-e", pattern, str(text))
    lines = _scan(str(text), "--pattern", pattern, "--lines")
    assert lines.stdout == _grep("-n", "-e", pattern, str(text))


def test_list_directory_and_stdin(text: Path, tmp_path: Path) -> None:
    patterns = tmp_path / "patterns"
    patterns.write_bytes(b"three\nend\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "copy").write_bytes(text.read_bytes())
    (folder / "empty").write_bytes(b"")
    found = _scan(str(folder), "--patterns", str(patterns), "--count")
    expected = _grep("-c", "-r", "-f", str(patterns), str(folder))
    assert sorted(found.stdout.splitlines()) == sorted(expected.splitlines())
    read = _scan("-", "--patterns", str(patterns), "--count", stdin=text.read_bytes())
    assert read.stdout == b"3\n"


def _words(strings: list[str], lists: list[bytes], folder: Path) -> list[tuple[str, ...]]:
    """Return the same patterns for penstock and for grep."""
    files = [folder / f"list{number}" for number in range(len(lists))]
    for file, lines in zip(files, lists, strict=True):
        file.write_bytes(lines)
    ours = [word for string in strings for word in ("--pattern", string)]
    ours += [word for file in files for word in ("--patterns", str(file))]
    theirs = [word for string in strings for word in ("-e", string)]
    theirs += [word for file in files for word in ("-f", str(file))]
    return [tuple(ours), tuple(theirs)]


@pytest.mark.parametrize(
    ("strings", "lists"),
    [
        (["one", "three"], []),
        (["three", "one", "end"], []),
        (["one"], [b"three"]),
        ([], [b"one", b"three\nabsent", b"end\n"]),
        (["one\nend", "absent"], []),
        ([""], []),
        (["absent", ""], []),
        ([], [b"\n"]),
        ([], [b"absent\n\n"]),
        (["one"], [b""]),
        ([], [b"", b"one"]),
    ],
)
def test_all_patterns_count_and_empty_ones_are_as_greps(
    strings: list[str], lists: list[bytes], text: Path, tmp_path: Path
) -> None:
    ours, theirs = _words(strings, lists, tmp_path)
    for form, flag in (("--count", "-c"), ("--lines", "-n")):
        done = _scan(str(text), *ours, form, "--quiet")
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout == _grep(flag, *theirs, str(text))


def test_a_list_without_patterns_is_told(text: Path) -> None:
    done = _scan(str(text), "--patterns", "/dev/null", "--count")
    assert (done.returncode, done.stdout) == (0, b"0\n")
    assert done.stderr == b"penstock: /dev/null: no patterns, so nothing is found\n"


def test_long_lines_of_a_pipe_are_whole(tmp_path: Path) -> None:
    lines = [b"x" * size + b"needle" + b"y" * size for size in (10, 200_000, 1_000_000, 3_000_000)]
    lines.insert(2, b"z" * 700_000)
    file = tmp_path / "lines"
    file.write_bytes(b"\n".join([*lines, b"needle" + b"w" * 500_000]))
    with subprocess.Popen(["cat", str(file)], stdout=subprocess.PIPE) as cat:
        command = [*PENSTOCK, "-", "--pattern", "needle"]
        found = subprocess.run(command, stdin=cat.stdout, capture_output=True, check=True)
    assert found.stdout == _grep("-n", "-e", "needle", str(file))


def test_json_has_the_counts_and_where_the_time_went(text: Path) -> None:
    found = json.loads(_scan(str(text), "--pattern", "three", "--json").stdout)
    assert found["matches"] == 2
    assert found["bytes"] == text.stat().st_size
    assert found["files"] == [{"path": str(text), "bytes": text.stat().st_size, "matches": 2}]
    assert found["block_search_seconds"] > 0
    pages = found["page_cache"]
    ways = ("hits", "misses", "window_hits", "window_late")
    assert sum(pages[way] for way in ways) == pages["pages"] > 0
    assert pages["wasted"] + pages["window_hits"] + pages["window_late"] <= pages["prefetched"]
    assert pages["advised"] == pages["learned"] == 0
    assert pages["stalled_seconds"] >= 0
    memory = found["readahead"]
    assert memory["windows_bytes"] <= memory["windows_bytes_max"]
    assert 0 < memory["windows_bytes_max"] <= found["cache_bytes"] / 4
    assert memory["tables_bytes"] > 0


def test_explain_tells_how_pages_came(text: Path) -> None:
    told = _scan(str(text), "--pattern", "three", "--count", "--explain")
    assert told.stdout == b"2\n"
    first, memory, last = told.stderr.decode().splitlines()[-3:]
    assert re.fullmatch(
        r"page cache: \d+ pages wanted, [\d.]+ % read ahead, [\d.]+ % read ahead but late,"
        r" [\d.]+ % missed, [\d.]+ % there before; \d+ prefetched, \d+ used, \d+ wasted,"
        r" 0 advised, 0 ahead of launches; \d+\.\d{3} s waited for them, summed over blocks",
        first,
    )
    assert re.fullmatch(
        rf"readahead: windows hold {SIZE}, at most {SIZE} of a cache of {SIZE}; {SIZE} of tables",
        memory,
    )
    storage = re.fullmatch(
        rf"storage: (\d+) pages in (\d+) reads, ({SIZE}) in \d\.\d{{3}} s, summed over threads",
        last,
    )
    assert storage
    pages, reads = int(storage[1]), int(storage[2])
    number, unit = storage[3].split()
    size = float(number) * {"KiB": 1 << 10, "MiB": 1 << 20}[unit]
    # Pages that are wanted while their window is given up are read again, on a busy machine many.
    whole = -(-text.stat().st_size // PAGE)
    assert pages >= whole
    assert 1 <= reads <= pages
    rounding = 60_000  # 0.05 MiB
    assert text.stat().st_size - rounding <= size <= pages * PAGE + rounding
    assert b"page cache" not in _scan(str(text), "--pattern", "three", "--count").stderr


def test_explain_tells_each_file(text: Path, tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"copy{number}").write_bytes(text.read_bytes())
    words = [str(tmp_path), "--pattern", "three", "--explain"]
    told = _scan(*words, "--count").stderr.decode().splitlines()
    assert sum(line.startswith(f"  {tmp_path}/") for line in told) == 10
    assert "  and 3 files that were waited for no longer" in told
    found = json.loads(_scan(*words, "--json").stdout)
    assert len(found["files"]) == 13
    for name in ("pages", "misses", "window_hits", "prefetched"):
        assert sum(one["page_cache"][name] for one in found["files"]) == found["page_cache"][name]
    assert all(one["page_cache"]["pages"] >= 18 for one in found["files"])


def test_trace_is_written_by_scan_and_read(text: Path, tmp_path: Path) -> None:
    for words in (["scan", str(text), "--pattern", "three", "--count"], ["read", str(text)]):
        out = tmp_path / f"{words[0]}.json"
        done = subprocess.run(
            [PENSTOCK[0], *words, "--trace", str(out)], capture_output=True, check=True
        )
        assert done.stdout
        assert any(str(text) in one["name"] for one in json.loads(out.read_text())["traceEvents"])
    refused = _scan(str(text), "--pattern", "x", "--trace", "/nowhere/trace")
    assert refused.returncode == 1
    assert refused.stderr.startswith(b"penstock: /nowhere/trace: No such file")
    full = _scan(str(text), "--pattern", "three", "--count", "--trace", "/dev/full")
    assert full.returncode == 1
    assert full.stderr == b"penstock: /dev/full: No space left on device\n"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["/nowhere/file", "--pattern", "x"], 1, b"/nowhere/file: No such file"),
        (["/dev/null", "--pattern", "x"], 1, b"/dev/null: "),
        (["TEXT", "--patterns", "/nowhere/list"], 1, b"/nowhere/list: No such file"),
        (["TEXT"], 2, b"--patterns LIST is required"),
        (["TEXT", "--pattern", "x", "--device", "gpu"], 2, b"not auto, cpu"),
        (["-", "--patterns", "-"], 2, b"both"),
    ],
)
def test_bad_input_is_one_line(text: Path, words: list[str], code: int, told: bytes) -> None:
    done = _scan(*[str(text) if word == "TEXT" else word for word in words])
    assert done.returncode == code
    assert done.stderr.startswith(b"penstock: ")
    assert told in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_one_bad_file_of_many_does_not_stop_the_others(text: Path) -> None:
    done = _scan("/nowhere/file", str(text), "--pattern", "three", "--count")
    assert done.returncode == 1
    assert done.stdout == str(text).encode() + b":2\n"


def test_a_closed_pipe_ends_it_quietly(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"line\n" * 2_000_000)
    command = [*PENSTOCK, str(large), "--pattern", "line"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as scan:
        assert scan.stdout is not None
        assert scan.stderr is not None
        assert scan.stdout.readline() == b"1:line\n"
        scan.stdout.close()
        assert scan.wait(timeout=30) == 0
        assert scan.stderr.read() == b""


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Opened for both ends, so that the scan waits for bytes that never come.
    keeper = os.open(pipe, os.O_RDWR)
    try:
        command = [*PENSTOCK, "-", "--pattern", "x"]
        with subprocess.Popen(command, stdin=keeper, stderr=subprocess.PIPE) as scan:
            time.sleep(1.0)
            scan.send_signal(signal.SIGINT)
            assert scan.wait(timeout=30) == 130
            assert scan.stderr is not None
            assert scan.stderr.read() == b"penstock: interrupted\n"
    finally:
        os.close(keeper)
