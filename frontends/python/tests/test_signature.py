"""Goal: `penstock signature` says of a trace what it is, exactly, and of bad input what is wrong.

Patterns of known shape go in as traces; what comes out is held against texts written by hand, and
the plot against one made here, access by access.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import _core

COMMAND = [sys.executable, "-m", "penstock", "signature"]
HEAD = "penstock-trace 1\n"
Accesses = list[tuple[int, int]]
Accesses3 = list[tuple[int, int, int]]  # a place on the x axis first

STRIDED = [(4096 + i * 8192, 2048) for i in range(300)]


def lu(outer: int) -> Accesses:
    """Reads of an out-of-core LU factorisation: each step reads a column more."""
    out = []
    for k in range(outer):
        out.append((2 * 524544 + k * 524544, 524544))
        out += [(524544 + j * 524544, 518272 - 4096 * j) for j in range(k + 1)]
        out.append((0, 522368))
    return out


def scattered(count: int) -> Accesses:
    chance = random.Random(4)
    return [(chance.randrange(1 << 18) * 4096, 4096) for _ in range(count)]


def own_trace(accesses: Accesses, name: str = "data") -> str:
    lines = (f"{1000 * i} 0 r {name} {at} {size}\n" for i, (at, size) in enumerate(accesses))
    return HEAD + "".join(lines)


def strace_of(accesses: Accesses) -> str:
    lines = [
        '17.000001 openat(AT_FDCWD</tmp>, "/data/in", O_RDONLY) = 3</data/in> <0.00001>',
        "17.000002 brk(NULL) = 0x55 <0.000001>",
    ]
    lines += [
        f'17.{100 + i:06} pread64(3</data/in>, ""..., {size}, {at}) = {size} <0.00001>'
        for i, (at, size) in enumerate(accesses)
    ]
    lines += ["17.9 pread64(3</data/in>, 0x5, 9, 0) = -1 EIO (Input/output error) <0.00001>"]
    return "\n".join([*lines, "+++ exited with 0 +++", ""])


def darshan_of(ranks: int, rows: int) -> str:
    """Ranks that read a table by rows, each its own column, through MPI-IO."""
    lines = ["# darshan log version: 3.41", "# DXT_MPIIO module data", ""]
    for rank in range(ranks):
        lines += [
            "# DXT, file_id: 7, file_name: /scratch/table",
            f"# DXT, rank: {rank}, hostname: node",
            f"# DXT, write_count: 0, read_count: {rows}",
        ]
        lines += [
            f" X_MPIIO {rank} read {i} {i * 65536 + rank * 512} 512 {i}.5000 {i}.6000"
            for i in range(rows)
        ]
        lines += [" X_STDIO 0 read 0 10 20 1.0 1.5"] if rank == 1 else []
    return "\n".join([*lines, ""])


def signature(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, *words], input=stdin, capture_output=True, check=False, timeout=60
    )
    out, errors = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, out, errors)


EXPLAINED = {
    "strided": (
        own_trace(STRIDED),
        """\
TRACE: penstock trace, 301 lines, 300 accesses
1  read data, rank 0
   class        fixed stride
   confidence   0.990 of 600.0 KiB in 300 accesses told ahead
   sizes        2.0 KiB each
   time         299.0 us from the first to the last access, 1.9 GiB/s
   not told     3 accesses, 6.0 KiB: before a pattern was confirmed, or confirmed anew
   pattern      {READ, <fixed strided, 1>, <single occurrence>, <fixed small>, <fixed>}
   signature    {READ, 4096, 1, ([{8192}, {2048}, {300}]), 1}
   program      2 nodes
   suggestion   the OS does not read ahead of it, but penstock.open() does
""",
    ),
    "lu": (
        own_trace(lu(125), "a%20b%0A"),
        """\
