"""Goal: programs that read by stdio are served from a cache, and see nothing of it."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import stdio_programs
from caching import Cache, making, needs_cache, settled
from preloading import Trace, compiled

pytestmark = needs_cache
SEEDS = 20 if "PENSTOCK_NIGHTLY" not in os.environ else 4000
LINES = [b"%d w\xc3\xb6rd %s\n" % (i * i, b"\xe2\x82\xac " * (i % 9)) for i in range(9000)]


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with making(tmp_path, "cpu") as made:
        fill(made.folder)
        made.serve()
        yield made


def fill(folder: Path) -> None:
    bytes_of = random.Random(3).randbytes
    for name, data in {
        "bin": bytes_of(200_001),
        "text": b"".join(LINES),
        "empty": b"",
        "page": bytes_of(8192),
    }.items():
        (folder / name).write_bytes(data)
    settled()


def outcome(
    cache: Cache, *words: str | Path, served: bool = True, write_back: bool = False
) -> tuple[int, bytes, bytes]:
    """Run a program, with its files in the cache or without; return what is seen of it."""
    environment = cache.program_environment() if served else cache.environment
    if write_back:
        environment["PENSTOCK_WRITE_BACK"] = "1"
    done = subprocess.run(
        list(map(str, words)), capture_output=True, check=False, timeout=120, env=environment
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("write_back", [False, True])
def test_random_calls_return_what_they_return_alone(
    cache: Cache, tmp_path: Path, write_back: bool
) -> None:
    program = compiled(tmp_path, "calls", stdio_programs.RANDOM_CALLS, "-D_FORTIFY_SOURCE=2")
    seed = 1 + 100_000 * write_back
    alone = outcome(cache, program, cache.folder, str(seed), str(SEEDS), served=False)
    assert alone[0] == 0, alone[1][-500:]
    with_cache = outcome(cache, program, cache.folder, str(seed), str(SEEDS), write_back=write_back)
    assert with_cache[0] == 0
    pairs = zip(alone[1].splitlines(), with_cache[1].splitlines(), strict=False)
    different = [pair for pair in pairs if pair[0] != pair[1]]
    assert different[:5] == []
    assert with_cache == alone
    assert cache.statistics()["hits"] > 20 * SEEDS


def test_programs_of_the_system_are_served(cache: Cache) -> None:
    bin_file, text, same = (cache.folder / name for name in ("bin", "text", "same"))
    shutil.copy(bin_file, same)
    settled()
    commands: list[list[str | Path]] = [
        ["md5sum", bin_file, text],
        ["sha256sum", bin_file],
        ["b2sum", text],
        ["sort", text],
        ["sort", "-n", "-k1,1", "--parallel=2", "-S", "1M", text],
        ["comm", text, text],
        ["cut", "-c1-3", text],
        ["nl", text],
        ["paste", text, bin_file],
        ["od", "-x", bin_file],
        ["cmp", bin_file, same],
        ["cmp", bin_file, text],
        ["diff", bin_file, same],
    ]
    for words in commands:
        before = cache.statistics()["bytes_served"]
        assert outcome(cache, *words) == outcome(cache, *words, served=False), words
        assert cache.statistics()["bytes_served"] >= before + 4096, words


class Obedient:
    """A program that reads by stdio as it is told."""

    def __init__(self, cache: Cache, program: str, name: str) -> None:
        self.process = subprocess.Popen(
            [program, str(cache.folder / name)],
            env=cache.program_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def told(self, order: str) -> tuple[bytes, int]:
        """Give it an order; return the bytes that it read, and its position."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(order.encode() + b"\n")
        self.process.stdin.flush()
        size, position = self.process.stdout.readline().split()
        return self.process.stdout.read(int(size)), int(position)

    def end(self) -> int:
        """Let it close its stream and end; return its exit code."""
        self.process.communicate(timeout=60)
        return self.process.returncode


