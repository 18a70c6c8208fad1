"""Goal: `penstock signature` tells the patterns that real programs have, and says what to do.

Contiguous accesses of any sizes, several of them in turn, threads that share a file, epochs, ranks
from 1 on, and traces that lack something.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "penstock", "signature"]
Access = tuple[int, int, int]  # stream, offset, size


def signature(text: str | bytes, *words: str) -> subprocess.CompletedProcess[str]:
    data = text if isinstance(text, bytes) else text.encode()
    done = subprocess.run([*COMMAND, *words], input=data, capture_output=True, check=False)
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def streams_of(text: str) -> list[dict[str, Any]]:
    done = signature(text, "-", "--json")
    assert done.returncode == 0, done.stderr
    streams: list[dict[str, Any]] = json.loads(done.stdout)["streams"]
    return streams


def trace_of(accesses: list[Access], name: str = "data") -> str:
    lines = (
        f"{1000 * i} {rank} r {name} {at} {size}\n" for i, (rank, at, size) in enumerate(accesses)
    )
    return "penstock-trace 1\n" + "".join(lines)


def sequences(count: int, accesses: int, seed: int) -> list[Access]:
    """Contiguous accesses of random sizes, `count` sequences in random turns."""
    chance = random.Random(seed)
    ends = [i << 30 for i in range(count)]
    out = []
    for _ in range(accesses):
        which, size = chance.randrange(count), chance.randrange(1, 65537)
        out.append((0, ends[which], size))
        ends[which] += size
    return out


@pytest.mark.parametrize("seed", range(4))
def test_contiguous_accesses_of_random_sizes(seed: int) -> None:
    (stream,) = streams_of(trace_of(sequences(1, 400, seed)))
    assert stream["class"] == "contiguous"
    assert stream["confidence"] >= 0.95
    assert stream["pattern_signature"].startswith("{READ, <contiguous, 1>, <single occurrence>")
    assert "<varying " in stream["pattern_signature"]


def test_a_sequence_too_long_for_a_list_is_contiguous_too() -> None:
    (stream,) = streams_of(trace_of(sequences(1, 70_000, 1)))
    assert stream["class"] == "contiguous"
    assert stream["confidence"] >= 0.99
    assert "<contiguous, 1>" in stream["pattern_signature"]


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_sequences_in_random_turns(count: int, seed: int) -> None:
    (stream,) = streams_of(trace_of(sequences(count, 200 * count, seed)))
    assert stream["class"] == "interleaved"
    assert stream["sequences"] == count
    assert stream["confidence"] >= 0.95


def test_almost_contiguous_chunks() -> None:
    chance = random.Random(1)
    accesses, end = [], 0
    for _ in range(3000):
        if chance.random() < 0.022:
            end = chance.randrange(1 << 40)
        size = chance.choice([4096, 65536, chance.randrange(1000, 99_999)])
        accesses.append((0, end, size))
        end += size
    (stream,) = streams_of(trace_of(accesses))
    assert stream["class"] == "contiguous"
    assert stream["confidence"] >= 0.95
    assert "<contiguous, 1>, <single occurrence>, <varying " in stream["pattern_signature"]


def test_threads_that_take_the_next_piece_are_one_stream() -> None:
    chance = random.Random(2)
    in_order = [(chance.randrange(4), i * 65536, 65536) for i in range(1000)]
    # A thread may take its piece before another one and read it after.
    keys = [i + chance.randrange(3) for i in range(1000)]
    accesses = [one for _, one in sorted(zip(keys, in_order, strict=True))]
    (stream,) = streams_of(trace_of(accesses))
    assert stream["shared_by"] == 4
    assert stream["class"] == "contiguous"
    assert stream["confidence"] >= 0.95
    assert stream["accesses"] == 1000
    assert "ranks or threads together" in signature(trace_of(accesses), "-").stdout


def test_threads_that_take_the_next_piece_within_one_tick_of_the_clock() -> None:
    chance = random.Random(8)
    text = "penstock-trace 1\n"
    for i in range(1000):
        text += f"{i // 40 * 100_000} {chance.randrange(4)} r data {i * 65536} 65536\n"
    (stream,) = streams_of(text)
    assert (stream["shared_by"], stream["class"]) == (4, "contiguous")
    assert stream["confidence"] >= 0.95


@pytest.mark.parametrize("threads", [1, 2])
def test_two_readers_of_one_file_in_turn(threads: int) -> None:
    chance = random.Random(3)
    pieces = sequences(1, 300, 3)
    places = [0, 0]
    accesses = []
    while max(places) < len(pieces):
        reader = chance.randrange(2)
        _, at, size = pieces[places[reader]]
        accesses.append((reader % threads, at, size))
        places[reader] += 1
    streams = streams_of(trace_of(accesses))
    told, size = (sum(one[key] for one in streams) for key in ("told_bytes", "bytes"))
    assert told >= 0.95 * size
    assert all(one["shared_by"] == 1 for one in streams)


def darshan_of(accesses: list[Access], *, threads: bool) -> str:
    """Return the text of one rank whose threads made the accesses."""
    title = "# Module    Rank  Wt/Rd  Segment  Offset  Length  Start(s)  End(s)"
    lines = [
        "# DXT, file_id: 7, file_name: /scratch/table",
        f"# DXT, write_count: 0, read_count: {len(accesses)}",
        title + ("  [OST]  Pthread-ID" if threads else "  [OST]"),
    ]
    for i, (thread, at, size) in enumerate(accesses):
        name = f"  {140498826330816 + thread}" if threads else ""
        lines.append(f" X_POSIX 0 read {i} {at} {size} {i / 1000:.4f} {i / 1000:.4f}  [106]{name}")
    return "\n".join([*lines, ""])


def test_the_threads_of_darshan_are_streams_of_their_own() -> None:
    chance = random.Random(4)
    places = [0, 0]
    accesses = []
    for _ in range(400):  # both read backwards, each its own half
        thread = chance.randrange(2)
        places[thread] += 1
        accesses.append((thread, (thread << 30) + (1000 - 2 * places[thread]) * 4096, 4096))
    streams = streams_of(darshan_of(accesses, threads=True))
    assert sorted(one["thread"] for one in streams) == [0, 1]
    assert all(one["confidence"] > 0.97 for one in streams)
    assert ", thread 1: fixed stride" in signature(darshan_of(accesses, threads=True), "-").stdout
    (stream,) = streams_of(darshan_of(accesses, threads=False))
    assert stream["accesses"] == 400


def test_epochs_in_one_shuffled_order_are_a_period() -> None:
    chance = random.Random(5)
    epoch = [(0, i * 110_000, chance.randrange(90_000, 110_000)) for i in range(700)]
    chance.shuffle(epoch)
    (stream,) = streams_of(trace_of(3 * epoch))
    assert stream["class"] == "period"
    assert stream["repeat_period"] == 700
    assert stream["confidence"] == pytest.approx(2 / 3, abs=0.01)
    assert stream["nodes"] == 2
    assert ", <repeating>, " in stream["pattern_signature"]
    assert stream["suggestion"].endswith("come again: keep them in memory")


def test_ranks_from_one_on_are_joined() -> None:
    ranks = [(1 + i % 4, i * 4096, 4096) for i in range(400)]
    (stream,) = streams_of(trace_of(ranks))
    assert (stream["first_rank"], stream["rank_count"]) == (1, 4)
    # Rank 0 reads the same way, but elsewhere.
    streams = streams_of(trace_of([*ranks, *((0, (1 << 40) + i * 9999, 4096) for i in range(100))]))
    assert [(one["first_rank"], one["rank_count"]) for one in streams] == [(1, 4), (0, 1)]


def strace_of(calls: list[str]) -> str:
    head = 'openat(AT_FDCWD</tmp>, "/data/in", O_RDONLY) = 3</data/in>'
    reads = ['read(3</data/in>, ""..., 4096) = 4096'] * 50
    return "".join(f"17.{i:06} {call} <0.0>\n" for i, call in enumerate([head, *reads, *calls]))


def test_a_trace_without_lseek_is_warned_of() -> None:
    filtered, complete = strace_of([]), strace_of(["brk(NULL) = 0x55"])
    done = signature(filtered, "explain", "-")
    assert done.returncode == 0
    assert done.stderr.startswith("penstock: -: warning: no lseek in the trace")
    (warning,) = json.loads(signature(filtered, "-", "--json").stdout)["warnings"]
    assert warning["count"] == 50
    assert signature(complete, "explain", "-").stderr == ""
    assert signature(strace_of(["lseek(3</data/in>, 0, SEEK_SET) = 0"]), "-").stderr == ""


def test_what_is_not_followed_names_its_file_and_the_most_comes_first() -> None:
    calls = ["brk(NULL) = 0x55", "munmap(0x7f00, 4096) = 0"]
    calls += ["copy_file_range(3</data/in>, NULL, 4</data/o>, NULL, 9, 0) = 9"] * 3
    lines = signature(strace_of(calls), "explain", "-").stdout.splitlines()
    assert lines[1:3] == [
        "  passed over 3, first in line 54: copy_file_range of /data/in and /data/o, which is not "
        "followed",
        "  passed over 2, first in line 52: a call that is not followed",
    ]


def test_many_causes_are_summed_up() -> None:
    calls = [
        f"mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3</data/{i}>, 0) = 0x7f00" for i in range(90)
    ]
    done = signature(strace_of(calls), "explain", "-")
    assert "  passed over 26, first in line 116: mmap of other files, which is" in done.stdout
    assert "  passed over 57 for 57 other causes (--json has all)\n" in done.stdout


def test_a_trace_compressed_by_gzip_is_read(tmp_path: Path) -> None:
    text = trace_of(sequences(1, 300, 6)).encode()
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(text))
    plain = signature(text, "-").stdout
    assert plain.startswith("1  read data")
    assert signature("", str(path)).stdout == plain
    assert signature(path.read_bytes(), "-").stdout == plain


def test_small_files_are_listed_together() -> None:
    text = trace_of([(0, i * 65536, 65536) for i in range(100)], "large")
    text += "".join(f"{10**6 + i} 0 r etc{i % 5} {i // 5 * 100} 100\n" for i in range(60))
    done = signature(text, "explain", "-")
    assert done.stdout.endswith(
        "and 5 small streams of 5 files: 5.9 KiB in 60 accesses (--all lists them)\n"
    )
    assert done.stdout.count("suggestion") == 1
    assert signature(text, "-", "--all").stdout.count(" told ahead\n") == 6


def test_what_is_said_of_a_stream_is_in_the_json_too() -> None:
    (stream,) = streams_of(trace_of([(0, i * 8192, 100 + i) for i in range(100)]))
    assert (stream["bytes"], stream["accesses"]) == (14_950, 100)
    assert (stream["size_min"], stream["size_max"]) == (100, 199)
    assert stream["last_ns"] - stream["first_ns"] == 99_000
    assert stream["suggestion"] == "the OS does not read ahead of it, but penstock.open() does"