TRACE: penstock trace, 8126 lines, 8125 accesses
1  read a b\\n, rank 0
   class        nest
   confidence   0.996 of 2.7 GiB in 8125 accesses told ahead
   sizes        10.1 KiB to 512.2 KiB, 346.0 KiB on average
   time         8.1 ms from the first to the last access, 330.0 GiB/s
   not told     16 accesses, 7.9 MiB: before a pattern was confirmed, or confirmed anew
   not told     2 accesses, 1004.2 KiB: where the pattern changed
   pattern      {READ, <combination, 1>, <repeating>, <varying large>, <fixed>}
   signature    none: the form has no place for a loop around several nodes
   program      5 nodes
   suggestion   the OS does not read ahead of it: keep several reads in flight
""",
    ),
    "random": (
        own_trace(scattered(1000)),
        """\
TRACE: penstock trace, 1001 lines, 1000 accesses
1  read data, rank 0
   class        random
   confidence   0.000 of 3.9 MiB in 1000 accesses told ahead
   sizes        4.0 KiB each
   time         999.0 us from the first to the last access, 3.8 GiB/s
   not told     1000 accesses, 3.9 MiB: random: offsets without any pattern
   pattern      {READ, <random strided, 1>, <single occurrence>, <fixed medium>, <fixed>}
   signature    none: the form has no place for a list
   program      1 node
   not folded   1000: a list: no nest and no period is shorter
   suggestion   no order to follow: keep many reads in flight, and switch readahead off
""",
    ),
    "strace": (
        strace_of([(i * 65536, 4096) for i in range(60)]),
        """\
TRACE: strace, 64 lines, 60 accesses
  passed over 1, first in line 2: a call that is not followed
  passed over 1, first in line 63: a call that failed
  passed over 1, first in line 64: a line without a time (strace -ttt)
1  read /data/in, rank 0
   class        fixed stride
   confidence   0.950 of 240.0 KiB in 60 accesses told ahead
   sizes        4.0 KiB each
   time         59.0 us from the first to the last access, 3.9 GiB/s
   not told     3 accesses, 12.0 KiB: before a pattern was confirmed, or confirmed anew
   pattern      {READ, <fixed strided, 1>, <single occurrence>, <fixed medium>, <fixed>}
   signature    {READ, 0, 1, ([{65536}, {4096}, {60}]), 1}
   program      2 nodes
   suggestion   the OS does not read ahead of it, but penstock.open() does
""",
    ),
    "darshan": (
        darshan_of(3, 100),
        """\
TRACE: Darshan DXT, 313 lines, 300 accesses
  passed over 1, first in line 210: not a segment of X_POSIX or X_MPIIO
1  read /scratch/table, ranks 0-2, context 1
   class        fixed stride
   confidence   0.970 of 150.0 KiB in 300 accesses told ahead
   sizes        512 bytes each
   time         99.0 s from the first to the last access, 1.5 KiB/s
   not told     9 accesses, 4.5 KiB: before a pattern was confirmed, or confirmed anew
   pattern      {READ, <fixed strided, 1>, <single occurrence>, <fixed small>, <fixed>}
   of rank 0    {READ, 0, 1, ([{65536}, {512}, {100}]), 1}
   program      2 nodes
   suggestion   the pieces of the ranks belong together: read them by collective calls
""",
    ),
    "few": (
        own_trace([(5, 7), (500, 7)]),
        """\
TRACE: penstock trace, 3 lines, 2 accesses
1  read data, rank 0
   class        none
   confidence   0.000 of 14 bytes in 2 accesses told ahead
   sizes        7 bytes each
   time         1.0 us from the first to the last access, 13.4 MiB/s
   not told     2 accesses, 14 bytes: too few accesses to confirm a pattern
   pattern      {READ, <random strided, 1>, <single occurrence>, <fixed small>, <fixed>}
   signature    {READ, 5, 0, ([{0}, {7}, {1}]), 1}
   signature    {READ, 500, 0, ([{0}, {7}, {1}]), 1}
   program      2 nodes