def test_a_file_that_changes_is_seen_as_ever(cache: Cache, tmp_path: Path) -> None:
    program = compiled(tmp_path, "obedient", stdio_programs.OBEDIENT)
    text, all_lines = cache.folder / "text", b"".join(LINES)
    reader = Obedient(cache, program, "text")
    assert reader.told("read 5000") == (all_lines[:5000], 5000)
    assert cache.statistics()["bytes_served"] >= 5000
    with text.open("r+b") as file:
        file.seek(20_000)
        file.write(b"changed by another program")
    assert reader.told("read 3000") == (all_lines[5000:8000], 8000)
    assert reader.told("seek 20000") == (b"", 20_000)
    assert reader.told("read 7") == (b"changed", 20_007)
    size = len(all_lines)
    assert reader.told(f"seek {size - 10}") == (b"", size - 10)
    assert reader.told("read 65536") == (all_lines[-10:], size)
    with text.open("ab") as file:
        file.write(b"grown")
    assert reader.told("line 100")[0] == b"", "the end of a file is sticky"
    assert reader.told("read 65536") == (b"grown", size + 5), "but not for libc's long fread()"
    assert reader.told("seek 0") == (b"", 0)
    assert reader.told("read 10") == (all_lines[:10], 10)
    os.truncate(text, 4)
    assert reader.told("seek 100000") == (b"", 100_000)
    assert reader.told("seek 1") == (b"", 1)
    assert reader.told("read 10")[0] == all_lines[1:4]
    assert reader.end() == 0


def test_a_service_that_is_killed_is_not_missed(cache: Cache, tmp_path: Path) -> None:
    program = compiled(tmp_path, "obedient", stdio_programs.OBEDIENT)
    data = (cache.folder / "bin").read_bytes()
    reader = Obedient(cache, program, "bin")
    assert reader.told("read 10000") == (data[:10_000], 10_000)
    assert cache.statistics()["bytes_served"] >= 10_000
    for process in cache.processes:
        os.kill(process, signal.SIGKILL)
    assert reader.told("read 50000") == (data[10_000:60_000], 60_000)
    assert reader.told("seek 199000") == (b"", 199_000)
    assert reader.told("read 50000") == (data[199_000:], len(data))
    assert reader.end() == 0


@pytest.mark.parametrize("how", range(6))
def test_another_program_goes_on_where_a_stream_was(cache: Cache, tmp_path: Path, how: int) -> None:
    program = compiled(tmp_path, "hands_over", stdio_programs.HANDS_OVER)
    command = f"{{ {program} {cache.folder}/text {how}; cat; }} < {cache.folder}/text"
    words = ["sh", "-c", command] if how >= 4 else [program, cache.folder / "text", str(how)]
    assert outcome(cache, *words) == outcome(cache, *words, served=False)
    if how != 2:
        assert b"".join(outcome(cache, *words)[1].split(b"\n")) == b"".join(LINES).replace(
            b"\n", b""
        )


def test_streams_leave_nothing_behind(cache: Cache, tmp_path: Path) -> None:
    program = compiled(tmp_path, "leaks", stdio_programs.LEAKS)
    assert outcome(cache, program, cache.folder / "bin") == (0, b"none\n", b"")
    assert cache.statistics()["hits"] > 1000


def test_threads_share_a_stream(cache: Cache, tmp_path: Path) -> None:
    program = compiled(tmp_path, "threads", stdio_programs.THREADS)
    total = sum((cache.folder / "bin").read_bytes())
    told = outcome(cache, program, cache.folder / "bin")
    assert told == (0, b"%d 0\n" % total * 2, b"")
    assert cache.statistics()["bytes_served"] >= 200_001


def test_a_thread_that_is_cancelled_keeps_no_lock(cache: Cache, tmp_path: Path) -> None:
    program = compiled(tmp_path, "cancels", stdio_programs.CANCELS)
    assert outcome(cache, program, cache.folder / "bin") == (0, b"", b"")
    assert cache.statistics()["bytes_served"] > 1_000_000


def test_other_streams_and_files_are_as_ever(cache: Cache, tmp_path: Path) -> None:
    program = compiled(tmp_path, "others", stdio_programs.OTHERS)
    alone = outcome(cache, program, cache.folder, served=False)
    assert alone[0] == 0, alone
    for path in cache.folder.iterdir():
        path.unlink()
    fill(cache.folder)
    assert outcome(cache, program, cache.folder) == alone


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs coreutils")
def test_what_served_streams_read_is_recorded(cache: Cache, tmp_path: Path) -> None:
    path = cache.folder / "text"
    for program in ("sha256sum", "head"):
        trace = tmp_path / program
        cache.command("run", "--cache", cache.folder, "--trace", trace, program, path)
        assert Trace(trace).of(path)
    read = [(offset, size) for _, offset, size in Trace(tmp_path / "sha256sum").of(path)]
    assert sum(size for _, size in read) == path.stat().st_size
    assert all(before[0] + before[1] == after[0] for before, after in itertools.pairwise(read))
    assert cache.statistics()["bytes_served"] >= 200_001