""",
    ),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_explanations(name: str, tmp_path: Path) -> None:
    text, expected = EXPLAINED[name]
    trace = tmp_path / "trace"
    trace.write_text(text)
    done = signature("explain", str(trace))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected.replace("TRACE", str(trace))
    # Through a pipe the chunks are others.
    piped = signature("explain", "-", stdin=text.encode())
    assert piped.stdout == expected.replace("TRACE", "-")


def test_short_form_and_text() -> None:
    trace = own_trace(STRIDED).encode()
    line = "1  read data, rank 0: fixed stride, 0.990 of 600.0 KiB in 300 accesses told ahead\n"
    assert signature("-", stdin=trace).stdout == line
    assert signature("-", "--text", stdin=trace).stdout == (
        f"{line}   {{READ, <fixed strided, 1>, <single occurrence>, <fixed small>, <fixed>}}\n"
        "   {READ, 4096, 1, ([{8192}, {2048}, {300}]), 1}\n"
    )


@pytest.mark.parametrize("name", ["program.json", "program.pnsk"])
def test_a_written_program_is_exact_and_is_read_again(name: str, tmp_path: Path) -> None:
    out, again = tmp_path / name, tmp_path / "again.json"
    trace = own_trace(lu(125)).encode()
    assert signature("-", "-o", str(out), stdin=trace).returncode == 0
    assert out.read_bytes().startswith(b"PSAP" if name.endswith("pnsk") else b'{"format"')
    assert signature(str(out), "-o", str(again)).returncode == 0
    (program,) = json.loads(again.read_text())["programs"]
    assert program["key"]["file"] == "data"
    (loop,) = program["nodes"]
    assert loop["trips"] == 125
    assert [node["kind"] for node in loop["body"]] == ["access", "loop", "access"]
    report = json.loads(signature(str(out), "--json").stdout)
    assert report["accesses"] == 8125
    assert report["streams"][0]["class"] == "nest"
    assert report["streams"][0]["all"]


def test_a_trace_signature_is_read() -> None:
    text = "{READ, 4096, 2, ([{65536}, {512}, {100}], [{4096}, {512}, {8}]), 1}"
    done = signature("explain", "-", stdin=text.encode())
    assert f"signature    {text}\n" in done.stdout
    assert "-: trace signature, 800 accesses\n" in done.stdout


def sprinkled(count: int) -> Accesses:
    """Contiguous, and now and then something else."""
    chance = random.Random(7)
    spots = set(chance.sample(range(100, count), count // 100))
    return [(chance.randrange(1 << 30), 9) if i in spots else (i * 64, 64) for i in range(count)]


@pytest.mark.parametrize("accesses", [lu(30), scattered(300), sprinkled(2000), STRIDED[:2]])
def test_what_was_told_and_what_was_not_is_all(accesses: Accesses) -> None:
    text = own_trace(accesses).encode()
    (stream,) = json.loads(signature("-", "--json", stdin=text).stdout)["streams"]
    untold = sum(loss["bytes"] for loss in stream["unpredicted"])
    assert stream["bytes"] == sum(size for _, size in accesses)
    assert untold == stream["bytes"] - stream["told_bytes"]
    assert stream["confidence"] == pytest.approx(stream["told_bytes"] / stream["bytes"])
    if len(accesses) == 2000:
        causes = {loss["cause"]: loss["count"] for loss in stream["unpredicted"]}
        assert stream["class"] == "contiguous"
        assert causes["isolated, beside the pattern"] == 20


def test_ranks_are_joined_where_one_program_tells_them_all(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    rows = [(rank, (4 * i + rank) * 4096) for i in range(50) for rank in range(4)]
    text = HEAD + "".join(f"{i} {rank} r grid {at} 4096\n" for i, (rank, at) in enumerate(rows))
    chance = scattered(200)
    text += "".join(f"{1000 + i} {i % 2} r heap {at} 9\n" for i, (at, _) in enumerate(chance))
    text += "".join(f"{2000 + i} {i % 2 * 5} w gap {i // 2 * 9} 9\n" for i in range(60))
    streams = json.loads(signature("-", "--json", "-o", str(out), stdin=text.encode()).stdout)
    found = [(s["file"], s["first_rank"], s["rank_count"]) for s in streams["streams"]]
    # What is random is no rank's fault; and nothing is said of ranks 1 to 4, which were not seen.
    assert found == [("grid", 0, 4), ("heap", 0, 1), ("heap", 1, 1), ("gap", 0, 1), ("gap", 5, 1)]
    assert streams["streams"][0]["accesses"] == 200
    joined = json.loads(out.read_text())["programs"][0]
    access = joined["nodes"][0]["body"][0]
    assert joined["nodes"][0]["trips"] == 50
    assert access["offset"]["loops"] == [16384]
    assert access["offset"]["ranks"] == [4096]


def test_the_streams_with_most_bytes_come_first() -> None:
    text = HEAD + "".join(f"{i} 0 r many {i * 9} 9\n" for i in range(99))
    text += "".join(f"{i} 0 r large {i * 999} 999\n" for i in range(9))
    streams = json.loads(signature("-", "--json", stdin=text.encode()).stdout)["streams"]
    assert [(one["file"], one["bytes"]) for one in streams] == [("large", 8991), ("many", 891)]


def read_in_pieces(data: bytes, seed: int) -> _core.SignatureReader:
    chance = random.Random(seed)
    reader = _core.SignatureReader()
    while data:
        size = chance.choice([1, 7, 100, 5000, 70_000])
        reader.read(data[:size])
        data = data[size:]
    reader.finish()
    while reader.step():
        pass
    return reader


@pytest.mark.parametrize("seed", range(5))
def test_chunks_do_not_matter(seed: int) -> None:
    data = strace_of(lu(20) + scattered(500)).encode()
    whole, pieces = read_in_pieces(data, -1), read_in_pieces(data, seed)
    assert pieces.streams == whole.streams
    assert pieces.source == whole.source
    assert pieces.programs(binary=True) == whole.programs(binary=True)


@pytest.mark.parametrize("over_time", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_the_plot_has_every_access_and_nothing_else(seed: int, over_time: bool) -> None:
    chance = random.Random(seed)
    columns, rows = chance.randrange(1, 40), chance.randrange(1, 40)
    time, gap, text = 10**15, chance.choice([2, 1000]), HEAD
    seen: dict[str, Accesses3] = {"a": [], "b": [], "c": []}
    for _ in range(chance.randrange(1, 90)):
        name = chance.choice("aab")
        at, size = chance.randrange(5000, 90_000), chance.choice([0, 1, 100, 20_000])
        seen[name].append((time if over_time else len(seen[name]), at, size))
        text += f"{time} 0 r {name} {at} {size}\n"
        time += chance.randrange(gap)
    reader = read_in_pieces(text.encode(), seed)
    made = reader.plot(columns, rows, over_time=over_time)

    everything = [one for stream in seen.values() for one in stream]
    begin, end = min(at for _, at, _ in everything), max(at + size for _, at, size in everything)
    first = min(x for x, _, _ in everything)
    width, height = max(x for x, _, _ in everything) - first + 1, end - begin
    expected = bytearray(columns * rows)
    for number, stream in enumerate(reader.streams, 1):
        for x, at, size in seen[stream["file"]]:
            low = min((at - begin) * rows // max(height, 1), rows - 1)
            high = min((at - begin + max(size, 1) - 1) * rows // max(height, 1), rows - 1)
            for up in range(low, high + 1):
                expected[(rows - 1 - up) * columns + (x - first) * columns // width] = number
    assert made["cells"] == bytes(expected), f"seed {seed}, {columns} x {rows}"
    assert (made["offset_begin"], made["offset_end"]) == (begin, end)
    assert made["x_end"] == (width - 1 if over_time else width)


BAD = {
    "empty": (b"", "it is empty"),
    "blank": (b" \n\n", "it is empty"),
    "rubbish": (bytes(range(256)) * 20, "binary data, neither a trace nor access programs"),
    "text": (b"hello\nworld\n", "no access to a file in 2 lines (line 1: a line without a time"),
    "only a head": (HEAD.encode(), "no access to a file in 1 line"),
    "cut trace": (own_trace(STRIDED).encode()[:500], "line 20: the last line is cut off"),
    "wrong line": (HEAD.encode() + b"1 0 r a -1 5\n", "line 2: the offset is no offset"),
    "later trace": (b"penstock-trace 2\n", "line 1: a version of the form that is not known"),
    "later JSON": (b'{"format": "penstock access programs", "version": 2, "x"', "later version"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(99), "compressed by zstd: zstdcat FILE | penstock"),
    "cut gzip": (gzip.compress(own_trace(STRIDED).encode())[:-9], "ended before the end-of-stream"),
    "gzip of rubbish": (gzip.compress(bytes(999)), "binary data, neither a trace"),
    "log of Darshan": (
        b"3.41\0\0\0\0" + (6567223).to_bytes(8, "little") + bytes(99),
        "a log of Darshan: darshan-dxt-parser FILE | penstock signature -",
    ),
    "strace -r": (
        b'     0.000000 open("/a", O_RDONLY) = 3</a>\n     0.000100 read(3</a>, "", 4) = 4\n',
        "line 1: times since the line before (strace -r): record with -ttt",
    ),
    "cut JSON": (b'{"format": "penstock acc', "byte 24: the text ends within a string"),
    "no program": (
        b'{"format": "penstock access programs", "version": 1, "programs": []}',
        "it holds no program",
    ),
    "cut binary": (b"PSAP\x01\x01", "it ends too early"),
    "bad signature": (b"{READ, 5", ""),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(name: str, tmp_path: Path) -> None:
    data, told = BAD[name]
    path, out = tmp_path / "input", tmp_path / "out.json"
    path.write_bytes(data)
    done = signature(str(path), "-o", str(out))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"penstock: {path}: ")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["/nowhere/trace"], 1, "/nowhere/trace: No such file or directory"),
        (["/"], 1, "/: Is a directory"),
        (["-", "-o", "/nowhere/out"], 1, "/nowhere/out: No such file or directory"),
        (["explain", "-", "--picture", "/nowhere/p.png"], 1, "/nowhere/p.png: No such file"),
        ([], 2, "required"),
        (["one", "two"], 2, "two: one trace at a time"),
        (["explain"], 2, "explain: which trace?"),
        (["-", "--over", "time"], 2, "--over: belongs to --picture"),
    ],
)
def test_what_cannot_be_done_is_one_line(words: list[str], code: int, told: str) -> None:
    done = signature(*words, stdin=own_trace(STRIDED).encode())
    assert done.returncode == code
    assert done.stderr.startswith("penstock: ")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_programs_have_no_times(tmp_path: Path) -> None:
    words = ("explain", "-", "--picture", str(tmp_path / "p.png"), "--over", "time")
    done = signature(*words, stdin=b"{READ, 0, 1, ([{8}, {4}, {9}]), 1}")
    assert done.returncode == 2
    assert done.stderr == "penstock: -: access programs have no times: --over accesses\n"


def test_a_stream_that_no_program_may_hold_is_said_and_passed_over(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    trace = own_trace(STRIDED) + "".join(f"9999999 0 r {'x' * 5000} {i} 1\n" for i in range(9))
    done = signature("-", "-o", str(out), stdin=trace.encode())
    assert done.returncode == 0
    assert "   no program: " in done.stdout
    assert len(json.loads(out.read_text())["programs"]) == 1
